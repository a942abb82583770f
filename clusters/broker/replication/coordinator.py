"""What a group coordinator knows, and when: the positions of the groups that it coordinates (G3).

Not what it is asked: see groups. Who becomes leader of a partition of `__consumer_offsets` reads
all of its log, also what is not committed yet, for that log is the truth from now on; who ceases to
lead forgets. A commit is known from the moment at which it is acknowledged, not from its append.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.committed import OFFSETS_TOPIC, Committed, with_committed
from neaptide.clusters.broker.replication.effects import ReadPositions, RespondOffsetCommit
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.messages import PositionsRead
from neaptide.clusters.broker.replication.model import TopicPartition

# What a commit is answered for what became of its append (GroupMetadataManager.storeOffsets).
_ANSWERS = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.RECORD_TOO_LARGE: Error.INVALID_COMMIT_OFFSET_SIZE,
}


def begin_to_coordinate(broker: Broker, topic_partition: TopicPartition) -> None:
    """This broker leads a partition: where it is one of groups, what is in its log is read."""
    if topic_partition.topic == OFFSETS_TOPIC:
        broker.do(ReadPositions(topic_partition))


def on_positions_read(broker: Broker, event: PositionsRead, now_ms: int) -> None:
    broker.positions[event.partition] = event.positions


def cease_to_coordinate(broker: Broker, topic_partition: TopicPartition) -> None:
    broker.positions.pop(topic_partition, None)


def answer_commit(
    broker: Broker,
    request: int,
    topic_partition: TopicPartition,
    committed: tuple[Committed, ...],
    error: Error,
) -> None:
    """The end of a commit, whatever it is. Only one that was acknowledged is known."""
    if error is Error.NONE:
        before = broker.positions[topic_partition]
        broker.positions[topic_partition] = with_committed(before, committed)
    told = _ANSWERS.get(error, error)
    broker.do(RespondOffsetCommit(request, tuple((one.partition, told) for one in committed)))
