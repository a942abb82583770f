"""Cutting a follower's log, together with its epochs and the files that hold both.

Where to cut is decided in following.py, by the rules of the generation.
"""

from __future__ import annotations

from clusters.broker.replication import partition as partitions
from clusters.broker.replication.broker import Broker
from clusters.broker.replication.effects import (
    TruncateFullyAndStartAt,
    TruncateLog,
    WriteLeaderEpochCheckpoint,
)
from clusters.broker.replication.messages import LogTruncated
from clusters.broker.replication.partition import Partition


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
    partition = broker.put(partitions.truncate_to(partition, offset))
    broker.do(TruncateLog(partition.topic_partition, offset))
    if partition.log.epochs != before:
        broker.do(WriteLeaderEpochCheckpoint(partition.topic_partition, partition.log.epochs))
    return partition


def start_afresh(broker: Broker, partition: Partition, offset: int) -> Partition:
    partition = broker.put(partitions.start_afresh_at(partition, offset))
    broker.do(TruncateFullyAndStartAt(partition.topic_partition, offset))
    broker.do(WriteLeaderEpochCheckpoint(partition.topic_partition, ()))
    return partition


def on_log_truncated(broker: Broker, event: LogTruncated, now_ms: int) -> None:
    """The log could only be cut before the batch that contains the offset asked for."""
    partition = broker.partitions.get(event.partition)
    if partition is None:  # deleted meanwhile
        return
    before = partition.log.epochs
    partition = broker.put(partitions.truncate_to(partition, event.log_end_offset))
    if partition.log.epochs != before:
        broker.do(WriteLeaderEpochCheckpoint(event.partition, partition.log.epochs))
