"""Brokers on the nodes of a host, with a ZooKeeper beside the harness: what all systems share.

Not what a broker is: a subclass says what process is started, and with which settings. Nor where a
node is: that is the host's to know.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.cluster import ClusterSpec, DamageKind, DiskFile, Listeners
from neaptide.clusters.disks.damage import (
    damage,
    files_of,
    keep_snapshot,
    put_back,
)
from neaptide.clusters.disks.power_failure import power_off
from neaptide.clusters.disks.replica_reader import log_offsets, read_replicas
from neaptide.clusters.errors import HostError, RefusedError
from neaptide.clusters.hosts import faketime
from neaptide.clusters.hosts.host import Host, LocalNodeProcess, NodeProcess, PortClaim
from neaptide.clusters.hosts.io_faults import Injection, IoFault
from neaptide.clusters.hosts.local import ProcessSpec
from neaptide.clusters.hosts.zookeeper import ZooKeeper
from neaptide.clusters.observer import Observer, OnChange
from neaptide.clusters.observer_zookeeper import ZooKeeperObserver
from neaptide.clusters.security import write_user
from neaptide.clusters.session_expiry import expire_broker

STATIC_QUORUM = "this system has no quorum whose voters can change: that is Apache Kafka in KRaft"
_STOP_S = 15.0


class PlacedCluster(ABC):
    """Implements clusters.cluster.Cluster on a prepared host, but for what a broker's process is.

    Broker N runs on the host's node N.
    """

    managed = True  # its brokers are started and stopped here, and their disks can be read

    def __init__(self, host: Host, directory: Path, spec: ClusterSpec) -> None:
        self._host = host
        self._directory = directory.absolute()
        self._spec = spec
        self._claims: dict[int, tuple[PortClaim, PortClaim]] = {}
        self._processes: dict[int, NodeProcess] = {}
        self._injections: dict[int, list[Injection]] = {}
        self._zookeeper: ZooKeeper | None = None

    @abstractmethod
    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        """What is started, once its settings are written to the broker's directory.

        `directory` is here; what the settings and the command say is for the broker, and so names
        files by `self._host.path`.
        """

    # --- where things are ------------------------------------------------------------------------

    def ports(self, broker: int) -> tuple[int, int]:
        client, replication = self._claimed(broker)
        return client.port, replication.port

    def _claimed(self, broker: int) -> tuple[PortClaim, PortClaim]:
        if broker not in self._claims:
            self._claims[broker] = (self._host.claim_port(broker), self._host.claim_port(broker))
        return self._claims[broker]

    @property
    def coordination_port(self) -> int:
        assert self._zookeeper is not None
        return self._zookeeper.port

    @property
    def controllers(self) -> tuple[int, ...]:
        return ()

    @property
    def quorum(self) -> Mapping[int, int]:
        return {}

    def observer(self, on_change: OnChange) -> Observer:
        return ZooKeeperObserver(self.coordination_port, on_change, self._host.harness_address)

    @property
    def _connect(self) -> str:
        return f"{self._host.harness_address}:{self.coordination_port}"

    def log_directory(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}" / "data"

    def logs(self) -> Mapping[str, Path]:
        logs = {f"broker-{b}": self._log_file(b) for b in self._spec.brokers}
        return {**logs, "zookeeper": self._directory / "logs" / "zookeeper.log"}

    def _log_file(self, broker: int) -> Path:
        return self._directory / "logs" / f"broker-{broker}.log"

    # --- life ------------------------------------------------------------------------------------

    async def start_coordination(self) -> None:
        self._zookeeper = await ZooKeeper.start(
            self._host.local,
            self._directory / "zookeeper",
            log=self._directory / "logs" / "zookeeper.log",
            address=self._host.harness_address,
        )
        security = self._spec.security
        if security is not None and security.has_scram:
            await asyncio.to_thread(write_user, self._connect, security)

    def _secured(self, settings: Mapping[str, str]) -> dict[str, str]:
        """A broker's settings, with what clients come in by."""
        security = self._spec.security
        return dict(settings) if security is None else security.of_broker(settings)

    def find_lost_coordination(self) -> str | None:
        return None if self._zookeeper is None else self._zookeeper.process.trouble()

    async def start(self, broker: int, through: Listeners) -> None:
        """Starts a broker process; whether it has registered is for the caller to see."""
        for claim in self._claimed(broker):
            claim.release_socket()
        directory = self._directory / f"broker-{broker}"
        settings = directory / "settings"
        settings.mkdir(parents=True, exist_ok=True)
        argv = self._command(broker, through, settings)
        await self._host.put(broker, settings)
        env = await self._clock(broker) if self._spec.clocks else {}
        self._processes[broker] = await self._launch(
            broker, ProcessSpec(f"broker {broker}", argv, directory, self._log_file(broker), env)
        )

    async def _launch(self, node: int, spec: ProcessSpec) -> NodeProcess:
        return await self._host.start(node, spec)

    def is_up(self, broker: int) -> bool:
        process = self._processes.get(broker)
        return process is not None and process.returncode is None

    def is_stopped(self, broker: int) -> bool:
        process = self._processes.get(broker)
        return process is not None and process.is_stopped

    async def kill(self, broker: int) -> None:
        await self._processes[broker].kill()
        await self._processes[broker].wait()

    async def stop(self, broker: int) -> None:
        """A clean shutdown; one that does not end in time is killed."""
        process = self._processes[broker]
        await process.terminate()
        try:
            await process.wait(_STOP_S)
        except TimeoutError:
            await self.kill(broker)

    async def pause(self, broker: int) -> None:
        await self._processes[broker].pause()

    async def resume(self, broker: int) -> None:
        await self._processes[broker].resume()

    async def check_links(  # noqa: B027
        self, through: Mapping[int, Listeners], coordinated: frozenset[int]
    ) -> None:
        """What is configured here leads through the gate, unless a subclass knows less."""

    async def remember(self) -> None:  # noqa: B027
        """Nothing makes the next start quicker, unless a subclass knows something."""

    async def remove_voter(self, node: int) -> None:
        raise RefusedError(STATIC_QUORUM)

    async def add_voter(self, node: int, through: Listeners) -> None:
        raise RefusedError(STATIC_QUORUM)

    # --- clocks ----------------------------------------------------------------------------------

    def _clock_directory(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}" / "clock"

    async def _clock(self, broker: int) -> Mapping[str, str]:
        """What a process needs so that its clock can be set."""
        library, directory = faketime.find_library(), self._clock_directory(broker)
        if not (directory / faketime.CLOCK_FILE).is_file():
            await self.set_clock(broker, 0)
        else:
            await self._host.put(broker, directory)
        there = await self._host.install(broker, [library])
        clock = self._host.path(broker, directory / faketime.CLOCK_FILE)
        return faketime.environment(there[library], str(clock))

    async def set_clock(self, broker: int, ahead_ms: int) -> None:
        faketime.write_clock(self._clock_directory(broker), ahead_ms)
        await self._host.put(broker, self._clock_directory(broker))

    # --- disks -----------------------------------------------------------------------------------

    async def damage(
        self, broker: int, kind: DamageKind, file: DiskFile, partition: int, seed: int
    ) -> str:
        logs = self.log_directory(broker)
        await self._host.get(broker, logs)
        done = damage(logs, kind, file, TopicPartition(self._spec.topic.name, partition), seed)
        await self._host.put(broker, logs)
        return done

    def _snapshot(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}" / "snapshot"

    async def keep_snapshot(self, broker: int) -> None:
        await self._host.get(broker, self.log_directory(broker))
        keep_snapshot(self.log_directory(broker), self._snapshot(broker))

    async def put_back(self, broker: int) -> None:
        put_back(self.log_directory(broker), self._snapshot(broker))
        await self._host.put(broker, self.log_directory(broker))

    async def inject(self, broker: int, fault: IoFault, file: DiskFile, partition: int) -> None:
        process = self._processes[broker]
        if not isinstance(process, LocalNodeProcess):
            raise HostError(f"No calls of a broker can fail on the host {self._host.name}.")
        named = TopicPartition(self._spec.topic.name, partition)
        files = files_of(self.log_directory(broker), file, named)
        files += [path.with_name(f"{path.name}.tmp") for path in files]  # checkpoints are replaced
        injections = self._injections.setdefault(broker, [])
        log = self._directory / "logs" / f"strace-{broker}-{len(injections)}.log"
        started = await Injection.start(self._host.local, process.pid, fault, files, log)
        injections.append(started)

    async def end_injections(self, broker: int) -> int:
        injections = self._injections.pop(broker, [])
        return sum([await injection.end() for injection in injections])

    # --- what a death leaves ---------------------------------------------------------------------

    async def lose_page_cache(self, broker: int, keep: Mapping[int, int]) -> Mapping[int, int]:
        topic = self._spec.topic.name
        kept = {TopicPartition(topic, partition): offset for partition, offset in keep.items()}
        await self._host.get(broker, self.log_directory(broker))
        lost = power_off(self.log_directory(broker), kept)
        await self._host.put(broker, self.log_directory(broker))
        return {
            partition.partition: tail.log_end_offset - tail.cut_at
            for partition, tail in lost.items()
            if partition.topic == topic
        }

    async def forget_session(self, broker: int) -> None:
        await asyncio.to_thread(expire_broker, self._connect, broker)

    def high_watermark_checkpoint(self, broker: int, partition: int) -> int | None:
        return self._checkpoint(broker, partition, checkpoints.HIGH_WATERMARKS)

    def recovery_point_checkpoint(self, broker: int, partition: int) -> int | None:
        return self._checkpoint(broker, partition, checkpoints.RECOVERY_POINTS)

    def cleaner_checkpoint(self, broker: int, partition: int) -> int | None:
        return self._checkpoint(broker, partition, checkpoints.CLEANED)

    def _checkpoint(self, broker: int, partition: int, name: str) -> int | None:
        file = self.log_directory(broker) / name
        self._host.refresh(broker, file)
        offsets = checkpoints.read_offsets(file)
        return offsets.get(TopicPartition(self._spec.topic.name, partition))

    def log_offsets(self, broker: int, partition: int) -> tuple[int, int] | None:
        named = TopicPartition(self._spec.topic.name, partition)
        logs = self.log_directory(broker)
        self._host.refresh(broker, logs / checkpoints.LOG_START_OFFSETS)
        self._host.refresh(broker, logs / f"{named.topic}-{named.partition}")
        return log_offsets(logs, named)

    async def read_replicas(self, broker: int) -> list[dict[str, Any]]:
        await self._host.get(broker, self.log_directory(broker))
        rows = read_replicas([self.log_directory(broker)], broker)
        return [cast(dict[str, Any], row) for row in rows]

    def close(self) -> None:
        """Gives the ports back; the processes are the host's to end."""
        for pair in self._claims.values():
            for claim in pair:
                claim.close()
        if self._zookeeper is not None:
            self._zookeeper.close()
