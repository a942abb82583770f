"""Applications of others, Kafka Streams (P4) and Spark, count each word, although they are killed.

The same on a real Kafka beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from neaptide.clusters.kafka.artifacts import class_path
from tests.live.cluster import BROKERS, DEADLINE_S, LiveCluster, running, until
from tests.spark_jars import jars_beside_spark

pytestmark = [pytest.mark.live, pytest.mark.proof, pytest.mark.needs("maven")]
STREAMS = "org.apache.kafka:kafka-streams:3.9.1"
# Any version of Spark's that has the interfaces of ours.
SPARK_SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
HERE = Path(__file__).parent
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
    with _lines(system, tmp_path) as cluster:
        application = _streams(cluster, guarantee, tmp_path)
        counts = Counts(cluster)
        with _running(application, tmp_path):
            until(lambda: counts.read(), "a first count", TAKES_OVER_S)
        _write_lines(cluster)
        with _running(application, tmp_path):
            until(lambda: counts.read() == _wanted(2), "each word is counted", TAKES_OVER_S)
        counts.close()


@pytest.mark.parametrize("system", ["neaptide:2.1", "neaptide:4.0", "kafka:3.9.1"])
def test_spark_reads_and_writes_although_it_and_a_leader_are_killed(
    system: str, tmp_path: Path
) -> None:
    with _lines(system, tmp_path) as cluster:
        application = _spark(cluster, tmp_path)
        counts = Counts(cluster, may_repeat=True)  # Spark writes to Kafka at least once
        with _running(application, tmp_path):
            until(lambda: counts.read() == _wanted(1), "each word is counted", TAKES_OVER_S)
            cluster.kill(cluster.state("lines")["leader"])
            _write_lines(cluster)
            until(lambda: counts.read() == _wanted(2), "words after the kill", TAKES_OVER_S)
        _write_lines(cluster)
        with _running(application, tmp_path):
            until(lambda: counts.read() == _wanted(3), "words after its kill", TAKES_OVER_S)
        counts.close()


@contextmanager
def _lines(system: str, directory: Path) -> Iterator[LiveCluster]:
    """Brokers with the first lines."""
    with running(system, directory, SETTINGS) as cluster:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, [BROKERS] * PARTITIONS)
        _write_lines(cluster)
        yield cluster


def _wanted(times: int) -> dict[str, int]:
    """After the lines were written so often."""
    return {word: times * LINES * count for word, count in Counter(LINE.split()).items()}


class Counts:
    """The last count of each word that is committed; none may be less than one before."""

    def __init__(self, cluster: LiveCluster, may_repeat: bool = False) -> None:
        self._least = 0 if may_repeat else 1
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
            assert count >= self._last.get(word, 0) + self._least
            self._last[word] = count
        return dict(self._last)

    def close(self) -> None:
        self._consumer.close()


def _write_lines(cluster: LiveCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(LINES):
        producer.produce("lines", LINE)
    assert producer.flush(DEADLINE_S) == 0


def _streams(cluster: LiveCluster, guarantee: str, directory: Path) -> Sequence[str]:
    jars = class_path(STREAMS)
    subprocess.run(["javac", "-cp", jars, "-d", directory, HERE / "WordCount.java"], check=True)
    path = os.pathsep.join((jars, str(directory)))
    state = str(directory / "streams")
    return ("java", "-Xmx300m", "-cp", path, "WordCount", cluster.bootstrap, guarantee, state)


def _spark(cluster: LiveCluster, directory: Path) -> Sequence[str]:
    jars = ",".join(map(str, jars_beside_spark(SPARK_SOURCE)))
    source = str(HERE / "spark_word_count.py")
    return (sys.executable, source, cluster.bootstrap, jars, str(directory / "checkpoint"))


@contextmanager
def _running(command: Sequence[str], directory: Path) -> Iterator[None]:
    """Until the block ends; then it is killed, with what it has started."""
    with (directory / "application.txt").open("a") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
            assert process.poll() is None, "it has ended by itself"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
