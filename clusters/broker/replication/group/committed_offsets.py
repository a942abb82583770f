"""What consumer groups have committed: offsets, by group and partition. Pure functions.

Not the requests: see group_coordinator. A commit is a record of `__consumer_offsets`; whoever leads
the partition to which the group's name leads is the group's coordinator, and knows what is
committed from that log alone: the last record of a group and a partition counts.
Source: Kafka's GroupMetadataManager; seed 004 for who coordinates a group (G1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.java import java_abs, java_hash
from neaptide.clusters.broker.replication.model import TopicPartition, text_bytes
from neaptide.clusters.broker.replication.rule import rule

OFFSETS_TOPIC: Final = "__consumer_offsets"
INVALID_OFFSET: Final = -1


class OffsetAndMetadata(NamedTuple):
    """Where a group goes on reading; `leader_epoch` is that of the record before it, or -1."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetCommitRecord(NamedTuple):
    """One record of the topic: what a group commits for a partition. None: it deletes that."""

    group: str
    partition: TopicPartition
    offset_and_metadata: OffsetAndMetadata | None

    @property
    def size_bytes(self) -> int:
        """About as many as it has in the log. Raises TextTooLongError."""
        kept = self.offset_and_metadata
        texts = (self.group, self.partition.topic, kept.metadata if kept else "")
        return 70 + sum(map(text_bytes, texts))


Key = tuple[str, TopicPartition]
CommittedOffsets = Mapping[Key, OffsetAndMetadata]
PendingOffsets = Mapping[int, tuple[OffsetCommitRecord, ...]]


def partition_for(name: str, partitions: int, topic: str = OFFSETS_TOPIC) -> TopicPartition:
    """The partition of `__consumer_offsets` that a group belongs to (G1); a transactional id
    belongs to one of `__transaction_state` in the same way."""
    return TopicPartition(topic, java_abs(java_hash(name)) % partitions)


def without(pending: PendingOffsets, records: Iterable[OffsetCommitRecord]) -> PendingOffsets:
    """What is committed later in the log does not give way when a transaction ends."""
    if not pending:
        return pending
    newer = {(one.group, one.partition) for one in records}
    left = {
        producer_id: tuple(one for one in of if (one.group, one.partition) not in newer)
        for producer_id, of in pending.items()
    }
    return {producer_id: of for producer_id, of in left.items() if of}


@rule
def with_committed(
    known: CommittedOffsets, records: Iterable[OffsetCommitRecord]
) -> CommittedOffsets:
    """What is committed after these records, in the order of their log."""
    after = dict(known)
    for group, partition, offset in records:
        if offset is None:
            after.pop((group, partition), None)
        else:
            after[group, partition] = offset
    return after
