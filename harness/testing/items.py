"""Scenario files as tests: `*.neaptide.toml`, one test a system.

A test passes when what the file expects of the system comes out, or, where it expects nothing, when
nothing was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neaptide.harness.scenarios.systems import KNOWN, check_system_on, like_of, parse_system
from neaptide.harness.terminal.ci import line_of
from neaptide.harness.testing import SUFFIX
from neaptide.harness.testing.findings import Judged, NeaptideFailure, failure_text, properties
from neaptide.harness.testing.lab import Settings
from neaptide.nemesis.scenario import Scenario, expected_outcome, lacks, parse_scenario
from neaptide.nemesis.steps import ScenarioError


class ScenarioFile(pytest.File):
    """One file; its tests are named after systems."""

    settings: Settings

    def collect(self) -> Iterator[ScenarioItem]:
        scenario = self._read()
        for system in systems_of(scenario, self.settings.systems):
            yield ScenarioItem.from_parent(self, name=system, scenario=scenario)

    def _read(self) -> Scenario:
        name = self.path.name.removesuffix(SUFFIX)
        try:
            return parse_scenario(name, self.path.read_text(encoding="utf-8"), str(self.path))
        except (OSError, UnicodeDecodeError) as error:
            raise self.CollectError(f"{self.path}: cannot be read: {error}") from None
        except ScenarioError as error:
            raise self.CollectError(str(error)) from None


def systems_of(scenario: Scenario, asked: Sequence[str]) -> list[str]:
    """What is asked for; else the own generations of which the file expects something, or the
    newest. A system that does not serve the scenario is left out."""
    chosen = asked or [name for name in KNOWN if expected_outcome(scenario, name) is not None]
    return [name for name in chosen or KNOWN[-1:] if lacks(scenario, like_of(name)) is None]


class ScenarioItem(pytest.Item):
    """One scenario on one system."""

    def __init__(self, *, scenario: Scenario, **more: Any) -> None:
        super().__init__(**more)
        self.scenario = scenario
        self.judged: Judged | None = None  # by a test of the same batch, before this one
        self.add_marker("neaptide")

    @property
    def settings(self) -> Settings:
        assert isinstance(self.parent, ScenarioFile)
        return self.parent.settings

    @property
    def expected(self) -> str | None:
        return expected_outcome(self.scenario, like_of(self.name))

    def runtest(self) -> None:
        if self.judged is None:
            play_batch(batch_from(self, self.session.items, self.settings.batch), self.settings)
        judged = self.judged
        for _ in range(self.settings.retries_unknown):
            if judged is None or not judged.unknown:
                break
            play_batch([self], self.settings)  # an anomaly is never tried again
            judged = self.judged
        assert judged is not None
        self.user_properties += properties(self.name, judged)
        problem = self._problem(judged)
        if problem is not None:
            raise NeaptideFailure(problem, judged.run, unknown=judged.unknown)

    def _problem(self, judged: Judged) -> str | None:
        expected = self.expected or "held"
        if judged.outcome == expected and not judged.own:
            return None
        return failure_text(judged, expected)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """No traceback of ours where a sentence says it all."""
        from neaptide.harness.terminal.exits import status_of

        error = excinfo.value
        if isinstance(error, NeaptideFailure):
            return str(error)
        if isinstance(error, Exception) and status_of(error) is not None:
            return f"neaptide: {error}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, _line_of(self.path, self.expected), f"{self.path.name} on {self.name}"


def batch_from(first: ScenarioItem, items: Sequence[pytest.Item], most: int) -> list[ScenarioItem]:
    """The scenario tests that come next, without another kind of test between."""
    batch: list[ScenarioItem] = []
    for item in items[items.index(first) :]:
        if not isinstance(item, ScenarioItem) or len(batch) >= most:
            break
        if item.judged is None:
            batch.append(item)
    return batch


def play_batch(items: Iterable[ScenarioItem], settings: Settings) -> None:
    """Plays each, then has Spark judge all of them in one job."""
    played = []
    for item in items:
        system = parse_system(item.name)
        check_system_on(system, settings.place)
        lab = settings.lab(item.nodeid, item.name)
        played.append((item, lab.play_loaded(item.scenario, str(item.path), system)))
    judged = settings.judge.judge([one.run for _, one in played])
    for (item, one), verdict in zip(played, judged, strict=True):
        item.judged = replace(verdict, own=(*verdict.own, *one.disagreements))


def _line_of(path: Path, expected: str | None) -> int:
    """Where the file says what is expected, from 0."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    return line_of(lines, expected) - 1
