"""A cluster of unchanged Apache Kafka brokers on one machine, with a ZooKeeper of its own.

The ZooKeeper is the one of PySpark's jars for every version: it is not what is tested, it starts
quickly, and clients from 3.4 on speak to it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from clusters.broker.server.config import write_properties
from clusters.cluster import ClusterSpec, Listeners
from clusters.hosts.java import find_java
from clusters.hosts.local import LocalHost
from clusters.kafka.home import Home
from clusters.kafka.properties import LOG4J, command, properties
from clusters.kafka.versions import Addressing, kafka_class_path, row_of
from clusters.local_cluster import LocalCluster


class KafkaCluster(LocalCluster):
    """Implements clusters.cluster.Cluster for `kafka:<version>` on the local host."""

    def __init__(
        self,
        host: LocalHost,
        directory: Path,
        version: str,
        spec: ClusterSpec,
        home: Home | None = None,
    ) -> None:
        super().__init__(host, directory, spec)
        self._version = version
        self._home = home
        self._row = row_of(version)
        self._java = Path()
        self._class_path = ""

    def ports(self, broker: int) -> tuple[int, int]:
        """Both are the same where a broker has one listener."""
        client, replication = super().ports(broker)
        apart = self._row.addressing is Addressing.NAMED_LISTENERS
        return (client if apart else replication), replication

    async def start_coordination(self) -> None:
        self._java = find_java()
        self._class_path = await asyncio.to_thread(kafka_class_path, self._version, self._home)
        await super().start_coordination()

    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        settings = properties(
            self._row,
            self._spec.settings,
            broker,
            self.ports(broker),
            through,
            self.log_directory(broker),
        )
        server, log4j = directory / "server.properties", directory / "log4j.properties"
        server.write_text(write_properties(settings), encoding="utf-8")
        log4j.write_text(LOG4J, encoding="utf-8")
        return command(self._java, self._class_path, log4j, server)

    def read_replicas(self, broker: int) -> list[dict[str, Any]]:
        """Of the scenario's topic: Kafka's own topics are not what is checked."""
        topic = self._spec.topic.name
        return [row for row in super().read_replicas(broker) if row["topic"] == topic]
