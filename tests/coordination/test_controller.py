"""Elections, and what a controller watches, on a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    CreateTopic,
    DeleteIsrChangeNotifications,
    IsrChangeNotified,
    LeaderAndIsrRead,
    LoadCluster,
    NotifyIsrChange,
    ReadLeaderAndIsr,
    ResignController,
    TopicCreated,
    TopicsChanged,
    TryBecomeController,
    WriteLeaderAndIsr,
)
from tests.coordination.conftest import participant
from tests.coordination.plays import T0, T1, TOPIC, created_topic, state, written

pytestmark = pytest.mark.live

# --- controller ---------------------------------------------------------------------------------


def test_c1_of_brokers_that_race_exactly_one_is_controller(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with (
            participant(connect, 1) as one,
            participant(connect, 2) as two,
            participant(connect, 3) as three,
        ):
            brokers = (one, two, three)
            for broker in brokers:
                broker.ask(TryBecomeController())
            answers: list[object] = []
            for broker in brokers:
                answers.append(await broker.receives(ControllerElected | ControllerChanged))
            winners = [
                broker.broker_id
                for broker, answer in zip(brokers, answers, strict=True)
                if isinstance(answer, ControllerElected)
            ]
            assert len(winners) == 1
            assert answers.count(ControllerElected(1)) == 1
            assert answers.count(ControllerChanged(winners[0])) == 2
            holder = znodes.decode_controller(zookeeper.get("/controller")[0])
            assert holder == winners[0]
            assert zookeeper.get("/controller_epoch")[0] == b"1"

    asyncio.run(play())


def test_c1_the_end_of_a_controllers_session_lets_another_win_with_a_higher_epoch(
    connect: str,
) -> None:
    async def play() -> None:
        async with participant(connect, 2) as two:
            async with participant(connect, 1) as one:
                await one.becomes_controller()
                await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            assert (await two.becomes_controller()).controller_epoch == 2

    asyncio.run(play())


def test_c1_a_controller_that_resigns_is_followed_and_learns_of_nothing_more(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            one.ask(ResignController())
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
            await one.receives(ControllerChanged, lambda e: e.controller_id == 2)
            await created_topic(two)
            await two.receives(TopicsChanged)
            one.ask(ReadLeaderAndIsr((T0,)))
            await one.receives(LeaderAndIsrRead)
            assert not [e for e in one.unread if isinstance(e, TopicsChanged)]

    asyncio.run(play())


def test_a_broker_that_already_is_controller_is_notified_again(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            one.ask(TryBecomeController(), TryBecomeController())
            assert await one.receives(ControllerElected) == ControllerElected(1)
            assert await one.receives(ControllerElected) == ControllerElected(1)

    asyncio.run(play())


# --- what a controller watches ------------------------------------------------------------------


def test_c2_the_controller_learns_of_brokers_that_come_and_go(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            assert set((await one.becomes_controller()).brokers) == {1}
            async with participant(connect, 2) as two:
                event = await one.receives(BrokersChanged, lambda e: set(e.brokers) == {1, 2})
                assert event.brokers[2].endpoints == two.coordination._registration.endpoints
                assert event.brokers[2].epoch > event.brokers[1].epoch
            await one.receives(BrokersChanged, lambda e: set(e.brokers) == {1})

    asyncio.run(play())


def test_c5_a_new_topic_is_seen_by_the_controller_and_exists_only_once(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            await created_topic(two)
            event = await one.receives(TopicsChanged)
            assert event.topics == {"t": TOPIC}
            two.ask(CreateTopic(8, "t", TOPIC))
            assert await two.receives(TopicCreated) == TopicCreated(8, "t", "TOPIC_ALREADY_EXISTS")
            assert await two.coordination.topic_settings("t") == TOPIC.settings
            assert await two.coordination.topic_settings("none") == {}

    asyncio.run(play())


def test_c5_more_partitions_and_left_over_settings(connect: str, zookeeper: KazooClient) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            zookeeper.create("/config/topics/t", b'{"version":1,"config":{"left":"over"}}')
            await one.becomes_controller()
            await created_topic(one)
            assert (await one.receives(TopicsChanged)).topics["t"] == TOPIC
            more = {0: (1, 2), 1: (2, 1), 2: (1,)}
            zookeeper.set("/brokers/topics/t", znodes.encode_assignment(more))
            event = await one.receives(TopicsChanged)
            assert event.topics["t"].assignment == more

    asyncio.run(play())


def test_no_topic_is_missed_however_fast_they_come(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            names = {f"t{number}" for number in range(50)}
            two.ask(*(CreateTopic(n, name, TOPIC) for n, name in enumerate(sorted(names))))
            event = await one.receives(TopicsChanged, lambda e: len(e.topics) == 50)
            assert set(event.topics) == names

    asyncio.run(play())


def test_i7_isr_change_notifications_are_reported_once_and_deleted(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            two.ask(NotifyIsrChange((T1,)))  # before anybody is controller
            await one.becomes_controller()
            early = await one.receives(IsrChangeNotified)
            assert early.partitions == (T1,)
            two.ask(NotifyIsrChange((T0, T1)))
            late = await one.receives(IsrChangeNotified)
            assert late.partitions == (T0, T1)
            assert all(name.startswith("isr_change_") for name in early.names + late.names)
            one.ask(DeleteIsrChangeNotifications(early.names + late.names))
            one.ask(ReadLeaderAndIsr((T0,)))
            await one.receives(LeaderAndIsrRead)
            assert zookeeper.get_children("/isr_change_notification") == []
            assert not [e for e in one.unread if isinstance(e, IsrChangeNotified)]

    asyncio.run(play())


def test_a_new_controller_loads_what_is_there(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 2) as two:
            async with participant(connect, 1) as one:
                await one.becomes_controller()
                await created_topic(one)
                first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            two.ask(LoadCluster(7))  # not its epoch: no answer
            loaded = await two.becomes_controller()
            assert loaded == ClusterLoaded(2, loaded.brokers, {"t": TOPIC}, {T0: first})
            assert set(loaded.brokers) == {2}

    asyncio.run(play())
