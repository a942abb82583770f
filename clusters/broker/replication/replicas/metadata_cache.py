"""The metadata cache: what the controller has sent of the whole cluster (C4, C8).

A frozen value, replaced when UpdateMetadata comes. Metadata requests are answered from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from neaptide.clusters.broker.replication.interface.events import PartitionState
from neaptide.clusters.broker.replication.model import (
    LEADER_DURING_DELETE,
    BrokerRegistration,
)


@dataclass(frozen=True, slots=True)
class MetadataCache:
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, PartitionState]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)  # by name, of those that have one
    controller_id: int = -1
    # How many partitions an internal topic has, whether or not they are known already, where that
    # is known. A group, or a transactional id, belongs to one of them all.
    partition_counts: Mapping[str, int] = field(default_factory=dict)

    def have_leaders(self, topic: str, partitions: Iterable[int]) -> bool:
        known = self.topics.get(topic, {})
        return all(number in known and known[number].state.leader >= 0 for number in partitions)


def with_partitions(metadata: MetadataCache, sent: tuple[PartitionState, ...]) -> MetadataCache:
    """What was known of a topic that has another id now is forgotten: it was made again.

    So are partitions that are being deleted.
    """
    topics, topic_ids = dict(metadata.topics), dict(metadata.topic_ids)
    counts = dict(metadata.partition_counts)
    for partition_state in sent:
        topic, partition = partition_state.partition
        if partition_state.state.leader == LEADER_DURING_DELETE:
            left = {
                number: one for number, one in topics.pop(topic, {}).items() if number != partition
            }
            if left:
                topics[topic] = left
            else:
                topic_ids.pop(topic, None)
                counts.pop(topic, None)
            continue
        topic_id = partition_state.topic_id
        if topic_id is not None and topic_ids.get(topic) != topic_id:
            if topic in topic_ids:
                topics.pop(topic, None)
            topic_ids[topic] = topic_id
        topics[topic] = {**topics.get(topic, {}), partition: partition_state}
    return replace(metadata, topics=topics, topic_ids=topic_ids, partition_counts=counts)
