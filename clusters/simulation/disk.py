"""The disks of the simulation: logs whose tail is in the page cache only, and checkpoint files.

Bytes are not here: a log is its batches. Rule: what was appended survives the death of its process;
what was appended after the recovery point need not survive a power failure (any prefix of it may,
for the page cache is written back from its front). Checkpoint files are synced when written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.broker.replication import effects as do
from clusters.broker.replication import epochs as epoch_cache
from clusters.broker.replication.broker import StoredReplica
from clusters.broker.replication.epochs import Epochs
from clusters.broker.replication.log import Log
from clusters.broker.replication.model import Batch, TopicPartition


@dataclass(slots=True)
class SimulatedLog:
    batches: list[Batch] = field(default_factory=list)
    start_offset: int = 0
    empty_at: int = 0  # where the next record goes while there is none
    epochs: Epochs = ()
    recovery_point: int = 0  # everything before it is on disk for good
    flush_messages: int | None = None

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.empty_at

    def copy(self) -> SimulatedLog:
        return SimulatedLog(
            list(self.batches),
            self.start_offset,
            self.empty_at,
            self.epochs,
            self.recovery_point,
            self.flush_messages,
        )

    def append(self, batches: tuple[Batch, ...]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset, "a gap in the log"
            self.batches.append(batch)
        every = self.flush_messages
        if every is not None and self.end_offset - self.recovery_point >= every:
            self.recovery_point = self.end_offset

    def cut(self, offset: int) -> None:
        """Keeps the whole batches before an offset."""
        kept = [batch for batch in self.batches if batch.next_offset <= offset]
        if not kept and self.batches:
            self.empty_at = self.batches[0].base_offset
        self.batches = kept
        self.recovery_point = min(self.recovery_point, self.end_offset)

    def read(
        self, wanted: do.LogSlice, budget: int, *, at_least_one: bool
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

    def carry_out(self, effect: do.Effect) -> int | None:
        """Does an effect on a log; where a log was cut before the offset asked for, says where."""
        match effect:
            case do.AppendToLog(tp, batches):
                self.logs[tp].append(batches)
            case do.WriteHighWatermarkCheckpoint(high_watermarks):
                self.high_watermarks = dict(high_watermarks)
            case do.WriteLeaderEpochCheckpoint(tp, epochs):
                self.logs[tp].epochs = epochs
            case do.TruncateLog(tp, offset):
                self.logs[tp].cut(offset)
                end_offset = self.logs[tp].end_offset
                return end_offset if end_offset != offset else None
            case do.CreateLog(tp, settings):
                every = settings.get("flush.messages")
                self.logs[tp] = SimulatedLog(flush_messages=int(every) if every else None)
            case do.DeleteLog(tp):
                del self.logs[tp]
            case do.TruncateFullyAndStartAt(tp, offset):
                self._start_afresh(tp, offset)
            case do.AdvanceLogStartOffset(tp, offset):
                self.logs[tp].start_offset = offset
        return None

    def _start_afresh(self, tp: TopicPartition, offset: int) -> None:
        before = self.logs[tp]
        self.logs[tp] = SimulatedLog(
            start_offset=offset,
            empty_at=offset,
            recovery_point=offset,
            flush_messages=before.flush_messages,
        )

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
            log.cut(max(log.recovery_point, keep.get(tp, 0)))
            log.epochs = epoch_cache.truncate_from_end(log.epochs, log.end_offset)
            log.recovery_point = log.end_offset
            lost[tp] = before - log.end_offset
        return lost

    def stored(self) -> dict[TopicPartition, StoredReplica]:
        """What a broker finds when it starts."""
        return {
            tp: StoredReplica(
                Log(log.start_offset, log.end_offset, log.epochs),
                self.high_watermarks.get(tp, 0),
            )
            for tp, log in self.logs.items()
        }
