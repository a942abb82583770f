"""Effects of the core on the logs: create, append, truncate, checkpoint.

What may be appended or cut is the core's to say; bytes and files are storage's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import StoredReplica
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)
from neaptide.clusters.broker.server.sequences import state_of
from neaptide.clusters.broker.storage import group_records, transaction_records
from neaptide.clusters.broker.storage.group_records import GroupRecord
from neaptide.clusters.broker.storage.internal_topics import encode_marker
from neaptide.clusters.broker.storage.log import Log, wall_clock_ms
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import assign, parse_header
from neaptide.clusters.broker.storage.record_writer import KeyAndValue, record_batch

READ_AT_ONCE_BYTES: Final = 1 << 16
_NO_SEQUENCE: Final = -1


@dataclass(frozen=True, slots=True)
class InThread:
    """What is left of an effect: `work` by a thread, then `done` with its result by the event loop.

    Until then no other effect is performed, and the core gets no event.
    """

    work: Callable[[], Any]
    done: Callable[[Any], None]


Performer = Callable[[Any], InThread | None]


def _read(
    log: LogSnapshot, work: Callable[[], Any], done: Callable[[Any], None]
) -> InThread | None:
    """What is short is read at once."""
    if log.size_bytes > READ_AT_ONCE_BYTES:
        return InThread(work, done)
    done(work())
    return None


class LogEffects:
    """May raise StorageError: a log directory cannot be used any more."""

    def __init__(
        self,
        logs: LogManager,
        submit_first: Callable[[object], None],
        generation: Generation,
        clock_ms: Callable[[], int],
        flush_beside: Callable[[Log], object],
    ) -> None:
        self.logs = logs
        self._flush_beside = flush_beside
        self._submit_first = submit_first
        self._generation = generation
        self._clock_ms = clock_ms  # that of the core

    @property
    def performers(self) -> Mapping[type, Performer]:
        return {
            effects.CreateLog: self._create_log,
            effects.AssignTopicId: self._assign_topic_id,
            effects.DeleteLog: self._delete_log,
            effects.AppendToLog: self._append,
            effects.TruncateLog: self._truncate,
            effects.ReadProducers: self._read_producers,
            effects.ReadCommittedOffsets: self._read_committed_offsets,
            effects.ReadTransactions: self._read_transactions,
            effects.TruncateFullyAndStartAt: self._truncate_fully,
            effects.AdvanceLogStartOffset: self._advance_log_start,
            effects.WriteLeaderEpochCheckpoint: self._write_epochs,
            effects.WriteHighWatermarkCheckpoint: self._write_high_watermarks,
        }

    def _create_log(self, effect: effects.CreateLog) -> None:
        self.logs.create_log(effect.partition, effect.settings, effect.topic_id)

    def _assign_topic_id(self, effect: effects.AssignTopicId) -> None:
        self.logs.assign_topic_id(effect.partition, effect.topic_id)

    def _delete_log(self, effect: effects.DeleteLog) -> None:
        self.logs.delete_log(effect.partition)

    def _append(self, effect: effects.AppendToLog) -> InThread | None:
        log = self.logs.logs[effect.partition]
        data: bytes | bytearray
        if len(effect.batches) == 1 and isinstance(effect.batches[0].identity, bytes):
            data = effect.batches[0].identity
        else:
            data = b"".join(map(self._bytes_of, effect.batches))
        if effect.assign:
            data = bytearray(data)
            first = effect.batches[0]
            headers = assign(data, first.base_offset, first.leader_epoch)
        else:
            headers, position = [], 0
            for _ in effect.batches:
                headers.append(parse_header(data, position))
                position += headers[-1].size
        is_rolled = log.append(data, headers, flush=False)
        if effect.aborted:
            log.add_aborted(effect.aborted)
        if not log.needs_flush:
            if is_rolled:
                self._flush_beside(log)
            return None
        flush = log.begin_flush()
        return InThread(flush.sync, lambda _: log.end_flush(flush))

    def _bytes_of(self, batch: Batch) -> bytes:
        """Of a client's batch its bytes; records that the core itself writes become some here."""
        if isinstance(batch.identity, bytes):
            return batch.identity
        now_ms = wall_clock_ms()
        if batch.marker is not None:
            of = batch.marker.producer_id, batch.marker.producer_epoch, _NO_SEQUENCE
            control = [encode_marker(batch.marker)]
            return record_batch(control, now_ms, of, is_transactional=True, is_control=True)
        assert isinstance(batch.identity, tuple)
        encoded = [self._encode(one, now_ms) for one in batch.identity]
        if batch.producer is None:
            return record_batch(encoded, now_ms)
        of = batch.producer[:3]
        return record_batch(encoded, now_ms, of, is_transactional=batch.producer.is_transactional)

    def _encode(self, record: object, now_ms: int) -> KeyAndValue:
        if isinstance(record, TransactionMetadata):
            return transaction_records.encode(record, now_ms, self._clock_ms())
        assert isinstance(record, GroupRecord)
        return group_records.encode(record, now_ms, self._generation)

    def _truncate(self, effect: effects.TruncateLog) -> None:
        end_offset = self.logs.logs[effect.partition].truncate_to(effect.offset)
        if future := self.logs.futures.get(effect.partition):
            future.truncate_to(end_offset)
        if end_offset != effect.offset:
            self._submit_first(events.LogTruncated(effect.partition, end_offset))

    def _read_producers(self, effect: effects.ReadProducers) -> InThread | None:
        log = self.logs.logs[effect.partition].snapshot()
        return _read(
            log,
            lambda: state_of(log, effect.high_watermark),
            lambda found: self._submit_first(
                events.ProducersRead(effect.partition, found.producers, found.transactions)
            ),
        )

    def _read_transactions(self, effect: effects.ReadTransactions) -> InThread | None:
        log = self.logs.logs[effect.partition].snapshot()
        now_ms, clock_ms = wall_clock_ms(), self._clock_ms()
        return _read(
            log,
            lambda: transaction_records.transactions_of(log, now_ms, clock_ms),
            lambda found: self._submit_first(events.TransactionsRead(effect.partition, found)),
        )

    def _read_committed_offsets(self, effect: effects.ReadCommittedOffsets) -> InThread | None:
        log = self.logs.logs[effect.partition].snapshot()
        return _read(
            log,
            lambda: group_records.groups_of(log),
            lambda found: self._submit_first(events.CommittedOffsetsRead(effect.partition, *found)),
        )

    def _truncate_fully(self, effect: effects.TruncateFullyAndStartAt) -> None:
        self.logs.logs[effect.partition].truncate_fully_and_start_at(effect.offset)
        if future := self.logs.futures.get(effect.partition):
            future.truncate_fully_and_start_at(effect.offset)

    def _advance_log_start(self, effect: effects.AdvanceLogStartOffset) -> None:
        self.logs.logs[effect.partition].delete_records_before(effect.offset)
        self.logs.checkpoint_log_start_offsets(effect.partition)

    def _write_epochs(self, effect: effects.WriteLeaderEpochCheckpoint) -> None:
        self.logs.logs[effect.partition].epochs.replace(effect.epochs)

    def _write_high_watermarks(self, effect: effects.WriteHighWatermarkCheckpoint) -> None:
        self.logs.write_high_watermarks(dict(effect.high_watermarks))


def stored_replicas(logs: LogManager) -> dict[TopicPartition, StoredReplica]:
    """What was on disk: the core begins with that."""
    high_watermarks = logs.read_high_watermarks()
    stored = {}
    for topic_partition, log in logs.logs.items():
        high_watermark = high_watermarks.get(topic_partition, 0)
        state = state_of(log.snapshot(), high_watermark)
        log.rebuild_aborted(state.aborted)
        stored[topic_partition] = StoredReplica(
            UnifiedLog(
                log.log_start_offset,
                log.log_end_offset,
                tuple(log.epochs.entries),
                producers=state.producers,
                transactions=state.transactions,
            ),
            high_watermark,
            logs.topic_ids.get(topic_partition),
        )
    return stored
