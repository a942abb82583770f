"""What several plays share: a topic, states of its partitions, and asking for them."""

from __future__ import annotations

from neaptide.clusters.broker.replication.interface.coordination_service import (
    CreateTopic,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    ReadLeaderAndIsr,
    TopicCreated,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.model import (
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from tests.coordination.conftest import Received

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = TopicConfiguration({0: (1, 2), 1: (2, 1)}, {"min.insync.replicas": "2"})


def state(leader: int, controller_epoch: int, version: int = -1, epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, (1, 2), controller_epoch, version)


async def created_topic(broker: Received, topic: str = "t") -> None:
    broker.ask(CreateTopic(1, topic, TOPIC))
    assert (await broker.receives(TopicCreated)).error is None


async def written(broker: Received, request: WriteLeaderAndIsr) -> LeaderAndIsr:
    broker.ask(request)
    return (await broker.receives(LeaderAndIsrWritten)).state


async def is_idle(broker: Received) -> None:
    """All that was asked before is done."""
    broker.ask(ReadLeaderAndIsr((T1,)))
    await broker.receives(LeaderAndIsrRead, lambda e: e.partitions == (T1,))
