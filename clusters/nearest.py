"""What somebody may have meant who wrote a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """None: nothing is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a sentence; empty where nothing is near."""
    near = nearest(word, known, cutoff)
    return f"; did you mean {near!r}?" if near else ""
