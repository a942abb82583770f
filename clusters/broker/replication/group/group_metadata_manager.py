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
    without,
)
from neaptide.clusters.broker.replication.group.consumer_group import ConsumerGroupRecord
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
from neaptide.clusters.broker.replication.model import ProducerSequence, TopicPartition
from neaptide.clusters.broker.replication.rule import rule

ALL = -1  # acks
# What a commit is answered for what became of its append (GroupMetadataManager.storeOffsets).
_ANSWERS = {
    **produce.COORDINATOR_ERRORS,
    Error.RECORD_TOO_LARGE: Error.INVALID_COMMIT_OFFSET_SIZE,
}


def on_election(broker: Broker, topic_partition: TopicPartition) -> None:
    """This broker leads a partition: where it is one of groups, what is in its log is read."""
    if topic_partition.topic == OFFSETS_TOPIC:
        broker.do(ReadCommittedOffsets(topic_partition))


@rule
def on_committed_offsets_read(broker: Broker, event: CommittedOffsetsRead, now_ms: int) -> None:
    broker.committed_offsets[event.partition] = event.committed_offsets
    broker.pending_offsets[event.partition] = event.pending


@rule
def on_resignation(broker: Broker, topic_partition: TopicPartition) -> None:
    broker.committed_offsets.pop(topic_partition, None)
    broker.pending_offsets.pop(topic_partition, None)


# --- offsets that are committed in transactions ---------------------------------------------------


def add_pending(
    broker: Broker,
    topic_partition: TopicPartition,
    producer_id: int,
    committed: tuple[OffsetCommitRecord, ...],
) -> None:
    known = without(broker.pending_offsets.get(topic_partition, {}), committed)
    of_producer = (*known.get(producer_id, ()), *committed)
    broker.pending_offsets[topic_partition] = {**known, producer_id: of_producer}


def forget_pending(
    broker: Broker, topic_partition: TopicPartition, committed: tuple[OffsetCommitRecord, ...]
) -> None:
    """What was committed by itself comes later in the log."""
    known = broker.pending_offsets.get(topic_partition)
    if known:
        broker.pending_offsets[topic_partition] = without(known, committed)


@rule
def on_transaction_ended(
    broker: Broker, topic_partition: TopicPartition, producer_id: int, *, is_commit: bool
) -> None:
    """A marker is committed in a partition of `__consumer_offsets`."""
    pending = broker.pending_offsets.get(topic_partition, {})
    if producer_id not in pending:
        return
    left = {one: of for one, of in pending.items() if one != producer_id}
    broker.pending_offsets[topic_partition] = left
    if is_commit:
        before = broker.committed_offsets[topic_partition]
        after = with_committed(before, pending[producer_id])
        broker.committed_offsets[topic_partition] = after


# --- what both need -------------------------------------------------------------------------------


def coordinated(broker: Broker, group: str) -> tuple[TopicPartition, Error]:
    """The group's partition, and whether this broker may speak for it."""
    partitions = broker.metadata.partition_counts.get(OFFSETS_TOPIC)
    topic_partition = partition_for(group, partitions or 1)
    if not partitions or topic_partition not in broker.committed_offsets:
        return topic_partition, Error.NOT_COORDINATOR
    return topic_partition, Error.NONE


def known_group(broker: Broker, group: str) -> Group | None:
    """A classic one. One that has committed offsets is there, although nobody has joined it."""
    known = broker.groups.get(group)
    if known is not None or group in broker.consumer_groups:
        return known
    topic_partition, error = coordinated(broker, group)
    committed = broker.committed_offsets[topic_partition] if error is Error.NONE else {}
    return Group(group) if any(name == group for name, _ in committed) else None


def append_records(
    broker: Broker,
    topic_partition: TopicPartition,
    records: tuple[OffsetCommitRecord | GroupMetadataRecord | ConsumerGroupRecord, ...],
    now_ms: int,
    producer: ProducerSequence | None = None,
) -> Appended:
    """Appends what this coordinator itself writes; its bytes are made where they are written.

    `producer`: in whose transaction.
    """
    size = sum(record.size_bytes for record in records)
    batch = ProducedBatch(len(records), size, records, producer=producer)
    acks = ALL if producer is not None else required_acks(broker)
    return produce.append(broker, topic_partition, (batch,), acks, now_ms, of_coordinator=True)


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
    answer = answer_to(error)
    broker.do(RespondOffsetCommit(request, tuple((one.partition, answer) for one in committed)))


def answer_to(error: Error) -> Error:
    """What a commit is answered for what became of its append."""
    return _ANSWERS.get(error, error)
