"""The host `local`: every node is this machine, and differs from the others by its ports alone.

Also what hosts share whose nodes see this machine's disk: a file is where it is. No node has a
packet filter of its own here: links are cut by the gate.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from neaptide.clusters.hosts.host import Drop, LocalNodeProcess, NodeName, PortClaim
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec
from neaptide.clusters.hosts.ports import LOOPBACK, reserve_port


class SharedDisk:
    """The part of clusters.hosts.host.Host about files, where nodes have the harness's disk."""

    def java(self, node: int) -> str:
        return str(find_java())

    def python(self, node: int) -> tuple[str, ...]:
        return (sys.executable,)

    async def install(self, node: int, files: Collection[Path]) -> Mapping[Path, str]:
        return {file: str(file) for file in files}

    def path(self, node: int, here: Path) -> Path:
        return here

    async def put(self, node: int, directory: Path) -> None:
        """It is there."""

    async def get(self, node: int, directory: Path) -> None:
        """It is here."""

    def refresh(self, node: int, file: Path) -> None:
        """It is here."""


class LocalNodes(SharedDisk):
    """Implements neaptide.clusters.hosts.host.Host on the loopback interface."""

    name: NodeName = "local"
    filters = False

    def __init__(self, local: LocalHost) -> None:
        self.local = local

    @property
    def harness_address(self) -> str:
        return LOOPBACK

    async def prepare(self, nodes: Sequence[int]) -> None:
        """There is nothing to prepare."""

    def address(self, node: int) -> str:
        return LOOPBACK

    def claim_port(self, node: int) -> PortClaim:
        return reserve_port()

    async def start(self, node: int, spec: ProcessSpec) -> LocalNodeProcess:
        return LocalNodeProcess(await self.local.start(spec))

    async def filter(self, node: int, drops: Collection[Drop]) -> int:
        raise NotImplementedError("a process has no packet filter of its own: ask `filters` first")

    async def close(self) -> None:
        """The processes are `local`'s to end."""
