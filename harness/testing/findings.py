"""What a test says of a run that is not valid: the record, and the fetch rounds around it.

Pure but for reading the run directory. Not the report for people: `neaptide.results.report`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.results.cases import cases, evidence
from neaptide.results.errors import RunUnreadableError
from neaptide.results.report import REPORT_FILE
from neaptide.results.report.closeup import close_up
from neaptide.results.report.fate import fates
from neaptide.results.report.rows import load
from neaptide.results.report.story import Arrow, Badge, Line, Moment, Story

_SENTENCES_MAX: Final = 5
_SENTENCE_CHARACTERS: Final = 160
_LINES_MAX: Final = 20


class NeaptideFailure(AssertionError):
    """A run is not valid, or is not what was expected. `str` is what a person reads.

    `run`: its directory. `unknown`: nothing was proved, neither good nor bad.
    """

    def __init__(self, text: str, run: Path, *, unknown: bool) -> None:
        super().__init__(text)
        self.run = run
        self.unknown = unknown


class WaitFailure(NeaptideFailure, TimeoutError):
    """What a test waited for did not come true. The text says what was seen instead."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One run and its verdict. `own`: what the project's own checks have found."""

    run: Path
    verdict: str  # valid, anomalous, unknown
    outcome: str  # held, lost, …: docs/reference/anomalies.md
    anomalies: Mapping[str, int]
    reasons: tuple[str, ...]
    own: tuple[str, ...] = ()
    allowed: Mapping[str, int] = field(default_factory=dict)  # found, too, but no reason against it

    @property
    def valid(self) -> bool:
        return self.verdict == "valid" and not self.own

    @property
    def unknown(self) -> bool:
        return self.verdict == "unknown" and not self.own

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def properties(system: str, judged: Judged) -> list[tuple[str, object]]:
    """What JUnit files have of a run."""
    return [
        ("neaptide_system", system),
        ("neaptide_verdict", judged.verdict),
        ("neaptide_outcome", judged.outcome),
        ("neaptide_run", str(judged.run)),
    ]


def failure_text(judged: Judged, expected: str | None = None) -> str:
    """A few lines: verdict, records, rounds, what repeats the run, where the report is."""
    first = [] if expected is None else [f"expected {expected}, was {judged.outcome}"]
    return "\n".join([*first, *_lines(judged)])


def _lines(judged: Judged) -> Iterator[str]:
    [case] = cases([(judged.run, _verdict(judged))])
    what = "no evidence" if judged.unknown else judged.verdict
    run = case.run
    about = case.name if run is None else f"{run.name} on {run.system}, seed {run.seed}"
    yield f"neaptide: {about}: {what}" + (f" ({judged.outcome})" if case.anomalous else "")
    yield from (f"  {sentence}" for sentence in judged.own)
    for sentence in evidence(case, _SENTENCES_MAX):
        yield f"  {textwrap.shorten(sentence, _SENTENCE_CHARACTERS, placeholder=' …')}"
    yield from (f"  not proved: {reason}" for reason in judged.reasons)
    if not judged.valid:
        yield from _how(judged.run)
    if run is not None and run.repeat:
        yield f"  repeat: {run.repeat}"
    yield f"  report: {judged.run / REPORT_FILE}"


def _verdict(judged: Judged) -> Mapping[str, Any]:
    return {
        "verdict": judged.verdict,
        "outcome": judged.outcome,
        "anomalies": judged.anomalies,
        "allowed": judged.allowed,
        "operations": 0,
        "reasons": judged.reasons,
    }


def _how(run: Path) -> Iterator[str]:
    """How the first record was lost, and the fetch rounds around it."""
    try:
        data = load(run)
    except RunUnreadableError:
        return
    yield from (f"  {fate}" for fate in fates(data, 1))
    found = close_up(data)
    if found is None:
        return
    moments = Story(data.names, found.partition).in_order(found.operations, found.rounds)
    lines = [line for moment in moments if (line := _line(moment)) is not None]
    if lines:
        yield f"  fetch rounds around {found.record!r}:"
        yield from (f"    {line}" for line in lines[:_LINES_MAX])
        if len(lines) > _LINES_MAX:
            yield f"    … {len(lines) - _LINES_MAX} more in the report"


def _line(moment: Moment) -> str | None:
    at = f"{moment.at_ns / 1e9:8.3f} s"
    match moment:
        case Arrow():
            sign = "-x" if moment.lost else "->"
            return f"{at}  {moment.source} {sign} {moment.destination}: {moment.text}"
        case Badge():
            return f"{at}  {moment.lifeline}: {moment.text}"
        case Line():
            return f"{at}  {moment.text}"
        case _:
            return None
