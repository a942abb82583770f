"""P4 on real processes, with three client libraries: what is committed is read, the rest is not.

The same on a real Kafka beside it, where nothing may differ.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from neaptide.clusters.broker.replication.group.committed_offsets import partition_for
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
)
from neaptide.clusters.kafka.artifacts import class_path
from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]
STATES = 3
SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.fetch.wait.max.ms": "100",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": str(STATES),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "min.insync.replicas": "2",
}
SYSTEMS = ["neaptide:0.11", "neaptide:2.1", "neaptide:4.0", "kafka:3.9.1"]


@pytest.fixture(scope="module", params=proof_but(SYSTEMS, "neaptide:4.0"))
def own_or_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    with running(request.param, tmp_path_factory.mktemp("transactions"), SETTINGS) as cluster:
        yield cluster


def producer(cluster: LiveCluster, name: str, more: Mapping[str, Any] | None = None) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0}
    made = Producer({**given, **(more or {})})
    made.init_transactions(DEADLINE_S)
    return made


def transaction(made: Producer, topic: str, values: list[str], *, commit: bool = True) -> None:
    made.begin_transaction()
    for value in values:
        made.produce(topic, value=value, partition=0)
    if commit:
        made.commit_transaction(DEADLINE_S)
    else:
        made.flush(DEADLINE_S)
        made.abort_transaction(DEADLINE_S)


def read(
    cluster: LiveCluster, topic: str, until_value: str, isolation: str = "read_committed"
) -> list[str]:
    """All values of a topic up to one."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"reads-{topic}-{isolation}",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []

    def has_all() -> bool:
        messages = consumer.consume(100, 0.2)
        found.extend((m.value() or b"").decode() for m in messages if m.error() is None)
        return until_value in found

    try:
        until(has_all, f"{until_value} is read")
    finally:
        consumer.close()
    return found


def test_p4_what_is_aborted_nobody_reads_who_wants_committed_records(
    own_or_kafka: LiveCluster,
) -> None:
    own_or_kafka.create_topic("aborted", [BROKERS])
    made = producer(own_or_kafka, "aborts")
    transaction(made, "aborted", ["a", "b"])
    transaction(made, "aborted", ["c"], commit=False)
    transaction(made, "aborted", ["d"])
    assert read(own_or_kafka, "aborted", "d") == ["a", "b", "d"]
    assert read(own_or_kafka, "aborted", "d", "read_uncommitted") == ["a", "b", "c", "d"]


def test_p4_an_open_transaction_holds_back_what_is_behind_it(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("open", [BROKERS])
    plain = Producer({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    made = producer(own_or_kafka, "opens")
    made.begin_transaction()
    made.produce("open", value="in it", partition=0)
    made.flush(DEADLINE_S)
    plain.produce("open", value="behind", partition=0)
    assert plain.flush(DEADLINE_S) == 0
    seen = read(own_or_kafka, "open", "behind", "read_uncommitted")
    assert seen == ["in it", "behind"]
    assert _latest(own_or_kafka, "open") == (0, 2)
    made.commit_transaction(DEADLINE_S)
    assert read(own_or_kafka, "open", "behind") == ["in it", "behind"]


def _latest(cluster: LiveCluster, topic: str) -> tuple[int, int]:
    """Where who reads committed records reads to, and who reads all."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, isolation_level=isolation, group_id=None
        )
        place = kafka.TopicPartition(topic, 0)
        found.append(consumer.end_offsets([place])[place])
        consumer.close()
    return found[0], found[1]


def test_p4_a_producer_with_the_same_id_takes_over(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("zombie", [BROKERS])
    first = producer(own_or_kafka, "zombie")
    first.begin_transaction()
    first.produce("zombie", value="of the first", partition=0)
    first.flush(DEADLINE_S)
    second = producer(own_or_kafka, "zombie")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(DEADLINE_S)
    assert refused.value.args[0].code() == -144  # _FENCED
    transaction(second, "zombie", ["of the second"])
    assert read(own_or_kafka, "zombie", "of the second") == ["of the second"]


def test_p4_a_transaction_that_takes_too_long_is_aborted(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("slow", [BROKERS])
    made = producer(own_or_kafka, "slow", {"transaction.timeout.ms": 1_000})
    made.begin_transaction()
    made.produce("slow", value="too late", partition=0)
    made.flush(DEADLINE_S)
    until(lambda: _latest(own_or_kafka, "slow")[0] == 2, "it is aborted")
    after = producer(own_or_kafka, "after")
    transaction(after, "slow", ["in time"])
    assert read(own_or_kafka, "slow", "in time") == ["in time"]


def test_p4_offsets_are_committed_with_the_records(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("offsets", [BROKERS])
    made = producer(own_or_kafka, "offsets")
    group = Consumer(
        {"bootstrap.servers": own_or_kafka.bootstrap, "group.id": "offsets", "log_level": 0}
    )
    place = TopicPartition("offsets", 0)

    def committed() -> int:
        [found] = group.committed([place], DEADLINE_S)
        return int(found.offset)

    for offset, commit in ((3, True), (7, False), (9, True)):
        made.begin_transaction()
        made.produce("offsets", value=str(offset), partition=0)
        made.send_offsets_to_transaction(
            [TopicPartition("offsets", 0, offset)], group.consumer_group_metadata(), DEADLINE_S
        )
        if commit:
            made.commit_transaction(DEADLINE_S)
            until(lambda: committed() == offset, "it is committed")  # noqa: B023
        else:
            made.abort_transaction(DEADLINE_S)
    group.close()
    assert read(own_or_kafka, "offsets", "9") == ["3", "9"]


def test_p4_a_transaction_outlives_its_coordinator(own_or_kafka: LiveCluster) -> None:
    """The broker that coordinates it is killed while it is open, and it is committed."""
    own_or_kafka.create_topic("outlives", [BROKERS])
    made = producer(own_or_kafka, "outlives")
    transaction(made, "outlives", ["before"])
    made.begin_transaction()
    made.produce("outlives", value="in it", partition=0)
    made.flush(DEADLINE_S)
    partition = partition_for("outlives", STATES, TRANSACTIONS_TOPIC).partition
    coordinator = own_or_kafka.state(TRANSACTIONS_TOPIC, partition)["leader"]
    own_or_kafka.kill(coordinator)
    try:
        made.commit_transaction(DEADLINE_S)
        assert read(own_or_kafka, "outlives", "in it") == ["before", "in it"]
    finally:
        own_or_kafka.restart(coordinator)
        own_or_kafka.await_registered(coordinator)


def test_p4_aiokafka_has_transactions(own_or_kafka: LiveCluster) -> None:
    own_or_kafka.create_topic("asynchronous", [BROKERS])

    async def play() -> list[str]:
        made = AIOKafkaProducer(
            bootstrap_servers=own_or_kafka.bootstrap, transactional_id="asynchronous"
        )
        await made.start()
        try:
            async with made.transaction():
                await made.send_and_wait("asynchronous", b"kept", partition=0)
            await made.begin_transaction()
            await made.send_and_wait("asynchronous", b"dropped", partition=0)
            await made.abort_transaction()
            async with made.transaction():
                await made.send_and_wait("asynchronous", b"last", partition=0)
        finally:
            await made.stop()
        consumer = AIOKafkaConsumer(
            "asynchronous",
            bootstrap_servers=own_or_kafka.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        found: list[str] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for message in consumer:
                    found.append((message.value or b"").decode())
                    if found[-1] == "last":
                        break
        finally:
            await consumer.stop()
        return found

    assert asyncio.run(play()) == ["kept", "last"]


# --- Kafka's own tool -----------------------------------------------------------------------------


@pytest.mark.proof
def test_p4_kafkas_tool_finds_and_aborts_a_transaction(own_or_kafka: LiveCluster) -> None:
    """ListTransactions is there from Kafka 3.0 on, so on 4.0 of ours."""
    listed = _tool(own_or_kafka, "list")
    if "does not support" in listed:
        assert "LIST_TRANSACTIONS" in listed
        return
    own_or_kafka.create_topic("hangs", [BROKERS])
    made = producer(own_or_kafka, "hangs")
    made.begin_transaction()
    made.produce("hangs", value="in it", partition=0)
    made.flush(DEADLINE_S)
    assert re.search(r"^hangs\s+\d\s+\d+\s+Ongoing", _tool(own_or_kafka, "list"), re.MULTILINE)
    described = _tool(own_or_kafka, "describe", "--transactional-id", "hangs")
    assert "hangs-0" in described
    place = ("--topic", "hangs", "--partition", "0")
    producers = _tool(own_or_kafka, "describe-producers", *place)
    assert re.search(r"^\d+\s+0\s+-1\s+0\s+\S+\s+0\s*$", producers, re.MULTILINE)
    on_any = ("--broker-id", "0", "--max-transaction-timeout", "1")
    assert "Failed" not in _tool(own_or_kafka, "find-hanging", *on_any)
    assert _latest(own_or_kafka, "hangs") == (0, 1)
    _tool(own_or_kafka, "abort", *place, "--start-offset", "0")
    until(lambda: _latest(own_or_kafka, "hangs") == (2, 2), "it is aborted")


def _tool(cluster: LiveCluster, *arguments: str) -> str:
    jars = class_path("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1")
    command = ["java", "-Xmx256m", "-cp", jars, "org.apache.kafka.tools.TransactionsCommand"]
    done = subprocess.run(
        [*command, "--bootstrap-server", cluster.bootstrap, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
