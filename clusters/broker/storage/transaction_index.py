"""The aborted transactions of a log, as `.txnindex` files: one a segment, in the order of markers.

Who reads committed records alone is given those that concern what it reads. An entry is in the file
of the segment that has its marker; the file goes with the segment. What the log itself says is the
truth: at a start the entries are made anew from it.
Source: KIP-98, Kafka's TransactionIndex and AbortedTxn (34 bytes an entry).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction

SUFFIX: Final = ".txnindex"
_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")


class TransactionIndex:
    """Raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._entries: list[AbortedTransaction] = []

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        return tuple(self._entries)

    def append(self, aborted: Iterable[AbortedTransaction], segment_base: int) -> None:
        """They have just ended, in the log's last segment."""
        new = list(aborted)
        if new:
            with self._path(segment_base).open("ab") as file:
                file.write(_bytes_of(new))
            self._entries += new

    def rebuild(self, aborted: Iterable[AbortedTransaction], segment_bases: Sequence[int]) -> None:
        """All that the log has, in the order of their markers."""
        self._entries = list(aborted)
        by_segment: dict[int, list[AbortedTransaction]] = {base: [] for base in segment_bases}
        for one in self._entries:
            number = bisect_right(segment_bases, one.last_offset) - 1
            by_segment[segment_bases[max(0, number)]].append(one)
        for base, entries in by_segment.items():
            path, data = self._path(base), _bytes_of(entries)
            if data and not (path.exists() and path.read_bytes() == data):
                path.write_bytes(data)
            elif not data:
                path.unlink(missing_ok=True)

    def truncate_to(self, end_offset: int, segment_bases: Sequence[int]) -> None:
        """The log was cut there."""
        left = [one for one in self._entries if one.last_offset < end_offset]
        if len(left) < len(self._entries):
            self.rebuild(left, segment_bases)

    def delete_before(self, start_offset: int) -> None:
        """Segments before it are gone, and their files with them."""
        first = bisect_left(self._entries, start_offset, key=lambda one: one.last_offset)
        del self._entries[:first]

    def within(self, first_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Those that have something from one offset to before the other."""
        found = []
        at = bisect_left(self._entries, first_offset, key=lambda one: one.last_offset)
        for entry in self._entries[at:]:
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                break  # what ended later began later
        return tuple(found)

    def _path(self, segment_base: int) -> Path:
        return self._directory / f"{segment_base:020d}{SUFFIX}"


def _bytes_of(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
