"""Plays a saved schedule again, on any system, as often as one likes, and compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neaptide.harness.play.recording import Recorded, command, output_of, recorded
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.systems import like_of
from neaptide.harness.terminal.output import anomalies_text
from neaptide.nemesis.scenario import Scenario, expected_outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Replayed:
    """One play. `expected` is null where the file says nothing of the system."""

    system: str
    expected: str | None
    observed: str
    anomalies: dict[str, int]
    reasons: tuple[str, ...]
    run: Path | None

    @property
    def agrees(self) -> bool:
        return self.observed == self.expected

    def to_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "expected": self.expected,
            "observed": self.observed,
            "agrees": self.agrees,
            "anomalies": self.anomalies,
            "reasons": list(self.reasons),
            "run": None if self.run is None else str(self.run),
        }

    def row(self, name: str) -> tuple[str, ...]:
        agrees = "-" if self.expected is None else "yes" if self.agrees else "no"
        found = anomalies_text(self.anomalies)
        return name, self.system, self.expected or "-", self.observed, agrees, found


def replay_saved(
    saved: Scenario,
    file: Path,
    systems: Sequence[str],
    session: Callable[[], SparkSession],
    report: Callable[[str, float], None],
    retries: int = 0,
    seed: int | None = None,
) -> list[Replayed]:
    """In the order of the systems. What proved nothing is played again, `retries` times at most."""
    results: dict[int, Replayed] = {}
    todo = list(enumerate(systems))
    for attempt in range(retries + 1):
        plays = []
        for done, (n, system) in enumerate(todo):
            again = "" if attempt == 0 else ", again"
            report(f"{file.name} on {system}{again}", done)
            plays.append((n, system, _play(saved, file, system, seed)))
        report(f"checking {len(plays)} runs with Spark", len(todo))
        results |= _judged(saved, plays, session)
        todo = [(n, system) for n, system, _ in plays if results[n].observed == "unknown"]
        if not todo:
            break
    return [results[n] for n in sorted(results)]


def _play(saved: Scenario, file: Path, system: str, seed: int | None) -> Recorded:
    words = saved_schedule.command(file, system)
    if seed is not None:
        words += ["--seed", str(seed)]  # the last one holds
    return recorded(*output_of(command(words)))


def _judged(
    saved: Scenario,
    plays: Sequence[tuple[int, str, Recorded]],
    session: Callable[[], SparkSession],
) -> dict[int, Replayed]:
    from neaptide.harness.checking.check import check_and_report

    runs = [play.run for _, _, play in plays if play.run is not None]
    verdicts = dict(zip(runs, check_and_report(session(), runs), strict=True)) if runs else {}
    judged = {}
    for n, system, play in plays:
        expected = expected_outcome(saved, like_of(system))
        if play.run is None:
            judged[n] = Replayed(system, expected, "unknown", {}, (f"{play.why}.",), None)
            continue
        verdict = verdicts[play.run]
        word = verdict.outcome
        found = dict(verdict.anomalies)
        judged[n] = Replayed(system, expected, word, found, verdict.reasons, play.run)
    return judged
