"""A cluster that runs already: nothing of it is started, stopped, or read from disk.

Not a PlacedCluster in earnest: there is no node that anything could be done to, and whoever would
do something to one refuses before the run begins (neaptide.harness.scenarios.systems).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neaptide.clusters.cluster import ClusterSpec, Listeners
from neaptide.clusters.hosts.host import Host
from neaptide.clusters.observer import OnChange
from neaptide.clusters.own.model import Used
from neaptide.clusters.own.observer import MetadataObserver
from neaptide.clusters.placed_cluster import PlacedCluster


class UsedCluster(PlacedCluster):
    """The part of neaptide.clusters.cluster.Cluster that a client can have."""

    managed = False

    def __init__(self, host: Host, directory: Path, used: Used, spec: ClusterSpec) -> None:
        super().__init__(host, directory, spec)
        self._used = used

    @property
    def bootstrap(self) -> str:
        return self._used.bootstrap

    def observer(self, on_change: OnChange) -> MetadataObserver:
        return MetadataObserver(self._used, on_change)

    async def start_coordination(self) -> None:
        """It is there."""

    def is_up(self, broker: int) -> bool:
        """As far as anybody here could know."""
        return True

    def logs(self) -> Mapping[str, Path]:
        return {}

    async def read_replicas(self, broker: int) -> list[dict[str, Any]]:
        return []

    def _command(self, broker: int, through: Listeners, directory: Path) -> tuple[str, ...]:
        raise NotImplementedError(f"{self._used.name} is used: none of its brokers is started here")
