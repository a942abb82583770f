"""A cluster of the project's own brokers on the nodes of a host."""

from __future__ import annotations

from pathlib import Path

from neaptide.clusters.cluster import STILL, ClusterSpec, Listeners
from neaptide.clusters.hosts.host import Host
from neaptide.clusters.placed_cluster import PlacedCluster
from neaptide.clusters.properties import write_properties
from neaptide.clusters.security import CLIENT_LISTENER, REPLICATION_LISTENER
from neaptide.results.store import write_text


class BrokerCluster(PlacedCluster):
    """Implements neaptide.clusters.cluster.Cluster for `neaptide:<generation>`."""

    def __init__(self, host: Host, directory: Path, generation: str, spec: ClusterSpec) -> None:
        super().__init__(host, directory, spec)
        self._generation = generation

    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        settings = {
            **STILL,
            "zookeeper.session.timeout.ms": "10000",  # as of a real Kafka here
            # librdkafka looks for its group's coordinator although it may never use the group: let
            # the topic of positions be small, and on no replication link.
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            **self._spec.settings_of(broker),
            "broker.id": str(broker),
            "neaptide.generation": self._generation,
            "listeners": _listeners(self._host.address(broker), *self.ports(broker)),
            "advertised.listeners": _listeners(
                through.host, through.client_port, through.replication_port
            ),
            "inter.broker.listener.name": REPLICATION_LISTENER,
            "log.dirs": str(self._host.path(broker, self.log_directory(broker))),
            "zookeeper.connect": f"{through.host}:{through.coordination_port}",
        }
        properties = directory / "server.properties"
        write_text(properties, write_properties(self._secured(settings)))
        python, file = self._host.python(broker), self._host.path(broker, properties)
        return (*python, "-m", "neaptide.clusters.broker.server", str(file))


def _listeners(address: str, client_port: int, replication_port: int) -> str:
    return (
        f"{CLIENT_LISTENER}://{address}:{client_port},"
        f"{REPLICATION_LISTENER}://{address}:{replication_port}"
    )
