"""R11: brokers with two log directories, ours and Kafka's, one of which is lost while they run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i32

from neaptide.clusters.broker.cluster import BrokerCluster
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import entity_class, make, request_class
from neaptide.clusters.kafka.cluster import KafkaCluster
from neaptide.clusters.properties import read_properties, write_properties
from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until
from tests.live.raw import RawConnection
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]
SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.high.watermark.checkpoint.interval.ms": "500",  # the first to write to a directory
}
NONE, STORAGE_ERROR, LOG_DIR_NOT_FOUND = 0, 56, 57
PARTITIONS = 4


@pytest.fixture(
    params=proof_but(["neaptide:2.1", "neaptide:4.0", "kafka:2.1.1", "kafka:3.9.1"], "neaptide:2.1")
)
def own_or_kafka(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveCluster]:
    for kind in (BrokerCluster, KafkaCluster):
        monkeypatch.setattr(kind, "_command", with_two_directories(kind._command))
    with running(request.param, tmp_path, SETTINGS) as cluster:
        cluster.create_topic("t", [list(BROKERS)] * PARTITIONS)
        yield cluster


def with_two_directories(command: Any) -> Any:
    def run(self: Any, broker: int, through: Any, directory: Path) -> Any:
        argv = command(self, broker, through, directory)
        file = directory / "server.properties"
        settings = dict(read_properties(file.read_text()))
        settings["log.dirs"] = f"{settings['log.dirs']},{second_of(self.log_directory(broker))}"
        file.write_text(write_properties(settings))
        return argv

    return run


def second_of(directory: Path) -> Path:
    return directory.with_name("second")


def directories(cluster: LiveCluster, broker: int) -> tuple[Path, Path]:
    first = cluster.log_directory(broker)
    return first, second_of(first)


def held(directory: Path) -> set[int]:
    return {int(path.name.removeprefix("t-")) for path in directory.glob("t-?")}


def described(cluster: LiveCluster, broker: int) -> dict[Path, tuple[int, set[int]]]:
    """Of each log directory its error, and which partitions are in it."""
    request = make(request_class(Api.DESCRIBE_LOG_DIRS, 1), topics=None)
    with RawConnection(cluster.client_port(broker)) as connection:
        answer = connection.ask(request)
    return {
        Path(str(one.log_dir)): (
            int(one.error_code.value),
            {int(p.partition_index) for topic in one.topics for p in topic.partitions},
        )
        for one in answer.results
    }


def move(cluster: LiveCluster, broker: int, partition: int, path: Path) -> int:
    """AlterReplicaLogDirs; the error of the answer."""

    def part(kind: str, /, **fields: Any) -> Any:
        return make(entity_class(Api.ALTER_REPLICA_LOG_DIRS, 1, EntityType.request, kind), **fields)

    topic = part("AlterReplicaLogDirTopic", name=TopicName("t"), partitions=(i32(partition),))
    request = make(
        request_class(Api.ALTER_REPLICA_LOG_DIRS, 1),
        dirs=(part("AlterReplicaLogDir", path=str(path), topics=(topic,)),),
    )
    with RawConnection(cluster.client_port(broker)) as connection:
        [topic] = connection.ask(request).results
    return int(topic.partitions[0].error_code.value)


def produce(cluster: LiveCluster, partition: int, *values: bytes) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})

    def report(error: KafkaError | None, _: object) -> None:
        errors.append(error)

    for value in values:
        producer.produce("t", value, partition=partition, on_delivery=report)
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * len(values)


def test_r11_a_directory_that_is_lost_takes_only_its_own_replicas_offline(
    own_or_kafka: LiveCluster,
) -> None:
    first, second = directories(own_or_kafka, 0)
    lost, kept = held(second), held(first)
    assert lost | kept == set(range(PARTITIONS))
    assert len(lost) == len(kept)  # a log is made where there are fewest
    for partition in range(PARTITIONS):
        produce(own_or_kafka, partition, b"before")
    shutil.move(second, second.with_name("gone"))
    for partition in lost:
        own_or_kafka.await_leader("t", other_than=0, partition=partition)
        own_or_kafka.await_isr("t", (1, 2), partition)
        produce(own_or_kafka, partition, b"after")
    assert {own_or_kafka.state("t", partition)["leader"] for partition in kept} == {0}
    for partition in kept:
        produce(own_or_kafka, partition, b"after")
    found = described(own_or_kafka, 0)
    assert {path.name: error for path, (error, _) in found.items()} == {
        first.name: NONE,
        second.name: STORAGE_ERROR,
    }
    assert own_or_kafka.brokers.is_up(0)
    assert move(own_or_kafka, 0, min(kept), second) == STORAGE_ERROR
    # Started again with a directory in its place, it is a replica of all partitions once more.
    own_or_kafka.kill(0)
    own_or_kafka.restart(0)
    for partition in range(PARTITIONS):
        own_or_kafka.await_isr("t", BROKERS, partition)


def test_r11_a_replica_moves_to_another_directory(own_or_kafka: LiveCluster) -> None:
    first, second = directories(own_or_kafka, 0)
    partition = min(held(first))
    produce(own_or_kafka, partition, *(b"%d" % number for number in range(200)))
    assert move(own_or_kafka, 0, partition, first.with_name("third")) == LOG_DIR_NOT_FOUND
    assert move(own_or_kafka, 0, partition, second) == NONE
    until(
        lambda: partition in held(second) and partition not in held(first),
        "the replica is in the second directory",
    )
    produce(own_or_kafka, partition, b"after")
    own_or_kafka.await_isr("t", BROKERS, partition)
    assert partition in described(own_or_kafka, 0)[second][1]
    own_or_kafka.kill(0)
    own_or_kafka.restart(0)
    own_or_kafka.await_isr("t", BROKERS, partition)
    assert partition in described(own_or_kafka, 0)[second][1]
