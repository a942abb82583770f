"""The observer of clusters that keep their state in ZooKeeper: the own broker, Kafka before 4.0.

It sets watches: two changes of one znode that follow each other faster than a watch can be set
again are seen as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition
from neaptide.clusters.cluster import PartitionView, TopicSpec
from neaptide.clusters.errors import HostError
from neaptide.clusters.hosts.ports import LOOPBACK
from neaptide.clusters.observer import OnChange

_TIMEOUT_S = 20.0


class ZooKeeperObserver:
    """Implements neaptide.clusters.observer.Observer."""

    def __init__(self, port: int, on_change: OnChange, address: str = LOOPBACK) -> None:
        self.views: dict[int, PartitionView] = {}
        self.topics: dict[str, dict[int, PartitionView]] = {}
        self.registered: frozenset[int] = frozenset()
        self.controller: int | None = None
        self.controller_epoch: int | None = None
        self.voters: frozenset[int] = frozenset()  # there is no such quorum
        self.left: tuple[str, ...] = ()  # the cluster goes with the run
        self._replicas: dict[str, Mapping[int, tuple[int, ...]]] = {}  # by topic
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._hosts = f"{address}:{port}"
        self._kazoo = KazooClient(hosts=self._hosts, timeout=_TIMEOUT_S)

    @property
    def is_settled(self) -> bool:
        return self.controller is not None

    async def start(self) -> None:
        """Raises HostError where ZooKeeper takes no session."""
        try:
            await asyncio.to_thread(self._kazoo.start, _TIMEOUT_S)
        except KazooTimeoutError:
            raise HostError(
                f"ZooKeeper at {self._hosts} took no session within {_TIMEOUT_S:.0f} s; its log"
                " zookeeper.log in the run directory may say why."
            ) from None
        for path in znodes.PERSISTENT_PARENTS:
            await asyncio.to_thread(self._kazoo.ensure_path, path)
        self._kazoo.ChildrenWatch(znodes.BROKER_IDS, self._on_brokers)
        self._kazoo.DataWatch(znodes.CONTROLLER, self._on_controller)
        self._kazoo.DataWatch(znodes.CONTROLLER_EPOCH, self._on_controller_epoch)

    async def create_topic(
        self, topic: TopicSpec, topic_id: str | None = None, *, watched: bool = True
    ) -> str | None:
        """Writes a topic's znodes, with the assignment wanted, and may watch its partitions.

        `topic_id`: for brokers that know topic ids, so that whoever looks at the wire knows it
        before the first Fetch.
        """
        settings = znodes.encode_settings(topic.settings)
        assignment = znodes.encode_assignment(topic.assignment, topic_id)
        create = self._kazoo.create
        await asyncio.to_thread(create, znodes.topic_config_path(topic.name), settings)
        await asyncio.to_thread(create, znodes.topic_path(topic.name), assignment)
        if watched:
            self.topics[topic.name] = {} if self.topics else self.views
            path = znodes.topic_path(topic.name)
            self._kazoo.DataWatch(path, partial(self._on_topic, topic.name))
        for partition in topic.assignment if watched else ():
            named = TopicPartition(topic.name, partition)
            self._kazoo.DataWatch(znodes.state_path(named), partial(self._on_state, named))
        return topic_id

    async def assignment(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        data, _ = await asyncio.to_thread(self._kazoo.get, znodes.topic_path(topic))
        return znodes.decode_topic(topic, data, None).assignment

    def replicas(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        return self._replicas.get(topic, {})

    async def close(self) -> None:
        await asyncio.to_thread(self._kazoo.stop)
        await asyncio.to_thread(self._kazoo.close)

    # --- on kazoo's thread -----------------------------------------------------------------------

    def _on_brokers(self, children: list[str]) -> None:
        brokers = frozenset(int(child) for child in children)
        self._loop.call_soon_threadsafe(self._take_brokers, brokers)

    def _on_controller(self, data: bytes | None, stat: Any) -> None:
        controller = znodes.decode_controller(data) if data else None
        self._loop.call_soon_threadsafe(self._take_controller, controller)

    def _on_controller_epoch(self, data: bytes | None, stat: Any) -> None:
        epoch = int(data) if data else None
        self._loop.call_soon_threadsafe(self._take_controller_epoch, epoch)

    def _on_topic(self, topic: str, data: bytes | None, stat: Any) -> None:
        if data:
            replicas = znodes.decode_topic(topic, data, None).assignment
            self._loop.call_soon_threadsafe(self._take_replicas, topic, replicas)

    def _on_state(self, named: TopicPartition, data: bytes | None, stat: Any) -> None:
        if data:
            state = znodes.decode_state(named, data, stat.version)
            view = PartitionView(
                named.partition,
                None if state.leader == NO_LEADER else state.leader,
                state.leader_epoch,
                state.isr,
                eligible=state.elr,
                version=stat.version,
            )
            self._loop.call_soon_threadsafe(self._take_view, named.topic, view)

    # --- on the event loop -----------------------------------------------------------------------

    def _take_brokers(self, brokers: frozenset[int]) -> None:
        self.registered = brokers
        self._on_change(None)

    def _take_controller(self, controller: int | None) -> None:
        self.controller = controller
        self._on_change(None)

    def _take_controller_epoch(self, epoch: int | None) -> None:
        self.controller_epoch = epoch
        self._on_change(None)

    def _take_replicas(self, topic: str, replicas: Mapping[int, tuple[int, ...]]) -> None:
        self._replicas[topic] = replicas
        self._on_change(None)

    def _take_view(self, topic: str, view: PartitionView) -> None:
        views = self.topics[topic]
        views[view.partition] = view
        self._on_change(view if views is self.views else None)
