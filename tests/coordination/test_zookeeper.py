"""The driver on a real ZooKeeper: elections, conditional writes, watches, sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from clusters.broker.coordination import znodes
from clusters.broker.coordination.client import Client
from clusters.broker.coordination.conditional import ConditionalWrite, Refused, Written
from clusters.broker.coordination.expire import expire_broker
from clusters.broker.coordination.session import Term
from clusters.broker.coordination.writes import StateWriter
from clusters.broker.replication.coordination import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    CreateTopic,
    DeleteIsrChangeNotifications,
    IsrChangeNotified,
    LeaderAndIsrConflict,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    LoadCluster,
    NotifyIsrChange,
    ReadLeaderAndIsr,
    ResignController,
    SessionExpired,
    SessionStarted,
    TopicCreated,
    TopicsChanged,
    TryBecomeController,
    WriteLeaderAndIsr,
)
from clusters.broker.replication.model import LeaderAndIsr, TopicConfiguration, TopicPartition
from tests.coordination.conftest import Participant, participant

pytestmark = pytest.mark.live

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = TopicConfiguration({0: (1, 2), 1: (2, 1)}, {"min.insync.replicas": "2"})


def state(leader: int, controller_epoch: int, version: int = -1, epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, (1, 2), controller_epoch, version)


async def created_topic(broker: Participant, topic: str = "t") -> None:
    broker.ask(CreateTopic(1, topic, TOPIC))
    assert (await broker.hears(TopicCreated)).error is None


async def written(broker: Participant, request: WriteLeaderAndIsr) -> LeaderAndIsr:
    broker.ask(request)
    return (await broker.hears(LeaderAndIsrWritten)).state


# --- controller ---------------------------------------------------------------------------------


def test_C1_of_brokers_that_race_exactly_one_is_controller(
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
            answers = []
            for broker in brokers:
                answers.append(await broker.hears(ControllerElected | ControllerChanged))
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


def test_C1_the_end_of_a_controllers_session_lets_another_win_with_a_higher_epoch(
    connect: str,
) -> None:
    async def play() -> None:
        async with participant(connect, 2) as two:
            async with participant(connect, 1) as one:
                await one.becomes_controller()
                await two.hears(ControllerChanged, lambda e: e.controller_id == 1)
            await two.hears(ControllerChanged, lambda e: e.controller_id is None)
            assert (await two.becomes_controller()).controller_epoch == 2

    asyncio.run(play())


def test_C1_a_controller_that_resigns_is_followed_and_hears_of_nothing_more(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            one.ask(ResignController())
            await two.hears(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
            await one.hears(ControllerChanged, lambda e: e.controller_id == 2)
            await created_topic(two)
            await two.hears(TopicsChanged)
            one.ask(ReadLeaderAndIsr((T0,)))
            await one.hears(LeaderAndIsrRead)
            assert not [e for e in one.unread if isinstance(e, TopicsChanged)]

    asyncio.run(play())


def test_a_broker_that_already_is_controller_is_told_so_again(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            one.ask(TryBecomeController(), TryBecomeController())
            assert await one.hears(ControllerElected) == ControllerElected(1)
            assert await one.hears(ControllerElected) == ControllerElected(1)

    asyncio.run(play())


# --- conditional writes -------------------------------------------------------------------------


def test_I6_a_write_with_a_stale_version_conflicts_and_changes_nothing(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            await created_topic(one)
            first = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
            assert first.version == 0
            again = await written(one, WriteLeaderAndIsr(T0, state(2, 1, 0, 1), False))
            assert (again.leader, again.version) == (2, 1)
            one.ask(WriteLeaderAndIsr(T0, state(1, 1, 0, 9), False))
            conflict = await one.hears(LeaderAndIsrConflict)
            assert conflict == LeaderAndIsrConflict(T0, state(1, 1, 0, 9), False)
            one.ask(WriteLeaderAndIsr(T0, state(1, 1), True))  # to be created, and is there
            await one.hears(LeaderAndIsrConflict)
            one.ask(ReadLeaderAndIsr((T0, T1)))
            read = await one.hears(LeaderAndIsrRead)
            assert read.states == {T0: again}

    asyncio.run(play())


def test_many_writes_are_answered_each_in_their_order(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            many = {number: (1, 2) for number in range(40)}
            one.ask(CreateTopic(1, "many", TopicConfiguration(many)))
            partitions = [TopicPartition("many", number) for number in many]
            one.ask(*(WriteLeaderAndIsr(p, state(1, 1), True) for p in partitions))
            for partition in partitions:
                assert (await one.hears(LeaderAndIsrWritten)).partition == partition
            one.ask(ReadLeaderAndIsr(tuple(partitions)))
            assert len((await one.hears(LeaderAndIsrRead)).states) == 40

    asyncio.run(play())


@pytest.mark.parametrize("fence", [True, False])
def test_C1_zookeeper_refuses_a_zombie_controllers_write_where_it_is_fenced(
    connect: str, fence: bool
) -> None:
    async def play() -> None:
        async with participant(connect, 2) as two:
            async with participant(connect, 1) as one:
                await one.becomes_controller()
                await created_topic(one)
                known = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
                term = one.coordination._term
                assert term is not None
            await two.hears(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
        client = Client(connect, 10_000)
        client.kazoo.start()
        try:  # the zombie has not heard of its successor
            late = WriteLeaderAndIsr(T0, state(2, 1, known.version, 1), True)
            answer = StateWriter(client, fence).begin(late, Term(1, term.version))()
        finally:
            client.close()
        expected = LeaderAndIsrConflict if fence else LeaderAndIsrWritten
        assert isinstance(answer, expected)

    asyncio.run(play())


def test_C1_a_deposed_controllers_own_driver_refuses_its_writes(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            await created_topic(one)
            assert await asyncio.to_thread(expire_broker, connect, 1) == (
                "/brokers/ids/1",
                "/controller",
            )
            await two.hears(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
            one.ask(WriteLeaderAndIsr(T0, state(1, 1), True))
            await one.hears(LeaderAndIsrConflict)

    asyncio.run(play())


class LostAnswers:
    """A client that loses the connection once, after or before its transaction was done."""

    def __init__(self, client: Client, delivered: bool) -> None:
        self._client = client
        self._left = 1
        self._delivered = delivered
        self._real = client.kazoo.transaction

    def transaction(self) -> Any:
        transaction = self._real()
        if self._left:
            self._left -= 1
            commit = transaction.commit_async
            lost = self

            class Answer:
                def __init__(self) -> None:
                    if lost._delivered:
                        commit().get()

                def get(self) -> None:
                    raise ConnectionLoss

            transaction.commit_async = Answer
        return transaction


@pytest.mark.parametrize("delivered", [True, False])
def test_after_a_lost_connection_an_own_write_is_recognised(
    connect: str, zookeeper: KazooClient, monkeypatch: pytest.MonkeyPatch, delivered: bool
) -> None:
    zookeeper.create("/z", b"old")
    client = Client(connect, 10_000)
    client.kazoo.start()
    try:
        monkeypatch.setattr(client.kazoo, "transaction", LostAnswers(client, delivered).transaction)
        write = ConditionalWrite(client, lambda t: t.set_data("/z", b"new", 0), "/z", b"new")
        assert write.result() == Written(1)
        assert zookeeper.get("/z")[0] == b"new"
    finally:
        client.close()


def test_after_a_lost_connection_anothers_write_is_not_taken_for_the_own(
    connect: str, zookeeper: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper.create("/z", b"old")
    client = Client(connect, 10_000)
    client.kazoo.start()
    try:
        lost = LostAnswers(client, delivered=False)
        monkeypatch.setattr(client.kazoo, "transaction", lost.transaction)
        write = ConditionalWrite(client, lambda t: t.set_data("/z", b"new", 0), "/z", b"new")
        zookeeper.set("/z", b"another's")
        assert isinstance(write.result(), Refused)
        assert zookeeper.get("/z")[0] == b"another's"
    finally:
        client.close()


# --- what a controller watches ------------------------------------------------------------------


def test_C2_the_controller_hears_of_brokers_that_come_and_go(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            assert set((await one.becomes_controller()).brokers) == {1}
            async with participant(connect, 2) as two:
                event = await one.hears(BrokersChanged, lambda e: set(e.brokers) == {1, 2})
                assert event.brokers[2].endpoints == two.coordination._registration.endpoints
                assert event.brokers[2].epoch > event.brokers[1].epoch
            await one.hears(BrokersChanged, lambda e: set(e.brokers) == {1})

    asyncio.run(play())


def test_C5_a_new_topic_is_seen_by_the_controller_and_exists_only_once(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            await created_topic(two)
            event = await one.hears(TopicsChanged)
            assert event.topics == {"t": TOPIC}
            two.ask(CreateTopic(8, "t", TOPIC))
            assert await two.hears(TopicCreated) == TopicCreated(8, "t", "TOPIC_ALREADY_EXISTS")
            assert await two.coordination.topic_settings("t") == TOPIC.settings
            assert await two.coordination.topic_settings("none") == {}

    asyncio.run(play())


def test_C5_more_partitions_and_left_over_settings(connect: str, zookeeper: KazooClient) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            zookeeper.create("/config/topics/t", b'{"version":1,"config":{"left":"over"}}')
            await one.becomes_controller()
            await created_topic(one)
            assert (await one.hears(TopicsChanged)).topics["t"] == TOPIC
            more = {0: (1, 2), 1: (2, 1), 2: (1,)}
            zookeeper.set("/brokers/topics/t", znodes.encode_assignment(more))
            event = await one.hears(TopicsChanged)
            assert event.topics["t"].assignment == more

    asyncio.run(play())


def test_no_topic_is_missed_however_fast_they_come(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            names = {f"t{number}" for number in range(50)}
            two.ask(*(CreateTopic(n, name, TOPIC) for n, name in enumerate(sorted(names))))
            event = await one.hears(TopicsChanged, lambda e: len(e.topics) == 50)
            assert set(event.topics) == names

    asyncio.run(play())


def test_I7_isr_change_notifications_are_told_once_and_deleted(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            two.ask(NotifyIsrChange((T1,)))  # before anybody is controller
            await one.becomes_controller()
            early = await one.hears(IsrChangeNotified)
            assert early.partitions == (T1,)
            two.ask(NotifyIsrChange((T0, T1)))
            late = await one.hears(IsrChangeNotified)
            assert late.partitions == (T0, T1)
            assert all(name.startswith("isr_change_") for name in early.names + late.names)
            one.ask(DeleteIsrChangeNotifications(early.names + late.names))
            one.ask(ReadLeaderAndIsr((T0,)))
            await one.hears(LeaderAndIsrRead)
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
            await two.hears(ControllerChanged, lambda e: e.controller_id is None)
            two.ask(LoadCluster(7))  # not its epoch: no answer
            loaded = await two.becomes_controller()
            assert loaded == ClusterLoaded(2, loaded.brokers, {"t": TOPIC}, {T0: first})
            assert set(loaded.brokers) == {2}

    asyncio.run(play())


# --- sessions -----------------------------------------------------------------------------------


def end_session(connect: str, session: tuple[int, bytes]) -> None:
    """A second client with the same session closes it, and so ends it for both."""
    twin = KazooClient(connect, client_id=session)
    twin.start()
    twin.stop()
    twin.close()


def test_C2_a_session_that_expires_is_followed_by_a_new_registration(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            loaded = await one.becomes_controller()
            await asyncio.to_thread(end_session, connect, one.session())
            await one.hears(SessionExpired)
            started = await one.hears(SessionStarted)
            assert started.broker_epoch > loaded.brokers[1].epoch
            await two.hears(ControllerChanged, lambda e: e.controller_id is None)
            assert (await two.becomes_controller()).brokers[1].epoch == started.broker_epoch
            one.ask(TryBecomeController())
            await one.hears(ControllerChanged, lambda e: e.controller_id == 2)

    asyncio.run(play())


def test_nothing_that_was_asked_before_an_expiry_is_answered_after_it(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await asyncio.to_thread(end_session, connect, one.session())
            await one.hears(SessionExpired)
            # The twin of what follows: what is asked now is answered, registered or not.
            one.ask(ReadLeaderAndIsr((T0,)))
            await one.hears(LeaderAndIsrRead)
            one.coordination._expiries_told -= 1  # as if it had not heard of the expiry yet
            one.ask(ReadLeaderAndIsr((T0,)), WriteLeaderAndIsr(T0, state(1, 1), False))
            one.coordination._expiries_told += 1
            one.ask(ReadLeaderAndIsr((T1,)))
            read = await one.hears(LeaderAndIsrRead)
            assert read.partitions == (T1,)
            assert one.unread == []

    asyncio.run(play())


def test_C2_a_broker_waits_for_the_end_of_its_own_former_session(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        former = KazooClient(connect)
        await asyncio.to_thread(former.start)
        former.create("/brokers/ids/1", b"{}", ephemeral=True, makepath=True)
        broker = Participant(connect, 1, fence=True, timeout_ms=10_000)
        broker.coordination.start()
        try:
            settings = await broker.coordination.topic_settings("t")  # a session is there by then
            assert settings == {}
            assert broker.unread == []
            assert zookeeper.get("/brokers/ids/1")[0] == b"{}"
            await asyncio.to_thread(former.stop)
            started = await broker.hears(SessionStarted)
            data, stat = zookeeper.get("/brokers/ids/1")
            assert stat.czxid == started.broker_epoch
            assert znodes.decode_broker(1, data, 0).endpoints[0].port == 9001
        finally:
            broker.coordination.close()
            former.close()

    asyncio.run(play())


def test_C2_a_dead_brokers_session_can_be_ended_at_once(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await two.becomes_controller()
            assert await asyncio.to_thread(expire_broker, connect, 1) == ("/brokers/ids/1",)
            await two.hears(BrokersChanged, lambda e: set(e.brokers) == {2})
            assert await asyncio.to_thread(expire_broker, connect, 1) == ()
            assert znodes.decode_controller(zookeeper.get("/controller")[0]) == 2
            assert one.unread == [ControllerChanged(2)]

    asyncio.run(play())


def test_all_brokers_of_a_cluster_know_the_same_cluster_id(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            found = znodes.decode_cluster_id(zookeeper.get("/cluster/id")[0])
            assert one.coordination.cluster_id == two.coordination.cluster_id == found
            assert len(found) == 22

    asyncio.run(play())


def test_a_broker_ends_even_where_no_zookeeper_answers(unused_port: int) -> None:
    async def play() -> None:
        broker = Participant(f"127.0.0.1:{unused_port}", 1, fence=True, timeout_ms=2_000)
        broker.coordination.start()
        broker.ask(TryBecomeController())
        broker.coordination.close()
        assert broker.unread == []

    asyncio.run(play())
