"""What runs on a node of the host ssh: it ends what it has started, however it ends itself."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from neaptide.clusters.hosts import node_runner

pytestmark = pytest.mark.live
SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]
DEADLINE_S = 20
OURS = f"it-{os.getpid()}"  # other test runs on this machine have another
MARK = f"NEAPTIDE_NODE={OURS}"


class Runner:
    def __init__(self, base: Path, **changed: str) -> None:
        text = Path(node_runner.__file__).read_text()
        for name, value in changed.items():
            text = text.replace(f"{name} = {getattr(node_runner, name)}", f"{name} = {value}")
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.directory = Path(self.ask("hello", base=str(base), ports=2)["result"]["directory"])

    def ask(self, verb: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = json.dumps({"id": 1, "do": verb, **arguments}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        while True:
            answer = json.loads(self.process.stdout.readline())
            if "id" in answer:
                return answer

    def signal_marked(self, number: int, mark: str = MARK, within_s: float = DEADLINE_S) -> Any:
        return self.ask("signal_marked", mark=mark, number=int(number), within_s=within_s)["result"]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def start(self, argv: list[str]) -> psutil.Process:
        log = str(self.directory / "log")
        answer = self.ask("start", argv=argv, cwd=str(self.directory), env={}, log=log)
        return psutil.Process(answer["result"])


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    running = Runner(tmp_path)
    yield running
    running.end()


def test_the_end_of_its_input_ends_its_processes_and_removes_its_directory(
    runner: Runner, tmp_path: Path
) -> None:
    sleeper = runner.start(SLEEPER)
    marker = tmp_path / "undone"
    runner.ask("undo", argv=["tee", str(marker)], stdin="yes")
    assert runner.process.stdin is not None
    runner.process.stdin.close()
    assert runner.process.wait(DEADLINE_S) == 0
    assert not sleeper.is_running()
    assert not runner.directory.exists()
    assert marker.read_text() == "yes"


def test_a_runner_that_is_killed_takes_its_processes_with_it(runner: Runner) -> None:
    sleeper = runner.start(SLEEPER)
    runner.process.kill()
    sleeper.wait(DEADLINE_S)
    assert not sleeper.is_running()


def test_silence_is_taken_for_the_end_of_the_harness(tmp_path: Path) -> None:
    runner = Runner(tmp_path, SILENCE_S="0.5")
    sleeper = runner.start(SLEEPER)
    assert runner.process.wait(DEADLINE_S) == 0
    assert not sleeper.is_running()
    runner.end()


def test_a_signal_to_it_is_an_end_too(runner: Runner) -> None:
    sleeper = runner.start(SLEEPER)
    runner.process.terminate()
    assert runner.process.wait(DEADLINE_S) == 1
    assert not sleeper.is_running()
    assert not runner.directory.exists()


def test_a_stop_is_answered_when_it_has_stopped_and_not_for_the_dead(runner: Runner) -> None:
    sleeper = runner.start(SLEEPER)
    assert runner.ask("signal", pid=sleeper.pid, number=int(signal.SIGSTOP))["result"] is True
    assert sleeper.status() == psutil.STATUS_STOPPED
    runner.ask("signal", pid=sleeper.pid, number=int(signal.SIGKILL))
    sleeper.wait(DEADLINE_S)
    assert runner.ask("signal", pid=sleeper.pid, number=int(signal.SIGSTOP))["result"] is False


SCRIPT = "setsid sleep 600 & sleep 600; true"


def marked(runner: Runner) -> list[psutil.Process]:
    """A script with a child, and one in a session of its own; another has another mark."""
    log, env = str(runner.directory / "log"), {"NEAPTIDE_NODE": OURS}
    for value in (OURS, f"{OURS}self"):
        env["NEAPTIDE_NODE"] = value
        runner.ask("start", argv=["sh", "-c", SCRIPT], cwd="/", env=env, log=log)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = [p for p in psutil.process_iter() if is_marked(p)]
        if sum(p.name() == "sleep" for p in found) == 2:
            assert len(found) == 3
            return found
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_marked(process: psutil.Process) -> bool:
    try:
        return bool(process.environ().get("NEAPTIDE_NODE") == OURS)
    except psutil.Error:
        return False


def test_a_signal_reaches_all_that_has_a_mark_and_nothing_else(runner: Runner) -> None:
    ours = marked(runner)
    assert runner.signal_marked(signal.SIGSTOP) == {"there": True, "left": {}}
    assert {one.status() for one in ours} == {psutil.STATUS_STOPPED}
    assert runner.signal_marked(signal.SIGCONT) == {"there": True, "left": {}}
    assert psutil.STATUS_STOPPED not in {one.status() for one in ours}
    assert runner.signal_marked(0, f"{MARK}self") == {"there": True, "left": {}}
    assert runner.signal_marked(signal.SIGKILL) == {"there": False, "left": {}}
    assert runner.signal_marked(0, f"{MARK}self") == {"there": True, "left": {}}
    assert runner.signal_marked(signal.SIGKILL, f"{MARK}self") == {"there": False, "left": {}}


# It waits in the kernel until its child, which has the mark too, runs something else or ends: a
# stop has no effect on it, a kill has. CLONE_VFORK without CLONE_VM.
UNSTOPPABLE = """
import ctypes, platform, signal
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
ctypes.CDLL(None).syscall(clone, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0)
signal.pause()
"""


def test_what_does_not_stop_is_in_the_answer(runner: Runner) -> None:
    """The twin is the test before: there nothing is left."""
    log, env = str(runner.directory / "log"), {"NEAPTIDE_NODE": OURS}
    argv = [sys.executable, "-c", UNSTOPPABLE]
    parent = psutil.Process(runner.ask("start", argv=argv, cwd="/", env=env, log=log)["result"])
    deadline = time.monotonic() + DEADLINE_S
    while parent.status() != psutil.STATUS_DISK_SLEEP or not parent.children():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    [child] = parent.children()
    answer, state = runner.signal_marked(signal.SIGSTOP, within_s=0.5), child.status()
    killed = runner.signal_marked(signal.SIGKILL)  # before anything may fail: nothing stays
    assert answer == {"there": True, "left": {str(parent.pid): "D"}}
    assert state == psutil.STATUS_STOPPED
    assert killed == {"there": False, "left": {}}


@pytest.mark.parametrize(
    ("number", "states", "left"),
    [
        (signal.SIGSTOP, {7: "T", 8: "T"}, {}),
        (signal.SIGSTOP, {7: "T", 8: "D"}, {8: "D"}),
        (signal.SIGSTOP, {7: "t"}, {7: "t"}),
        (signal.SIGCONT, {7: "S", 8: "R"}, {}),
        (signal.SIGCONT, {7: "S", 8: "T"}, {8: "T"}),
        (signal.SIGKILL, {}, {}),
        (signal.SIGKILL, {7: "D"}, {7: "D"}),
        (signal.SIGTERM, {7: "S"}, {}),
        (0, {7: "S"}, {}),
    ],
)
def test_what_a_signal_had_no_effect_on_is_left(
    monkeypatch: pytest.MonkeyPatch, number: int, states: dict[int, str], left: dict[int, str]
) -> None:
    monkeypatch.setattr(node_runner, "_marked", lambda mark: states)
    monkeypatch.setattr(node_runner, "_signal", lambda pid, number: None)
    answer = node_runner.do_signal_marked("m", number, within_s=0.1)
    assert answer == {"there": bool(states), "left": left}


def test_what_starts_faster_than_it_is_looked_for_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter({pid: "T"} for pid in itertools.count(7))
    monkeypatch.setattr(node_runner, "_marked", lambda mark: next(looks))
    monkeypatch.setattr(node_runner, "_signal", lambda pid, number: None)
    answer = node_runner.do_signal_marked("m", signal.SIGSTOP, within_s=0.1)
    [last] = next(looks)
    assert answer == {"there": True, "left": {last - 1: "T"}}


def test_what_ends_while_it_is_being_stopped_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{7: "S"}, {}])
    monkeypatch.setattr(node_runner, "_marked", lambda mark: next(looks))
    monkeypatch.setattr(node_runner, "_signal", lambda pid, number: None)
    answer = node_runner.do_signal_marked("m", signal.SIGSTOP, within_s=20.0)
    assert answer == {"there": False, "left": {}}


def test_the_rest_is_tidied_though_a_process_does_not_die(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "of the run"
    directory.mkdir()
    monkeypatch.setattr(node_runner, "directory", str(directory))
    monkeypatch.setattr(node_runner, "marks", {"m"})
    monkeypatch.setattr(node_runner, "MARKED_WITHIN_S", 0.1)
    monkeypatch.setattr(node_runner, "_marked", lambda mark: {7: "D"})
    monkeypatch.setattr(node_runner, "_signal", lambda pid, number: None)
    node_runner.tidy()
    assert not directory.exists()


def test_what_starts_while_it_is_looked_for_is_reached_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look that has not seen the second process, as where it was forked a moment later."""
    looks = iter([{7: "S"}, {7: "T", 8: "S"}, {7: "T", 8: "T"}])
    reached: list[int] = []
    monkeypatch.setattr(node_runner, "_marked", lambda mark: next(looks))
    monkeypatch.setattr(node_runner, "_signal", lambda pid, number: reached.append(pid))
    answer = node_runner.do_signal_marked("m", signal.SIGSTOP, within_s=20.0)
    assert answer == {"there": True, "left": {}}
    assert reached == [7, 8]
    assert next(looks, None) is None


def test_what_has_a_mark_that_was_named_goes_with_the_runner(runner: Runner) -> None:
    marked(runner)
    for mark in (MARK, f"{MARK}self"):
        runner.signal_marked(0, mark)
    assert runner.process.stdin is not None
    runner.process.stdin.close()
    assert runner.process.wait(DEADLINE_S) == 0
    assert not [process for process in psutil.process_iter() if is_marked(process)]


def test_what_cannot_be_done_is_answered_and_the_runner_lives_on(runner: Runner) -> None:
    answer = runner.ask("run", argv=["/no/such/command"], stdin="")
    assert answer["ok"] is False
    assert "FileNotFoundError" in answer["error"]
    assert runner.ask("run", argv=["cat"], stdin="$(id)")["result"]["stdout"] == "$(id)"
