"""Jepsen's own checker as a judge from outside: paths of histories in, what it says out."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.differential.history import Entry, text

SETS: Final = ("lost-write", "unseen", "duplicate", "inconsistent-offsets", "G1a")
Named = frozenset[tuple[int, int]]  # key and value, or key and offset


@dataclass(frozen=True)
class Said:
    """What Jepsen says of one history, with (`ww`) and without ww edges."""

    throws: str = ""
    bad: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()  # those that it allows too
    errors_ww: frozenset[str] = frozenset()
    sets: dict[str, Named] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        return not self.throws and not self.bad


def ask(judge: Path, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """One document a history, in the order of the paths."""
    asked = "".join(f"{path}\n" for path in paths)
    done = subprocess.run([judge], input=asked, text=True, capture_output=True, check=True)
    answers = {a["file"]: a for line in done.stdout.splitlines() for a in [json.loads(line)]}
    return [answers[str(path)] for path in paths]


def ask_twin(judge: Path, entries: Iterable[Entry]) -> Said:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "twin.edn"
        path.write_text(text(entries), encoding="utf-8")
        return said(ask(judge, [path])[0])


def said(answer: dict[str, Any]) -> Said:
    plain, with_ww = answer.get("noww", answer), answer.get("ww", answer)
    throws = answer.get("throws") or plain.get("throws") or with_ww.get("throws")
    if throws:
        return Said(throws=" ".join(str(throws).split())[:200])
    sets = {
        name: frozenset((key, other) for key, other in pairs)
        for name, pairs in plain["sets"].items()
        if name in SETS
    }
    return Said(
        bad=frozenset(plain["bad"]),
        errors=frozenset(plain["errors"]),
        errors_ww=frozenset(with_ww["errors"]),
        sets=sets,
    )
