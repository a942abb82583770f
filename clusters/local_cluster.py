"""Brokers as processes of this machine, with a ZooKeeper of their own: what all systems share.

Not what a broker is: a subclass says what process is started, and with which settings.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from clusters.broker.coordination.expire import expire_broker
from clusters.broker.replication.model import TopicPartition
from clusters.broker.storage import checkpoints
from clusters.broker.storage.power_failure import power_off
from clusters.broker.storage.replica_reader import log_offsets, read_replicas
from clusters.cluster import ClusterSpec, Listeners
from clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess
from clusters.hosts.ports import LOOPBACK, PortReservation, reserve_port
from clusters.hosts.zookeeper import ZooKeeper
from clusters.observer import Observer, OnChange
from clusters.observer_zookeeper import ZooKeeperObserver

_STOP_S = 15.0


class LocalCluster(ABC):
    """Implements clusters.cluster.Cluster on the local host, but for what a broker's process is."""

    def __init__(self, host: LocalHost, directory: Path, spec: ClusterSpec) -> None:
        self._host = host
        self._directory = directory.absolute()
        self._spec = spec
        self._reserved: dict[int, tuple[PortReservation, PortReservation]] = {
            broker: (reserve_port(), reserve_port()) for broker in spec.brokers
        }
        self._processes: dict[int, RunningProcess] = {}
        self._zookeeper: ZooKeeper | None = None

    @abstractmethod
    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        """What is started, once its settings are written to the broker's directory."""

    # --- where things are ------------------------------------------------------------------------

    def ports(self, broker: int) -> tuple[int, int]:
        client, replication = self._reserved[broker]
        return client.port, replication.port

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
        return ZooKeeperObserver(self.coordination_port, on_change)

    @property
    def _connect(self) -> str:
        return f"{LOOPBACK}:{self.coordination_port}"

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
            self._host,
            self._directory / "zookeeper",
            log=self._directory / "logs" / "zookeeper.log",
        )

    async def start(self, broker: int, through: Listeners) -> None:
        """Starts a broker process; whether it has registered is for the caller to see."""
        for reservation in self._reserved[broker]:
            reservation.release_socket()
        directory = self._directory / f"broker-{broker}"
        directory.mkdir(parents=True, exist_ok=True)
        argv = self._command(broker, through, directory)
        self._processes[broker] = await self._host.start(
            ProcessSpec(f"broker {broker}", argv, directory, self._log_file(broker))
        )

    def is_up(self, broker: int) -> bool:
        process = self._processes.get(broker)
        return process is not None and process.returncode is None

    async def kill(self, broker: int) -> None:
        self._processes[broker].kill()
        await self._processes[broker].wait()

    async def stop(self, broker: int) -> None:
        """A clean shutdown; one that does not end in time is killed."""
        process = self._processes[broker]
        process.terminate()
        try:
            await process.wait(_STOP_S)
        except TimeoutError:
            await self.kill(broker)

    async def pause(self, broker: int) -> None:
        await self._processes[broker].pause()

    async def resume(self, broker: int) -> None:
        self._processes[broker].resume()

    # --- what a death leaves ---------------------------------------------------------------------

    def lose_page_cache(self, broker: int, keep: Mapping[int, int]) -> Mapping[int, int]:
        topic = self._spec.topic.name
        kept = {TopicPartition(topic, partition): offset for partition, offset in keep.items()}
        lost = power_off(self.log_directory(broker), kept)
        return {
            partition.partition: tail.log_end_offset - tail.cut_at
            for partition, tail in lost.items()
            if partition.topic == topic
        }

    async def forget_session(self, broker: int) -> None:
        await asyncio.to_thread(expire_broker, self._connect, broker)

    def high_watermark_checkpoint(self, broker: int, partition: int) -> int | None:
        file = self.log_directory(broker) / checkpoints.HIGH_WATERMARKS
        offsets = checkpoints.read_offsets(file)
        return offsets.get(TopicPartition(self._spec.topic.name, partition))

    def log_offsets(self, broker: int, partition: int) -> tuple[int, int] | None:
        return log_offsets(
            self.log_directory(broker), TopicPartition(self._spec.topic.name, partition)
        )

    def read_replicas(self, broker: int) -> list[dict[str, Any]]:
        rows = read_replicas([self.log_directory(broker)], broker)
        return [cast(dict[str, Any], row) for row in rows]

    def close(self) -> None:
        """Gives the ports back; the processes are the host's to end."""
        for pair in self._reserved.values():
            for reservation in pair:
                reservation.close()
