"""Sessions that end, connections that are lost, registrations, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ControllerChanged,
    CreateTopic,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    ReadLeaderAndIsr,
    SessionExpired,
    SessionStarted,
    TopicCreated,
    TopicsChanged,
    TryBecomeController,
    WriteLeaderAndIsr,
)
from neaptide.clusters.session_expiry import expire_broker
from tests.coordination.conftest import Participant, participant
from tests.coordination.plays import T0, T1, TOPIC, state

pytestmark = pytest.mark.live

# --- sessions -----------------------------------------------------------------------------------


def end_session(connect: str, session: tuple[int, bytes]) -> None:
    """A second connection for the same session closes it, and so ends it for both.

    Both requests go at once (ZooKeeper's ConnectRequest, and `closeSession`): who has the session
    connects again as soon as it is disconnected, and takes it back.
    """
    host, _, port = connect.partition("/")[0].partition(":")
    session_id, password = session
    again = struct.pack(">iqiqi16s?", 0, 0, 10_000, session_id, 16, password, False)
    close = struct.pack(">ii", 1, -11)
    with socket.create_connection((host, int(port)), timeout=15) as connection:
        connection.sendall(b"".join(struct.pack(">i", len(one)) + one for one in (again, close)))
        while connection.recv(1_024):
            pass  # until ZooKeeper has closed it


def test_e7_only_the_first_session_of_a_process_owns_up_to_an_unclean_shutdown(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1, unclean=True) as one, participant(connect, 2) as two:
            loaded = await two.becomes_controller()
            assert loaded.brokers[1].unclean_shutdown
            await asyncio.to_thread(end_session, connect, one.session())
            await one.receives(SessionStarted)
            changed = await two.receives(
                BrokersChanged,
                lambda e: 1 in e.brokers and e.brokers[1] != loaded.brokers[1],
            )
            assert not changed.brokers[1].unclean_shutdown

    asyncio.run(play())


def test_c2_a_session_that_expires_is_followed_by_a_new_registration(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            loaded = await one.becomes_controller()
            await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await asyncio.to_thread(end_session, connect, one.session())
            await one.receives(SessionExpired)
            started = await one.receives(SessionStarted)
            assert started.broker_epoch > loaded.brokers[1].epoch
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            assert (await two.becomes_controller()).brokers[1].epoch == started.broker_epoch
            one.ask(TryBecomeController())
            await one.receives(ControllerChanged, lambda e: e.controller_id == 2)

    asyncio.run(play())


def test_nothing_that_was_asked_before_an_expiry_is_answered_after_it(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await asyncio.to_thread(end_session, connect, one.session())
            await one.receives(SessionExpired)
            # The twin of what follows: what is asked now is answered, registered or not.
            one.ask(ReadLeaderAndIsr((T0,)))
            await one.receives(LeaderAndIsrRead)
            one.coordination._expiries_reported -= 1  # as if it did not know of the expiry yet
            one.ask(ReadLeaderAndIsr((T0,)), WriteLeaderAndIsr(T0, state(1, 1), False))
            one.coordination._expiries_reported += 1
            one.ask(ReadLeaderAndIsr((T1,)))
            read = await one.receives(LeaderAndIsrRead)
            assert read.partitions == (T1,)
            assert one.unread == []

    asyncio.run(play())


def test_c2_a_broker_waits_for_the_end_of_its_own_former_session(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        former = KazooClient(connect)
        await asyncio.to_thread(former.start)
        former.create("/brokers/ids/1", b"{}", ephemeral=True, makepath=True)
        broker = Participant(connect, 1, timeout_ms=10_000)
        broker.coordination.start()
        try:
            settings = await broker.coordination.settings("topics/t")  # a session is there by then
            assert settings == {}
            assert broker.unread == []
            assert zookeeper.get("/brokers/ids/1")[0] == b"{}"
            await asyncio.to_thread(former.stop)
            started = await broker.receives(SessionStarted)
            data, stat = zookeeper.get("/brokers/ids/1")
            assert stat.czxid == started.broker_epoch
            assert znodes.decode_broker(1, data, 0).endpoints[0].port == 9001
        finally:
            broker.coordination.close()
            former.close()

    asyncio.run(play())


def test_c2_a_dead_brokers_session_can_be_ended_at_once(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await two.becomes_controller()
            assert await asyncio.to_thread(expire_broker, connect, 1) == ("/brokers/ids/1",)
            await two.receives(BrokersChanged, lambda e: set(e.brokers) == {2})
            assert await asyncio.to_thread(expire_broker, connect, 1) == ()
            assert znodes.decode_controller(zookeeper.get("/controller")[0]) == 2
            assert one.unread == [ControllerChanged(2)]

    asyncio.run(play())


def test_after_a_lost_connection_nothing_is_missed_and_all_is_answered(
    connect: str, zookeeper: KazooClient
) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one:
            await one.becomes_controller()
            session = one.session()
            connection = one.coordination._client.kazoo._connection._socket
            connection.shutdown(socket.SHUT_RDWR)
            one.ask(CreateTopic(1, "t", TOPIC), WriteLeaderAndIsr(T0, state(1, 1), True))
            zookeeper.create("/brokers/topics/u", znodes.encode_assignment({0: (1,)}))
            await one.receives(TopicCreated)
            assert (await one.receives(LeaderAndIsrWritten)).state.version == 0
            zookeeper.create("/brokers/topics/v", znodes.encode_assignment({0: (1,)}))
            await one.receives(TopicsChanged, lambda e: set(e.topics) == {"t", "u", "v"})
            assert one.session() == session

    asyncio.run(play())


def test_what_is_set_for_a_broker_is_known_before_it_is_registered(
    connect: str, zookeeper: KazooClient
) -> None:
    """Whoever is registered is given replicas, and fetches: by then it must know its throttle."""
    wanted = {"follower.replication.throttled.rate": "1000"}
    entity = znodes.broker_entity(1)
    zookeeper.create(znodes.config_path(entity), znodes.encode_settings(wanted), makepath=True)

    async def play() -> None:
        broker = Participant(connect, 1, timeout_ms=10_000)
        known = asyncio.ensure_future(broker.coordination.settings(entity))
        broker.coordination.start()
        await broker.receives(SessionStarted)
        assert known.done()
        assert known.result() == wanted
        broker.coordination.close()

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
        broker = Participant(f"127.0.0.1:{unused_port}", 1, timeout_ms=2_000)
        broker.coordination.start()
        broker.ask(TryBecomeController())
        broker.coordination.close()
        assert broker.unread == []

    asyncio.run(play())
