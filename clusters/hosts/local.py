"""The local host: nodes are processes of this machine.

Not a container runtime and not a supervisor. Every process is in the ledger before it runs, has
a session of its own (a Ctrl-C in the terminal reaches only the harness), and is gone after
`close()`, at the latest when the harness exits; after a SIGKILL of the harness, the next command
ends it (`ledger.reap_orphans`). Processes are ended by pid, never by name. Linux: pidfd_open(2).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE, Ledger

TERM_GRACE_S: Final = 5.0
_OTHERS: Final = 0o077  # a umask: what a process of ours writes is for its user alone
_TRACE_LINES_MAX: Final = 100
_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")  # of a Java stack trace


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. With `pipes`, standard input and output belong to the harness."""

    name: str
    argv: Sequence[str]
    directory: Path
    stdout_log: Path  # standard error goes there too; with `pipes`, standard error alone
    env: Mapping[str, str] = field(default_factory=dict)  # added to the harness's own
    pipes: bool = False


class RunningProcess:
    """A process of ours, from its start until it has been waited for."""

    def __init__(self, spec: ProcessSpec, popen: subprocess.Popen[bytes]) -> None:
        self.spec = spec
        self.popen = popen

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self.popen.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether all its threads stand still, as after `pause`."""
        if self.popen.poll() is not None:
            return False
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        except psutil.NoSuchProcess:
            return False

    def trouble(self) -> str | None:
        """A sentence if it does not run: how it ended and what it said last, or that it stands."""
        who = f"The process {self.spec.name} (pid {self.pid})"
        status = self.returncode
        if status is None:
            return f"{who} is stopped: somebody sent it a SIGSTOP." if self.is_stopped else None
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended, status {status}"
        log = self.spec.stdout_log
        return f"{who} {how}; its log {log} says last: {last_line(log)}"

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once (SIGKILL), paused or not."""
        self._signal(signal.SIGKILL)

    async def pause(self) -> None:
        """Stop all its threads; returns when the kernel says that they have stopped."""
        self._signal(signal.SIGSTOP)
        if self.popen.poll() is not None or not await asyncio.to_thread(_stopped, self.pid):
            raise RuntimeError(f"{self.spec.name} ended while it was being paused")

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    async def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status, once it has ended; TimeoutError if that takes too long."""
        if self.popen.poll() is None:
            async with asyncio.timeout(timeout_s):
                await _ended(self.pid)
        return self.popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        # poll() reaps under a lock, so that the pid cannot have passed to somebody else.
        if self.popen.poll() is None:
            self.popen.send_signal(number)


def last_line(log: Path) -> str:
    """What a process said last, for a sentence about its end."""
    return last_said(last_lines(log, _TRACE_LINES_MAX)) or "nothing"


def last_said(lines: str) -> str:
    """The last line that is not a frame of a Java stack trace; empty where there is none."""
    said = [line for line in lines.splitlines() if line.strip() and not _FRAME.match(line)]
    return said[-1] if said else ""


def last_lines(log: Path, count: int) -> str:
    """Empty where there is no log."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-count:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _stopped(pid: int) -> bool:
    """Wait until a child has stopped or ended: True if it has stopped."""
    result = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return result is not None and result.si_code == os.CLD_STOPPED


async def _ended(pid: int) -> None:
    """Return when the kernel reports the end of a child."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    handle = os.pidfd_open(pid)
    try:
        loop.add_reader(handle, done.set)
        await done.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


class LocalHost:
    """Starts processes and answers for their end."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()
        self._running: list[RunningProcess] = []
        self._endings: list[Callable[[], None]] = []
        self._closed = False
        atexit.register(self.close_now)

    @property
    def running(self) -> tuple[RunningProcess, ...]:
        """What was started and has not ended."""
        return tuple(process for process in self._running if process.returncode is None)

    def at_end(self, ending: Callable[[], None]) -> None:
        """Have this done once all processes have ended; what fails stays in the ledger."""
        self._endings.append(ending)

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Run a process: written down first, then started, then written down with its pid."""
        if self._closed:
            raise RuntimeError(f"cannot start {spec.name}: this host is closed")
        spec.directory.mkdir(parents=True, exist_ok=True)
        spec.stdout_log.parent.mkdir(parents=True, exist_ok=True)
        token = self.ledger.intend(spec.name, spec.directory)
        pipe = subprocess.PIPE if spec.pipes else None
        spec.stdout_log.touch(mode=0o600)
        with spec.stdout_log.open("ab") as log:
            popen = subprocess.Popen(
                list(spec.argv),
                cwd=spec.directory,
                env={**os.environ, **spec.env, TOKEN_VARIABLE: token},
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
                start_new_session=True,
                umask=_OTHERS,
            )
        process = RunningProcess(spec, popen)
        self._running.append(process)
        self.ledger.started(token, popen.pid)
        return process

    async def close(self) -> None:
        """End everything: wake what is paused, ask, and after a grace kill. Idempotent."""
        if self._closed:
            return
        for process in self.running:
            process.terminate()
            process.resume()
        waits = (process.wait(TERM_GRACE_S) for process in self.running)
        await asyncio.gather(*waits, return_exceptions=True)
        self.close_now()

    def close_now(self) -> None:
        """End everything without a grace, and without an event loop. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for process in self.running:
            process.kill()
        for process in self._running:
            process.popen.wait()
            for stream in (process.popen.stdin, process.popen.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        atexit.unregister(self.close_now)
        for ending in reversed(self._endings):
            ending()
        self.ledger.close()
