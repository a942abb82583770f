"""One segment of a log: a `.log` file of record batches with its two sparse indexes.

Not thread-safe and without a clock of its own. Appends go to a known position (`pwrite`), so that a
write that fails halfway leaves bytes behind the end, which the next one overwrites, and never a
hole. What is on disk is trusted only up to the recovery point; behind it `recover` reads all.
Rule: an index entry is due when more than `index.interval.bytes` were appended since the last one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.errors import CorruptBatchError, RecordBatchError
from neaptide.clusters.broker.storage.indexes import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from neaptide.clusters.broker.storage.open_files import OPEN_SEGMENTS
from neaptide.clusters.broker.storage.record_batch import (
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    parse_header,
    validate_checksum,
)
from neaptide.clusters.broker.storage.scan import headers_from, scan
from neaptide.clusters.broker.storage.tail_index import TailIndex

LOG_SUFFIX: Final = ".log"
DELETED_SUFFIX: Final = ".deleted"  # until the file is removed; also after a crash
_OTHER_SUFFIXES: Final = (".txnindex", ".snapshot")  # left by a real Kafka


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    def __init__(self, directory: Path, base_offset: int, config: LogConfig, now_ms: int) -> None:
        name = segment_name(base_offset)
        index_bytes = config.segment_index_bytes
        self.base_offset = base_offset
        self.path = directory / (name + LOG_SUFFIX)
        self.offset_index = OffsetIndex(directory / f"{name}.index", base_offset, index_bytes)
        self.time_index = TimeIndex(directory / f"{name}.timeindex", base_offset, index_bytes)
        self.config = config
        self._created_ms = now_ms
        self._descriptor: int | None = None
        self.size = os.fstat(self._file(os.O_CREAT)).st_size
        self._forget_contents()

    def _file(self, flags: int = 0) -> int:
        """Its descriptor; the file is opened where it is not, and closed when others need it."""
        if self._descriptor is None:
            OPEN_SEGMENTS.add(self)
            self._descriptor = os.open(self.path, os.O_RDWR | flags, 0o644)
        return self._descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _forget_contents(self) -> None:
        self.next_offset = self.base_offset
        self.max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = NO_TIMESTAMP
        self._unindexed_bytes = 0
        self._tail = TailIndex()

    # --- opening -------------------------------------------------------------------------------

    def load(self) -> None:
        """Take the indexes at their word and read only what lies behind their last entry."""
        if not (self.offset_index.load() and self.time_index.load()):
            self.recover()
            return
        self.max_timestamp, self._offset_of_max_timestamp = self.time_index.last
        last = self.offset_index.last.position
        if len(self.offset_index) and last >= self.size:
            self.recover()
            return
        try:
            if self.size:
                self._first_timestamp = next(self.headers_from(0))[1].max_timestamp
            for _, header in self.headers_from(last):
                self._note(header)
        except RecordBatchError:
            self.recover()
            return
        self._unindexed_bytes = self.size - last

    def recover(self) -> tuple[int, list[EpochEntry]]:
        """Read every batch, cut at the first bad one, rebuild the indexes.

        Returns the bytes that were cut, and the leader epochs of what stays.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self._forget_contents()
        end, self.size = self.size, 0
        epochs: list[EpochEntry] = []
        try:
            for _, header, _, _ in scan(self._file(), end, _parse_sound):
                if header.base_offset < self.next_offset:
                    raise CorruptBatchError(f"offset {header.base_offset} comes twice")
                self._index(header)
                if not epochs or header.leader_epoch > epochs[-1].epoch:
                    epochs.append(EpochEntry(header.leader_epoch, header.base_offset))
        except RecordBatchError:
            os.ftruncate(self._file(), self.size)
        self.offset_index.save()
        self.time_index.save()
        return end - self.size, epochs

    def take(self, headers: Sequence[BatchHeader]) -> None:
        """The batches in a file that was just written; nothing more is appended to it."""
        self.size = 0
        for header in headers:
            self._index(header)
        self.become_inactive()
        self.save_indexes()

    # --- appending -----------------------------------------------------------------------------

    def should_roll(self, size: int, headers: Sequence[BatchHeader], now_ms: int) -> bool:
        """By size, by time, by a full index, or because an offset is too far from the base."""
        if headers[-1].last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        return self.size > 0 and (
            self.size + size > self.config.segment_bytes
            or self._waited_ms(headers, now_ms) > self.config.roll_ms
            or self.offset_index.is_full
            or self.time_index.is_full
        )

    def _waited_ms(self, headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Time in a segment passes with its records' timestamps, if they have any."""
        newest = max(header.max_timestamp for header in headers)
        if self._first_timestamp == NO_TIMESTAMP or newest == NO_TIMESTAMP:
            return now_ms - self._created_ms
        return newest - self._first_timestamp

    def append(self, batches: Bytes, headers: Sequence[BatchHeader]) -> None:
        written = os.pwrite(self._file(), batches, self.size)
        while written < len(batches):
            rest = memoryview(batches)[written:]
            written += os.pwrite(self._file(), rest, self.size + written)
        for header in headers:
            self._index(header)

    def _index(self, header: BatchHeader) -> None:
        """Account for the batch that begins at `size`."""
        if self.size == 0:
            self._first_timestamp = header.max_timestamp
        self._note(header)
        if self._unindexed_bytes > self.config.index_interval_bytes:
            self.offset_index.append(header.last_offset, self.size)
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
            self._unindexed_bytes = 0
        self._tail.append(header.base_offset, self.next_offset, self.size)
        size = header.size
        self._unindexed_bytes += size
        self.size += size

    def _note(self, header: BatchHeader) -> None:
        self.next_offset = header.next_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = header.last_offset

    # --- reading -------------------------------------------------------------------------------

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from a batch boundary on."""
        return headers_from(self._file, self.path, position, self.size)

    def position_of(self, offset: int) -> tuple[int, int]:
        """Position and base offset of the batch that contains `offset`, or of the next one."""
        if offset >= self.next_offset:
            return self.size, self.next_offset
        recent = self._tail.find(offset)
        if recent is not None:
            return recent
        for position, header in self.headers_from(self.offset_index.position_for(offset)):
            if header.next_offset > offset:
                return position, header.base_offset
        return self.size, self.next_offset

    def end_below(self, offset: int) -> int:
        """Where the first batch begins that begins at or after `offset`."""
        if offset >= self.next_offset:
            return self.size
        position, base_offset = self.position_of(offset)
        if base_offset >= offset:
            return position
        return position + next(self.headers_from(position))[1].size

    def end_within(self, start: int, max_bytes: int) -> tuple[int, int]:
        """Ends of the first batch from `start` on, and of the last that fits into `max_bytes`."""
        first = start + next(self.headers_from(start))[1].size
        limit = start + max_bytes
        if limit >= self.size:
            return first, self.size
        indexed = self._tail.end_within(limit) or self.offset_index.position_before(limit)
        end = max(start, indexed)
        for position, header in self.headers_from(end):
            if position + header.size > limit:
                break
            end = position + header.size
        return first, end

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._file(), end - start, start)

    def batch_for_timestamp(
        self, timestamp_ms: int, start_offset: int
    ) -> tuple[bytes, BatchHeader] | None:
        """The first batch from `start_offset` on whose header names a time that is not older."""
        begin = max(self.time_index.offset_before(timestamp_ms), start_offset)
        position, _ = self.position_of(begin)
        for at, header in self.headers_from(position):
            if header.max_timestamp >= timestamp_ms and header.next_offset > start_offset:
                return self.read(at, at + header.size), header
        return None

    @property
    def modified_ns(self) -> int:
        return os.fstat(self._file()).st_mtime_ns

    @property
    def first_timestamp(self) -> int:
        """Of its first batch, the largest; -1: there is none."""
        return self._first_timestamp

    # --- ending --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that contains `offset` and all later ones; the new end offset.

        An offset that no batch contains is the new end: it lies in a gap.
        """
        position, base_offset = self.position_of(offset)
        is_behind_all = position == self.size
        os.ftruncate(self._file(), position)
        self.size = position
        self._tail.truncate_to_position(position)
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to_offset(base_offset)
        end_offset = offset if is_behind_all else min(offset, base_offset)
        self.next_offset = end_offset
        self.max_timestamp, self._offset_of_max_timestamp = self.time_index.last
        last = self.offset_index.last.position
        for _, header in self.headers_from(last):
            self._note(header)
        self.next_offset = end_offset
        self._unindexed_bytes = position - last
        return end_offset

    def become_inactive(self) -> None:
        """No more appends: the time index ends with the segment's largest timestamp."""
        self._tail = TailIndex()
        if self.size:
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)

    def open_to_flush(self) -> list[int]:
        """Writes the indexes out, and opens all that is not on disk: for fsync by any thread."""
        self.save_indexes()
        descriptors = [os.dup(self._file())]
        for index in (self.offset_index, self.time_index):
            if not index.is_synced:
                descriptors.append(os.open(index.path, os.O_RDONLY))
                index.is_synced = True
        return descriptors

    def save_indexes(self) -> None:
        self.offset_index.save()
        self.time_index.save()

    def forget_indexes(self) -> None:
        """Their files, before another file takes this one's place."""
        for index in (self.offset_index, self.time_index):
            index.path.unlink(missing_ok=True)

    def close(self) -> None:
        OPEN_SEGMENTS.discard(self)
        self.release()

    def delete(self) -> list[Path]:
        """Closes and renames its files, as Kafka does; to remove them is the caller's."""
        self.close()
        others = (self.path.with_suffix(suffix) for suffix in _OTHER_SUFFIXES)
        doomed = []
        for path in (self.path, self.offset_index.path, self.time_index.path, *others):
            deleted = path.with_name(path.name + DELETED_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                path.rename(deleted)
                doomed.append(deleted)
        return doomed


def _parse_sound(buffer: bytes, position: int) -> BatchHeader:
    header = parse_header(buffer, position)
    validate_checksum(buffer, position, header)
    return header
