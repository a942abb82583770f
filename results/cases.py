"""Judged runs side by side: what was asked, what was concluded, and why; the worst first.

What the page of many runs and the JUnit file are made of. Not the judging, and not one run in
detail (`neaptide.results.report`).

The rule: an unknown run is neither good nor bad, and is never passed over: it comes after what was
proved, and before what held.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.results.errors import RunUnreadableError
from neaptide.results.outcomes import WORST_FIRST
from neaptide.results.report.rows import Row, load_anomalies
from neaptide.results.run import Run, read_run
from neaptide.results.verdicts import allowed_in

_EVIDENCE_ROWS: Final = 200
_LISTED: Final = 4  # of a list in a sentence; all of it is in `anomalies/`


@dataclass(frozen=True, slots=True)
class Case:
    """One run and its verdict."""

    directory: Path
    run: Run | None  # None: its run.json cannot be read
    verdict: str
    outcome: str
    anomalies: Mapping[str, int]
    operations: int
    reasons: tuple[str, ...]
    allowed: Mapping[str, int]  # found, too, but no reason against this run

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def anomalous(self) -> bool:
        return self.verdict == "anomalous"

    @property
    def unknown(self) -> bool:
        """Whatever is neither valid nor anomalous: never a pass."""
        return self.verdict not in ("valid", "anomalous")

    @property
    def found(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in self.anomalies.items())

    @property
    def rank(self) -> tuple[int, int, int, str]:
        proved = 0 if self.anomalous else 1 if self.unknown else 2
        words = [*WORST_FIRST, self.outcome]
        return proved, words.index(self.outcome), -sum(self.anomalies.values()), self.name


def cases(judged: Iterable[tuple[Path, Mapping[str, Any]]]) -> list[Case]:
    """Run directories with their verdicts (as `verdict.json` has them), in the same order."""
    return [
        Case(
            directory,
            _run(directory),
            str(verdict["verdict"]),
            str(verdict["outcome"]),
            dict(verdict["anomalies"]),
            int(verdict["operations"]),
            tuple(verdict["reasons"]),
            allowed_in(verdict),
        )
        for directory, verdict in judged
    ]


def worst_first(of: Sequence[Case]) -> list[Case]:
    return sorted(of, key=lambda case: case.rank)


def _run(directory: Path) -> Run | None:
    try:
        return read_run(directory)
    except RunUnreadableError:
        return None  # the verdict's reasons say so


def evidence(case: Case, sentences_max: int) -> list[str]:
    """Its first anomalies, those of the kinds that are few first, one sentence each."""
    rows = load_anomalies(case.directory, _EVIDENCE_ROWS, case.allowed)
    few_first = sorted(rows, key=lambda row: case.anomalies.get(row["anomaly"], 0))
    return [sentence(row) for row in few_first[:sentences_max]]


def sentence(row: Row) -> str:
    """`lost-write: 'm2' in t-0 at offset 1 (acks all, acknowledged 4.812 s, …)`."""
    what = "" if row["value"] is None else f" {row['value']!r}"
    where = "" if row["topic"] is None else f" in {row['topic']}-{row['partition']}"
    at = "" if row["offset"] is None else f" at offset {row['offset']}"
    operation = "" if row["operation"] is None else f", operation {row['operation']}"
    details = ", ".join(_details(json.loads(row["evidence"])))
    return f"{row['anomaly']}:{what}{where}{at}{operation}{f' ({details})' if details else ''}"


def _details(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{key.removesuffix('_ns').replace('_', ' ')} {_text(key, value)}"
        for key, value in found.items()
    ]


def _text(key: str, value: object) -> str:
    if key.endswith("_ns") and isinstance(value, int):
        return f"{value / 1e9:.3f} s"
    if isinstance(value, list):
        texts = [_text("", item) for item in value[:_LISTED]]
        more = f"; and {len(value) - _LISTED} more" if len(value) > _LISTED else ""
        return f"{'; '.join(texts)}{more}" if texts else "none"
    if isinstance(value, dict):
        return " ".join(_details(value))
    return str(value)
