"""A run under load that is asked to stop ends in order, long before its time, and is judged."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from neaptide.results.run import read_run
from neaptide.results.stop import ask_to_stop
from tests.harness.command import COMMAND, TIMEOUT_S

pytestmark = pytest.mark.live


def begun(runs: Path, process: subprocess.Popen[str]) -> Path:
    """The run directory, once operations are on disk."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None
        found = sorted(runs.glob("20*/operations/*c2*.parquet"))
        if found:
            return found[0].parent.parent
        time.sleep(0.1)
    raise AssertionError("no operations were recorded")


def test_it_ends_in_order_and_is_judged(tmp_path: Path) -> None:
    stores = {"NEAPTIDE_RUNS": str(tmp_path / "runs"), "NEAPTIDE_STATE": str(tmp_path / "state")}
    process = subprocess.Popen(
        [*COMMAND, "run", "append", "--time", "100000", "--rate", "200", "--seed", "3", "--json"],
        env={**os.environ, **stores},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        run = begun(tmp_path / "runs", process)
        ask_to_stop(run, "a test has seen enough")
        printed, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    verdict = json.loads(printed)
    assert verdict["verdict"] == "valid"
    assert verdict["operations"] > 0
    recorded = read_run(run)
    assert (recorded.status, recorded.stopped_early) == ("finished", "a test has seen enough")
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "The run was ended early: a test has seen enough." in report
    assert "sends completed, by outcome" in report
