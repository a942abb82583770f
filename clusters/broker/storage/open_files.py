"""How many segments a broker keeps open: as many as the system lets it, and the oldest make room.

A log that rolls often has more segments than a process may have files (batches whose times lie days
apart make one each), so what is not open is opened again when it is read. One thread only.
"""

from __future__ import annotations

import resource
from typing import Final, Protocol

_FEWEST: Final = 32
_SHARE: Final = 4  # of the files that the process may have; the others are connections
_MOST: Final = 1 << 16


class Closable(Protocol):
    def release(self) -> None:
        """Close the file; it is opened again when it is needed."""


class OpenFiles:
    """Who has a file open, in the order of opening."""

    def __init__(self) -> None:
        self._owners: dict[Closable, None] = {}

    def add(self, owner: Closable) -> None:
        """`owner` is about to open its file."""
        while len(self._owners) >= most():
            oldest = next(iter(self._owners))
            del self._owners[oldest]
            oldest.release()
        self._owners[owner] = None

    def discard(self, owner: Closable) -> None:
        self._owners.pop(owner, None)


def most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(_FEWEST, soft // _SHARE))


OPEN_SEGMENTS: Final = OpenFiles()
