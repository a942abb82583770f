"""A real KRaft cluster, three controllers and two brokers, as its observer sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from neaptide.clusters.cluster import PartitionView
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.kafka.kraft_storage import ELR_FEATURE, feature_levels
from neaptide.clusters.kafka.versions import kafka_class_path
from tests.kafka.quorums import BROKERS, VERSION, Quorum, quorum

pytestmark = [pytest.mark.live, pytest.mark.needs("maven"), pytest.mark.timeout(600)]


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


@pytest.mark.proof
def test_deaths_of_a_leader_and_of_a_controller_are_seen_and_nothing_else(
    play: Callable[[Story], None],
) -> None:
    async def story(q: Quorum) -> None:
        await q.until(lambda: q.observer.registered == frozenset(BROKERS))
        await q.until(lambda: q.observer.is_settled)
        topic_id = await q.observer.create_topic(q.cluster._spec.topic)
        assert topic_id is not None
        await q.until(lambda: 0 in q.observer.views)
        assert q.observer.views[0] == PartitionView(0, 0, 0, BROKERS, replicas=BROKERS)

        await q.cluster.kill(0)
        await q.cluster.forget_session(0)
        await q.until(lambda: q.observer.views[0] == PartitionView(0, 1, 1, (1,), replicas=BROKERS))
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
    own = feature_levels(java, class_path, VERSION, {})
    without = feature_levels(java, class_path, VERSION, {ELR_FEATURE: "0"})
    assert ELR_FEATURE.encode() in own.read_bytes()
    assert ELR_FEATURE.encode() not in without.read_bytes()
    with pytest.raises(UsageError, match=f"{VERSION} cannot be formatted with {ELR_FEATURE}=9: "):
        feature_levels(java, class_path, VERSION, {ELR_FEATURE: "9"})
