"""Ports of nodes that have their network for themselves: counted, not searched for."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PORT = 9092


@dataclass(frozen=True, slots=True)
class NodePort:
    """A neaptide.clusters.hosts.host.PortClaim on what nobody else could take."""

    port: int

    def release_socket(self) -> int:
        return self.port

    def close(self) -> None:
        """Nothing was reserved."""


class NodePorts:
    """The next free port of each node."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def claim(self, node: int) -> NodePort:
        port = self._next.get(node, FIRST_PORT)
        self._next[node] = port + 1
        return NodePort(port)
