"""A run that is cut short leaves nothing running, keeps what it recorded, and is unknown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE

pytestmark = pytest.mark.live

UNKNOWN = 2
DEADLINE_S = 120.0


class Harness:
    """A `neaptide run` under way, with stores of its own."""

    def __init__(self, directory: Path) -> None:
        self.runs = directory / "runs"
        self.env = {
            **os.environ,
            "NEAPTIDE_RUNS": str(self.runs),
            "NEAPTIDE_STATE": str(directory / "state"),
            "NEAPTIDE_TEST": str(directory),
        }
        self.process = subprocess.Popen(
            [*COMMAND, "run", "append", "--time", "100", "--rate", "500", "--seed", "1"],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def neaptide(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], env=self.env, capture_output=True, text=True, timeout=DEADLINE_S
        )

    def wait_for_records(self) -> Path:
        """Returns the run directory once some operations are on disk."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            found = sorted(self.runs.glob("20*/operations/c2-*.parquet"))
            found += sorted(self.runs.glob("20*/operations/*c2*.parquet"))
            if found:
                return found[0].parent.parent
            time.sleep(0.1)
        raise AssertionError("no operations were recorded")

    def left_running(self) -> list[str]:
        """Processes that this harness, or whoever it started, has started and that live."""
        left = []
        for process in psutil.process_iter():
            try:
                environ = process.environ()
            except psutil.Error:
                continue
            ours = environ.get("NEAPTIDE_TEST") == self.env["NEAPTIDE_TEST"]
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            if ours and TOKEN_VARIABLE in environ and alive:
                left.append(" ".join(process.cmdline()))
        return left


COMMAND = (sys.executable, "-m", "neaptide.harness.cli")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    running = Harness(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
    with running.process:  # ends once it has ended, and closes its pipe
        running.neaptide("list")


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((signal.SIGINT,), marks=pytest.mark.proof),
        pytest.param((signal.SIGTERM,), marks=pytest.mark.proof),
        pytest.param((signal.SIGHUP,), marks=pytest.mark.proof),  # a closed terminal
        (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP),  # a lost connection, then a shutdown
    ],
)
def test_what_ends_a_command_leaves_nothing_and_the_verdict_is_unknown(
    harness: Harness, numbers: tuple[signal.Signals, ...]
) -> None:
    run = harness.wait_for_records()
    assert harness.left_running()
    for number in numbers:
        harness.process.send_signal(number)
    assert harness.process.wait(DEADLINE_S) == UNKNOWN
    assert harness.process.stderr is not None
    said = harness.process.stderr.read()
    assert "Interrupted" in said
    assert "Traceback" not in said
    assert harness.left_running() == []
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    if numbers != (signal.SIGINT,):
        return
    checked = harness.neaptide("check", str(run), "--json")
    assert checked.returncode == UNKNOWN, checked.stderr
    [verdict] = json.loads(checked.stdout)["runs"]
    assert verdict["verdict"] == "unknown"
    assert verdict["operations"] > 0


def test_sigkill_leaves_nothing_after_the_next_command(harness: Harness) -> None:
    run = harness.wait_for_records()
    harness.process.kill()
    harness.process.wait()
    assert harness.left_running()
    listed = harness.neaptide("list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "ended what an earlier run left behind" in listed.stderr
    json.loads(listed.stdout)
    assert harness.left_running() == []
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    checked = harness.neaptide("check", str(run), "--json")
    assert checked.returncode == UNKNOWN, checked.stderr
    [verdict] = json.loads(checked.stdout)["runs"]
    assert verdict["verdict"] == "unknown"
    assert verdict["operations"] > 0


@pytest.mark.proof
def test_a_run_that_was_killed_while_it_started_says_so_after_the_next_command(
    harness: Harness,
) -> None:
    while not (found := list(harness.runs.glob("20*/logs/zookeeper.log"))):
        assert harness.process.poll() is None
    harness.process.kill()
    harness.process.wait()
    record = found[0].parent.parent / "run.json"
    assert json.loads(record.read_text())["status"] == "running"
    listed = harness.neaptide("list", "--json")
    assert "ended what an earlier run left behind" in listed.stderr
    recorded = json.loads(record.read_text())
    assert recorded["status"] == "not started"
    assert recorded["aim"]["why"] == "neaptide was killed while it went on"
    assert harness.left_running() == []


def test_sigterm_ends_what_a_shell_has_started_in_the_background(tmp_path: Path) -> None:
    """A shell gives it an ignored SIGINT."""
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        " from neaptide.harness.cli.main import main; main()"
    )
    search = ("explore", "--system", "neaptide:2.1", "--time", "600", "--workers", "1")
    process = subprocess.Popen(
        [sys.executable, "-c", script, *search],
        env={**os.environ, "NEAPTIDE_STATE": str(tmp_path / "state")},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("seed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == UNKNOWN
        assert process.stderr.read().strip().splitlines()[-1] == "Interrupted."
    finally:
        process.kill()
        with process:
            pass


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(("--swarm",), marks=pytest.mark.proof),
        pytest.param(("--mutants",), marks=pytest.mark.proof),
        ("--exhaustive", "--produces", "2"),
    ],
)
def test_the_processes_of_a_search_end_with_it(tmp_path: Path, mode: tuple[str, ...]) -> None:
    """Even where it is killed."""
    search = ("explore", "--system", "neaptide:2.1", "--time", "600", "--workers", "2", *mode)
    process = subprocess.Popen(
        [*COMMAND, *search],
        env={**os.environ, "NEAPTIDE_STATE": str(tmp_path / "state")},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(workers := _busy_workers(process.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(workers, DEADLINE_S)
    assert alive == []


def _busy_workers(harness: int) -> list[psutil.Process]:
    """Those that search: they have done more than start."""
    return [
        child
        for child in psutil.Process(harness).children()
        if "--multiprocessing-fork" in child.cmdline() and child.cpu_times().user > 2.0
    ]
