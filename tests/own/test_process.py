"""What a command of the user's has started, whatever shape it has: ended and paused whole."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from neaptide.clusters.errors import HostError
from neaptide.clusters.hosts.host import LocalNodeProcess, Marked
from neaptide.clusters.hosts.identity import ProcessIdentity, ticks_since_boot
from neaptide.clusters.hosts.ledger import Ledger
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec
from neaptide.clusters.own import process as own
from neaptide.clusters.own.model import Argv
from neaptide.clusters.own.process import (
    MARK,
    Commands,
    OwnProcess,
    RemoteProcess,
    end_left,
    enter,
    read_pid,
)

pytestmark = pytest.mark.live
SLEEPS = {
    "it is the command itself": "exec sleep 600",
    "a script that waits for it": "sleep 600; true",
    "a script with two of them": "sleep 600 & sleep 600; true",
    "in the background, the script has ended": "sleep 600 &",
    "in a session of its own": "setsid sleep 600 &",
}


@asynccontextmanager
async def started(
    directory: Path, script: str, commands: Commands | None = None
) -> AsyncIterator[OwnProcess]:
    host = LocalHost(Ledger(directory / "ledger"))
    mark = str(directory)
    try:
        spec = ProcessSpec(
            "it", ("sh", "-c", script), directory, directory / "it.log", {MARK: mark}
        )

        async def run(argv: Argv, what: str) -> None:
            log = directory / f"{what}.log"
            command = await host.start(ProcessSpec(what, argv, directory, log))
            assert await command.wait(20) == 0

        process = LocalNodeProcess(await host.start(spec))
        one = OwnProcess("it", process, mark, commands or Commands(), run)
        await until(lambda: any(is_sleeping(p) for p in own.marked(mark)))
        yield one
    finally:
        one.end_now()
        host.close_now()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def is_sleeping(one: ProcessIdentity) -> bool:
    try:
        return bool(psutil.Process(one.pid).name() == "sleep")
    except psutil.NoSuchProcess:
        return False


def states(directory: Path) -> set[str]:
    """Who waits in vfork(2) for a child that was stopped is stopped, too."""
    return {
        psutil.STATUS_STOPPED if own._is_stopped(one) else psutil.Process(one.pid).status()
        for one in own.marked(str(directory))
    }


# A child that is stopped before it has another program keeps its parent in vfork(2).
WAITS_IN_VFORK = f"""sleep 600 & exec {sys.executable} -c '
import ctypes, os, signal, time
if ctypes.PyDLL(None).vfork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
time.sleep(600)
'"""


def test_who_waits_for_a_stopped_child_in_vfork_is_paused(tmp_path: Path) -> None:
    async def work() -> None:
        async with started(tmp_path, WAITS_IN_VFORK) as one:

            def seen() -> set[str]:
                return {psutil.Process(each.pid).status() for each in own.marked(str(tmp_path))}

            running = {psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP, psutil.STATUS_STOPPED}
            await until(lambda: seen() == running)
            assert states(tmp_path) == running  # it waits there, and nobody has stopped it
            await one.pause()
            assert states(tmp_path) == {psutil.STATUS_STOPPED}
            assert one.is_stopped
            await one.kill()

    go(work())


def go(work: Awaitable[None]) -> None:
    async def all_of_it() -> None:
        await work

    asyncio.run(all_of_it())


@pytest.mark.parametrize("script", SLEEPS.values(), ids=list(SLEEPS))
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_all_of_it_is_ended(tmp_path: Path, script: str, how: str) -> None:
    async def work() -> None:
        async with started(tmp_path, script) as one:
            assert one.returncode is None
            await getattr(one, how)()
            await one.wait(20)
            assert one.returncode is not None
            assert own.marked(str(tmp_path)) == []

    go(work())


@pytest.mark.parametrize("script", SLEEPS.values(), ids=list(SLEEPS))
def test_all_of_it_is_paused_and_goes_on(tmp_path: Path, script: str) -> None:
    async def work() -> None:
        async with started(tmp_path, script) as one:
            await one.pause()
            assert states(tmp_path) == {psutil.STATUS_STOPPED}
            assert one.returncode is None
            await one.resume()
            assert psutil.STATUS_STOPPED not in states(tmp_path)
            await until(lambda: states(tmp_path) == {psutil.STATUS_SLEEPING})
            await one.pause()
            await one.kill()
            assert own.marked(str(tmp_path)) == []

    go(work())


@pytest.mark.parametrize("how", ["pause", "kill", "terminate"])
def test_what_starts_while_it_is_looked_for_is_reached_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A look that has not seen the last process, as where it was forked a moment later."""
    looks = iter([False])

    def marked(mark: str) -> list[ProcessIdentity]:
        found = real(mark)
        return found if next(looks, True) else found[:-1]

    async def work() -> None:
        async with started(tmp_path, SLEEPS["a script with two of them"]) as one:
            await until(lambda: len(real(str(tmp_path))) == 3)
            monkeypatch.setattr(own, "marked", marked)
            await getattr(one, how)()
            assert next(looks, None) is None
            if how == "pause":
                assert states(tmp_path) == {psutil.STATUS_STOPPED}
            else:
                await one.wait(20)

    real = own.marked
    monkeypatch.setattr(own, "_EFFECT_WITHIN_S", 5.0)
    go(work())


def test_what_does_not_stop_or_go_on_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with started(tmp_path, "exec sleep 600") as one:
            for signal_it, does in ((one.pause, "runs"), (one.resume, "stands still")):
                with monkeypatch.context() as patched:
                    patched.setattr(own, "_EFFECT_WITHIN_S", 0.3)
                    patched.setattr(own, "_signal", lambda one, number: None)
                    with pytest.raises(HostError, match=f"it {does} 0 s after it was"):
                        await signal_it()
                await one.pause()

    go(work())


def test_what_has_ended_cannot_be_paused(tmp_path: Path) -> None:
    async def work() -> None:
        async with started(tmp_path, "exec sleep 600") as one:
            await one.kill()
            with pytest.raises(HostError, match="it ended before it could be paused"):
                await one.pause()

    go(work())


def test_commands_take_the_place_of_signals(tmp_path: Path) -> None:
    pause = ("sh", "-c", "kill -STOP {pid}; touch paused")
    resume = ("sh", "-c", "kill -CONT {pid}; touch resumed")
    kill = ("sh", "-c", "kill -KILL {pid}; touch killed")

    async def work() -> None:
        commands = Commands(kill=kill, pause=pause, resume=resume)
        async with started(tmp_path, "exec sleep 600", commands) as one:
            await one.pause()
            await until(lambda: states(tmp_path) == {psutil.STATUS_STOPPED})
            await one.resume()
            await one.kill()

    go(work())
    assert all((tmp_path / name).exists() for name in ("paused", "resumed", "killed"))


def test_a_kill_that_does_not_kill_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin is the test before: there nothing is said."""
    monkeypatch.setattr(own, "_DIES_WITHIN_S", 0.3)

    async def work() -> None:
        async with started(tmp_path, "exec sleep 600", Commands(kill=("true",))) as one:
            with pytest.raises(HostError, match="it lives 0 s after it was killed"):
                await one.kill()

    go(work())


def test_the_process_of_a_pid_file_is_the_broker(tmp_path: Path) -> None:
    """Somebody else has started it: it has no mark. One from before does not count."""
    file = tmp_path / "pid"

    async def work() -> None:
        host = LocalHost(Ledger(tmp_path / "ledger"))
        try:
            sleeps = ProcessSpec("x", ("sleep", "600"), tmp_path, tmp_path / "x.log")
            since = ticks_since_boot()
            other = await host.start(sleeps)
            file.write_text(f"{other.pid}\n", encoding="ascii")
            found = await read_pid(file, since, "it")
            starter = LocalNodeProcess(
                await host.start(ProcessSpec("s", ("true",), tmp_path, tmp_path / "s.log"))
            )

            async def run(argv: Argv, what: str) -> None:
                raise AssertionError(what)

            one = OwnProcess("it", starter, "no such mark", Commands(), run, found)
            await starter.wait(20)
            assert one.returncode is None
            await one.kill()
            assert await other.wait(20) == -9
            with pytest.raises(HostError, match="it has no process"):
                await read_pid(file, ticks_since_boot() + 6000, "it")
        finally:
            host.close_now()

    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patched:
        patched.setattr(own, "_PID_WITHIN_S", 0.5)
        go(work())


def test_a_later_harness_ends_what_is_in_the_ledger(tmp_path: Path) -> None:
    names = []

    class Noted:
        def intend_resource(self, kind: str, name: str) -> None:
            assert kind == own.OUTSIDE
            names.append(name)

    async def work() -> None:
        async with started(tmp_path, "exec sleep 600") as one:
            [living] = own.marked(str(tmp_path))
            enter(Noted(), one=living)  # type: ignore[arg-type]
            enter(Noted(), kill=("touch", str(tmp_path / "ran")))  # type: ignore[arg-type]
            another = json.dumps({**asdict(living), "start_ticks": living.start_ticks - 100})
            assert end_left(another)  # its pid is somebody else's now
            assert living.lives()
            assert all(end_left(name) for name in names)
            await one.wait(20)
            assert end_left(names[0])  # it is gone: no error
            assert not end_left(json.dumps({"kill": ["/no/such/program"]}))

    go(work())
    assert (tmp_path / "ran").exists()


# --- on another machine --------------------------------------------------------------------------


class FakeMachine:
    """Implements MarkingHost: a machine that answers this, and what it was asked for."""

    def __init__(self, answer: Marked) -> None:
        self._answer = answer
        self.asked: list[tuple[int, str, int]] = []

    async def signal_marked(self, node: int, mark: str, number: int, within_s: float) -> Marked:
        assert within_s == 20.0
        self.asked.append((node, mark, number))
        return self._answer


def go_remotely(how: str, answer: Marked) -> list[tuple[int, str, int]]:
    machine = FakeMachine(answer)
    started: Any = None  # signals go to what has the mark
    go(getattr(RemoteProcess("The broker 2", started, "m", machine, 2), how)())
    return machine.asked


@pytest.mark.parametrize(
    ("how", "number", "there"),
    [
        ("pause", signal.SIGSTOP, True),
        ("resume", signal.SIGCONT, True),
        ("resume", signal.SIGCONT, False),  # it was killed meanwhile, as on this machine
        ("kill", signal.SIGKILL, False),
        ("terminate", signal.SIGTERM, True),
    ],
)
def test_a_signal_that_has_its_effect_on_another_machine(
    how: str, number: int, there: bool
) -> None:
    assert go_remotely(how, Marked(there, {})) == [(2, f"{MARK}=m", number)]


@pytest.mark.parametrize(
    ("how", "left", "says"),
    [
        (
            "pause",
            {4711: "D"},
            "The broker 2 runs 20 s after it was paused: on its machine process 4711 (state D).",
        ),
        (
            "pause",
            {4711: "D", 4712: "R"},
            "The broker 2 runs 20 s after it was paused: on its machine process 4711 (state D),"
            " process 4712 (state R).",
        ),
        (
            "resume",
            {4711: "T"},
            "The broker 2 stands still 20 s after it was resumed: on its machine process 4711"
            " (state T).",
        ),
        (
            "kill",
            {4711: "D"},
            "The broker 2 lives 20 s after it was killed: on its machine process 4711 (state D).",
        ),
    ],
)
def test_a_signal_without_effect_on_another_machine_is_an_error(
    how: str, left: dict[int, str], says: str
) -> None:
    with pytest.raises(HostError) as raised:
        go_remotely(how, Marked(True, left))
    assert str(raised.value) == says


def test_what_has_ended_on_another_machine_cannot_be_paused() -> None:
    with pytest.raises(HostError, match="The broker 2 ended before it could be paused"):
        go_remotely("pause", Marked(False, {}))
