"""The metadata cache: what the controller has sent of the whole cluster (C4, C8).

A frozen value, replaced when UpdateMetadata comes. Metadata requests are answered from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neaptide.clusters.broker.replication.interface.events import PartitionState
from neaptide.clusters.broker.replication.model import BrokerRegistration


@dataclass(frozen=True, slots=True)
class MetadataCache:
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, PartitionState]] = field(default_factory=dict)
    controller_id: int = -1
    # How many partitions `__consumer_offsets` has, whether or not they are known already; 0: how
    # many is not known. A group belongs to one of them all.
    offsets_partitions: int = 0


def with_partitions(metadata: MetadataCache, sent: tuple[PartitionState, ...]) -> MetadataCache:
    topics = dict(metadata.topics)
    for partition_state in sent:
        topic, partition = partition_state.partition
        topics[topic] = {**topics.get(topic, {}), partition: partition_state}
    return replace(metadata, topics=topics)
