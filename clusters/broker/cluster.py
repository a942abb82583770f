"""A cluster of the project's own brokers on one machine, with a ZooKeeper of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from clusters.broker.server.config import write_properties
from clusters.cluster import ClusterSpec, Listeners
from clusters.hosts.local import LocalHost
from clusters.hosts.ports import LOOPBACK
from clusters.local_cluster import LocalCluster

CLIENT_LISTENER = "CLIENT"
REPLICATION_LISTENER = "REPLICATION"


class BrokerCluster(LocalCluster):
    """Implements clusters.cluster.Cluster for `neaptide:<generation>` on the local host."""

    def __init__(
        self, host: LocalHost, directory: Path, generation: str, spec: ClusterSpec
    ) -> None:
        super().__init__(host, directory, spec)
        self._generation = generation

    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        settings = {
            "zookeeper.session.timeout.ms": "6000",
            **self._spec.settings,
            "broker.id": str(broker),
            "neaptide.generation": self._generation,
            "listeners": _listeners(*self.ports(broker)),
            "advertised.listeners": _listeners(through.client_port, through.replication_port),
            "inter.broker.listener.name": REPLICATION_LISTENER,
            "log.dirs": str(self.log_directory(broker)),
            "zookeeper.connect": f"{LOOPBACK}:{through.coordination_port}",
        }
        properties = directory / "server.properties"
        properties.write_text(write_properties(settings), encoding="utf-8")
        return (sys.executable, "-m", "clusters.broker.server", str(properties))


def _listeners(client_port: int, replication_port: int) -> str:
    return (
        f"{CLIENT_LISTENER}://{LOOPBACK}:{client_port},"
        f"{REPLICATION_LISTENER}://{LOOPBACK}:{replication_port}"
    )
