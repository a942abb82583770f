"""Which runs of nights are removed when they take more disk than the plan allows. Pure.

The rule: what proves something stays. Runs of shrinking go first, then valid runs, then unknown
ones, the oldest first; each is a row of its night for ever. Anomalous runs are never removed, nor
is one that was not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_OF_SHRINKING: Final = ("again", "shrink", "confirm")
_ORDER: Final = {"valid": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class Stored:
    """A checked run that is on disk."""

    run: str
    kind: str  # see state.Kind
    verdict: str
    size: int  # bytes


def to_remove(stored: Sequence[Stored], keep_bytes: int) -> list[str]:
    """Names, in the order in which they go. `stored`: oldest first."""
    total = sum(one.size for one in stored)
    gone = []
    for one in _in_order(stored):
        if total <= keep_bytes:
            break
        gone.append(one.run)
        total -= one.size
    return gone


def _in_order(stored: Iterable[Stored]) -> list[Stored]:
    ranked = [(rank, one) for one in stored if (rank := _rank(one)) is not None]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]  # stable: by age


def _rank(one: Stored) -> int | None:
    return 0 if one.kind in _OF_SHRINKING else _ORDER.get(one.verdict)
