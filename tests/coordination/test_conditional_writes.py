"""Writes that hold their conditions or change nothing, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from neaptide.clusters.broker.coordination.client import Client
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Refused, Written
from neaptide.clusters.broker.coordination.session import Term
from neaptide.clusters.broker.coordination.writes import StateWriter
from neaptide.clusters.broker.replication.interface.coordination_service import (
    ControllerChanged,
    LeaderAndIsrConflict,
    LeaderAndIsrWritten,
    WriteLeaderAndIsr,
)
from neaptide.clusters.session_expiry import expire_broker
from tests.coordination.conftest import participant
from tests.coordination.plays import T0, created_topic, state, written

pytestmark = pytest.mark.live

# --- conditional writes -------------------------------------------------------------------------


@pytest.mark.parametrize("fence", [True, False])
def test_c1_zookeeper_refuses_a_zombie_controllers_write_where_it_is_fenced(
    connect: str, fence: bool
) -> None:
    async def play() -> None:
        async with participant(connect, 2) as two:
            async with participant(connect, 1) as one:
                await one.becomes_controller()
                await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
                await created_topic(one)
                known = await written(one, WriteLeaderAndIsr(T0, state(1, 1), True))
                term = one.coordination._term
                assert term is not None
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
        client = Client(connect, 10_000)
        client.kazoo.start()
        try:  # the zombie does not know of its successor
            late = WriteLeaderAndIsr(T0, state(2, 1, known.version, 1), True, fence)
            answer = StateWriter(client).begin(late, Term(1, term.version))()
        finally:
            client.close()
        expected = LeaderAndIsrConflict if fence else LeaderAndIsrWritten
        assert isinstance(answer, expected)

    asyncio.run(play())


def test_c1_a_deposed_controllers_own_driver_refuses_its_writes(connect: str) -> None:
    async def play() -> None:
        async with participant(connect, 1) as one, participant(connect, 2) as two:
            await one.becomes_controller()
            await two.receives(ControllerChanged, lambda e: e.controller_id == 1)
            await created_topic(one)
            assert await asyncio.to_thread(expire_broker, connect, 1) == (
                "/brokers/ids/1",
                "/controller",
            )
            await two.receives(ControllerChanged, lambda e: e.controller_id is None)
            await two.becomes_controller()
            one.ask(WriteLeaderAndIsr(T0, state(1, 1), True, True))
            await one.receives(LeaderAndIsrConflict)

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
