"""Clocks of processes that can be set while they run: libfaketime, which reads them from a file.

A process that was started with `environment` asks for the time of day through libfaketime, which
adds what the file says; it looks there every second or two, since to look each time would take a
broker longer than its work. Monotonic time stays real, so that waits are as long as they were. The
file is replaced, never written into: nobody reads half of a number.

It must be the build for processes of many threads, libfaketimeMT, as Debian has it: the other one
keeps what it reads where all threads write, and ends brokers in Java within seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from neaptide.clusters.errors import MissingPartError

CLOCK_FILE: Final = "clock"
_LIBRARIES: Final = ("*/faketime/libfaketimeMT.so.1", "faketime/libfaketimeMT.so.1")
_FOLDERS: Final = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))


def find_library() -> Path:
    """Raises MissingPartError."""
    for folder in _FOLDERS:
        for pattern in _LIBRARIES:
            for library in sorted(folder.glob(pattern)):
                return library
    raise MissingPartError(
        "Clock faults need the library libfaketimeMT: apt-get install faketime (Debian's name)."
    )


def environment(library: str, clock: str) -> dict[str, str]:
    """Of a process whose clock can be set; both files are named as the process sees them."""
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": clock,
        "FAKETIME_CACHE_DURATION": "1",  # seconds
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Or waits with a time-out of a Java, which are by monotonic time, return at once.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def write_clock(directory: Path, ahead_ms: int) -> None:
    """How far the clock is ahead of the real one; less than 0 is behind."""
    directory.mkdir(parents=True, exist_ok=True)
    beside = directory / f"{CLOCK_FILE}.new"
    beside.write_text(f"{ahead_ms / 1000:+.3f}\n", encoding="ascii")
    os.replace(beside, directory / CLOCK_FILE)
