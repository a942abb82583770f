"""Clocks of processes that can be set while they run: libfaketime, which reads them from a file.

A process that was started with `environment` asks for the time of day through libfaketime, which
adds what the file says. Monotonic time stays real, so that waits are as long as they were. The file
is replaced, never written into: nobody reads half of a number.

The library comes with the package libfaketime, an extra (`clocks`), and is not imported.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Final

from neaptide.clusters.errors import MissingPartError

CLOCK_FILE: Final = "clock"
_LIBRARY: Final = Path("vendor", "libfaketime", "src", "libfaketime.so.1")


def find_library() -> Path:
    """Raises MissingPartError."""
    found = importlib.util.find_spec("libfaketime")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (library := Path(folder) / _LIBRARY).is_file():
            return library
    raise MissingPartError(
        "Clock faults need the library libfaketime: pip install 'neaptide[clocks]'."
    )


def environment(library: str, clock: str) -> dict[str, str]:
    """Of a process whose clock can be set; both files are named as the process sees them."""
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": clock,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def write_clock(directory: Path, ahead_ms: int) -> None:
    """How far the clock is ahead of the real one; less than 0 is behind."""
    directory.mkdir(parents=True, exist_ok=True)
    beside = directory / f"{CLOCK_FILE}.new"
    beside.write_text(f"{ahead_ms / 1000:+.3f}\n", encoding="ascii")
    os.replace(beside, directory / CLOCK_FILE)
