"""What a host can do: the one place where the nodes of a cluster run.

Not the harness's own processes: the gate, the clients and ZooKeeper stay with the harness
(`Host.local`), at an address that the nodes reach. A *node* is one machine of the cluster, named
by its number: a process's worth of this machine (local), a network namespace (netns), a container
(docker), a machine (ssh). Each node has an address, Java, Python, a place for files, and, where
`filters`, a packet filter of its own.

Files are named by where the harness keeps them, below the run directory; `path` says where the
same file is for the node. On hosts that share the harness's disk both are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess

NodeName = Literal["local", "netns", "docker", "ssh"]


@dataclass(frozen=True, slots=True, order=True)
class Drop:
    """Packets of TCP that a node's packet filter drops: those between it and one peer's port.

    `hook` is seen from the node: output leaves it, input reaches it. `port` is the peer's with
    `ends_at` "peer" (the node has connected to it), or the node's own (it was connected to).
    """

    hook: Literal["input", "output"]
    ends_at: Literal["peer", "node"]
    port: int


class PortClaim(Protocol):
    """A port of a node that nobody else uses until `close`."""

    @property
    def port(self) -> int: ...

    def release_socket(self) -> int:
        """Let a process of ours bind the port, which is returned."""
        ...

    def close(self) -> None: ...


class NodeProcess(Protocol):
    """A process of ours on a node, from its start until it has been waited for."""

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still, whoever sent it a SIGSTOP; known within a second."""
        ...

    async def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        ...

    async def kill(self) -> None:
        """End it at once (SIGKILL), paused or not."""
        ...

    async def pause(self) -> None:
        """Returns when it has stopped."""
        ...

    async def resume(self) -> None: ...

    async def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status, once it has ended and its log is here; TimeoutError."""
        ...


@dataclass(frozen=True, slots=True)
class Marked:
    """What has a mark on a node, after a signal.

    `there`: whether there is any; `left`: what the signal had no effect on within its time, by
    pid, with its state as ps shows it (D, R, S, T).
    """

    there: bool
    left: Mapping[int, str]


class Host(Protocol):
    """`prepare` comes first, `close` last; between them every node is there."""

    name: NodeName
    local: LocalHost  # what the harness runs itself
    filters: bool  # whether nodes have packet filters

    @property
    def harness_address(self) -> str:
        """Where nodes reach what the harness runs, and where alone it listens."""
        ...

    async def prepare(self, nodes: Sequence[int]) -> None: ...

    def address(self, node: int) -> str:
        """Where the harness reaches what listens on a node."""
        ...

    def claim_port(self, node: int) -> PortClaim: ...

    def java(self, node: int) -> str:
        """The command; MissingPartError if there is none."""
        ...

    def python(self, node: int) -> tuple[str, ...]:
        """The command that runs a Python which can import our broker."""
        ...

    async def install(self, node: int, files: Collection[Path]) -> Mapping[Path, str]:
        """Has files of this machine on a node, as long as the host likes; where each is there."""
        ...

    def path(self, node: int, here: Path) -> Path:
        """Where a file of the run directory is, for the node."""
        ...

    async def put(self, node: int, directory: Path) -> None:
        """The node has this directory's files as they are here, and no others."""
        ...

    async def get(self, node: int, directory: Path) -> None:
        """This directory's files are here as the node has them."""
        ...

    def refresh(self, node: int, file: Path) -> None:
        """A small file, or the files of a directory, are here as the node has them at this moment.

        What the node has not is not here either; directories within are left alone.
        """
        ...

    async def start(self, node: int, spec: ProcessSpec) -> NodeProcess:
        """Run a process on a node; its paths are named by where they are here."""
        ...

    async def filter(self, node: int, drops: Collection[Drop]) -> int:
        """From now on these packets are dropped, and no others; how many were dropped so far."""
        ...

    async def close(self) -> None:
        """Ends and removes everything on all nodes, not what `local` runs. Idempotent."""
        ...


class LocalNodeProcess:
    """A node's process that is a process of this machine."""

    def __init__(self, process: RunningProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def is_stopped(self) -> bool:
        return self._process.is_stopped

    async def terminate(self) -> None:
        self._process.terminate()

    async def kill(self) -> None:
        self._process.kill()

    async def pause(self) -> None:
        await self._process.pause()

    async def resume(self) -> None:
        self._process.resume()

    async def wait(self, timeout_s: float | None = None) -> int:
        return await self._process.wait(timeout_s)
