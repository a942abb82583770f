"""A controller of KRaft that dies although no fault ended it ends the run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from neaptide.harness.play.random_asked import RandomRun
from neaptide.harness.play.random_run import run_random
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.results.run import Assigned, read_run

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]


def test_it_is_an_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    [system] = parse_systems(["kafka:4.4.0"])
    asked = RandomRun("append", system, (), 3_600.0, 100, seed=1, brokers=1, partitions=1)
    settings = {"min.insync.replicas": "1"}

    def progress(doing: str, _: float, counts: Mapping[str, int]) -> None:
        if counts.get("ok"):
            for process in psutil.Process().children():
                with suppress(psutil.Error):  # one that has just ended has no command
                    if "controller-100" in " ".join(process.cmdline()):
                        process.kill()

    directory = asyncio.run(run_random(replace(asked, settings=settings), progress))
    run = read_run(directory)
    assert run.status == "interrupted"
    assert [incident.kind for incident in run.incidents] == ["process"]
    assert run.incidents[0].why.startswith("Controller 100 ended by itself")
    assert run.assigned == (Assigned("t", 0, (0,)),)
