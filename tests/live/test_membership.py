"""G2 on real processes, with three client libraries: members share, go, and outlive coordinators.

The same on a real Kafka beside it, where nothing may differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from neaptide.clusters.broker.replication.group.committed_offsets import partition_for
from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until
from tests.live.members import owned, polled
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]
PARTITIONS = 4
RECORDS = 40
OFFSETS_PARTITIONS = 3
SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.fetch.wait.max.ms": "100",
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
MEMBER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 200,
    "log_level": 0,
}
SYSTEMS = ["neaptide:0.10", "neaptide:2.1", "neaptide:4.0", "kafka:3.9.1"]


@pytest.fixture(scope="module", params=proof_but(SYSTEMS, "neaptide:4.0"))
def own_or_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    with running(request.param, tmp_path_factory.mktemp("membership"), SETTINGS) as cluster:
        cluster.create_topic("t", [BROKERS] * PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("t", value=str(number), partition=number % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0
        yield cluster


def member(cluster: LiveCluster, group: str, more: Mapping[str, Any] | None = None) -> Consumer:
    given = {"bootstrap.servers": cluster.bootstrap, "group.id": group, **MEMBER, **(more or {})}
    consumer = Consumer(given)
    consumer.subscribe(["t"])
    return consumer


def shared(*consumers: Consumer) -> bool:
    """Whether all partitions are owned, each by one."""
    polled(*consumers)
    each = [owned(consumer) for consumer in consumers]
    return all(each) and sorted(p for of in each for p in of) == list(range(PARTITIONS))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_g2_members_share_the_partitions_and_take_over_from_who_leaves(
    own_or_kafka: LiveCluster, assignor: str
) -> None:
    group = f"shared-{assignor}"
    more = {"partition.assignment.strategy": assignor}
    x, y = member(own_or_kafka, group, more), member(own_or_kafka, group, more)
    try:
        until(lambda: shared(x, y), "both have partitions")
        y.close()
        until(lambda: shared(x), "x has all of them")
    finally:
        x.close()


def test_g2_a_member_that_dies_is_missed_after_its_session(own_or_kafka: LiveCluster) -> None:
    """It is only silent: it does not leave, as a process that was killed."""
    x, y = (
        member(own_or_kafka, "dies"),
        member(own_or_kafka, "dies", {"max.poll.interval.ms": 6_000}),
    )
    try:
        until(lambda: shared(x, y), "both have partitions")
        until(lambda: shared(x), "x has all of them")  # y polls no more
    finally:
        x.close()
        y.close()


def test_g2_members_and_their_commits_outlive_their_coordinator(own_or_kafka: LiveCluster) -> None:
    group = "outlives"
    x = member(own_or_kafka, group)
    try:
        seen: set[int] = set()

        def has_seen_all() -> bool:
            seen.update(*polled(x))
            return len(seen) == RECORDS

        until(has_seen_all, "all records")
        x.commit(asynchronous=False)
        partition = partition_for(group, OFFSETS_PARTITIONS).partition
        coordinator = own_or_kafka.state("__consumer_offsets", partition)["leader"]
        own_or_kafka.kill(coordinator)
        own_or_kafka.await_leader("__consumer_offsets", other_than=coordinator, partition=partition)

        def committed() -> bool:
            found = x.committed([TopicPartition("t", p) for p in range(PARTITIONS)], DEADLINE_S)
            return [one.offset for one in found] == [RECORDS // PARTITIONS] * PARTITIONS

        until(committed, "the new coordinator knows the commits")
        until(lambda: polled(x) and owned(x) == set(range(PARTITIONS)), "x is a member of it")
        y = member(own_or_kafka, group)
        try:
            until(lambda: shared(x, y), "both have partitions")
            assert polled(x, y) == [[], []]  # they go on where the group was
        finally:
            y.close()
    finally:
        x.close()
        own_or_kafka.restart(coordinator)
        own_or_kafka.await_registered(coordinator)


def test_g2_kafka_python_and_aiokafka_are_members_too(own_or_kafka: LiveCluster) -> None:
    reader = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=own_or_kafka.bootstrap.split(","),
        group_id="kafka-python",
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
    )
    try:
        values: set[int] = set()

        def all_read() -> bool:
            batches = reader.poll(timeout_ms=500)
            values.update(int(one.value) for batch in batches.values() for one in batch)
            return len(values) == RECORDS

        until(all_read, "all records")
        reader.commit()
    finally:
        reader.close()

    async def read() -> int:
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=own_or_kafka.bootstrap,
            group_id="aiokafka",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            found: set[bytes | None] = set()
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < RECORDS:
                    batches = await consumer.getmany(timeout_ms=500)
                    found.update(one.value for batch in batches.values() for one in batch)
            await consumer.commit()
            return len(found)
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == RECORDS


def test_g2_operators_list_describe_and_delete_groups(own_or_kafka: LiveCluster) -> None:
    admin = AdminClient({"bootstrap.servers": own_or_kafka.bootstrap, "log_level": 0})
    # From 1.1 on. Where a broker lacks it, librdkafka 2.16 aborts its process some time later.
    has_delete_groups = own_or_kafka.generation != "0.10"
    x = member(own_or_kafka, "seen")
    try:
        until(lambda: shared(x), "x has all of them")
        polled(x)
        x.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
        found = admin.list_consumer_groups().result()
        assert found.errors == []
        listed = {one.group_id: one for one in found.valid}
        assert "seen" in listed
        described = admin.describe_consumer_groups(["seen"])["seen"].result()
        assert described.state.name == "STABLE"
        assert described.partition_assignor == "range"
        [one] = described.members
        given = {place.partition for place in one.assignment.topic_partitions}
        assert given == set(range(PARTITIONS))
        if has_delete_groups:
            with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
                admin.delete_consumer_groups(["seen"])["seen"].result()
    finally:
        x.close()
    until(
        lambda: admin.describe_consumer_groups(["seen"])["seen"].result().state.name == "EMPTY",
        "x has left",
    )
    asked = [ConsumerGroupTopicPartitions("seen", [TopicPartition("t", 0)])]
    [found] = admin.list_consumer_group_offsets(asked)["seen"].result().topic_partitions
    assert found.offset == 3
    if has_delete_groups:
        admin.delete_consumer_groups(["seen"])["seen"].result()
        assert "seen" not in {g.group_id for g in admin.list_consumer_groups().result().valid}


def test_kip_345_a_static_member_that_starts_again_keeps_its_partitions(
    own_or_kafka: LiveCluster,
) -> None:
    if own_or_kafka.generation in ("0.10", "2.1"):
        return  # static members are of 2.3
    x = member(own_or_kafka, "static", {"group.instance.id": "x"})
    y = member(own_or_kafka, "static", {"group.instance.id": "y"})
    until(lambda: shared(x, y), "both have partitions")
    mine = owned(y)
    y.close()  # a static member does not leave
    again = member(own_or_kafka, "static", {"group.instance.id": "y"})
    try:
        until(lambda: polled(again, x) and owned(again) == mine, "y has what it had")
        assert owned(x) | mine == set(range(PARTITIONS))
    finally:
        again.close()
        x.close()
