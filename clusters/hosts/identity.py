"""Which process a pid means: pids are used again, and the clock may be set while a process runs.

A process is its pid, the boot that it belongs to, and when it started, in clock ticks since that
boot, as the kernel counts them (/proc/PID/stat, field 22). None of it moves when somebody sets the
clock, or when a machine wakes up.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_STATE, _START = 0, 19  # fields of a stat file behind the name, which may be anything
_ENDED: Final = ("Z", "X", "x")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@cache
def boot_id() -> str:
    return _BOOT.read_text(encoding="ascii").strip()


def ticks_since_boot() -> int:
    """Now, as start times are counted."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, for ever."""

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this pid now, or None if there is none (or only a zombie)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # it ended while it was read
            return None
        fields = stat.rpartition(b")")[2].decode("ascii").split()
        if fields[_STATE] in _ENDED:
            return None
        return cls(pid, int(fields[_START]), boot_id())

    def lives(self) -> bool:
        """Whether this very process, and not a later one with its pid, is running."""
        return ProcessIdentity.of(self.pid) == self
