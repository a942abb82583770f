"""Failures of a disk, as one process meets them: system calls on its files fail, or take long.

`strace --inject` does it: it attaches to the process that runs, needs no preparation and, for
processes of one's own user, no root (libfiu would have to be there when the process starts, and
misses calls that Java makes by itself). It lets go of the process when it ends, however it ends.
What was injected is in its own log: so a fault that met no call is known from one that did.

Only where the process is one of this machine.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from neaptide.clusters.errors import HostError, MissingPartError
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess, last_line

Call = Literal["write", "fsync"]
CALLS: Final[Mapping[Call, str]] = {
    "write": "write,writev,pwrite64,pwritev,pwritev2",
    "fsync": "fsync,fdatasync,msync,sync_file_range",
}
Errno = Literal["EIO", "ENOSPC"]
_ATTACH_WITHIN_S: Final = 10.0
_END_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.01  # nothing reports that a process is traced but its own status


@dataclass(frozen=True, slots=True)
class IoFault:
    """Calls of one kind fail with `error`, take `delay_ms` longer, or both.

    From the `nth` of each thread on, as strace counts them.
    """

    call: Call
    error: Errno | None = None
    delay_ms: int = 0
    nth: int = 1

    @property
    def injection(self) -> str:
        effects = [] if self.error is None else [f"error={self.error}"]
        effects += [f"delay_enter={self.delay_ms * 1000}"] if self.delay_ms else []
        return ":".join([CALLS[self.call], *effects, f"when={self.nth}+"])


def find_strace() -> str:
    """Raises MissingPartError."""
    strace = shutil.which("strace")
    if strace is None:
        raise MissingPartError("Disk faults need strace: apt-get install strace.")
    return strace


class Injection:
    """A fault that lasts. Make one with `await Injection.start(…)`."""

    def __init__(self, process: RunningProcess, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls, host: LocalHost, pid: int, fault: IoFault, files: Collection[Path], log: Path
    ) -> Injection:
        """Returns when it holds. Raises MissingPartError without strace, HostError otherwise."""
        paths = [part for file in sorted(files) for part in ("-P", str(file))]
        argv = (
            find_strace(), "-f", "-qq", "-o", str(log), "-p", str(pid), *paths,
            "-e", f"trace={CALLS[fault.call]}", "-e", f"inject={fault.injection}",
        )  # fmt: skip
        errors = log.with_suffix(".err")
        process = await host.start(ProcessSpec(f"strace of {pid}", argv, log.parent, errors))
        try:
            async with asyncio.timeout(_ATTACH_WITHIN_S):
                while _tracer_of(pid) != process.pid:
                    if process.returncode is not None:
                        raise HostError(f"strace could not attach: {last_line(errors)}")
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            process.kill()
            raise HostError(f"strace did not attach to the process {pid} in time.") from None
        return cls(process, log)

    async def end(self) -> int:
        """Lets the process go; how many calls were met."""
        self._process.terminate()
        try:
            await self._process.wait(_END_WITHIN_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return 0
        return sum("(INJECTED)" in line or "(DELAYED)" in line for line in lines)


def _tracer_of(pid: int) -> int:
    """The process that traces all threads of this one; 0: none, or not all yet."""
    tracers = set()
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            status = (thread / "status").read_text(encoding="ascii", errors="replace")
            tracers |= {line.split()[1] for line in status.splitlines() if "TracerPid" in line}
    except OSError:
        return 0  # the process, or one of its threads, ended meanwhile
    return int(tracers.pop()) if len(tracers) == 1 else 0
