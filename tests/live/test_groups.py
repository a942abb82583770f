"""G1, G3 on real processes: what clients commit survives the death of their coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from neaptide.clusters.broker.replication.group.committed_offsets import partition_for
from tests.live.cluster import DEADLINE_S, LiveCluster
from tests.live.raw import RawConnection, produce_request, produced
from tests.proof import proof_but
from tests.storage.batches import batch

pytestmark = pytest.mark.live
OFFSETS = "__consumer_offsets"
PARTITIONS = 50  # as Kafka has it
SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "100",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "zookeeper.session.timeout.ms": "20000",
}


@pytest.fixture(scope="module", params=proof_but(["0.10", "2.1"], "2.1"))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("groups")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = LiveCluster(directory, SETTINGS, request.param)
        cluster.create_topic("t")
        yield cluster
        cluster.close()


def _librdkafka(bootstrap: str, group: str, offset: int | None) -> int | None:
    """Commits a position, where one is given; then says which one it is answered."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        if offset is not None:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        [found] = consumer.committed([TopicPartition("t", 0)], timeout=DEADLINE_S)
        assert found.error is None
        return None if found.offset < 0 else int(found.offset)
    finally:
        consumer.close()


def _kafka_python(bootstrap: str, group: str, offset: int | None) -> int | None:
    partition = kafka.TopicPartition("t", 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), group_id=group, enable_auto_commit=False
    )
    try:
        consumer.assign([partition])
        if offset is not None:
            consumer.commit({partition: kafka.OffsetAndMetadata(offset, "", -1)})
        found: int | None = consumer.committed(partition)
        return found
    finally:
        consumer.close()


def _aiokafka(bootstrap: str, group: str, offset: int | None) -> int | None:
    partition = AioTopicPartition("t", 0)

    async def ask() -> int | None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
        )
        consumer.assign([partition])
        await consumer.start()
        try:
            if offset is not None:
                await consumer.commit({partition: offset})
            found: int | None = await consumer.committed(partition)
            return found
        finally:
            await consumer.stop()

    return asyncio.run(ask())


CLIENTS: dict[str, Callable[[str, str, int | None], int | None]] = {
    "librdkafka": _librdkafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}


def test_a2_groups_belong_to_one_of_all_partitions_from_the_first_commit_on(
    cluster: LiveCluster,
) -> None:
    """The first who asks has the topic made; its partitions get their leaders one by one."""
    groups = {f"group {number}": number for number in range(12)}
    assert len({partition_for(group, PARTITIONS) for group in groups}) > 8
    for group, offset in groups.items():
        assert _librdkafka(cluster.bootstrap, group, offset) == offset
    for broker in (0, 1, 2):
        cluster.kill(broker)
    for broker in (0, 1, 2):
        cluster.restart(broker)
    for group, offset in groups.items():
        assert _librdkafka(cluster.bootstrap, group, None) == offset


def test_a2_nobody_may_produce_into_the_topic_of_positions(cluster: LiveCluster) -> None:
    assert _librdkafka(cluster.bootstrap, "g", 3) == 3
    for broker in (0, 1, 2):
        with RawConnection(cluster.client_port(broker)) as connection:
            request = produce_request(OFFSETS, batch(0, [b"forged"]), acks=1)
            assert produced(connection.ask(request))[0] == "invalid_topic_exception"
    assert _librdkafka(cluster.bootstrap, "g", None) == 3


@pytest.mark.parametrize("client", CLIENTS)
def test_g3_what_a_client_commits_another_reads(cluster: LiveCluster, client: str) -> None:
    ask, group = CLIENTS[client], f"of {client}"
    assert ask(cluster.bootstrap, group, None) is None
    assert ask(cluster.bootstrap, group, 5) == 5
    assert ask(cluster.bootstrap, group, 7) == 7
    for other in CLIENTS.values():
        assert other(cluster.bootstrap, group, None) == 7


def test_g3_positions_survive_their_coordinator(cluster: LiveCluster) -> None:
    assert _librdkafka(cluster.bootstrap, "g", 3) == 3
    number = partition_for("g", PARTITIONS).partition
    dead = int(cluster.state(OFFSETS, number)["leader"])
    cluster.kill(dead)
    cluster.await_leader(OFFSETS, other_than=dead, partition=number)
    assert _librdkafka(cluster.bootstrap, "g", None) == 3
    assert _librdkafka(cluster.bootstrap, "g", 4) == 4
    cluster.restart(dead)
    cluster.await_isr(OFFSETS, [0, 1, 2], number)


def test_g3_positions_are_read_from_disk_when_all_were_dead(cluster: LiveCluster) -> None:
    assert _librdkafka(cluster.bootstrap, "h", 6) == 6
    for broker in (0, 1, 2):
        cluster.kill(broker)
    for broker in (0, 1, 2):
        cluster.restart(broker)
    assert _librdkafka(cluster.bootstrap, "h", None) == 6
