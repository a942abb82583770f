"""What the core is promised: by its driver of ZooKeeper, and by the service of the simulation.

Each play runs against both, so that what a search finds is true of processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    CoordinationRequest,
    CreateTopic,
    DeleteTopic,
    LeaderAndIsrChanged,
    LeaderAndIsrConflict,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    LoadCluster,
    MarkTopicForDeletion,
    ReadLeaderAndIsr,
    ResignController,
    SessionStarted,
    TopicCreated,
    TopicDeleted,
    TopicsChanged,
    TopicsMarkedForDeletion,
    TryBecomeController,
    UnmarkTopics,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.model import TopicConfiguration, TopicPartition
from neaptide.clusters.simulation.service import Service
from tests.coordination.conftest import Received, participant
from tests.coordination.plays import T0, T1, TOPIC, created_topic, is_idle, state, written

Join = Callable[[int], AbstractAsyncContextManager[Received]]


class Simulated(Received):
    """A broker's side of the simulated service, to which no link leads: it hears at once."""

    def __init__(self, broker_id: int, service: Service, brokers: dict[int, Simulated]) -> None:
        super().__init__(broker_id)
        self._service, self._brokers = service, brokers

    def ask(self, *requests: CoordinationRequest) -> None:
        for request in requests:
            self.notify(self._service.execute(self.broker_id, request))

    def notify(self, notifications: list[tuple[int, object]]) -> None:
        for broker, event in notifications:
            if broker in self._brokers:
                self._brokers[broker].receive(event)


@pytest.fixture(params=[pytest.param("zookeeper", marks=pytest.mark.live), "simulated"])
def join(request: pytest.FixtureRequest) -> Join:
    """Registers a broker, and ends its session."""
    if request.param == "zookeeper":
        connect: str = request.getfixturevalue("connect")
        return lambda broker_id: participant(connect, broker_id)
    service, brokers = Service(), dict[int, Simulated]()

    @asynccontextmanager
    async def simulated(broker_id: int) -> AsyncIterator[Simulated]:
        broker = brokers[broker_id] = Simulated(broker_id, service, brokers)
        broker.notify(service.register(broker_id))
        await broker.receives(SessionStarted)
        yield broker
        del brokers[broker_id]
        broker.notify(service.expire(broker_id))

    return simulated


def test_c1_of_brokers_that_race_exactly_one_is_controller(join: Join) -> None:
    async def play() -> None:
        async with (
            join(1) as one,
            join(2) as two,
            join(3) as three,
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

    asyncio.run(play())


def test_c1_the_end_of_a_controllers_session_lets_another_win_with_a_higher_epoch(
    join: Join,
) -> None:
    async def play() -> None:
        async with join(2) as two:
            async with join(1) as one:
                await one.becomes_controller()
                await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            assert (await two.becomes_controller()).controller_epoch == 2

    asyncio.run(play())


def test_c1_a_controller_that_resigns_is_followed_and_learns_of_nothing_more(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one, join(2) as two:
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


def test_a_broker_that_already_is_controller_is_notified_again(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one:
            one.ask(TryBecomeController(), TryBecomeController())
            assert await one.receives(ControllerElected) == ControllerElected(1)
            assert await one.receives(ControllerElected) == ControllerElected(1)

    asyncio.run(play())


def test_c2_the_controller_learns_of_brokers_that_come_and_go(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one:
            assert set((await one.becomes_controller()).brokers) == {1}
            async with join(2):
                event = await one.receives(BrokersChanged, lambda e: set(e.brokers) == {1, 2})
                assert event.brokers[2].epoch > event.brokers[1].epoch
            await one.receives(BrokersChanged, lambda e: set(e.brokers) == {1})

    asyncio.run(play())


def test_c5_a_new_topic_is_seen_by_the_controller_and_exists_only_once(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one, join(2) as two:
            await one.becomes_controller()
            await created_topic(two)
            event = await one.receives(TopicsChanged)
            assert event.topics == {"t": TOPIC}
            two.ask(CreateTopic(8, "t", TOPIC))
            assert await two.receives(TopicCreated) == TopicCreated(8, "t", "TOPIC_ALREADY_EXISTS")

    asyncio.run(play())


def test_no_topic_is_missed_however_fast_they_come(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one, join(2) as two:
            await one.becomes_controller()
            names = {f"t{number}" for number in range(50)}
            two.ask(*(CreateTopic(n, name, TOPIC) for n, name in enumerate(sorted(names))))
            event = await one.receives(TopicsChanged, lambda e: len(e.topics) == 50)
            assert set(event.topics) == names

    asyncio.run(play())


def test_a_new_controller_loads_what_is_there(join: Join) -> None:
    async def play() -> None:
        async with join(2) as two:
            async with join(1) as one:
                await one.becomes_controller()
                await created_topic(one)
                first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
                await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            two.ask(LoadCluster(7))  # not its epoch: no answer
            loaded = await two.becomes_controller()
            assert loaded == ClusterLoaded(2, loaded.brokers, {"t": TOPIC}, {T0: first})
            assert set(loaded.brokers) == {2}

    asyncio.run(play())


def test_c5_a_marked_topic_is_reported_deleted_with_all_that_it_had_and_made_again(
    join: Join,
) -> None:
    async def play() -> None:
        async with join(1) as one:
            await one.becomes_controller()
            await created_topic(one)
            first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            one.ask(MarkTopicForDeletion("t"))
            assert await one.receives(TopicsMarkedForDeletion) == TopicsMarkedForDeletion(("t",))
            one.ask(DeleteTopic("t", 9, is_fenced=True))  # of another controller
            one.ask(DeleteTopic("t", 1, is_fenced=True))
            assert await one.receives(TopicDeleted) == TopicDeleted("t")
            await one.receives(TopicsChanged, lambda e: not e.topics)
            one.ask(WriteLeaderAndIsr(T0, first, True))
            await one.receives(LeaderAndIsrConflict)
            await created_topic(one)
            await one.receives(TopicsChanged, lambda e: set(e.topics) == {"t"})
            again = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            assert again.version == 0

    asyncio.run(play())


def test_c5_marks_are_loaded_by_the_next_controller_and_taken_away(join: Join) -> None:
    async def play() -> None:
        async with join(2) as two:
            async with join(1) as one:
                await one.becomes_controller()
                await created_topic(one)
                one.ask(MarkTopicForDeletion("t"), MarkTopicForDeletion("none"))
                await one.receives(TopicsMarkedForDeletion, lambda e: len(e.topics) == 2)
                await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            loaded = await two.becomes_controller()
            assert loaded.marked == ("none", "t")
            two.ask(UnmarkTopics(("none",), 1, is_fenced=True))  # of the one before
            two.ask(UnmarkTopics(("t",), 2, is_fenced=True))
            two.ask(MarkTopicForDeletion("last"))
            event = await two.receives(TopicsMarkedForDeletion, lambda e: "last" in e.topics)
            assert event.topics == ("last", "none")

    asyncio.run(play())


def test_i6_a_write_with_a_stale_version_conflicts_and_changes_nothing(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one:
            await one.becomes_controller()
            await created_topic(one)
            first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            assert first.version == 0
            again = await written(one, WriteLeaderAndIsr(T0, state(2, 1, 0, 1), False))
            assert (again.leader, again.version) == (2, 1)
            one.ask(WriteLeaderAndIsr(T0, state(1, 1, 0, 9), False))
            conflict = await one.receives(LeaderAndIsrConflict)
            assert conflict == LeaderAndIsrConflict(T0, state(1, 1, 0, 9), False)
            one.ask(WriteLeaderAndIsr(T0, state(1, 1), True))  # to be created, and is there
            await one.receives(LeaderAndIsrConflict)
            one.ask(ReadLeaderAndIsr((T0, T1)))
            read = await one.receives(LeaderAndIsrRead)
            assert read.states == {T0: again}

    asyncio.run(play())


def test_many_writes_are_answered_each_in_their_order(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one:
            await one.becomes_controller()
            many = {number: (1, 2) for number in range(40)}
            one.ask(CreateTopic(1, "many", TopicConfiguration(many)))
            partitions = [TopicPartition("many", number) for number in many]
            one.ask(*(WriteLeaderAndIsr(p, state(1, 1), True) for p in partitions))
            for partition in partitions:
                assert (await one.receives(LeaderAndIsrWritten)).partition == partition
            one.ask(ReadLeaderAndIsr(tuple(partitions)))
            assert len((await one.receives(LeaderAndIsrRead)).states) == 40

    asyncio.run(play())


def test_c5_the_next_change_of_a_state_that_is_watched_is_reported_once(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one, join(2) as two:
            await one.becomes_controller()
            await created_topic(one)
            first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            other = await written(one, WriteLeaderAndIsr(T1, state(1, 1), True))
            one.ask(ReadLeaderAndIsr((T0,), True), ReadLeaderAndIsr((T1,)))
            await one.receives(LeaderAndIsrRead, lambda e: e.partitions == (T1,))
            second = await written(two, WriteLeaderAndIsr(T0, first, False))
            await written(two, WriteLeaderAndIsr(T1, other, False))
            assert (await one.receives(LeaderAndIsrChanged)).partitions == (T0,)
            await written(two, WriteLeaderAndIsr(T0, second, False))
            await is_idle(one)
            assert not [e for e in one.unread if isinstance(e, LeaderAndIsrChanged)]

    asyncio.run(play())


def test_c5_a_late_read_of_who_was_the_controller_takes_no_watch_away(join: Join) -> None:
    """Each session has its own watches, so its successor is notified all the same."""

    async def play() -> None:
        async with join(1) as one, join(2) as two:
            await one.becomes_controller()
            await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await created_topic(one)
            first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            one.ask(ResignController())
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
            for broker in (two, one):
                broker.ask(ReadLeaderAndIsr((T0,), True))
                await broker.receives(LeaderAndIsrRead)
            await written(one, WriteLeaderAndIsr(T0, first, False))
            assert (await two.receives(LeaderAndIsrChanged)).partitions == (T0,)

    asyncio.run(play())


def test_e7_a_state_that_was_read_says_whether_it_is_older_than_a_registration(join: Join) -> None:
    async def play() -> None:
        async with join(1) as one:
            await created_topic(one)
            loaded = await one.becomes_controller()
            await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            one.ask(ReadLeaderAndIsr((T0,)))
            read = (await one.receives(LeaderAndIsrRead)).states[T0]
            async with join(2):
                changed = await one.receives(BrokersChanged, lambda e: 2 in e.brokers)
                assert loaded.brokers[1].epoch < read.written_at < changed.brokers[2].epoch

    asyncio.run(play())
