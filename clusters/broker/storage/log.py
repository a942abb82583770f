"""The log of one replica: segments in a directory `<topic>-<partition>`.

Synchronous and for one thread. It stores what it is given: offsets and leader epochs are in the
batches already, who may append, read or truncate is for replication to say. It does not know the
high watermark: callers pass it. What compaction keeps is the cleaner's to say.
Rules: offsets only grow, and may have gaps (a compacted log, and each log that follows it); a
truncation cuts at a batch boundary or in a gap; everything below the recovery point has been
flushed; the recovery point never lies beyond the log end offset. The segment that is appended to is
never cleaned.
Source: "Log" in the implementation part of Kafka's documentation, KIP-101 (epochs), KIP-107
(delete records).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.model import EpochEntry, TopicPartition
from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction
from neaptide.clusters.broker.storage.checkpoints import sync_directory
from neaptide.clusters.broker.storage.cleaner import (
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    CleanedSegment,
    Cleaning,
    LastOfProducer,
    Source,
    by_producer,
)
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.epoch_cache import EpochCache
from neaptide.clusters.broker.storage.errors import (
    OffsetOutOfRangeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from neaptide.clusters.broker.storage.flush import Flush
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import BatchHeader, Bytes, first_at_or_after
from neaptide.clusters.broker.storage.removal import Remove, remove_now
from neaptide.clusters.broker.storage.segment import LOG_SUFFIX, Segment
from neaptide.clusters.broker.storage.transaction_index import TransactionIndex

DELETED_SUFFIX: Final = "-delete"
# In one pass of the cleaner, which has all of their keys in memory; a single segment may have more.
DIRTY_BYTES_MAX: Final = 1 << 28

Clock = Callable[[], int]
_LEFT_BY_A_CRASH: Final = (".deleted", CLEANED_SUFFIX, ".tmp")
# Of a real Kafka, whose cleaner writes indexes, too: they are made anew.
_INDEX_SWAPS: Final = (".index.swap", ".timeindex.swap", ".txnindex.swap")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Dirt(NamedTuple):
    """How many of a log's first segments a cleaning would be about, how much of their bytes is
    dirty, and whether max.compaction.lag.ms has passed for it."""

    segments: int
    ratio: float
    is_late: bool


class Log:
    """Open one with `Log.open`; `on_truncation` is called with each lowered recovery point."""

    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        on_truncation: Callable[[], None],
        remove: Remove,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.log_start_offset = 0
        self.recovery_point = 0
        self.cleaned_to = 0  # by the cleaner: what is below it is not dirty
        self.epochs = EpochCache(directory)
        self._aborted = TransactionIndex(directory)
        self._clock = clock
        self._on_truncation = on_truncation
        self._remove = remove
        self._cuts = 0
        self._segments: list[Segment] = []
        self._last_flush_ms = clock()

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        recovery_point: int = 0,
        clean_shutdown: bool = False,
        *,
        log_start_offset: int = 0,
        clock: Clock = wall_clock_ms,
        on_truncation: Callable[[], None] = lambda: None,
        remove: Remove = remove_now,
    ) -> Log:
        """Open or create a log; what lies behind the recovery point is checked unless clean."""
        log = cls(directory, topic_partition, config, clock, on_truncation, remove)
        try:
            is_new = not directory.exists()
            directory.mkdir(exist_ok=True)
            if is_new:
                sync_directory(directory.parent)
            log._load(recovery_point, clean_shutdown, log_start_offset)
        except OSError as error:
            raise StorageError(directory.parent, str(error)) from error
        return log

    def _load(self, recovery_point: int, clean_shutdown: bool, log_start_offset: int) -> None:
        for path in self.directory.iterdir():
            if path.suffix in _LEFT_BY_A_CRASH or path.name.endswith(_INDEX_SWAPS):
                path.unlink()
        for swap in self.directory.glob(f"*{LOG_SUFFIX}{SWAP_SUFFIX}"):
            self._finish_replacing(swap)
        bases = sorted(int(path.stem) for path in self.directory.glob(f"*{LOG_SUFFIX}"))
        epochs: list[EpochEntry] = []
        for number, base in enumerate(bases):
            segment = self._open_segment(base)
            self._segments.append(segment)
            ends_at = bases[number + 1] if number + 1 < len(bases) else None
            if clean_shutdown or (ends_at is not None and ends_at <= recovery_point):
                segment.load()
                continue
            cut, found = segment.recover()
            epochs += found
            if cut:
                for later in bases[number + 1 :]:
                    self._remove(self._open_segment(later).delete())
                break
        if not self._segments:
            self._segments.append(self._open_segment(log_start_offset))
        self.log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        self.recovery_point = min(recovery_point, self.log_end_offset)
        for entry in epochs:
            self.epochs.assign(entry.epoch, entry.start_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        if self.log_start_offset > self.log_end_offset:  # the log lost more than was deleted
            self.truncate_fully_and_start_at(self.log_start_offset)

    def _open_segment(self, base_offset: int) -> Segment:
        return Segment(self.directory, base_offset, self.config, self._clock())

    def reconfigure(self, config: LogConfig) -> None:
        """Take new settings; sizes of indexes that are open already stay."""
        self.config = config
        for segment in self._segments:
            segment.config = config

    # --- what there is -------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self._segments)

    # --- appending -----------------------------------------------------------------------------

    def append(self, batches: Bytes, headers: Sequence[BatchHeader], *, flush: bool = True) -> bool:
        """Append sound batches that carry their offsets and epochs; flush where it is due.

        Not `flush`: then it is due where `needs_flush` says so, and soon where a segment was
        rolled, which is returned.
        """
        if not headers:
            return False
        end_offset = self._segments[-1].next_offset
        if headers[0].base_offset < end_offset:
            raise UnexpectedAppendOffsetError(
                f"{self.topic_partition}: offset {headers[0].base_offset} was offered, the log "
                f"ends at {end_offset}"
            )
        try:
            active = self._segments[-1]
            is_rolled = active.should_roll(len(batches), headers, self._clock())
            if is_rolled:
                active = self._roll(headers[0].base_offset)
                if flush:
                    self.flush()
            for header in headers:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            active.append(batches, headers)
        except OSError as error:
            raise self._failed(error) from error
        if flush and self.needs_flush:
            self.flush()
        return is_rolled

    def add_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Markers that were just appended have ended them."""
        try:
            self._aborted.append(aborted, self._segments[-1].base_offset)
        except OSError as error:
            raise self._failed(error) from error

    def rebuild_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """After a start: all that the log says."""
        try:
            self._aborted.rebuild(aborted, self.segment_base_offsets)
        except OSError as error:
            raise self._failed(error) from error

    @property
    def needs_flush(self) -> bool:
        """By flush.messages: before anything else is appended, or acknowledged."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def _roll(self, base_offset: int) -> Segment:
        """Close the active segment for appends, and begin a new one."""
        active = self._segments[-1]
        active.become_inactive()
        if active.size == 0:  # its base offset is too far from what comes
            self._remove(self._segments.pop().delete())
        segment = self._open_segment(base_offset)
        segment.next_offset = base_offset
        segment.save_indexes()
        sync_directory(self.directory)
        self._segments.append(segment)
        return segment

    def flush(self) -> None:
        """fsync all that was not; then the recovery point is the log end offset."""
        flush = self.begin_flush()
        flush.sync()
        self.end_flush(flush)

    def begin_flush(self) -> Flush:
        """A flush of all that there is. Its `sync` may be done by another thread meanwhile."""
        descriptors: list[int] = []
        try:
            for segment in self._segments[self._segment_number(self.recovery_point) :]:
                descriptors += segment.open_to_flush()
        except OSError as error:
            raise self._failed(error) from error
        self._last_flush_ms = self._clock()
        return Flush(self.directory.parent, tuple(descriptors), self.log_end_offset, self._cuts)

    def end_flush(self, flush: Flush) -> None:
        """It is on disk. Where the log was cut meanwhile, what is behind that may not be."""
        if flush.cuts == self._cuts:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    @property
    def flush_due_in_ms(self) -> int:
        """Until `flush.ms` has passed; negative: it has."""
        return self._last_flush_ms + self.config.flush_ms - self._clock()

    @property
    def is_flush_due(self) -> bool:
        """For a timer: `flush.ms` says that what is not on disk may not wait longer."""
        return self.flush_due_in_ms <= 0 and self.recovery_point != self.log_end_offset

    # --- reading -------------------------------------------------------------------------------

    def read(self, offset: int, max_offset: int, max_bytes: int, min_one_batch: bool) -> bytes:
        """Whole batches from the one that contains `offset` on, out of one segment.

        None of them begins at or after `max_offset`. They fit into `max_bytes`, except that the
        first one comes whatever its size if `min_one_batch`.
        """
        self._require_in_range(offset)
        if offset >= min(max_offset, self.log_end_offset):
            return b""
        number = self._segment_number(offset)
        if offset >= self._segments[number].next_offset:  # a gap between two segments
            number += 1
        segment = self._segments[number]
        try:
            start, _ = segment.position_of(offset)
            end = segment.end_below(max_offset)
            if end - start > max_bytes:
                first, fitting = segment.end_within(start, max_bytes)
                end = fitting if fitting >= first else (first if min_one_batch else start)
            return segment.read(start, end) if end > start else b""
        except OSError as error:
            raise self._failed(error) from error

    def aborted_within(self, offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions that have something from one offset to before the other."""
        return self._aborted.within(offset, end_offset)

    def snapshot(self) -> LogSnapshot:
        """To be read to the end, also by another thread, before the log is cut."""
        segments = tuple((segment.path, segment.size) for segment in self._segments)
        return LogSnapshot(self.topic_partition, self.log_start_offset, segments)

    def bytes_from(self, offset: int) -> int:
        """Bytes from the batch that contains `offset` to the end of the log."""
        if offset >= self.log_end_offset:
            return 0
        self._require_in_range(offset)
        number = self._segment_number(offset)
        start, _ = self._segments[number].position_of(offset)
        return sum(segment.size for segment in self._segments[number:]) - start

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is not older; None where there is none."""
        offset = self.log_start_offset
        while (candidate := self.batch_for_timestamp(timestamp_ms, offset)) is not None:
            batch, header = candidate
            found = first_at_or_after(batch, header, timestamp_ms, self.log_start_offset)
            if found is not None:
                return found
            offset = header.next_offset
        return None

    @property
    def max_timestamp(self) -> int | None:
        """The newest time of a record, whichever is left of those before; None: there is none."""
        newest = max(segment.max_timestamp for segment in self._segments)
        return None if newest < 0 else newest

    def batch_for_timestamp(
        self, timestamp_ms: int, start_offset: int
    ) -> tuple[bytes, BatchHeader] | None:
        """The first batch from `start_offset` on that may hold a record that is not older.

        Raises RecordBatchError where what is on disk is no batch.
        """
        try:
            for segment in self._segments[self._segment_number(start_offset) :]:
                if segment.max_timestamp >= timestamp_ms:
                    found = segment.batch_for_timestamp(timestamp_ms, start_offset)
                    if found is not None:
                        return found
        except OSError as error:
            raise self._failed(error) from error
        return None

    def _require_in_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: offset {offset} is outside of "
                f"{self.log_start_offset}..{self.log_end_offset}"
            )

    def _segment_number(self, offset: int) -> int:
        """The segment that an offset belongs to; the first one for offsets before it."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=lambda one: one.base_offset) - 1)

    # --- cutting -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Cut at the batch that contains `offset`; the new log end offset, at most `offset`."""
        if offset >= self.log_end_offset:
            return self.log_end_offset
        if offset < self._segments[0].base_offset:
            return self.truncate_fully_and_start_at(offset)
        try:
            while self._segments[-1].base_offset > offset:
                self._remove(self._segments.pop().delete())
            end_offset = self._segments[-1].truncate_to(offset)
        except OSError as error:
            raise self._failed(error) from error
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self._cut_at(end_offset)
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> int:
        """Drop everything; the log is empty and begins at `offset`."""
        try:
            while self._segments:
                self._remove(self._segments.pop().delete())
            self._segments.append(self._open_segment(offset))
            sync_directory(self.directory)
        except OSError as error:
            raise self._failed(error) from error
        self.log_start_offset = offset
        self.epochs.clear()
        self._cut_at(offset)
        return offset

    def _cut_at(self, end_offset: int) -> None:
        self._cuts += 1
        self._aborted.truncate_to(end_offset, self.segment_base_offsets)
        self.epochs.truncate_from_end(end_offset)
        self.cleaned_to = min(self.cleaned_to, end_offset)
        if self.recovery_point > end_offset:
            self.recovery_point = end_offset
        self._on_truncation()

    # --- retention -----------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> bool:
        """Raise the log start offset (never beyond the end); segments wholly below it go."""
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            self._require_in_range(offset)
        self.log_start_offset = offset
        self._delete_first_segments(self._count_first_segments(self._is_below_start))
        self.epochs.truncate_from_start(offset)
        return True

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete segments by time and by size, none above the high watermark; the log start.

        The active segment goes too when all of its records are too old.
        """
        if "delete" in self.config.cleanup_policy:
            too_old = self._count_first_segments(lambda s: self._is_too_old(s, now_ms))
            self._delete_for_retention(too_old, high_watermark)
            self._delete_for_retention(self._count_too_much(), high_watermark)
        return self.log_start_offset

    def _is_below_start(self, segment: Segment) -> bool:
        is_active = segment is self._segments[-1]
        return not is_active and self._ends_at(segment) <= self.log_start_offset

    def _ends_at(self, segment: Segment) -> int:
        """Where the next one begins: between them there may be a gap."""
        number = self._segment_number(segment.base_offset) + 1
        is_active = number == len(self._segments)
        return self.log_end_offset if is_active else self._segments[number].base_offset

    def _is_too_old(self, segment: Segment, now_ms: int) -> bool:
        retention_ms = self.config.retention_ms
        if retention_ms < 0:
            return False
        number = self._segment_number(segment.base_offset)
        if segment.size == 0 and number + 1 < len(self._segments):  # the cleaner has left nothing
            return self._is_too_old(self._segments[number + 1], now_ms)
        return segment.max_timestamp >= 0 and now_ms - segment.max_timestamp > retention_ms

    def _count_too_much(self) -> int:
        excess = self.size_bytes - self.config.retention_bytes
        if self.config.retention_bytes < 0:
            return 0
        count = 0
        while count < len(self._segments) - 1 and excess >= self._segments[count].size:
            excess -= self._segments[count].size
            count += 1
        return count

    def _count_first_segments(self, is_deletable: Callable[[Segment], bool]) -> int:
        count = 0
        while count < len(self._segments) and is_deletable(self._segments[count]):
            count += 1
        return count

    def _delete_for_retention(self, count: int, high_watermark: int) -> None:
        while count and self._ends_at(self._segments[count - 1]) > high_watermark:
            count -= 1
        if not count:
            return
        try:
            if count == len(self._segments):
                self._roll(self.log_end_offset)
        except OSError as error:
            raise self._failed(error) from error
        self._delete_first_segments(count)
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        self.epochs.truncate_from_start(self.log_start_offset)

    def _delete_first_segments(self, count: int) -> None:
        try:
            for segment in self._segments[:count]:
                self._remove(segment.delete())
        except OSError as error:
            raise self._failed(error) from error
        del self._segments[:count]
        self._aborted.delete_before(self._segments[0].base_offset)

    # --- compaction ----------------------------------------------------------------------------

    def dirt(self, up_to: int | None, now_ms: int) -> Dirt | None:
        """What the cleaner would find, None where that is nothing.

        Not at or above `up_to`, not in the active segment, nor in one whose records are younger
        than min.compaction.lag.ms, or in any behind that.
        """
        if not self.config.is_compacted:
            return None
        inactive = self._segments[:-1]
        first = self._segment_number(self._first_dirty_offset)
        end = len(inactive)
        if up_to is not None:
            end = min(end, self._segment_number(up_to))
        if lag_ms := self.config.min_compaction_lag_ms:
            young = (
                number
                for number, segment in enumerate(inactive)
                if number >= first and segment.max_timestamp > now_ms - lag_ms
            )
            end = min(end, next(young, end))
        dirty = inactive[first:end]
        while len(dirty) > 1 and sum(segment.size for segment in dirty) > DIRTY_BYTES_MAX:
            dirty.pop()
            end -= 1
        dirty_bytes = sum(segment.size for segment in dirty)
        if not dirty_bytes:
            return None
        clean_bytes = sum(segment.size for segment in inactive[:first])
        times = (segment.first_timestamp for segment in dirty)
        oldest = min((time for time in times if time >= 0), default=now_ms)
        is_late = now_ms - oldest > self.config.max_compaction_lag_ms
        return Dirt(end, dirty_bytes / (dirty_bytes + clean_bytes), is_late)

    @property
    def _first_dirty_offset(self) -> int:
        if not self.log_start_offset <= self.cleaned_to <= self._segments[-1].base_offset:
            return self.log_start_offset
        return self.cleaned_to

    def begin_cleaning(
        self,
        dirt: Dirt,
        producers: Mapping[int, LastOfProducer],
        *,
        markers_have_keys: bool = False,
    ) -> Cleaning:
        """A pass over it, which a thread may run. `producers`: the last batches of all that are
        known."""
        end_offset = self._segments[dirt.segments].base_offset
        try:
            sources = tuple(
                Source(
                    segment.base_offset,
                    self._ends_at(segment),
                    segment.path,
                    segment.size,
                    segment.modified_ns,
                )
                for segment in self._segments[: dirt.segments]
            )
        except OSError as error:
            raise self._failed(error) from error
        return Cleaning(
            self.topic_partition,
            sources,
            self._first_dirty_offset,
            end_offset,
            self.config.segment_bytes,
            self.config.delete_retention_ms,
            by_producer(self.aborted_within(self._segments[0].base_offset, end_offset)),
            producers,
            self._cuts,
            markers_have_keys,
        )

    def end_cleaning(self, cleaning: Cleaning, cleaned: Sequence[CleanedSegment]) -> bool:
        """Puts what a pass has written into the place of what it has read.

        Not where the log was cut meanwhile, from either end: then the pass was in vain.
        """
        if not self.is_current(cleaning):
            self._remove([one.path for one in cleaned])
            return False
        try:
            segments = [
                segment
                for number, one in enumerate(cleaned)
                if (segment := self._replace(one, is_first=number == 0)) is not None
            ]
            sync_directory(self.directory)
        except OSError as error:
            raise self._failed(error) from error
        self._segments[: len(cleaning.sources)] = segments
        self._aborted.rebuild(self._aborted.entries, self.segment_base_offsets)
        self.cleaned_to = cleaning.end_offset
        return True

    def is_current(self, cleaning: Cleaning) -> bool:
        """Whether all that it reads is still there."""
        bases = tuple(source.base_offset for source in cleaning.sources)
        is_whole = self.segment_base_offsets[: len(bases)] == bases
        return cleaning.cuts == self._cuts and is_whole

    def _replace(self, cleaned: CleanedSegment, *, is_first: bool) -> Segment | None:
        """None where nothing is left, and the log does not begin there.

        Once it is called `.swap` it counts: after a crash the next start goes on from there.
        """
        first, *others = self._segments_of(cleaned)
        if not cleaned.headers and not is_first:
            for segment in (first, *others):
                self._remove(segment.delete())
            self._remove([cleaned.path])
            return None
        swap = cleaned.path.with_suffix(SWAP_SUFFIX)
        cleaned.path.rename(swap)
        sync_directory(self.directory)
        for other in others:
            self._remove(other.delete())
        first.close()
        first.forget_indexes()
        swap.rename(first.path)
        segment = self._open_segment(first.base_offset)
        segment.take(cleaned.headers)
        return segment

    def _finish_replacing(self, swap: Path) -> None:
        """Whatever of the segments that it takes the place of is still there goes."""
        replaced = self._open_segment(int(swap.name.partition(".")[0]))
        replaced.close()
        replaced.forget_indexes()
        swap.rename(replaced.path)
        new = self._open_segment(replaced.base_offset)
        new.recover()
        new.close()
        for path in self.directory.glob(f"*{LOG_SUFFIX}"):
            if new.base_offset < int(path.stem) < new.next_offset:
                self._remove(self._open_segment(int(path.stem)).delete())

    def _segments_of(self, cleaned: CleanedSegment) -> list[Segment]:
        bases = {source.base_offset for source in cleaned.sources}
        return [segment for segment in self._segments if segment.base_offset in bases]

    # --- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the files as they are; `flush` first for a clean shutdown."""
        try:
            self._segments[-1].become_inactive()
            for segment in self._segments:
                segment.save_indexes()
                segment.close()
        except OSError as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """Close the files, and write nothing."""
        for segment in self._segments:
            segment.close()

    def delete(self) -> None:
        """Close the log and rename its directory, which is then removed with all in it."""
        self.close()
        names = (f"{self.directory.name}.{n}{DELETED_SUFFIX}" for n in count())
        doomed = next(path for path in map(self.directory.with_name, names) if not path.exists())
        try:
            self.directory.rename(doomed)
            sync_directory(doomed.parent)
        except OSError as error:
            raise self._failed(error) from error
        self._remove((doomed,))

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(self.directory.parent, str(error))
