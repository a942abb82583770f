"""P4, R10: an application of others, Kafka Connect, keeps its state on our brokers.

A distributed worker has its configuration, offsets and status in compacted topics, is a group with
a protocol of its own, and sends what a source reads in transactions, where it may. The same on a
real Kafka.
"""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from neaptide.clusters.kafka.artifacts import class_path
from tests.live.cluster import running, until

pytestmark = [pytest.mark.live, pytest.mark.proof, pytest.mark.needs("maven")]
JARS = tuple(f"org.apache.kafka:connect-{part}:3.9.1" for part in ("runtime", "file", "json"))
CONNECTORS = "org.apache.kafka.connect.file.FileStream"
STARTS_S = 90.0
SETTINGS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "200",
    "num.partitions": "1",  # so that lines stay in order
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Worker:
    """Its REST interface, on this port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def is_up(self) -> bool:
        try:
            return isinstance(self.ask("/connectors"), list)
        except OSError:
            return False


@contextmanager
def worker(directory: Path, bootstrap: str, source_support: str) -> Iterator[Worker]:
    """Ended as an operator ends it, so that what it has sent is known when another begins."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    topics = {
        f"{of}.storage.{setting}": value
        for of in ("config", "offset", "status")
        for setting, value in (("topic", f"connect-{of}"), ("replication.factor", "3"))
    }
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": source_support,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        **topics,
    }
    file = directory / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = ["java", "-Xmx512m", "-cp", class_path(*JARS), main, str(file)]
    with (directory / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        one = Worker(port)
        until(one.is_up, "the worker answers", STARTS_S)
        yield one
        process.terminate()
        process.wait(STARTS_S)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("own_or_kafka", "source_support"),
    [("neaptide:2.1", "disabled"), ("neaptide:4.0", "enabled"), ("kafka:3.9.1", "enabled")],
)
def test_p4_r10_kafka_connect_goes_on_where_it_was(
    own_or_kafka: str, source_support: str, tmp_path: Path
) -> None:
    lines, copy = tmp_path / "lines", tmp_path / "copy"
    lines.write_text("".join(f"{number}\n" for number in range(100)))

    def copied() -> int:
        return len(copy.read_text().splitlines()) if copy.exists() else 0

    source = {"connector.class": f"{CONNECTORS}SourceConnector", "topic": "lines"}
    sink = {"connector.class": f"{CONNECTORS}SinkConnector", "topics": "lines"}
    with running(own_or_kafka, tmp_path, SETTINGS) as cluster:
        with worker(tmp_path, cluster.bootstrap, source_support) as first:
            for name, config, file in (("source", source, lines), ("sink", sink, copy)):
                first.ask("/connectors", {"name": name, "config": {**config, "file": str(file)}})
            until(lambda: copied() == 100, "all is copied", STARTS_S)
        with lines.open("a") as more:
            more.write("".join(f"{number}\n" for number in range(100, 130)))
        with worker(tmp_path, cluster.bootstrap, source_support):
            until(lambda: copied() >= 130, "the rest is copied", STARTS_S)
    assert copy.read_text() == lines.read_text()
