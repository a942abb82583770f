"""What consumer groups have committed: positions, by group and partition. Pure functions.

Not the requests: see groups. A position is a record of `__consumer_offsets`; whoever leads the
partition to which the group's name leads it is the group's coordinator, and knows the positions
from that log. All of it follows from the log: the last record of a group and a partition counts.
Source: Kafka's GroupMetadataManager; seed 004 for who coordinates a group (G1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.java import java_abs, java_hash
from neaptide.clusters.broker.replication.model import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
INVALID_OFFSET: Final = -1


class OffsetAndMetadata(NamedTuple):
    """Where a group goes on reading; `leader_epoch` is that of the record before it, or -1."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetCommitRecord(NamedTuple):
    """One record of the topic: a position of a group. None: the record deletes it."""

    group: str
    partition: TopicPartition
    offset_and_metadata: OffsetAndMetadata | None


Key = tuple[str, TopicPartition]
CommittedOffsets = Mapping[Key, OffsetAndMetadata]


def partition_for(group: str, partitions: int) -> TopicPartition:
    """The partition of `__consumer_offsets` that a group belongs to (G1)."""
    return TopicPartition(OFFSETS_TOPIC, java_abs(java_hash(group)) % partitions)


def with_committed(
    positions: CommittedOffsets, records: Iterable[OffsetCommitRecord]
) -> CommittedOffsets:
    """The positions after these records, in the order of their log."""
    after = dict(positions)
    for group, partition, position in records:
        if position is None:
            after.pop((group, partition), None)
        else:
            after[group, partition] = position
    return after
