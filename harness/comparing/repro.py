"""Runs documented scenarios on systems and compares what is seen with what the documents say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.harness.checking.check import SparkStart, check_and_report
from neaptide.harness.comparing.matrix import finished_runs
from neaptide.harness.play.scenario import Played, clients_of, play, refused_by_own
from neaptide.harness.scenarios.systems import KNOWN, System, fetch, like_of, parse_systems
from neaptide.nemesis.scenario import Scenario, expected_outcome, lacks
from neaptide.nemesis.search.play import is_simulated
from neaptide.results.run import read_run
from neaptide.workloads.program import Program


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario on one system, and where the scenario came from."""

    scenario: Scenario
    where: str
    system: System
    program: Program | None = None  # the client that it drives, in place of the one that ships

    @property
    def expected(self) -> str | None:
        return expected_outcome(self.scenario, self.system.like)


@dataclass(frozen=True, slots=True)
class Result:
    cell: Cell
    run: Path
    seconds: float
    observed: str
    verdict: str
    anomalies: dict[str, int]
    reasons: tuple[str, ...]
    disagreements: tuple[str, ...]
    host: str
    confirmed: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return self.observed == self.cell.expected and not self.disagreements

    @property
    def verdict_json(self) -> dict[str, Any]:
        """As `verdict.json` has it."""
        return {
            "verdict": self.verdict,
            "outcome": self.observed,
            "anomalies": self.anomalies,
            "operations": 0,
            "reasons": [*self.reasons, *self.disagreements],
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "scenario": self.cell.scenario.name,
            "system": str(self.cell.system),
            "host": self.host,
            "expected": self.cell.expected,
            "observed": self.observed,
            "agrees": self.agrees,
            "seconds": round(self.seconds, 3),
            "anomalies": self.anomalies,
            "run": str(self.run),
            "reasons": [*self.reasons, *self.disagreements],
        }


def cells(
    chosen: list[tuple[Path, Scenario]],
    systems: list[str],
    repeat: int,
    kafka_home: Path | None = None,
    image: str | None = None,
    *,
    all_of_them: bool = False,
    simulated: bool = False,
) -> list[Cell]:
    """Every scenario on every system asked for; by default on all own generations.

    Where nobody named scenarios (`all_of_them`) or systems, only those of which something is
    predicted. `simulated`: only those that the simulation can play.
    """
    wanted = parse_systems(systems or KNOWN, kafka_home, image)
    for system in wanted:
        fetch(system)
    return [
        Cell(scenario, scenario.name, system)
        for scenario, _ in ((scenario, path) for path, scenario in chosen)
        for system in wanted
        for _ in range(repeat)
        if lacks(scenario, system.like) is None
        and not (all_of_them and refused_by_own(scenario, system))
        and (not simulated or is_simulated(scenario))
        and ((systems and not all_of_them) or expected_outcome(scenario, system.like) is not None)
    ]


def not_served(chosen: list[tuple[Path, Scenario]], systems: list[str]) -> list[dict[str, str]]:
    """What is asked for and cannot be played, and what the system lacks for it."""
    return [
        {"scenario": scenario.name, "system": system, "lacks": what}
        for _, scenario in chosen
        for system in systems or KNOWN
        if (what := lacks(scenario, like_of(system))) is not None
    ]


def run_cells(
    todo: list[Cell],
    seed: int,
    spark: SparkStart,
    report: Callable[[str, float], None],
    place: Place = LOCAL,
    *,
    resume: bool = False,
    retries_unknown: int = 0,
) -> list[Result]:
    """Plays each cell, then judges all runs in one Spark job.

    `resume`: a cell that an earlier command has played to its end is not played again.
    `retries_unknown`: so often what proved nothing is played again. An anomaly never is.
    """
    results = _played_and_judged(todo, seed, spark, report, place, resume=resume)
    for _ in range(retries_unknown):
        again = [n for n, result in enumerate(results) if result.observed == "unknown"]
        if not again:
            break
        for n in again:
            name, why = todo[n], "; ".join(results[n].reasons)
            report(
                f"{name.scenario.name} on {name.system} proved nothing ({why}): again", len(todo)
            )
        replayed = _played_and_judged([todo[n] for n in again], seed, spark, report, place)
        for n, result in zip(again, replayed, strict=True):
            results[n] = result
    return results


def _played_and_judged(
    todo: list[Cell],
    seed: int,
    spark: SparkStart,
    report: Callable[[str, float], None],
    place: Place,
    *,
    resume: bool = False,
) -> list[Result]:
    played: list[tuple[Cell, Played, float]] = []
    saved: dict[tuple[str, str], list[Path]] = {}
    for number, cell in enumerate(todo):
        name = f"{cell.scenario.name} on {cell.system}"
        begun = time.monotonic()
        if resume and (earlier := _earlier(cell, place, saved)) is not None:
            report(f"{name}: played already, {earlier.run.name}", number)
            played.append((cell, earlier, 0.0))
            continue
        one = asyncio.run(
            play(
                cell.scenario,
                cell.system,
                seed,
                cell.where,
                lambda line, name=name, number=number: report(f"{name}: {line}", number),  # type: ignore[misc]
                place,
                program=cell.program,
            )
        )
        played.append((cell, one, time.monotonic() - begun))
    report(f"checking {len(played)} runs with Spark", len(todo))
    verdicts = check_and_report(spark.session(), [one.run for _, one, _ in played])
    return _results(played, verdicts, place)


def report_to_ci(results: Sequence[Result]) -> None:
    """On GitHub: annotations and a summary."""
    from neaptide.harness.terminal import ci  # which loads what draws

    good = [
        result.agrees if result.cell.expected is not None else result.observed == "held"
        for result in results
    ]
    ci.report(
        ci.judged(
            [(result.run, result.verdict_json) for result in results],
            good,
            [result.cell.expected for result in results],
            [result.cell.where for result in results],
        )
    )


def _earlier(cell: Cell, place: Place, saved: dict[tuple[str, str], list[Path]]) -> Played | None:
    """The next saved run of a cell; each is taken once."""
    key = (cell.scenario.name, str(cell.system))
    if key not in saved:
        clients = clients_of(cell.scenario, cell.program)
        saved[key] = finished_runs(cell.scenario, str(cell.system), place.name, clients)
    if not saved[key]:
        return None
    run = saved[key].pop(0)
    record = read_run(run)
    return Played(run, record.disagreements, record.confirmed)


def _results(
    played: list[tuple[Cell, Played, float]], verdicts: Sequence[Any], place: Place
) -> list[Result]:
    return [
        Result(
            cell,
            one.run,
            seconds,
            verdict.outcome,
            verdict.verdict,
            dict(verdict.anomalies),
            verdict.reasons,
            one.disagreements,
            place.name,
            one.confirmed,
        )
        for (cell, one, seconds), verdict in zip(played, verdicts, strict=True)
    ]
