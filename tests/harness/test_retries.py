"""What proved nothing is played again, as often as asked; an anomaly never is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neaptide.harness.comparing import repro
from neaptide.harness.comparing.repro import Cell, Result, run_cells
from neaptide.harness.play.scenario import Played
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.systems import parse_system

Words = tuple[str, str]  # verdict and outcome
HELD, LOST, UNKNOWN = ("valid", "held"), ("anomalous", "lost"), ("unknown", "unknown")


def results(
    monkeypatch: pytest.MonkeyPatch,
    verdicts: Sequence[Words],
    retries: int,
    cells: int = 1,
    reported: list[str] | None = None,
) -> tuple[list[Result], list[str]]:
    """Each play takes the next verdict; the runs that were played. `reported`: gets the lines."""
    left, played = list(verdicts), list[str]()
    lines = [] if reported is None else reported

    async def play(*_: Any, **__: Any) -> Played:
        played.append(f"run{len(played)}")
        return Played(Path(played[-1]), ())

    def judge(_: Any, runs: Sequence[Path]) -> list[Any]:
        return [
            SimpleNamespace(verdict=verdict, outcome=outcome, anomalies={}, reasons=("why",))
            for verdict, outcome in (left.pop(0) for _ in runs)
        ]

    monkeypatch.setattr(repro, "play", play)
    monkeypatch.setattr(repro, "check_and_report", judge)
    [(_, scenario)] = documented(["hw-truncation-loss"])
    todo = [Cell(scenario, scenario.name, parse_system("neaptide:0.11")) for _ in range(cells)]
    spark: Any = SimpleNamespace(session=lambda: None)

    def say(line: str, _: float) -> None:
        lines.append(line)

    return run_cells(todo, 1, spark, say, retries_unknown=retries), played


def test_an_unknown_is_tried_again_until_something_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[str] = []
    [result], played = results(monkeypatch, [UNKNOWN, UNKNOWN, HELD], 5, reported=reported)
    assert (result.observed, result.run.name, len(played)) == ("held", "run2", 3)
    again = "hw-truncation-loss on neaptide:0.11 proved nothing (why): again"
    assert [line for line in reported if "again" in line] == [again, again]


def test_it_is_given_up_after_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    [result], played = results(monkeypatch, [UNKNOWN] * 9, 2)
    assert (result.observed, len(played)) == ("unknown", 3)


def test_nobody_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    [result], played = results(monkeypatch, [UNKNOWN, HELD], 0)
    assert (result.observed, len(played)) == ("unknown", 1)


def test_an_anomaly_is_not_tried_again_and_only_the_unknown_of_many_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, played = results(monkeypatch, [LOST, UNKNOWN, HELD, LOST], 3, cells=3)
    assert [result.observed for result in found] == ["lost", "lost", "held"]
    assert len(played) == 4
