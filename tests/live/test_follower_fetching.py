"""F14 with a client: whoever names its rack reads from the replica there, on ours and on Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until
from tests.live.raw import RawConnection, fetch_request, fetched
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]
SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.rack": "rack-{broker}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
RECORDS = 20


@pytest.fixture(
    scope="module",
    params=proof_but(["neaptide:2.8", "neaptide:4.0", "kafka:3.9.1"], "neaptide:4.0"),
)
def own_or_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    with running(request.param, tmp_path_factory.mktemp("racks"), SETTINGS) as cluster:
        cluster.create_topic("t", [list(BROKERS)])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(DEADLINE_S) == 0
        yield cluster


@pytest.mark.parametrize("broker", BROKERS)
def test_f14_librdkafka_reads_from_the_broker_of_its_rack(
    own_or_kafka: LiveCluster, broker: int
) -> None:
    """Its own statistics say from whom."""
    seen: list[int] = []

    def note(text: str) -> None:
        partitions = json.loads(text)["topics"].get("t", {}).get("partitions", {})
        seen.extend(one["broker"] for number, one in partitions.items() if number == "0")

    consumer = Consumer(
        {
            "bootstrap.servers": own_or_kafka.bootstrap,
            "client.rack": f"rack-{broker}",
            "group.id": "none",
            "enable.auto.commit": False,
            "statistics.interval.ms": 50,
            "stats_cb": note,
            "fetch.wait.max.ms": 100,
        }
    )
    values: list[bytes | None] = []

    def is_read() -> bool:
        record = consumer.poll(0.05)
        if record is not None:
            assert record.error() is None
            values.append(record.value())
        return len(values) == RECORDS and seen[-1:] == [broker]

    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        until(is_read, f"all is read, from {broker}")
    finally:
        consumer.close()
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_f14_a_consumer_of_before_is_sent_to_the_leader(own_or_kafka: LiveCluster) -> None:
    leader = own_or_kafka.state("t")["leader"]
    follower = next(broker for broker in BROKERS if broker != leader)
    for version, error in ((10, "not_leader_or_follower"), (11, "none")):
        with RawConnection(own_or_kafka.client_port(follower)) as connection:
            answer = fetched(connection.ask(fetch_request("t", 0, version=version)))
        assert answer.error_code.name == error
