"""P4 on real processes: an answer is lost with its connection, and librdkafka sends again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.clusters.producer import ProducerOptions
from neaptide.harness.live.stage import Stage
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.nemesis.gate.model import CLIENT
from neaptide.workloads.kafka_clients import consumer, producer, settings_of
from tests.live.clients import aiokafka_produce, kafka_python_produce, librdkafka_consume
from tests.live.cluster import LiveCluster, until
from tests.proof import proof_but

pytestmark = pytest.mark.live
ONE_BROKER = ClusterSpec((0,), {}, TopicSpec("t", {0: (0,), 1: (0,)}, {}))
DEADLINE_S = 20.0


def _log_size(stage: Stage, partition: int) -> int:
    directory = stage.cluster.log_directory(0) / f"t-{partition}"
    return sum(segment.stat().st_size for segment in directory.glob("*.log"))


async def _sent(client: Producer, partition: int, value: str) -> None:
    """What is delivered later, after others of it were not, is an error here."""
    failures: list[object] = []
    client.produce("t", value, partition=partition, on_delivery=lambda e, _: failures.append(e))
    left = await asyncio.to_thread(client.flush, DEADLINE_S)
    assert (left, failures) == (0, [None])


async def _lose_an_answer(stage: Stage, partition: int, options: ProducerOptions) -> list[bytes]:
    """`again` is in the log before its connection is closed; then all that is there is read."""
    client = producer(stage.client_address(0), "all", settings_of(options))
    await _sent(client, partition, "first")
    size = _log_size(stage, partition)
    await stage.gate.cut(0, CLIENT, "client")
    sending = asyncio.create_task(_sent(client, partition, "again"))
    await asyncio.to_thread(until, lambda: _log_size(stage, partition) > size, "it is appended")
    assert not sending.done()
    await stage.gate.heal(0, CLIENT, "client", reset=True)
    await sending
    await _sent(client, partition, "last")
    return await asyncio.to_thread(_read, stage.client_address(0), partition)


def _read(bootstrap: str, partition: int) -> list[bytes]:
    reader = consumer(bootstrap, "unused", {})
    reader.assign([TopicPartition("t", partition, 0)])
    _, end = reader.get_watermark_offsets(TopicPartition("t", partition), DEADLINE_S)
    found = reader.consume(end, DEADLINE_S)
    reader.close()
    assert len(found) == end
    return [bytes(message.value() or b"") for message in found]


@pytest.mark.parametrize("generation", proof_but(["0.11", "2.1", "4.0"], "2.1"))
def test_p4_what_librdkafka_sends_again_is_there_once_with_idempotence_and_twice_without(
    generation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    [system] = parse_systems([f"neaptide:{generation}"])

    async def play() -> tuple[list[bytes], list[bytes]]:
        async with Stage(tmp_path, system, ONE_BROKER) as stage:
            return (
                await _lose_an_answer(stage, 0, ProducerOptions(idempotence=True)),
                await _lose_an_answer(stage, 1, ProducerOptions(retries=3)),
            )

    once, twice = asyncio.run(play())
    assert once == [b"first", b"again", b"last"]
    assert twice == [b"first", b"again", b"again", b"last"]


def test_p4_five_in_flight_outlive_their_leader_in_their_order(
    cluster: LiveCluster, topic_name: str
) -> None:
    """The leader dies while they are sent and comes back; nothing is twice, late or missing."""
    topic = cluster.create_topic(topic_name, settings={"min.insync.replicas": "2"})
    options = settings_of(ProducerOptions(idempotence=True, max_in_flight=5))
    client = producer(cluster.bootstrap, "all", options)
    failures: list[object] = []

    def send(first: int) -> None:
        for number in range(first, first + 200):
            client.produce(topic, str(number), partition=0, on_delivery=lambda e, _: note(e))

    def note(error: object) -> None:
        if error is not None:
            failures.append(error)

    send(0)
    client.poll(0.2)
    leader = int(cluster.state(topic)["leader"])
    cluster.kill(leader)
    send(200)
    assert client.flush(DEADLINE_S) == 0
    cluster.restart(leader)
    cluster.await_isr(topic, (0, 1, 2))
    send(400)
    assert client.flush(DEADLINE_S) == 0
    assert failures == []
    reader = consumer(cluster.bootstrap, "unused", {})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in reader.consume(600, DEADLINE_S)]
    _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
    reader.close()
    assert found == [str(number).encode() for number in range(600)]
    assert end == 600


@pytest.mark.parametrize("produce", [kafka_python_produce, aiokafka_produce])
def test_p4_other_makers_idempotent_producers_are_understood_too(
    produce: Callable[..., None], cluster: LiveCluster, topic_name: str
) -> None:
    topic = cluster.create_topic(topic_name)
    values = [str(number).encode() for number in range(100)]
    produce(cluster.bootstrap, topic, values, -1, "none", idempotent=True)
    assert librdkafka_consume(cluster.bootstrap, topic, 100) == values
