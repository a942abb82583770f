"""What a group coordinator knows, and when: the offsets that its groups have committed (G3).

Not what is requested of it: see group_coordinator. Who becomes leader of a partition of
`__consumer_offsets` reads all of its log, also what is not committed yet, for that log is the truth
from now on; who ceases to lead forgets. A commit is known from the moment at which it is
acknowledged, not from its append. As Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    OffsetCommitRecord,
    with_committed,
)
from neaptide.clusters.broker.replication.interface.effects import (
    ReadCommittedOffsets,
    RespondOffsetCommit,
)
from neaptide.clusters.broker.replication.interface.events import CommittedOffsetsRead
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule

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
