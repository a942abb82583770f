"""The sparse indexes of a segment: offset → position (`.index`), timestamp → offset (`.timeindex`).

Entries are kept in memory and appended to their files on `save` (at a flush, a roll and a close):
after a crash the indexes of unflushed segments are rebuilt anyhow, so nothing is lost by that.
Kafka preallocates the file of an active segment with zeros; reading ignores such a tail.
An offset that the four bytes of its entry cannot hold has none: the indexes are sparse anyhow.
Rule: an entry (offset, position) says that the batch at `position` ends with `offset`; an entry
(timestamp, offset) says that no batch up to `offset` is younger than `timestamp`.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final, NamedTuple

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class OffsetIndex:
    """8-byte entries: offset relative to the segment's base (4), position in its log (4)."""

    ENTRY: Final = struct.Struct(">ii")
    SUFFIX: Final = ".index"

    def __init__(self, path: Path, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._max_entries = max_bytes // self.ENTRY.size
        self._offsets = array("q")
        self._positions = array("q")
        self._saved = 0
        self.is_synced = True  # what was saved

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._max_entries

    @property
    def entries(self) -> list[OffsetPosition]:
        return [OffsetPosition(*pair) for pair in zip(self._offsets, self._positions, strict=True)]

    @property
    def last(self) -> OffsetPosition:
        """The last entry; the segment's beginning where there is none."""
        if not self._offsets:
            return OffsetPosition(self._base_offset, 0)
        return OffsetPosition(self._offsets[-1], self._positions[-1])

    def append(self, offset: int, position: int) -> None:
        if max(offset - self._base_offset, position) > MAX_RELATIVE_OFFSET:
            return
        self._offsets.append(offset)
        self._positions.append(position)

    def position_for(self, offset: int) -> int:
        """Where to begin a search for the batch that contains `offset`."""
        found = bisect_right(self._offsets, offset)
        return self._positions[found - 1] if found else 0

    def position_before(self, position: int) -> int:
        """The last indexed position that is not after `position`."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries of batches that begin at or after `position`."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:]
        self._saved = _shrink(self.path, self._saved, keep, self.ENTRY.size)

    def save(self) -> None:
        fresh = zip(self._offsets[self._saved :], self._positions[self._saved :], strict=True)
        data = b"".join(self.ENTRY.pack(o - self._base_offset, p) for o, p in fresh)
        if _append(self.path, self._saved * self.ENTRY.size, data):
            self.is_synced = False
        self._saved = len(self._offsets)

    def load(self) -> bool:
        """Read the file; False where it is missing or cannot be an index: then rebuild it."""
        pairs = _read(self.path, self.ENTRY)
        if pairs is None:
            return False
        for relative_offset, position in pairs:
            self.append(self._base_offset + relative_offset, position)
        self._saved = len(self._offsets)
        return _ascends(self._offsets) and _ascends(self._positions)

    def reset(self) -> None:
        self.truncate_to_position(-1)


class TimeIndex:
    """12-byte entries: timestamp (8), offset relative to the segment's base (4)."""

    ENTRY: Final = struct.Struct(">qi")
    SUFFIX: Final = ".timeindex"

    def __init__(self, path: Path, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._max_entries = max_bytes // self.ENTRY.size
        self._timestamps = array("q")
        self._offsets = array("q")
        self._saved = 0
        self.is_synced = True  # what was saved

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def is_full(self) -> bool:
        return len(self._timestamps) >= self._max_entries - 1  # one is left for the roll

    @property
    def entries(self) -> list[TimestampOffset]:
        return [
            TimestampOffset(*pair) for pair in zip(self._timestamps, self._offsets, strict=True)
        ]

    @property
    def last(self) -> TimestampOffset:
        if not self._timestamps:
            return TimestampOffset(-1, self._base_offset)
        return TimestampOffset(self._timestamps[-1], self._offsets[-1])

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Only a younger timestamp makes an entry."""
        if timestamp > self.last.timestamp and offset - self._base_offset <= MAX_RELATIVE_OFFSET:
            self._timestamps.append(timestamp)
            self._offsets.append(offset)

    def offset_before(self, timestamp: int) -> int:
        """No batch up to this offset is as young as `timestamp`: a search may begin after it."""
        found = bisect_left(self._timestamps, timestamp)
        return self._offsets[found - 1] if found else self._base_offset

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries that speak of `offset` or later ones."""
        keep = bisect_left(self._offsets, offset)
        del self._timestamps[keep:], self._offsets[keep:]
        self._saved = _shrink(self.path, self._saved, keep, self.ENTRY.size)

    def save(self) -> None:
        fresh = zip(self._timestamps[self._saved :], self._offsets[self._saved :], strict=True)
        data = b"".join(self.ENTRY.pack(t, o - self._base_offset) for t, o in fresh)
        if _append(self.path, self._saved * self.ENTRY.size, data):
            self.is_synced = False
        self._saved = len(self._timestamps)

    def load(self) -> bool:
        pairs = _read(self.path, self.ENTRY)
        if pairs is None:
            return False
        for timestamp, relative_offset in pairs:
            self._timestamps.append(timestamp)
            self._offsets.append(self._base_offset + relative_offset)
        self._saved = len(self._timestamps)
        return _ascends(self._timestamps) and _ascends(self._offsets)

    def reset(self) -> None:
        self.truncate_to_offset(-1)


def _ascends(numbers: array[int]) -> bool:
    return all(numbers[i] < numbers[i + 1] for i in range(len(numbers) - 1))


def _read(path: Path, entry: struct.Struct) -> list[tuple[int, int]] | None:
    if not path.exists():
        return None
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    pairs = [(first, second) for first, second in entry.iter_unpack(data[:whole])]
    while pairs and pairs[-1] == (0, 0):  # preallocated, never written
        pairs.pop()
    return pairs if whole == len(data) or not any(data[whole:]) else None


def _append(path: Path, position: int, data: bytes) -> bool:
    """Whether the file was written."""
    if not data and path.exists():
        return False
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.truncate(descriptor, position)  # zeros that were preallocated
        os.pwrite(descriptor, data, position)
    finally:
        os.close(descriptor)
    return True


def _shrink(path: Path, saved: int, keep: int, entry_size: int) -> int:
    saved = min(saved, keep)
    if path.exists() and path.stat().st_size != saved * entry_size:
        os.truncate(path, saved * entry_size)
    return saved
