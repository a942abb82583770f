"""A broker's disk in the plays: batches, epochs and checkpoints, without a page cache.

A log is cut between batches only, as on a real disk. Whoever wants to lose a tail cuts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from clusters.broker.replication import effects as do
from clusters.broker.replication import epochs as epoch_cache
from clusters.broker.replication.broker import StoredReplica
from clusters.broker.replication.epochs import Epochs
from clusters.broker.replication.log import Log
from clusters.broker.replication.model import Batch, TopicPartition


@dataclass
class StoredLog:
    batches: list[Batch] = field(default_factory=list)
    start_offset: int = 0
    empty_at: int = 0  # where the next record goes while there is none
    epochs: Epochs = ()

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.empty_at

    def cut(self, offset: int) -> None:
        kept = [batch for batch in self.batches if batch.next_offset <= offset]
        if not kept:
            self.empty_at = self.batches[0].base_offset if self.batches else self.empty_at
        self.batches = kept

    def read(self, wanted: do.LogSlice, *, at_least_one: bool) -> tuple[Batch, ...]:
        found: list[Batch] = []
        size = 0
        for batch in self.batches:
            if wanted.offset < batch.next_offset and batch.base_offset < wanted.end:
                size += batch.size
                if size > wanted.max_bytes and (found or not at_least_one):
                    break
                found.append(batch)
        return tuple(found)


class Disk:
    def __init__(self) -> None:
        self.logs: dict[TopicPartition, StoredLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}

    def carry_out(self, effect: do.Effect) -> int | None:
        """Does an effect on a log; where a log was cut before the offset asked for, says where."""
        match effect:
            case do.CreateLog(tp):
                self.logs[tp] = StoredLog()
            case do.DeleteLog(tp):
                del self.logs[tp]
            case do.AppendToLog(tp, batches):
                for batch in batches:
                    assert batch.base_offset == self.logs[tp].end_offset, "a gap in the log"
                    self.logs[tp].batches.append(batch)
            case do.TruncateLog(tp, offset):
                self.logs[tp].cut(offset)
                return self.logs[tp].end_offset if self.logs[tp].end_offset != offset else None
            case do.TruncateFullyAndStartAt(tp, offset):
                self.logs[tp] = StoredLog(start_offset=offset, empty_at=offset)
            case do.AdvanceLogStartOffset(tp, offset):
                self.logs[tp].start_offset = offset
            case do.WriteLeaderEpochCheckpoint(tp, epochs):
                self.logs[tp].epochs = epochs
            case do.WriteHighWatermarkCheckpoint(high_watermarks):
                self.high_watermarks = dict(high_watermarks)
        return None

    def lose_tail(self, tp: TopicPartition, end_offset: int) -> None:
        """A power failure: what was not flushed is gone."""
        log = self.logs[tp]
        log.cut(end_offset)
        log.epochs = epoch_cache.truncate_from_end(log.epochs, log.end_offset)

    def stored(self) -> dict[TopicPartition, StoredReplica]:
        return {
            tp: StoredReplica(
                replace(Log(), start_offset=log.start_offset, end_offset=log.end_offset)
                if not log.epochs
                else Log(log.start_offset, log.end_offset, log.epochs),
                self.high_watermarks.get(tp, 0),
            )
            for tp, log in self.logs.items()
        }
