"""A cluster of unchanged Apache Kafka brokers on the nodes of a host, in KRaft mode.

The controllers are nodes of their own, so that brokers can die without the quorum, or (`-combined`)
every broker is one as well. There is no ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from kio.schema.add_raft_voter.v0.request import AddRaftVoterRequest, Listener
from kio.schema.errors import ErrorCode
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.static.primitive import i32, i32Timedelta, u16

from neaptide.clusters.cluster import ClusterSpec, Listeners
from neaptide.clusters.errors import RefusedError
from neaptide.clusters.hosts.host import Host, PortClaim
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.local import ProcessSpec
from neaptide.clusters.kafka.cluster import KafkaCluster
from neaptide.clusters.kafka.home import Home
from neaptide.clusters.kafka.kraft_properties import (
    CONTROLLER_LISTENER,
    Node,
    chosen_features,
    kraft_properties,
)
from neaptide.clusters.kafka.kraft_storage import (
    CLUSTER_ID,
    directory_id,
    feature_levels,
    put_first_snapshot,
    put_levels,
    voters_snapshot,
    write_meta_properties,
)
from neaptide.clusters.kafka.properties import SMALL_JAVA
from neaptide.clusters.kafka.versions import Mode, parse_release
from neaptide.clusters.observer import Observer, OnChange
from neaptide.clusters.observer_kraft import KraftObserver
from neaptide.clusters.security import CLIENT_LISTENER, REPLICATION_LISTENER

FIRST_CONTROLLER = 100  # brokers have the ids below
_ADD_WITHIN = timedelta(seconds=5)


class KraftCluster(KafkaCluster):
    """Implements neaptide.clusters.cluster.Cluster for `kafka:<version>` in KRaft mode."""

    def __init__(
        self,
        host: Host,
        directory: Path,
        version: str,
        spec: ClusterSpec,
        home: Home | None = None,
        java: tuple[str, ...] = SMALL_JAVA,
    ) -> None:
        super().__init__(host, directory, version, spec, home, java)
        self._release = parse_release(version)
        combined = self._release.mode is Mode.COMBINED
        own = range(FIRST_CONTROLLER, FIRST_CONTROLLER + spec.controllers)
        self._controllers = () if combined else tuple(own)
        self._voters = tuple(spec.brokers) if combined else self._controllers
        self._quorum: dict[int, PortClaim] = {}
        self._levels = Path()
        self._snapshot_of_voters: Path | None = None
        self._class_path = ""
        self._observer: KraftObserver | None = None

    @property
    def controllers(self) -> tuple[int, ...]:
        return self._controllers

    @property
    def quorum(self) -> Mapping[int, int]:
        return {node: self._quorum_claim(node).port for node in self._voters}

    def _quorum_claim(self, node: int) -> PortClaim:
        if node not in self._quorum:
            self._quorum[node] = self._host.claim_port(node)
        return self._quorum[node]

    def observer(self, on_change: OnChange) -> Observer:
        addresses = {n: (self._host.address(n), port) for n, port in self.quorum.items()}
        self._observer = KraftObserver(addresses, on_change)
        return self._observer

    def logs(self) -> Mapping[str, Path]:
        nodes = (*self._spec.brokers, *self._controllers)
        return {self._name(node): self._log_file(node) for node in nodes}

    def _name(self, node: int) -> str:
        return f"controller-{node}" if node in self._controllers else f"broker-{node}"

    def _log_file(self, broker: int) -> Path:
        return self._directory / "logs" / f"{self._name(broker)}.log"

    def log_directory(self, broker: int) -> Path:
        return self._directory / self._name(broker) / "data"

    # --- life ------------------------------------------------------------------------------------

    async def start_coordination(self) -> None:
        """Has all that the nodes need; they themselves are started when the links are there."""
        self._class_path = await self._install((*self._controllers, *self._spec.brokers))
        self._levels = await asyncio.to_thread(
            feature_levels,
            find_java(),
            self._class_path,
            self._release.number,
            chosen_features(self._spec.settings),
        )

    async def start(self, broker: int, through: Listeners) -> None:
        if broker in self._voters:
            self._quorum_claim(broker).release_socket()
        if self._spec.changes_voters and self._snapshot_of_voters is None:
            self._snapshot_of_voters = await asyncio.to_thread(
                voters_snapshot,
                find_java(),
                self._class_path,
                self._release.number,
                chosen_features(self._spec.settings),
                {voter: f"{through.host}:{through.quorum[voter]}" for voter in self._voters},
                self._directory / "voters",
            )
        await self._format(broker)
        if broker not in self._controllers:
            await super().start(broker, through)
            return
        directory = self._directory / self._name(broker)
        settings = directory / "settings"
        settings.mkdir(parents=True, exist_ok=True)
        argv = self._command(broker, through, settings)
        await self._host.put(broker, settings)
        self._processes[broker] = await self._launch(
            broker, ProcessSpec(f"controller {broker}", argv, directory, self._log_file(broker))
        )

    async def _format(self, node: int) -> None:
        data = self.log_directory(node)
        if data.exists():
            return
        write_meta_properties(data, node)
        is_voter = node in self._voters
        put_levels(self._levels, data, is_voter=is_voter)
        if is_voter and self._snapshot_of_voters is not None:
            put_first_snapshot(self._snapshot_of_voters, data)
        await self._host.put(node, data)

    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        data = self._host.path(broker, self.log_directory(broker))
        node = Node(broker, self._ports_of(broker), data, self._host.address(broker))
        settings = kraft_properties(
            node, self._spec.settings_of(broker), through, changes_voters=self._spec.changes_voters
        )
        return self._java_command(broker, settings, directory)

    def _ports_of(self, node: int) -> dict[str, int]:
        ports = {}
        if node not in self._controllers:
            ports[CLIENT_LISTENER], ports[REPLICATION_LISTENER] = self.ports(node)
        if node in self._voters:
            ports[CONTROLLER_LISTENER] = self._quorum_claim(node).port
        return ports

    # --- the quorum ------------------------------------------------------------------------------

    async def remove_voter(self, node: int) -> None:
        await self._voters_observed().change_voters(
            RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=i32(node), voter_directory_id=directory_id(node)
            ),
            ErrorCode.voter_not_found,
        )

    async def add_voter(self, node: int, through: Listeners) -> None:
        listener = Listener(
            name=CONTROLLER_LISTENER, host=through.host, port=u16(through.quorum[node])
        )
        await self._voters_observed().change_voters(
            AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout=i32Timedelta.parse(_ADD_WITHIN),
                voter_id=i32(node),
                voter_directory_id=directory_id(node),
                listeners=(listener,),
            ),
            ErrorCode.duplicate_voter,
        )

    def _voters_observed(self) -> KraftObserver:
        if self._observer is None or not self._spec.changes_voters:
            raise RefusedError("the voters of this quorum are in the properties of its nodes")
        return self._observer

    # --- what a death leaves ---------------------------------------------------------------------

    async def forget_session(self, broker: int) -> None:
        """A controller has no session."""
        if self._observer is not None and broker not in self._controllers:
            await self._observer.fence(broker)

    def close(self) -> None:
        super().close()
        for claim in self._quorum.values():
            claim.close()
