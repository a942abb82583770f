"""Whether this broker may answer for a partition at all: as its leader, or as a follower where that
will do, and in the epoch meant.

Rule (KIP-320): a request that names the leader epoch in which it believes is refused in any other,
by leader and followers alike, so that nobody takes a broker of another epoch for the leader. A
request that names none is not fenced.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import UNDEFINED_EPOCH, TopicPartition
from neaptide.clusters.broker.replication.rule import rule


@rule
def leader_error(
    broker: Broker,
    topic_partition: TopicPartition,
    current_leader_epoch: int = UNDEFINED_EPOCH,
    *,
    or_follower: bool = False,
) -> Error:
    """NONE where this broker leads the partition, in the epoch that was named, or follows in it."""
    if topic_partition in broker.offline:
        return Error.KAFKA_STORAGE_ERROR
    partition = broker.partitions.get(topic_partition)
    if partition is not None and broker.rules.fences_leader_epochs:
        if UNDEFINED_EPOCH < current_leader_epoch < partition.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        if current_leader_epoch > partition.leader_epoch:
            return Error.UNKNOWN_LEADER_EPOCH
    if broker.served(topic_partition, or_follower=or_follower) is not None:
        return Error.NONE
    topic, number = topic_partition
    if partition is not None or number in broker.metadata.topics.get(topic, {}):
        return Error.NOT_LEADER_OR_FOLLOWER
    return Error.UNKNOWN_TOPIC_OR_PARTITION
