"""Each further generation as three real processes: written, its leader killed, read to the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.live.clients import CLIENTS, librdkafka_produce
from tests.live.cluster import LiveCluster, until
from tests.live.conftest import SETTINGS

pytestmark = pytest.mark.live
FIRST = [f"first {number}".encode() for number in range(50)]
SECOND = [f"second {number}".encode() for number in range(50)]


@pytest.fixture(params=["0.8", "2.0", "2.1"])
def of_generation(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveCluster]:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    cluster = LiveCluster(tmp_path, SETTINGS, request.param)
    yield cluster
    cluster.close()


def test_what_was_acked_by_all_outlives_the_leader_in_every_generation(
    of_generation: LiveCluster,
) -> None:
    cluster = of_generation
    topic = cluster.create_topic("t", settings={"min.insync.replicas": "2"})
    librdkafka_produce(cluster.bootstrap, topic, FIRST, -1, "none")
    leader = cluster.state(topic)["leader"]
    cluster.kill(leader)
    cluster.await_leader(topic, other_than=leader)
    librdkafka_produce(cluster.bootstrap, topic, SECOND, -1, "none")
    cluster.restart(leader)
    cluster.await_isr(topic, (0, 1, 2))
    for client in CLIENTS.values():
        assert client.consume(cluster.bootstrap, topic, 100) == FIRST + SECOND


@pytest.mark.parametrize("of_generation", ["2.1"], indirect=True)
def test_e6_a_consumer_learns_that_what_it_had_read_was_truncated(
    of_generation: LiveCluster,
) -> None:
    """Ten records are on both, ten more on the leader only; the other one is elected uncleanly."""
    cluster = of_generation
    unclean = {"unclean.leader.election.enable": "true"}
    topic = cluster.create_topic("t", [[0, 1]], unclean)
    librdkafka_produce(cluster.bootstrap, topic, FIRST[:10], -1, "none")
    cluster.kill(1)
    cluster.await_isr(topic, (0,))
    librdkafka_produce(cluster.bootstrap, topic, FIRST[10:20], -1, "none")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[bytes | None] = []

    def next_error() -> int | None:
        message = consumer.poll(0.2)
        if message is None:
            return None
        error = message.error()
        if error is None:
            read.append(message.value())
        return error.code() if error else None

    until(lambda: next_error() is None and len(read) == 20, "20 records are read")
    cluster.kill(0)
    cluster.restart(1)
    cluster.await_leader(topic, other_than=0)
    until(lambda: cluster._is_known(topic, 1), "the new leader is in the metadata")
    librdkafka_produce(cluster.bootstrap, topic, SECOND[:15], 1, "none")
    until(lambda: next_error() == KafkaError._LOG_TRUNCATION, "the consumer is told")
    consumer.close()
    assert read == FIRST[:20]  # and nothing of what has taken their place
