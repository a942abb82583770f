"""The matrix scenario × system: what was expected, what was observed, how many of how many agree.

Put together from saved runs alone (`run.json` and `verdict.json`), so that one that was interrupted
can be put together again, from as many commands as it took. Not here: playing or judging a run, and
how the matrix looks (`neaptide.results.report.matrix_page`).

The rule: a run that could not conclude agrees with nothing, and says why; nor does one that other
rules have judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from neaptide.results.run import Run, read_run
from neaptide.results.verdicts import read_verdict, why_not_believed

Status = Literal["agrees", "disagrees", "unknown", "unpredicted", "not served"]
# A sign says what a colour says: not everybody sees colours, and not every terminal has them.
SIGNS: Final[dict[Status, str]] = {
    "agrees": "✓",
    "disagrees": "✗",
    "unknown": "?",
    "unpredicted": "·",
    "not served": "–",
}


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run, as far as the matrix is concerned."""

    run: Path
    scenario: str
    title: str
    system: str
    expected: str | None
    observed: str
    reasons: tuple[str, ...]  # why it is unknown, and which predictions did not come true
    disagrees: bool  # a prediction beyond the outcome did not come true
    kind: str = ""  # `bug`, or where outcomes differ in it `diverged: bug, lost: by design`
    source: tuple[str, ...] = ()  # the documents that describe the scenario

    @property
    def agrees(self) -> bool:
        return self.observed == self.expected and not self.disagrees


@dataclass(frozen=True, slots=True)
class Cell:
    """All repetitions of one scenario on one system, oldest first.

    `not_served`: what the system lacks that the scenario needs; then there are none.
    """

    scenario: str
    system: str
    repetitions: tuple[Repetition, ...]
    not_served: str = ""

    @property
    def expected(self) -> str | None:
        return self.repetitions[-1].expected if self.repetitions else None

    @property
    def observed(self) -> tuple[str, ...]:
        """Each outcome that was seen, once, in the order in which they came."""
        return tuple(dict.fromkeys(each.observed for each in self.repetitions))

    @property
    def agreeing(self) -> int:
        return sum(each.agrees for each in self.repetitions)

    @property
    def status(self) -> Status:
        if self.not_served:
            return "not served"
        if self.expected is None:
            return "unpredicted"
        if self.agreeing == len(self.repetitions):
            return "agrees"
        known = [each for each in self.repetitions if each.observed != "unknown"]
        return "disagrees" if any(not each.agrees for each in known) else "unknown"

    @property
    def text(self) -> str:
        """`✓ lost 3/3`; `✗ held, expected lost 0/3`; `– not served`."""
        if self.not_served:
            return f"{SIGNS[self.status]} not served"
        seen = " or ".join(self.observed)
        differs = self.expected is not None and self.observed != (self.expected,)
        expected = f", expected {self.expected}" if differs else ""
        count = f"{self.agreeing}/{len(self.repetitions)}"
        return f"{SIGNS[self.status]} {seen}{expected} {count}"


@dataclass(frozen=True, slots=True)
class Matrix:
    scenarios: tuple[tuple[str, str, str], ...]  # name, title, and of which kind its outcomes are
    systems: tuple[str, ...]
    cells: tuple[Cell, ...]
    client: str = ""  # whose clients were driven, where they are not those that ship
    not_played: Mapping[str, str] = field(default_factory=dict)  # by scenario, why

    def cell(self, scenario: str, system: str) -> Cell | None:
        """None: it was not played."""
        return next((c for c in self.cells if (c.scenario, c.system) == (scenario, system)), None)

    @property
    def counts(self) -> dict[Status, int]:
        return {status: sum(cell.status == status for cell in self.cells) for status in SIGNS}

    def to_json(self) -> dict[str, Any]:
        of_client = {"client": self.client, "not_played": dict(self.not_played)}
        return {
            **(of_client if self.client else {}),
            "scenarios": [
                {"name": name, "title": title, "kind": kind} for name, title, kind in self.scenarios
            ],
            "systems": list(self.systems),
            "cells": [
                {
                    "scenario": cell.scenario,
                    "system": cell.system,
                    "expected": cell.expected,
                    "observed": [each.observed for each in cell.repetitions],
                    "agreeing": cell.agreeing,
                    "of": len(cell.repetitions),
                    "status": cell.status,
                    "runs": [str(each.run) for each in cell.repetitions],
                    "reasons": [reason for each in cell.repetitions for reason in each.reasons]
                    + ([cell.not_served] if cell.not_served else []),
                }
                for cell in self.cells
            ],
        }


def assemble(
    runs: Sequence[Path],
    not_served: Mapping[tuple[str, str], str] | None = None,
    *,
    client: str = "",
    not_played: Mapping[str, str] | None = None,
) -> Matrix:
    """The matrix of these runs of scenarios. Raises RunUnreadableError where one is none.

    `not_served`: scenario and system → what the system lacks, said where there is no run.
    """
    repetitions = [_any_repetition(directory) for directory in sorted(set(runs))]
    by_cell: dict[tuple[str, str], list[Repetition]] = {}
    for each in repetitions:
        by_cell.setdefault((each.scenario, each.system), []).append(each)
    scenarios = {each.scenario: (each.title, each.kind) for each in repetitions}
    systems = {each.system for each in repetitions}
    lacking = {
        (scenario, system): what
        for (scenario, system), what in (not_served or {}).items()
        if scenario in scenarios and system in systems and (scenario, system) not in by_cell
    }
    cells = [Cell(*key, tuple(group)) for key, group in by_cell.items()]
    cells += [Cell(*key, (), what) for key, what in lacking.items()]
    return Matrix(
        tuple((name, *scenarios[name]) for name in sorted(scenarios)),
        tuple(sorted(systems, key=_in_order)),
        tuple(sorted(cells, key=lambda cell: (cell.scenario, cell.system))),
        client,
        not_played or {},
    )


def _any_repetition(directory: Path) -> Repetition:
    """Whatever is wrong with a verdict, the others are shown."""
    run = read_run(directory)
    try:
        return _repetition(directory, run)
    except Exception as error:
        why = f"its verdict cannot be read ({type(error).__name__})"
        return Repetition(
            directory,
            run.name,
            run.title,
            run.system,
            run.expected,
            "unknown",
            (why,),
            False,
            _kind(run.schedule),
            run.source,
        )


def _repetition(directory: Path, run: Run) -> Repetition:
    verdict = read_verdict(directory)
    doubt = why_not_believed(directory, verdict)
    if verdict is None or doubt is not None:
        verdict = {"reasons": [doubt]}
    return Repetition(
        directory,
        run.name,
        run.title,
        run.system,
        run.expected,
        str(verdict.get("outcome", "unknown")),
        (*verdict.get("reasons", ()), *run.disagreements),
        bool(run.disagreements),
        _kind(run.schedule),
        run.source,
    )


def _kind(schedule: Any) -> str:
    """As the scenario of the run says; a run of before has none."""
    kinds = schedule.get("kind") if isinstance(schedule, Mapping) else None
    if not isinstance(kinds, Mapping):
        return ""
    if len(set(map(str, kinds.values()))) == 1:
        return str(next(iter(kinds.values())))
    return ", ".join(f"{outcome}: {kind}" for outcome, kind in kinds.items())


def _in_order(system: str) -> tuple[bool, str, tuple[int, ...], str]:
    """Own generations first, then by version as numbers."""
    kind, _, version = system.partition(":")
    return kind != "neaptide", kind, tuple(int(n) for n in re.findall(r"\d+", version)), system
