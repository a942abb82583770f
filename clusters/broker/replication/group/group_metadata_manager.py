"""What a group coordinator knows, and when: groups, and the offsets that they have committed (G3).

Not what is requested of it: see group_coordinator and group_membership. Who becomes leader of a
partition of `__consumer_offsets` reads all of its log, also what is not committed yet, for that log
is the truth from now on; who ceases to lead forgets. A commit is known from the moment at which it
is acknowledged, not from its append. As Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    OffsetCommitRecord,
    partition_for,
    with_committed,
)
from neaptide.clusters.broker.replication.group.group_metadata import Group, GroupMetadataRecord
from neaptide.clusters.broker.replication.interface.effects import (
    ReadCommittedOffsets,
    RespondOffsetCommit,
)
from neaptide.clusters.broker.replication.interface.events import (
    CommittedOffsetsRead,
    ProducedBatch,
)
from neaptide.clusters.broker.replication.leader import produce
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule

ALL = -1  # acks
# What a commit is answered for what became of its append (GroupMetadataManager.storeOffsets).
_ANSWERS = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.RECORD_TOO_LARGE: Error.INVALID_COMMIT_OFFSET_SIZE,
}


def on_election(broker: Broker, topic_partition: TopicPartition) -> None:
    """This broker leads a partition: where it is one of groups, what is in its log is read."""
    if topic_partition.topic == OFFSETS_TOPIC:
        broker.do(ReadCommittedOffsets(topic_partition))


@rule
def on_committed_offsets_read(broker: Broker, event: CommittedOffsetsRead, now_ms: int) -> None:
    broker.committed_offsets[event.partition] = event.committed_offsets


@rule
def on_resignation(broker: Broker, topic_partition: TopicPartition) -> None:
    broker.committed_offsets.pop(topic_partition, None)


def coordinated(broker: Broker, group: str) -> tuple[TopicPartition, Error]:
    """The group's partition, and whether this broker may speak for it."""
    partitions = broker.metadata.offsets_partitions
    topic_partition = partition_for(group, partitions or 1)
    if not partitions or topic_partition not in broker.committed_offsets:
        return topic_partition, Error.NOT_COORDINATOR
    return topic_partition, Error.NONE


def known_group(broker: Broker, group: str) -> Group | None:
    """One that has committed offsets is there, although nobody has joined it."""
    known = broker.groups.get(group)
    if known is not None:
        return known
    topic_partition, error = coordinated(broker, group)
    committed = broker.committed_offsets[topic_partition] if error is Error.NONE else {}
    return Group(group) if any(name == group for name, _ in committed) else None


def append_records(
    broker: Broker,
    topic_partition: TopicPartition,
    records: tuple[OffsetCommitRecord | GroupMetadataRecord, ...],
    now_ms: int,
) -> Appended:
    """Appends what this coordinator itself writes; its bytes are made where they are written."""
    size = sum(record.size_bytes for record in records)
    batch = ProducedBatch(len(records), size, records)
    return produce.append(broker, topic_partition, (batch,), required_acks(broker), now_ms)


@rule
def required_acks(broker: Broker) -> int:
    """From 4.0 on all, whatever is set."""
    return broker.settings.offsets_commit_required_acks if broker.rules.sets_commit_acks else ALL


def answer_commit(
    broker: Broker,
    request: int,
    topic_partition: TopicPartition,
    committed: tuple[OffsetCommitRecord, ...],
    error: Error,
) -> None:
    """The end of a commit, whatever it is. Only one that was acknowledged is known."""
    if error is Error.NONE:
        before = broker.committed_offsets[topic_partition]
        broker.committed_offsets[topic_partition] = with_committed(before, committed)
    answer = _ANSWERS.get(error, error)
    broker.do(RespondOffsetCommit(request, tuple((one.partition, answer) for one in committed)))
