"""A broker's node: its process, which is the core that the live server runs, and what it has there.

The disk outlives the process. What the core asks for is carried out in effect_handlers; requests to
other brokers are the network's (fetching, controlling, broker_calls).
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker, start
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.network_node import Network


class BrokerNode:
    """`process` is None while it does not run. Change it, or the disk, with `own_…` only: another
    world's copy of the node may have the same."""

    __slots__ = (
        "_shares_disk",
        "_shares_process",
        "broker_id",
        "deleted",
        "disk",
        "network",
        "process",
        "started_us",
        "timers",
    )

    def __init__(self, broker_id: int, network: Network) -> None:
        self.broker_id = broker_id
        self.network = network
        self.process: Broker | None = None
        self.disk = Disk()
        self.timers: dict[events.Timer, int] = {}  # by the numbers of what is due
        self.started_us: int | None = None
        # What retention was allowed to delete here: all before this.
        self.deleted: dict[TopicPartition, int] = {}
        self._shares_process = self._shares_disk = False

    def copy(self, network: Network) -> BrokerNode:
        """Of the same node in another network."""
        other = BrokerNode.__new__(BrokerNode)
        other.broker_id = self.broker_id
        other.network = network
        other.process = self.process
        other.disk = self.disk
        other.timers = self.timers.copy()
        other.started_us = self.started_us
        other.deleted = self.deleted.copy()
        self._shares_process = self._shares_disk = True
        other._shares_process = other._shares_disk = True
        return other

    @property
    def core(self) -> Broker:
        """Of a broker that runs."""
        assert self.process is not None
        return self.process

    def own_core(self) -> Broker:
        if self._shares_process:
            self._shares_process = False
            self.process = self.core.copy()
        return self.core

    def own_disk(self) -> Disk:
        if self._shares_disk:
            self._shares_disk = False
            self.disk = self.disk.copy()
        return self.disk

    def start(self) -> Broker:
        """A process begins with what is on the disk."""
        spec = self.network.spec
        self._shares_process = False
        self.process = start(self.broker_id, spec.rules, spec.settings, self.own_disk().stored())
        self.started_us = self.network.now_us
        return self.process

    def end(self) -> None:
        """The process is gone; nothing on the disk changes."""
        self.process = self.started_us = None
        self.timers = {}

    def now_ms(self) -> int:
        """As its own clock has it."""
        now_us = self.network.now_us
        clock = self.network.spec.clocks.get(self.broker_id)
        return now_us // 1_000 if clock is None else clock.now_ms(now_us)
