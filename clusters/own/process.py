"""A broker that a command of the user's has started: everything that came of it, or a pid file.

What a command starts, in the foreground, behind a script or in the background, is known by a
variable in its environment, which all that it starts inherits. What somebody else starts for it (a
service manager, a container's engine) has that not: its pid is in a file, or `kill` and `stop` are
commands of their own. All are processes of this machine, or are ended by a command here; on another
machine (ssh) the runner there looks for the variable; in a container all end with the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import psutil

from neaptide.clusters.errors import HostError
from neaptide.clusters.hosts.host import Marked, NodeProcess
from neaptide.clusters.hosts.identity import ProcessIdentity
from neaptide.clusters.hosts.ledger import Ledger
from neaptide.clusters.hosts.local import last_line
from neaptide.clusters.own.model import Argv

MARK: Final = "NEAPTIDE_NODE"  # of one start of one node
PID: Final = "{pid}"  # in a command, until it is run
OUTSIDE: Final = "process of the user's own"  # in the ledger: what the ledger's own mark is not on
_LOOK_S: Final = 0.02  # nothing reports the end or the stop of what is no child
_STANDS_LOOK_S: Final = 0.5
_DIES_WITHIN_S: Final = 20.0
_EFFECT_WITHIN_S: Final = 20.0  # of a signal
_REACHED_WITHIN_S: Final = 5.0  # what starts others faster than they can be looked for
_PID_WITHIN_S: Final = 30.0
_COMMAND_S: Final = 30.0
_NO_SIGNAL: Final = 0
_FIRST_PID: Final = "1"  # of a container, as it is seen in it

Run = Callable[[Argv, str], Awaitable[None]]  # a command of the user's, and what it is for


@dataclass(frozen=True, slots=True)
class Commands:
    """In place of signals, ready to be run; None: the signal."""

    stop: Argv | None = None
    kill: Argv | None = None
    pause: Argv | None = None
    resume: Argv | None = None


class OwnProcess:
    """Implements clusters.hosts.host.NodeProcess.

    `started`: what the host has started; `mark`: of all that this is, in their environments.
    `run` runs a command for it. `outside`: the process of a pid file.
    """

    def __init__(
        self,
        name: str,
        started: NodeProcess,
        mark: str,
        commands: Commands,
        run: Run,
        outside: ProcessIdentity | None = None,
    ) -> None:
        self._name = name
        self._started = started
        self._mark = mark
        self._commands = commands
        self._run = run
        self._known: list[ProcessIdentity] = [] if outside is None else [outside]
        self._is_outside = outside is not None
        self._ended: int | None = None
        self._stands = False
        self._look_at = 0.0

    @property
    def returncode(self) -> int | None:
        """That of what was started, once nothing of it is left."""
        if self._ended is not None:
            return self._ended
        status = self._started.returncode
        if status is None and not self._is_outside:
            return None
        if any(one.lives() for one in self._known):
            return None
        if not self._is_outside:
            self._known = marked(self._mark)
            if self._known:
                return None
        self._ended = status or 0
        return self._ended

    @property
    def is_stopped(self) -> bool:
        """All of it. To look for it takes a while: it is looked for twice a second."""
        if self._ended is not None:
            return False
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _STANDS_LOOK_S
            members = self._members()
            self._stands = bool(members) and all(_is_stopped(one) for one in members)
        return self._stands

    def _members(self) -> list[ProcessIdentity]:
        if self._is_outside:
            return [one for one in self._known if one.lives()]
        return marked(self._mark)

    async def terminate(self) -> None:
        await self._do(self._commands.stop, "stop", signal.SIGTERM)

    async def kill(self) -> None:
        """Returns when nothing of it is left. Raises HostError where it does not die."""
        await self._do(self._commands.kill, "kill", signal.SIGKILL)
        deadline = time.monotonic() + _DIES_WITHIN_S
        while self.returncode is None and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)
            if self._commands.kill is None:
                self._signal_all(signal.SIGKILL)
        if self.returncode is None:
            raise HostError(f"{self._name} lives {_DIES_WITHIN_S:.0f} s after it was killed.")

    async def pause(self) -> None:
        if self.returncode is not None:
            raise HostError(f"{self._name} ended before it could be paused.")
        await self._do(self._commands.pause, "pause", signal.SIGSTOP)
        if self._commands.pause is not None:
            return
        await self._await_effect(True, signal.SIGSTOP, "runs", "paused")
        if self.returncode is not None:
            raise HostError(f"{self._name} ended while it was being paused.")

    async def resume(self) -> None:
        """Raises HostError where it does not go on."""
        await self._do(self._commands.resume, "resume", signal.SIGCONT)
        if self._commands.resume is None:
            await self._await_effect(False, signal.SIGCONT, "stands still", "resumed")
        self._look_at = 0.0

    async def _await_effect(
        self, stopped: bool, number: signal.Signals, does: str, done: str
    ) -> None:
        """Signals again until each process of it is stopped, or none is; who is gone is neither."""
        deadline = time.monotonic() + _EFFECT_WITHIN_S
        other = not stopped
        while any(one.lives() and _is_stopped(one) is other for one in self._members()):
            if time.monotonic() >= deadline:
                raise HostError(
                    f"{self._name} {does} {_EFFECT_WITHIN_S:.0f} s after it was {done}."
                )
            await asyncio.sleep(_LOOK_S)
            self._signal_all(number)

    async def wait(self, timeout_s: float | None = None) -> int:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (status := self.returncode) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._name} did not end within {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)
        return status

    async def _do(self, command: Argv | None, what: str, number: signal.Signals) -> None:
        if self.returncode is not None:
            return
        if command is None:
            self._signal_all(number)
        else:
            pid = str(next((one.pid for one in self._members()), ""))
            await self._run(tuple(word.replace(PID, pid) for word in command), what)

    def _signal_all(self, number: signal.Signals) -> None:
        """Once to each process, and to those that start meanwhile: until a look finds none new."""
        reached: set[ProcessIdentity] = set()
        deadline = time.monotonic() + _REACHED_WITHIN_S
        while time.monotonic() < deadline:
            new = [one for one in self._members() if one not in reached]
            if not new:
                return
            for one in new:
                _signal(one, number)
            reached.update(new)

    def end_now(self) -> None:
        """Without an event loop: what is left is killed, and by a command where there is one."""
        kill = self._commands.kill
        if self.returncode is None and kill is not None and needs_no_pid(kill):
            _run_now(kill)
        self._signal_all(signal.SIGKILL)


def needs_no_pid(command: Argv) -> bool:
    """Where it needs one, what it ends is a process of this machine, and is ended as such."""
    return not any(PID in word for word in command)


@runtime_checkable
class MarkingHost(Protocol):
    """A host whose nodes are other machines, and which finds there what has a mark."""

    async def signal_marked(self, node: int, mark: str, number: int, within_s: float) -> Marked: ...


@runtime_checkable
class MountingHost(Protocol):
    """A host whose nodes are containers, and see of this machine's disk what is mounted."""

    def mount(self, node: int, directory: Path, *, writable: bool = False) -> None: ...


class InContainer(NodeProcess, Protocol):
    """The first process of a container, with which all others in it end."""

    async def run_beside(self, argv: Sequence[str], log: Path) -> int | None: ...


class ContainedProcess:
    """Implements clusters.hosts.host.NodeProcess in a container: its kill and its pause are the
    container's, and reach all that `started` has started. `stop`: a command, run in it."""

    def __init__(self, name: str, started: InContainer, stop: Argv, log: Path) -> None:
        self._name = name
        self._started = started
        self._stop = tuple(word.replace(PID, _FIRST_PID) for word in stop)
        self._log = log

    @property
    def returncode(self) -> int | None:
        return self._started.returncode

    @property
    def is_stopped(self) -> bool:
        return self._started.is_stopped

    async def terminate(self) -> None:
        """Raises HostError where the command fails."""
        if self.returncode is None:
            status = await self._started.run_beside(self._stop, self._log)
            if status:  # None: it ended with what it stopped
                raise HostError(
                    f"The command stop of {self._name} ended, status {status}; its log {self._log}"
                    f" says last: {last_line(self._log)}"
                )

    async def kill(self) -> None:
        await self._started.kill()

    async def pause(self) -> None:
        await self._started.pause()

    async def resume(self) -> None:
        await self._started.resume()

    async def wait(self, timeout_s: float | None = None) -> int:
        return await self._started.wait(timeout_s)


class RemoteProcess:
    """Implements clusters.hosts.host.NodeProcess on another machine, where `started` stays in the
    foreground: signals reach all that came of it, and have their effect, or are errors."""

    def __init__(
        self, name: str, started: NodeProcess, mark: str, host: MarkingHost, node: int
    ) -> None:
        self._name = name
        self._started = started
        self._mark = f"{MARK}={mark}"
        self._host = host
        self._node = node

    @property
    def returncode(self) -> int | None:
        return self._started.returncode

    @property
    def is_stopped(self) -> bool:
        return self._started.is_stopped

    async def begin(self) -> None:
        """From now on nothing of it outlives the runner of its machine."""
        await self._signal(_NO_SIGNAL)

    async def terminate(self) -> None:
        await self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Returns when nothing of it is left. Raises HostError where it does not die."""
        self._expect_none_left(await self._signal(signal.SIGKILL), "lives", "killed")

    async def pause(self) -> None:
        """Raises HostError where it does not stop, or has ended."""
        after = await self._signal(signal.SIGSTOP)
        self._expect_none_left(after, "runs", "paused")
        if not after.there:
            raise HostError(f"{self._name} ended before it could be paused.")

    async def resume(self) -> None:
        """Raises HostError where it does not go on."""
        self._expect_none_left(await self._signal(signal.SIGCONT), "stands still", "resumed")

    async def _signal(self, number: int) -> Marked:
        return await self._host.signal_marked(self._node, self._mark, number, _EFFECT_WITHIN_S)

    def _expect_none_left(self, after: Marked, does: str, what_was_done: str) -> None:
        if after.left:
            which = ", ".join(f"process {pid} (state {s})" for pid, s in after.left.items())
            raise HostError(
                f"{self._name} {does} {_EFFECT_WITHIN_S:.0f} s after it was {what_was_done}: on its"
                f" machine {which}."
            )

    async def wait(self, timeout_s: float | None = None) -> int:
        """A clean end is over when nothing of it is left."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        status = await self._started.wait(timeout_s)
        while (await self._signal(_NO_SIGNAL)).there:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._name} did not end within {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)
        return status


def marked(mark: str) -> list[ProcessIdentity]:
    """All processes of this machine that have this mark, zombies left out."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone, or not ours to look into
            if process.environ().get(MARK) == mark:
                identity = ProcessIdentity.of(process.pid)
                if identity is not None:
                    found.append(identity)
    return found


async def read_pid(file: Path, since_ticks: int, name: str) -> ProcessIdentity:
    """The process that a pid file names, of which none from before `since_ticks` counts.

    Raises HostError.
    """
    deadline = time.monotonic() + _PID_WITHIN_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            identity = ProcessIdentity.of(int(file.read_text(encoding="ascii").strip()))
            if identity is not None and identity.start_ticks >= since_ticks:
                return identity
        await asyncio.sleep(_LOOK_S)
    raise HostError(
        f"{name} has no process: {file} named none that was started, {_PID_WITHIN_S:.0f} s after"
        " its start command."
    )


def _is_stopped(one: ProcessIdentity) -> bool | None:
    """None: it is gone. One that waits in the kernel and has a SIGSTOP pending counts: it runs no
    more of its own before it is stopped (a parent in vfork(2) whose child was stopped before it
    could exec waits so for as long as the child is)."""
    try:
        status = psutil.Process(one.pid).status()
    except psutil.NoSuchProcess:
        return None
    return bool(
        status == psutil.STATUS_STOPPED
        or (status == psutil.STATUS_DISK_SLEEP and _has_stop_pending(one.pid))
    )


def _has_stop_pending(pid: int) -> bool:
    """By the signals that wait for all of its threads (proc(5), ShdPnd)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    pending = next((one for one in lines.splitlines() if one.startswith("ShdPnd:")), "ShdPnd: 0")
    return bool(int(pending.split()[1], 16) >> (signal.SIGSTOP - 1) & 1)


def _signal(one: ProcessIdentity, number: signal.Signals) -> None:
    if one.lives():
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, number)


# --- what a harness that was killed has left -----------------------------------------------------


def enter(ledger: Ledger, *, kill: Argv | None = None, one: ProcessIdentity | None = None) -> None:
    """Has a later harness end it, should this one be killed."""
    said: Mapping[str, Any]
    if kill is not None:
        said = {"kill": list(kill)}
    else:
        assert one is not None
        said = asdict(one)
    ledger.intend_resource(OUTSIDE, json.dumps(said))


def end_left(name: str) -> bool:
    """A ledger.Remover. What does not live any more is no error."""
    said = json.loads(name)
    if "kill" in said:
        return _run_now(tuple(said["kill"]))
    if "boot" in said:  # earlier versions wrote what the clock showed, which proves nothing
        _signal(ProcessIdentity(**said), signal.SIGKILL)
    return True


def _run_now(command: Argv) -> bool:
    """Whether it could be run; how it ended is not asked, for what it kills may be dead."""
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return True
