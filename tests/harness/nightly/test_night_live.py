"""A small night on our own broker, killed in the middle; what it leaves ends, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from neaptide.harness.nightly.state import State, nights_in, read_night
from neaptide.harness.scenarios.catalog import scenario_files

pytestmark = [pytest.mark.live, pytest.mark.spark]

COMMAND = (sys.executable, "-m", "neaptide.harness.cli", "nightly")
DEADLINE_S = 240.0
ANOMALY, USAGE, UNAVAILABLE = 1, 64, 69
PLAN = """
systems = ["neaptide:0.10"]
hosts = ["local"]
faults = ["pause"]
time = 5
rate = 200
partitions = 1
known = ["known"]
"""


class Machine:
    """A directory with a plan and what is known, and whatever runs because of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nights = directory / "nights"
        (directory / "plan.toml").write_text(PLAN, encoding="utf-8")
        (directory / "known").mkdir()
        # Whoever has mended the broker keeps the scenario, and expects that nothing is lost.
        text = scenario_files()["hw-truncation-loss"].read_text(encoding="utf-8")
        before, expect, _ = text.partition("\n[expect]")
        assert expect
        scenario = f'{before}\n[expect]\nheld = ["neaptide:0.10"]\n'
        (directory / "known" / "mended.toml").write_text(scenario, encoding="utf-8")
        self.env = {
            **os.environ,
            "NEAPTIDE_RUNS": str(directory / "runs"),
            "NEAPTIDE_STATE": str(directory / "state"),
            "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
            "NEAPTIDE_TEST": str(directory),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments, "--nights", str(self.nights), "--json"],
            env=self.env,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def state(self) -> State:
        [night] = nights_in(self.nights)
        return read_night(night)

    def plays(self) -> list[psutil.Process]:
        """All that runs for a play: the commands, and what they have started."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("NEAPTIDE_TEST") == str(self.directory)
                is_java_of_spark = any("org.apache.spark" in word for word in process.cmdline())
                if ours and not is_java_of_spark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def until(holds: object, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.proof
def test_a_night_that_is_killed_leaves_nothing_and_goes_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    night = machine.start(
        "plan.toml", "--budget", "30m", "--cells", "1", "--jobs", "1", "--seed", "4"
    )
    try:
        until(lambda: nights_in(machine.nights) or night.poll() is not None, "no night")
        assert night.poll() is None, night.communicate()[1]
        until(lambda: "cell 1 #1" in machine.state().open, "the cell has not started")
        runs = tmp_path / "runs"
        until(lambda: list(runs.glob("*-append-*/logs/*")), "the run has not started")
        assert len(machine.plays()) > 2
        os.kill(night.pid, signal.SIGKILL)
    finally:
        night.kill()
        night.communicate()
    until(lambda: not machine.plays(), f"left running: {machine.plays()}")

    resumed = machine.start("--resume", "--junit", str(tmp_path / "junit.xml"))
    stdout, stderr = resumed.communicate(timeout=DEADLINE_S)
    assert resumed.returncode == ANOMALY, stderr
    assert "Traceback" not in stderr
    assert "cell 1 was cut off: it is played again" in stderr
    document = json.loads(stdout)
    by_item = {one["play"]: one for one in document["results"]}
    known = by_item["known mended.toml@neaptide:0.10 #1"]
    assert (known["outcome"], known["expected"], known["news"]) == ("lost", "held", "came back")
    assert by_item["cell 1 #2"]["verdict"] == "valid", by_item
    assert len(by_item) == 2
    assert document["verdicts"] == {"valid": 1, "anomalous": 1, "unknown": 0}
    assert document["acknowledged"] > 100
    assert document["findings"] == []
    state = machine.state()
    assert state.is_over
    assert not state.open
    assert not state.unchecked
    page = Path(document["page"]).read_text(encoding="utf-8")
    assert "✗ lost, came back" in page
    assert "1 came back" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    junit = (tmp_path / "junit.xml").read_text(encoding="utf-8")
    assert 'failures="1"' in junit
    assert 'errors="0"' in junit
    assert not list((tmp_path / "state" / "ledger").glob("*.jsonl"))

    nothing_left = machine.start("--resume")
    said = nothing_left.communicate(timeout=DEADLINE_S)[1]
    assert nothing_left.returncode == USAGE
    assert "that was cut off: leave out --resume" in said


def test_a_cluster_that_does_not_answer_is_reported_before_anything_runs(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    asked = ("plan.toml", "--budget", "30m", "--seed", "4", "--master", "spark://127.0.0.1:1")
    night = machine.start(*asked)
    said = night.communicate(timeout=DEADLINE_S)[1]
    assert night.returncode == UNAVAILABLE, said
    assert "No Spark master answers at spark://127.0.0.1:1" in said
    assert machine.state().plays == {}
