"""P4: an application of others, Kafka Streams, counts each word exactly once, also when it dies.

The same on a real Kafka beside it.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from neaptide.clusters.kafka.artifacts import class_path
from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until

pytestmark = [pytest.mark.live, pytest.mark.proof, pytest.mark.needs("maven")]
STREAMS = "org.apache.kafka:kafka-streams:3.9.1"
SOURCE = Path(__file__).parent / "WordCount.java"
LINE = "to be or not to be that is the question"
LINES = 400
PARTITIONS = 2
SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
}
# A group notices who died, and a coordinator its open transaction.
TAKES_OVER_S = 90.0


@pytest.mark.parametrize(
    ("system", "guarantee"),
    [
        ("neaptide:2.1", "exactly_once"),  # one producer for each task: before KIP-447
        ("neaptide:2.8", "exactly_once_v2"),
        ("neaptide:4.0", "exactly_once_v2"),
        ("kafka:3.9.1", "exactly_once_v2"),
    ],
)
def test_p4_kafka_streams_counts_exactly_once_although_it_is_killed(
    system: str, guarantee: str, tmp_path: Path
) -> None:
    with running(system, tmp_path, SETTINGS) as cluster:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, [BROKERS] * PARTITIONS)
        counts = Counts(cluster)
        _write_lines(cluster)
        with _word_count(cluster, guarantee, tmp_path):
            until(lambda: counts.read(), "a first count", TAKES_OVER_S)
        _write_lines(cluster)
        wanted = {word: 2 * LINES * count for word, count in Counter(LINE.split()).items()}
        with _word_count(cluster, guarantee, tmp_path):
            until(lambda: counts.read() == wanted, "each word is counted", TAKES_OVER_S)
        counts.close()


class Counts:
    """The last count of each word that is committed; none may be less than one before."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "reads",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("counts", p, 0) for p in range(PARTITIONS)])
        self._last: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        for message in self._consumer.consume(500, 0.5):
            assert message.error() is None
            word, count = (message.key() or b"").decode(), int(message.value() or b"")
            assert count > self._last.get(word, 0)
            self._last[word] = count
        return dict(self._last)

    def close(self) -> None:
        self._consumer.close()


def _write_lines(cluster: LiveCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(LINES):
        producer.produce("lines", LINE)
    assert producer.flush(DEADLINE_S) == 0


@contextmanager
def _word_count(cluster: LiveCluster, guarantee: str, directory: Path) -> Iterator[None]:
    """Runs until the block ends; then it is killed."""
    jars = class_path(STREAMS)
    if not (directory / "WordCount.class").exists():
        subprocess.run(["javac", "-cp", jars, "-d", directory, SOURCE], check=True)
    path = os.pathsep.join((jars, str(directory)))
    arguments = [cluster.bootstrap, guarantee, str(directory / "streams")]
    with (directory / "streams.txt").open("a") as said:
        process = subprocess.Popen(
            ["java", "-Xmx300m", "-cp", path, "WordCount", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
            assert process.poll() is None, "it has ended by itself"
        finally:
            process.kill()
            process.wait()
