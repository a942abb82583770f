"""Cutting a follower's log, together with its epochs and the files that hold both.

When to cut is decided by the fetcher; where, by the leader's answer and the generation's rule.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.generation import Truncation
from neaptide.clusters.broker.replication.interface.effects import (
    ReadProducers,
    TruncateFullyAndStartAt,
    TruncateLog,
    WriteLeaderEpochCheckpoint,
)
from neaptide.clusters.broker.replication.interface.events import (
    EpochEndOffset,
)
from neaptide.clusters.broker.replication.model import UNDEFINED_EPOCH, UNKNOWN_OFFSET
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache, partition_rules
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.clusters.broker.replication.partition.producer_state_manager import reach_past
from neaptide.clusters.broker.replication.rule import rule


@rule
def truncate(broker: Broker, partition: Partition, offset: int) -> Partition:
    """Cuts a follower's log, and says so in the broker's log."""
    if offset >= partition.log.end_offset:
        return partition
    broker.note(
        f"{partition.topic_partition}: truncating from {partition.log.end_offset} to {offset},"
        f" high watermark {partition.high_watermark}"
    )
    if offset < partition.log.start_offset:
        return start_afresh(broker, partition, offset)
    before = partition.log.epochs
    partition = broker.put(partition_rules.truncate_to(partition, offset))
    broker.do(TruncateLog(partition.topic_partition, offset))
    if reach_past(partition.log.producers, partition.log.end_offset):
        broker.do(ReadProducers(partition.topic_partition, partition.high_watermark))
    broker.write_epochs(partition, before)
    return partition


def truncate_for_leader(broker: Broker, partition: Partition, answer: EpochEndOffset) -> bool:
    """Cuts a log by what its leader said of its latest epoch; False: it must ask once more.

    Where the leader does not know the epoch, the high watermark has to do (KIP-101).
    """
    if answer.end_offset == UNKNOWN_OFFSET:
        truncate(broker, partition, partition.high_watermark)
        return True
    names_its_epoch = answer.leader_epoch != UNDEFINED_EPOCH
    if broker.rules.truncation is not Truncation.UNTIL_HISTORIES_MEET or not names_its_epoch:
        truncate(broker, partition, answer.end_offset)
        return True
    log = partition.log
    point = leader_epoch_file_cache.meeting_point(
        log.epochs, log.end_offset, EpochEnd(answer.leader_epoch, answer.end_offset)
    )
    forget_empty_epochs(broker, truncate(broker, partition, point.offset))
    return point.have_met


@rule
def forget_empty_epochs(broker: Broker, partition: Partition) -> None:
    """An epoch in which this replica led and wrote nothing would be asked for again (KAFKA-10706).

    Its end is the log's own, so that no truncation would ever reach it.
    """
    log = partition.log
    epochs = leader_epoch_file_cache.truncate_from_end(log.epochs, log.end_offset)
    if epochs != log.epochs:
        partition = broker.put(replace(partition, log=replace(log, epochs=epochs)))
        broker.write_epochs(partition, log.epochs)


def start_afresh(broker: Broker, partition: Partition, offset: int) -> Partition:
    partition = broker.put(partition_rules.start_afresh_at(partition, offset))
    broker.do(TruncateFullyAndStartAt(partition.topic_partition, offset))
    broker.do(WriteLeaderEpochCheckpoint(partition.topic_partition, ()))
    return partition
