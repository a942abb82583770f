"""Elections, and what a controller watches, on a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.replication.interface.coordination_service import (
    DeleteIsrChangeNotifications,
    IsrChangeNotified,
    LeaderAndIsrRead,
    NotifyIsrChange,
    ReadLeaderAndIsr,
    TopicsChanged,
)
from tests.coordination.conftest import participant
from tests.coordination.plays import T0, T1, TOPIC, created_topic

pytestmark = pytest.mark.live

# --- controller ---------------------------------------------------------------------------------


# --- what a controller watches ------------------------------------------------------------------


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
