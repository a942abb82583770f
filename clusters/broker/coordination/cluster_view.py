"""What a controller reads of the cluster: brokers, topics, partition states, ISR notifications.

Each read of something watched sets its watch first, so that a change after it is noticed. Many
znodes are asked for at once. What vanishes between two reads is left out: its own watch reports it.
"""

from __future__ import annotations

from collections.abc import Iterable

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client, Watch
from neaptide.clusters.broker.replication.interface.coordination_service import (
    IsrChangeNotified,
)
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)


def brokers(client: Client, watch: Watch | None = None) -> dict[int, BrokerRegistration]:
    ids = sorted(int(name) for name in client.children(znodes.BROKER_IDS, watch))
    found = client.get_all([znodes.broker_path(broker_id) for broker_id in ids])
    return {
        broker_id: znodes.decode_broker(broker_id, znode.data, znode.stat.czxid)
        for broker_id in ids
        if (znode := found.get(znodes.broker_path(broker_id))) is not None
    }


def topics_and_czxids(
    client: Client, watch: Watch | None = None
) -> dict[str, tuple[TopicConfiguration, int]]:
    """By name; the czxid of a topic's znode says whether it was made again.

    The watch is on the list, on each topic (partitions may be added) and on its settings.
    """
    names = client.children(znodes.TOPICS, watch)
    found = client.get_all([znodes.topic_path(name) for name in names], watch)
    configs = client.get_all([znodes.topic_config_path(name) for name in names], watch)
    read = {}
    for name in names:
        znode = found.get(znodes.topic_path(name))
        config = configs.get(znodes.topic_config_path(name))
        if znode is not None:
            settings = config.data if config else None
            read[name] = znodes.decode_topic(name, znode.data, settings), znode.stat.czxid
    return read


def states(
    client: Client, partitions: Iterable[TopicPartition], watch: Watch | None = None
) -> dict[TopicPartition, LeaderAndIsr]:
    paths = {znodes.state_path(partition): partition for partition in partitions}
    return {
        paths[path]: znodes.decode_state(
            paths[path], znode.data, znode.stat.version, znode.stat.mzxid
        )
        for path, znode in client.get_all(list(paths), watch).items()
    }


class IsrChanges:
    """The notifications that are there and were not reported yet."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reported: set[str] = set()

    def unread(self, watch: Watch) -> IsrChangeNotified | None:
        names = self._client.children(znodes.ISR_CHANGES, watch)
        fresh = [name for name in names if name not in self._reported]
        found = self._client.get_all([f"{znodes.ISR_CHANGES}/{name}" for name in fresh])
        if not found:
            return None
        self._reported.update(fresh)
        named = [
            partition
            for path, znode in found.items()
            for partition in znodes.decode_partitions(path, znode.data)
        ]
        return IsrChangeNotified(tuple(fresh), tuple(dict.fromkeys(named)))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._client.delete(f"{znodes.ISR_CHANGES}/{name}")
            self._reported.discard(name)
