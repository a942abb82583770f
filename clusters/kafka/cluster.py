"""A cluster of unchanged Apache Kafka brokers on the nodes of a host.

The ZooKeeper is the one of PySpark's jars for every version: it is not what is tested, it starts
quickly, and clients from 3.4 on speak to it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from neaptide.clusters import shared_archive
from neaptide.clusters.cluster import ClusterSpec, Listeners
from neaptide.clusters.hosts.host import Host, LocalNodeProcess
from neaptide.clusters.kafka.home import Home
from neaptide.clusters.kafka.properties import LOG4J, SMALL_JAVA, command, properties
from neaptide.clusters.kafka.versions import Addressing, kafka_class_path, row_of
from neaptide.clusters.placed_cluster import PlacedCluster
from neaptide.clusters.properties import write_properties
from neaptide.results.store import write_text

_SHARING = ("local", "netns")  # hosts whose nodes have this machine's disk


class KafkaCluster(PlacedCluster):
    """Implements neaptide.clusters.cluster.Cluster for `kafka:<version>`."""

    def __init__(
        self,
        host: Host,
        directory: Path,
        version: str,
        spec: ClusterSpec,
        home: Home | None = None,
        java: tuple[str, ...] = SMALL_JAVA,
    ) -> None:
        """`java`: options of Java's for its heap and compilers; USUAL_JAVA are Kafka's own."""
        super().__init__(host, directory, spec)
        self._version = version
        self._home = home
        self._java = java
        self._row = row_of(version)
        self._class_paths: dict[int, str] = {}

    def ports(self, broker: int) -> tuple[int, int]:
        """Both are the same where a broker has one listener."""
        client, replication = super().ports(broker)
        apart = self._row.addressing is Addressing.NAMED_LISTENERS
        return (client if apart else replication), replication

    async def start_coordination(self) -> None:
        await self._install(self._spec.brokers)
        await super().start_coordination()

    async def _install(self, nodes: Iterable[int]) -> str:
        """Every node has this version's jars; the class path of this machine."""
        class_path = await asyncio.to_thread(kafka_class_path, self._version, self._home)
        jars = [Path(jar) for jar in class_path.split(os.pathsep)]
        for node in nodes:
            there = await self._host.install(node, jars)
            self._class_paths[node] = ":".join(there[jar] for jar in jars)
        return class_path

    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        settings = properties(
            self._row,
            self._spec.settings_of(broker),
            broker,
            self.ports(broker),
            through,
            self._host.path(broker, self.log_directory(broker)),
            self._host.address(broker),
        )
        return self._java_command(broker, settings, directory)

    def _java_command(
        self, broker: int, settings: Mapping[str, str], directory: Path
    ) -> tuple[str, ...]:
        """Writes what a node is started with, and says how."""
        server, log4j = directory / "server.properties", directory / "log4j.properties"
        write_text(server, write_properties(self._secured(settings)))
        log4j.write_text(LOG4J, encoding="utf-8")
        return command(
            self._host.java(broker),
            self._class_paths[broker],
            self._host.path(broker, log4j),
            self._host.path(broker, server),
            self._java_options(broker),
        )

    # --- quicker starts --------------------------------------------------------------------------

    def _archive(self, broker: int) -> Path | None:
        """Of what Java loads; None where nodes do not see this machine's disk."""
        if self._host.name not in _SHARING:
            return None
        return shared_archive.archive_of(self._host.java(broker), self._class_paths[broker])

    def _java_options(self, broker: int) -> tuple[str, ...]:
        archive = self._archive(broker)
        return (*self._java, *(() if archive is None else shared_archive.options(archive)))

    async def remember(self) -> None:
        for broker, process in self._processes.items():
            archive = self._archive(broker)
            if archive is None or not isinstance(process, LocalNodeProcess):
                return
            if process.returncode is None:
                await shared_archive.record(archive, self._host.java(broker), process.pid)
                return

    async def read_replicas(self, broker: int) -> list[dict[str, Any]]:
        """Of the topics of the run: others that Kafka makes for itself are not what is checked."""
        topics = {topic.name for topic in self._spec.topics}
        if self._spec.offsets is not None:
            topics.add(self._spec.offsets.name)
        return [row for row in await super().read_replicas(broker) if row["topic"] in topics]
