"""The disks of the simulation: logs whose tail is in the page cache only, and checkpoint files.

Bytes are not here: a log is its batches. Rule: what was appended survives the death of its process;
what was appended after the recovery point need not survive a power failure (any prefix of it may,
for the page cache is written back from its front). Checkpoint files are synced when written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, assert_never

from neaptide.clusters.broker.replication.broker import StoredReplica
from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    OffsetCommitRecord,
    with_committed,
)
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.replication.partition import (
    leader_epoch_file_cache,
    producer_state_manager,
    transactions,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import Epochs
from neaptide.clusters.broker.replication.partition.producer_state_manager import Producers
from neaptide.clusters.broker.replication.partition.transactions import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    Transactions,
)
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)

SEGMENT_BYTES: Final = 1 << 30


@dataclass(slots=True)
class SimulatedLog:
    batches: list[Batch] = field(default_factory=list)
    start_offset: int = 0
    ends_at: int = 0  # at least: it is empty, or was cut in a gap
    epochs: Epochs = ()
    recovery_point: int = 0  # everything before it is on disk for good
    flush_messages: int | None = None
    segment_bytes: int = SEGMENT_BYTES
    retention_bytes: int = -1  # of the whole log; -1: no limit
    topic_id: str | None = None  # on disk for good, as soon as it is written

    @property
    def end_offset(self) -> int:
        return max(self.batches[-1].next_offset, self.ends_at) if self.batches else self.ends_at

    @property
    def producers(self) -> Producers:
        return producer_state_manager.of_batches(self.batches)

    def transactions(self, high_watermark: int) -> Transactions:
        """Those that are open, and those whose markers are not committed yet."""
        found = NO_TRANSACTIONS
        for batch in self.batches:
            found = transactions.after(found, batch)
        return transactions.replicated(found, high_watermark)

    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]:
        """All that have ended so: what a transaction index has."""
        return transactions.aborted_by(NO_TRANSACTIONS, self.batches)

    @property
    def transactional_ids(self) -> tuple[TransactionMetadata, ...]:
        """What a log of `__transaction_state` says of each: its last record counts."""
        records = (value for batch in self.batches for value in values_of(batch))
        states = (one for one in records if isinstance(one, TransactionMetadata))
        return tuple({one.transactional_id: one for one in states}.values())

    @property
    def committed_offsets(self) -> CommittedOffsets:
        """What a log of `__consumer_offsets` says of groups."""
        records = (value for batch in self.batches for value in values_of(batch))
        return with_committed({}, (one for one in records if isinstance(one, OffsetCommitRecord)))

    def copy(self) -> SimulatedLog:
        return SimulatedLog(
            list(self.batches),
            self.start_offset,
            self.ends_at,
            self.epochs,
            self.recovery_point,
            self.flush_messages,
            self.segment_bytes,
            self.retention_bytes,
            self.topic_id,
        )

    def append(self, batches: tuple[Batch, ...]) -> None:
        for batch in batches:
            assert batch.base_offset >= self.end_offset, "records below the log end offset"
            self.batches.append(batch)
        every = self.flush_messages
        if every is not None and self.end_offset - self.recovery_point >= every:
            self.recovery_point = self.end_offset

    def cut(self, offset: int) -> None:
        """Keeps the whole batches before an offset, which is the new end unless one contains it."""
        kept = [batch for batch in self.batches if batch.next_offset <= offset]
        end_offset = min(offset, self.end_offset)
        if len(kept) < len(self.batches):
            end_offset = min(end_offset, self.batches[len(kept)].base_offset)
        self.batches, self.ends_at = kept, end_offset
        self.recovery_point = min(self.recovery_point, self.end_offset)

    def advance_start(self, offset: int) -> None:
        """What lies before the log start is deleted."""
        self.start_offset = offset
        kept = [batch for batch in self.batches if batch.next_offset > offset]
        self.ends_at = self.end_offset
        self.batches = kept

    def reopen(self) -> None:
        """After a restart only the last batch says where the log ends."""
        if self.batches:
            self.ends_at = 0

    @rule
    def retain(self, high_watermark: int) -> bool:
        """Deletes the oldest segments while the log is too large, none above the high watermark."""
        segments = self._segments()
        excess = sum(map(sum, (map(_size, one) for one in segments))) - self.retention_bytes
        start_offset = self.start_offset
        for segment, following in pairwise(segments):
            size = sum(map(_size, segment))
            if excess < size or following[0].base_offset > high_watermark:
                break
            excess -= size
            start_offset = following[0].base_offset
        has_moved = start_offset > self.start_offset
        if has_moved:
            self.advance_start(start_offset)
        return has_moved

    def _segments(self) -> list[list[Batch]]:
        """A segment is full when the next batch would make it too large."""
        segments: list[list[Batch]] = []
        size = 0
        for batch in self.batches:
            if not segments or size + batch.size > self.segment_bytes:
                segments.append([])
                size = 0
            segments[-1].append(batch)
            size += batch.size
        return segments

    def read(
        self, wanted: effects.LogSlice, budget: int, *, at_least_one: bool
    ) -> tuple[tuple[Batch, ...], int]:
        """Whole batches, and what is left of the response's size."""
        found: list[Batch] = []
        limit = min(wanted.max_bytes, budget)
        size = 0
        for batch in self._from(wanted.offset):
            if batch.base_offset >= wanted.end:
                break
            size += batch.size
            if size > limit and (found or not at_least_one):
                size -= batch.size
                break
            found.append(batch)
        return tuple(found), budget - size

    def _from(self, offset: int) -> list[Batch]:
        """The batches from the one that contains an offset on; most readers are near the end."""
        index = len(self.batches)
        while index and self.batches[index - 1].next_offset > offset:
            index -= 1
        return self.batches[index:]

    def values(self) -> list[tuple[int, int, object]]:
        """(offset, leader epoch, value) of every record."""
        return [
            (batch.base_offset + index, batch.leader_epoch, value)
            for batch in self.batches
            for index, value in enumerate(values_of(batch))
        ]


def _size(batch: Batch) -> int:
    return batch.size


def new_log(settings: Mapping[str, str], topic_id: str | None = None) -> SimulatedLog:
    """With what a topic's settings say of it."""
    flush = settings.get("flush.messages")
    return SimulatedLog(
        flush_messages=int(flush) if flush else None,
        segment_bytes=int(settings.get("segment.bytes", SEGMENT_BYTES)),
        retention_bytes=int(settings.get("retention.bytes", -1)),
        topic_id=topic_id,
    )


def values_of(batch: Batch) -> tuple[object, ...]:
    """The records of a batch: its identity is one value, or a tuple of them."""
    return batch.identity if isinstance(batch.identity, tuple) else (batch.identity,)


class Disk:
    """One broker's log directory."""

    __slots__ = ("high_watermarks", "logs", "was_clean")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, SimulatedLog] = {}
        self.high_watermarks: Mapping[TopicPartition, int] = {}
        self.was_clean = False  # the mark that a clean shutdown leaves; a start removes it

    def copy(self) -> Disk:
        other = Disk()
        other.logs = {tp: log.copy() for tp, log in self.logs.items()}
        other.high_watermarks = self.high_watermarks
        other.was_clean = self.was_clean
        return other

    @rule
    def write(self, effect: effects.LogWrite) -> int | None:
        """Where a log was cut before the offset asked for, says where."""
        match effect:
            case effects.AppendToLog(tp, batches):
                self.logs[tp].append(batches)
            case effects.WriteHighWatermarkCheckpoint(high_watermarks):
                self.high_watermarks = dict(high_watermarks)
            case effects.WriteLeaderEpochCheckpoint(tp, epochs):
                self.logs[tp].epochs = epochs
            case effects.TruncateLog(tp, offset):
                self.logs[tp].cut(offset)
                end_offset = self.logs[tp].end_offset
                return end_offset if end_offset != offset else None
            case effects.CreateLog(tp, settings, topic_id):
                self.logs[tp] = new_log(settings, topic_id)
            case effects.AssignTopicId(tp, topic_id):
                self.logs[tp].topic_id = topic_id
            case effects.DeleteLog(tp):
                del self.logs[tp]
            case effects.TruncateFullyAndStartAt(tp, offset):
                self._start_afresh(tp, offset)
            case effects.AdvanceLogStartOffset(tp, offset):
                self.logs[tp].advance_start(offset)
            case _:
                assert_never(effect)
        return None

    def _start_afresh(self, tp: TopicPartition, offset: int) -> None:
        log = self.logs[tp]
        log.batches, log.epochs = [], ()
        log.start_offset = log.ends_at = log.recovery_point = offset

    @rule
    def sync(self) -> None:
        """A clean shutdown: all that was written is on disk."""
        for log in self.logs.values():
            log.recovery_point = log.end_offset
        self.was_clean = True

    def lose_page_cache(self, keep: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """A power failure. What lies before `keep` happened to be written back; returns losses."""
        lost = {}
        for tp, log in self.logs.items():
            before = log.end_offset
            log.cut(max(log.recovery_point, keep.get(tp, 0), log.start_offset))
            log.epochs = leader_epoch_file_cache.truncate_from_end(log.epochs, log.end_offset)
            log.recovery_point = log.end_offset
            lost[tp] = before - log.end_offset
        return lost

    @rule
    def stored(self) -> dict[TopicPartition, StoredReplica]:
        """What a broker finds when it starts."""
        for each in self.logs.values():
            each.reopen()
        return {
            tp: StoredReplica(
                UnifiedLog(
                    log.start_offset,
                    log.end_offset,
                    log.epochs,
                    producers=log.producers,
                    transactions=log.transactions(self.high_watermarks.get(tp, 0)),
                ),
                self.high_watermarks.get(tp, 0),
                log.topic_id,
            )
            for tp, log in self.logs.items()
        }
