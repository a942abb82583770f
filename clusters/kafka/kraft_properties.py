"""What the `server.properties` of a KRaft node say. Pure.

As in ZooKeeper mode, but for who keeps the state. A scenario's `zookeeper.session.timeout.ms` is
the time after which a silent broker counts as dead, which KRaft calls `broker.session.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.clusters.cluster import Listeners
from neaptide.clusters.hosts.ports import LOOPBACK
from neaptide.clusters.kafka.kraft_storage import FEATURES
from neaptide.clusters.kafka.properties import DEFAULTS
from neaptide.clusters.security import CLIENT_LISTENER, REPLICATION_LISTENER

CONTROLLER_LISTENER: Final = "CONTROLLER"
_SESSION: Final = "broker.session.timeout.ms"
_ZOOKEEPER: Final = "zookeeper."
_RENAMED: Final = {"zookeeper.session.timeout.ms": _SESSION}


def kraft_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what is for ZooKeeper, and what StorageTool is given."""
    kept = {}
    for name, value in settings.items():
        name = _RENAMED.get(name, name)
        if not name.startswith(_ZOOKEEPER) and name not in FEATURES:
            kept[name] = value
    return kept


KRAFT_DEFAULTS: Final = {
    **kraft_settings(DEFAULTS),
    _SESSION: "6000",
    "broker.heartbeat.interval.ms": "300",
}


@dataclass(frozen=True, slots=True)
class Node:
    """Whose properties these are. Ports are its own, by listener: only those that it has."""

    id: int
    ports: Mapping[str, int]
    log_directory: Path
    address: str = LOOPBACK

    @property
    def roles(self) -> str:
        broker, controller = CLIENT_LISTENER in self.ports, CONTROLLER_LISTENER in self.ports
        return ",".join([*["broker"] * broker, *["controller"] * controller])


def kraft_properties(
    node: Node, scenario: Mapping[str, str], through: Listeners, *, changes_voters: bool = False
) -> dict[str, str]:
    """`changes_voters`: the metadata log says who is a voter, and not the properties (KIP-853)."""
    advertised = {
        CLIENT_LISTENER: through.client_port,
        REPLICATION_LISTENER: through.replication_port,
        CONTROLLER_LISTENER: through.quorum.get(node.id, 0),
    }
    names = (CLIENT_LISTENER, REPLICATION_LISTENER, CONTROLLER_LISTENER)
    settings = {
        **KRAFT_DEFAULTS,
        **kraft_settings(scenario),
        "process.roles": node.roles,
        "node.id": str(node.id),
        "log.dirs": str(node.log_directory),
        **_quorum(through, changes_voters),
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": _listeners(node.address, node.ports),
        "advertised.listeners": _listeners(
            through.host, {name: advertised[name] for name in node.ports}
        ),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }
    if CLIENT_LISTENER in node.ports:
        settings["inter.broker.listener.name"] = REPLICATION_LISTENER
    return settings


def _quorum(through: Listeners, changes_voters: bool) -> dict[str, str]:
    addresses = {n: f"{through.host}:{port}" for n, port in sorted(through.quorum.items())}
    if changes_voters:
        return {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
    return {"controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in addresses.items())}


def chosen_features(scenario: Mapping[str, str]) -> dict[str, str]:
    """Feature levels among the settings: they are for StorageTool, not for the nodes."""
    return {name: level for name, level in scenario.items() if name in FEATURES}


def _listeners(address: str, ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{address}:{port}" for name, port in ports.items())
