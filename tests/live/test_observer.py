"""What the observer sees of a cluster: brokers, controller, leaders and ISRs, as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from neaptide.clusters.cluster import PartitionView, TopicSpec
from neaptide.clusters.observer_zookeeper import ZooKeeperObserver
from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster

pytestmark = pytest.mark.live


def test_c2_c3_it_sees_the_brokers_the_controller_and_each_change_of_a_partition(
    cluster: LiveCluster, topic_name: str
) -> None:
    seen: list[PartitionView] = []

    async def play() -> None:
        news = asyncio.Event()

        def on_change(view: PartitionView | None) -> None:
            if view is not None:
                seen.append(view)
            news.set()

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    news.clear()
                    await news.wait()

        observer = ZooKeeperObserver(cluster.brokers.coordination_port, on_change)
        await observer.start()
        try:
            await until(lambda: observer.registered == frozenset(BROKERS))
            await until(lambda: observer.controller is not None)
            await until(lambda: (observer.controller_epoch or 0) >= 1)
            controller = observer.controller
            assert controller is not None
            dying, staying = [broker for broker in BROKERS if broker != controller]
            replicas = (dying, staying, controller)
            await observer.create_topic(TopicSpec(topic_name, {0: replicas}, {}))
            await until(lambda: 0 in observer.views)
            assert observer.views[0] == PartitionView(0, dying, 0, replicas, version=0)
            await cluster.brokers.kill(dying)
            await cluster.brokers.forget_session(dying)
            await until(lambda: observer.registered == {staying, controller})
            await until(lambda: observer.views[0].leader == staying)
            assert observer.views[0].leader_epoch > 0
        finally:
            await observer.close()

    asyncio.run(play())
    assert [view.leader_epoch for view in seen] == sorted(view.leader_epoch for view in seen)
