"""A real KRaft cluster, three controllers and two brokers, as its observer sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from neaptide.clusters.cluster import ClusterSpec, Listeners, PartitionView, TopicSpec
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.kafka.kraft import KraftCluster
from neaptide.clusters.kafka.kraft_storage import ELR_FEATURE, bootstrap_checkpoint
from neaptide.clusters.kafka.versions import kafka_class_path
from neaptide.clusters.observer import Observer

pytestmark = [pytest.mark.live, pytest.mark.needs("maven"), pytest.mark.timeout(600)]
VERSION = "4.1.0"
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


Story = Callable[[Quorum], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))

    async def stage(story: Story) -> None:
        # No session ends by itself here: what is fenced was fenced on purpose.
        settings = {"zookeeper.session.timeout.ms": "120000"}
        async with quorum(tmp_path / "run", settings) as world:
            await story(world)

    return lambda story: asyncio.run(stage(story))


def test_deaths_of_a_leader_and_of_a_controller_are_seen_and_nothing_else(
    play: Callable[[Story], None],
) -> None:
    async def story(q: Quorum) -> None:
        await q.until(lambda: q.observer.registered == frozenset(BROKERS))
        await q.until(lambda: q.observer.is_settled)
        topic_id = await q.observer.create_topic(q.cluster._spec.topic)
        assert topic_id is not None
        await q.until(lambda: 0 in q.observer.views)
        assert q.observer.views[0] == PartitionView(0, 0, 0, BROKERS)

        await q.cluster.kill(0)
        await q.cluster.forget_session(0)
        await q.until(lambda: q.observer.views[0] == PartitionView(0, 1, 1, (1,)))
        assert q.observer.registered == {1}

        active, epoch = q.observer.controller, q.observer.controller_epoch
        assert active in q.cluster.controllers
        assert epoch is not None
        await q.cluster.kill(active)
        await q.until(lambda: q.observer.controller not in (None, active))
        assert (q.observer.controller_epoch or 0) > epoch
        assert q.observer.views[0].leader == 1
        assert not q.observer.is_settled  # one of the three says nothing
        await q.start(active)
        await q.until(lambda: q.observer.is_settled)

    play(story)


def test_the_levels_that_a_quorum_begins_with_are_kafkas_own_or_those_chosen() -> None:
    java, class_path = find_java(), kafka_class_path(VERSION)
    own = bootstrap_checkpoint(java, class_path, VERSION, {})
    without = bootstrap_checkpoint(java, class_path, VERSION, {ELR_FEATURE: "0"})
    assert ELR_FEATURE.encode() in own.read_bytes()
    assert ELR_FEATURE.encode() not in without.read_bytes()
    with pytest.raises(UsageError, match=f"4.1.0 cannot be formatted with {ELR_FEATURE}=9: "):
        bootstrap_checkpoint(java, class_path, VERSION, {ELR_FEATURE: "9"})
