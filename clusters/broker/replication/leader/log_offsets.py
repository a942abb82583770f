"""What a leader says of its log's offsets: where an epoch ends, which offset a time has.

It answers at once and changes nothing.
"""

from __future__ import annotations

from collections import Counter

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Generation, Truncation
from neaptide.clusters.broker.replication.interface.effects import (
    EpochEndOffsetResult,
    OffsetResult,
    RespondListOffsets,
    RespondOffsetForLeaderEpoch,
)
from neaptide.clusters.broker.replication.interface.events import (
    CONSUMER,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochAsked,
    ListOffsetsRequested,
    OffsetAsked,
    OffsetForLeaderEpochRequested,
)
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.model import UNDEFINED_EPOCH, UNKNOWN_OFFSET
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Leader,
    Partition,
    last_stable_offset,
)
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.rule import rule


def on_offset_for_leader_epoch(
    broker: Broker, event: OffsetForLeaderEpochRequested, now_ms: int
) -> None:
    """Same epoch: the LEO. Older epoch: where the next one starts (E3)."""
    results = tuple(epoch_end(broker, asked) for asked in event.partitions)
    broker.do(RespondOffsetForLeaderEpoch(event.request, results))


@rule
def epoch_end(broker: Broker, asked: EpochAsked) -> EpochEndOffsetResult:
    error = leader_error(broker, asked.partition, asked.current_leader_epoch)
    if error is not Error.NONE:
        return EpochEndOffsetResult(asked.partition, error, UNKNOWN_OFFSET)
    end = end_of(broker.partitions[asked.partition].log, asked.leader_epoch, broker.rules)
    return EpochEndOffsetResult(asked.partition, Error.NONE, end.end_offset, end.epoch)


@rule
def end_of(log: UnifiedLog, epoch: int, rules: Generation) -> EpochEnd:
    """From 2.0 on the answer names the epoch that it is for; before, it did not (E5)."""
    if rules.truncation is Truncation.UNTIL_HISTORIES_MEET:
        return leader_epoch_file_cache.largest_epoch_up_to(log.epochs, epoch, log.end_offset)
    end_offset = leader_epoch_file_cache.end_offset_for(log.epochs, epoch, log.end_offset)
    return EpochEnd(UNDEFINED_EPOCH, end_offset)


def on_list_offsets(broker: Broker, event: ListOffsetsRequested, now_ms: int) -> None:
    """Earliest is the log start offset; latest is HW for consumers, or the last stable offset for
    those that want committed records alone, and LEO for replicas.

    A partition that is named twice is refused, as Kafka refuses it from version 1 on.
    """
    named = Counter(asked.partition for asked in event.partitions)
    results = tuple(
        _list_offset(broker, asked, event)
        if named[asked.partition] == 1
        else OffsetResult(asked.partition, Error.INVALID_REQUEST, UNKNOWN_OFFSET)
        for asked in event.partitions
    )
    broker.do(RespondListOffsets(event.request, results))


def _list_offset(broker: Broker, asked: OffsetAsked, event: ListOffsetsRequested) -> OffsetResult:
    replica_id = event.replica_id
    error = leader_error(broker, asked.partition, asked.current_leader_epoch)
    if asked.timestamp < LATEST_TIERED_TIMESTAMP:  # of a version that is not spoken here
        error = Error.UNSUPPORTED_VERSION
    if error is not Error.NONE:
        return OffsetResult(asked.partition, error, UNKNOWN_OFFSET)
    partition = broker.partitions[asked.partition]
    log = partition.log
    end = log.end_offset
    if replica_id == CONSUMER:
        is_committed = event.is_committed
        end = last_stable_offset(partition) if is_committed else partition.high_watermark
    stale = Error.OFFSET_NOT_AVAILABLE if _is_stale(partition, broker, replica_id) else Error.NONE
    if asked.timestamp == LATEST_TIERED_TIMESTAMP:
        return OffsetResult(asked.partition, Error.NONE, UNKNOWN_OFFSET)
    if asked.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        first = log.epochs[0] if log.epochs else None
        epoch = first.epoch if first and first.start_offset <= log.start_offset else UNDEFINED_EPOCH
        return OffsetResult(asked.partition, Error.NONE, log.start_offset, leader_epoch=epoch)
    if asked.timestamp == LATEST_TIMESTAMP and stale is not Error.NONE:
        return OffsetResult(asked.partition, stale, UNKNOWN_OFFSET)
    if asked.timestamp == LATEST_TIMESTAMP:
        return OffsetResult(asked.partition, Error.NONE, end, leader_epoch=partition.leader_epoch)
    return OffsetResult(
        asked.partition,
        Error.NONE,
        UNKNOWN_OFFSET,
        look_up=asked.timestamp,
        end=end,
        not_found=stale,
    )


def _is_stale(partition: Partition, broker: Broker, replica_id: int) -> bool:
    """Whether a client must not take this high watermark for the end of the log (KIP-207).

    That of a new leader is a round old, and the one before it may have shown a higher one.
    """
    assert isinstance(partition.role, Leader)
    is_behind = partition.high_watermark < partition.role.epoch_start_offset
    return broker.rules.withholds_stale_offsets and replica_id == CONSUMER and is_behind
