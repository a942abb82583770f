"""What a controller reads of the cluster: brokers, topics, partition states, notifications.

Each read of something watched sets its watch first, so that a change after it is noticed. Many
znodes are asked for at once. What vanishes between two reads is left out: its own watch reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Generic, TypeVar

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client, Watch
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


Named = TypeVar("Named")


class Notifications(Generic[Named]):
    """Sequential znodes under a parent: those that are there and were not reported yet."""

    def __init__(
        self, client: Client, parent: str, decode: Callable[[str, bytes], Iterable[Named]]
    ) -> None:
        self._client = client
        self._parent = parent
        self._decode = decode
        self._reported: set[str] = set()

    def unread(self, watch: Watch) -> tuple[tuple[str, ...], tuple[Named, ...]] | None:
        """Their names, and what they name; None: there are none."""
        names = self._client.children(self._parent, watch)
        fresh = [name for name in names if name not in self._reported]
        found = self._client.get_all([f"{self._parent}/{name}" for name in fresh])
        if not found:
            return None
        self._reported.update(fresh)
        named = chain.from_iterable(self._decode(path, znode.data) for path, znode in found.items())
        return tuple(fresh), tuple(dict.fromkeys(named))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._client.delete(f"{self._parent}/{name}")
            self._reported.discard(name)


def isr_changes(client: Client) -> Notifications[TopicPartition]:
    return Notifications(client, znodes.ISR_CHANGES, znodes.decode_partitions)


def log_dir_events(client: Client) -> Notifications[int]:
    return Notifications(client, znodes.LOG_DIR_EVENTS, znodes.decode_log_dir_event)
