"""A KRaft quorum with its brokers, and who observes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from neaptide.clusters.cluster import ClusterSpec, Listeners, PartitionView, TopicSpec
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.kafka.kraft import KraftCluster
from neaptide.clusters.observer import Observer

VERSION = "4.4.0"
DEADLINE_S = 120.0  # with a busy machine
BROKERS = (0, 1)


@dataclass
class Quorum:
    """A cluster whose nodes reach each other at their own ports, and its observer."""

    cluster: KraftCluster
    observer: Observer
    seen: list[PartitionView]
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, node: int) -> None:
        await self.cluster.start(node, self.through(node))

    def through(self, node: int) -> Listeners:
        """As if its own ports were the links'."""
        ports = (0, 0) if node in self.cluster.controllers else self.cluster.ports(node)
        return Listeners(*ports, 0, quorum=self.cluster.quorum)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def quorum(
    directory: Path, settings: dict[str, str], version: str = VERSION, *, changes: bool = False
) -> AsyncIterator[Quorum]:
    """`changes`: who is a voter can change."""
    topic = TopicSpec("t", {0: BROKERS}, {"min.insync.replicas": "1"})
    host = LocalHost()
    spec = ClusterSpec(BROKERS, settings, topic, controllers=3, changes_voters=changes)
    cluster = KraftCluster(LocalNodes(host), directory, version, spec)
    news, seen = asyncio.Event(), list[PartitionView]()

    def on_change(view: PartitionView | None) -> None:
        seen.extend([view] if view is not None else [])
        news.set()

    observer = cluster.observer(on_change)
    world = Quorum(cluster, observer, seen, news)
    try:
        await cluster.start_coordination()
        for node in (*cluster.controllers, *BROKERS):
            await world.start(node)
        await observer.start()
        yield world
    finally:
        await observer.close()
        await host.close()
        cluster.close()
