"""The host `ssh`: every node is a machine that is reached by ssh.

Not a provisioner: a node has a Python with what our broker imports, Java for Kafka, nft for cuts.
Our own code goes there with every run, Kafka's jars once, by their contents. A runner on the node
lives as long as the connection: when the harness ends, however it ends, everything that it has
started there ends too, and its files and rules go. So nothing of this is in the ledger.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from neaptide import clusters
from neaptide.clusters.errors import HostError, UsageError
from neaptide.clusters.hosts.host import Drop, Marked, NodeName
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec
from neaptide.clusters.hosts.node_ports import NodePort
from neaptide.clusters.hosts.packet_filter import dropped_packets, remove, render
from neaptide.clusters.hosts.ssh_connection import Connection, Event, connect
from neaptide.clusters.hosts.ssh_nodes import SshNode, SshNodes

_PORTS: Final = 8  # of a node, at most
_LOST: Final = 255
_CODE: Final = "code"


def check(nodes: SshNodes) -> None:
    """Every node is reached, and is who it was. Raises MissingPartError."""
    for node in nodes.nodes:
        connect(node, nodes.known_hosts).close()


class SshProcess:
    """Implements clusters.hosts.host.NodeProcess. `collect` brings its log when it has ended."""

    def __init__(
        self, spec: ProcessSpec, pid: int, connection: Connection, collect: Callable[[], None]
    ) -> None:
        self.spec = spec
        self.pid = pid
        self._connection = connection
        self._collect = collect
        self._returncode: int | None = None
        self.stands = False  # as its machine last said
        self._ended = asyncio.Event()
        self._collecting: asyncio.Task[None] | None = None

    @property
    def returncode(self) -> int | None:
        return self._returncode

    @property
    def is_stopped(self) -> bool:
        return self._returncode is None and self.stands

    async def terminate(self) -> None:
        await self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        await self._signal(signal.SIGKILL)

    async def pause(self) -> None:
        if not await self._signal(signal.SIGSTOP):
            raise HostError(f"{self.spec.name} ended while it was being paused")

    async def resume(self) -> None:
        await self._signal(signal.SIGCONT)

    async def wait(self, timeout_s: float | None = None) -> int:
        async with asyncio.timeout(timeout_s):
            await self._ended.wait()
        assert self._returncode is not None
        return self._returncode

    async def _signal(self, number: signal.Signals) -> bool:
        if self._returncode is not None:
            return False
        return bool(await self._connection.do("signal", pid=self.pid, number=int(number)))

    def ended(self, status: int) -> None:
        """Its log comes first: whoever sees that it has ended may read why. Idempotent."""
        if self._collecting is not None:
            return
        self._collecting = asyncio.ensure_future(self._end(status))

    async def _end(self, status: int) -> None:
        try:
            await asyncio.to_thread(self._collect)
        except HostError as error:
            with self.spec.stdout_log.open("a", encoding="utf-8") as log:
                log.write(f"this log is not complete: {error}\n")
        self._returncode = status
        self._ended.set()


class _Node:
    """A node that is connected: where its files are, which ports are ours, what runs."""

    def __init__(self, connection: Connection, hello: Mapping[str, Any]) -> None:
        self.connection = connection
        self.directory = PurePosixPath(str(hello["directory"]))
        self.cache = PurePosixPath(str(hello["cache"]))
        self.nft = ("nft",) if hello["uid"] == 0 else ("sudo", "-n", "nft")
        self.table = self.directory.name.replace("-", "_")
        self.ports: Iterator[int] = iter(hello["ports"])
        self.processes: dict[int, SshProcess] = {}
        self.filtered = False
        self._ended_early: dict[int, int] = {}
        connection.on_event = self._on_event
        connection.on_loss = self._on_loss

    def adopt(self, process: SshProcess) -> None:
        """It has started, and may have ended in the same moment."""
        self.processes[process.pid] = process
        status = self._ended_early.pop(process.pid, None)
        if status is not None:
            process.ended(status)

    def _on_event(self, event: Event) -> None:
        process = self.processes.get(event["pid"])
        if event["event"] == "stands":
            if process is not None:
                process.stands = event["stands"]
        elif process is None:
            self._ended_early[event["pid"]] = event["status"]
        else:
            process.ended(event["status"])

    def _on_loss(self) -> None:
        for process in self.processes.values():
            process.ended(_LOST)


class SshHost:
    """Implements neaptide.clusters.hosts.host.Host with machines that are reached by ssh."""

    name: NodeName = "ssh"
    filters = True

    def __init__(self, local: LocalHost, run: Path, asked: SshNodes) -> None:
        self.local = local
        self._run = run.absolute()
        self._asked = asked
        self._nodes: dict[int, _Node] = {}
        self._harness = asked.harness

    async def prepare(self, nodes: Sequence[int]) -> None:
        """Node N is the N-th of those asked for, in the order of their numbers."""
        if len(nodes) > len(self._asked.nodes):
            raise UsageError(
                f"There are {len(nodes)} brokers and {len(self._asked.nodes)} machines: name"
                " as many machines as brokers."
            )
        machines = zip(sorted(nodes), self._asked.nodes, strict=False)
        await asyncio.gather(*(self._prepare(node, machine) for node, machine in machines))

    async def _prepare(self, node: int, machine: SshNode) -> None:
        connection = await Connection.open(machine, self._asked.known_hosts)
        self.local.at_end(connection.close)
        hello = await connection.do("hello", base=machine.directory, ports=_PORTS)
        self._nodes[node] = there = _Node(connection, hello)
        if self._asked.harness is None:
            self._agree(connection.ends[0])
        undo = [*there.nft, "--file", "-"]
        await connection.do("undo", argv=undo, stdin=remove(there.table))
        code = Path(str(clusters.__file__)).parent.resolve()
        await self._send_directory(there, code, there.directory / _CODE / "neaptide" / "clusters")

    def _agree(self, address: str) -> None:
        """All nodes have to reach the harness at one address: it listens there alone."""
        if self._harness not in (None, address):
            raise UsageError(
                f"Some nodes reach this machine at {self._harness}, others at {address}: write"
                ' harness = "…" with an address that all of them reach into the file of nodes.'
            )
        self._harness = address

    @property
    def harness_address(self) -> str:
        if self._harness is None:
            raise RuntimeError("the host ssh was not prepared")
        return self._harness

    def address(self, node: int) -> str:
        return self._nodes[node].connection.ends[1]

    def claim_port(self, node: int) -> NodePort:
        return NodePort(next(self._nodes[node].ports))

    # --- files -----------------------------------------------------------------------------------

    def java(self, node: int) -> str:
        return self._nodes[node].connection.node.java

    def python(self, node: int) -> tuple[str, ...]:
        return (self._nodes[node].connection.node.python,)

    def path(self, node: int, here: Path) -> Path:
        return Path(self._nodes[node].directory / here.absolute().relative_to(self._run))

    async def install(self, node: int, files: Collection[Path]) -> Mapping[Path, str]:
        """Into a cache on the node, each by what is in it."""
        there = self._nodes[node]
        names = await asyncio.to_thread(lambda: {file: _by_contents(file) for file in files})
        missing = await there.connection.do(
            "missing", folder=str(there.cache), names=sorted(set(names.values()))
        )
        for file, name in names.items():
            if name in missing:
                missing.remove(name)
                await asyncio.to_thread(there.connection.upload, file, str(there.cache / name))
        return {file: str(there.cache / name) for file, name in names.items()}

    async def put(self, node: int, directory: Path) -> None:
        there = self._nodes[node]
        await self._send_directory(there, directory, self.path(node, directory))

    async def _send_directory(
        self, node: _Node, directory: Path, there: Path | PurePosixPath
    ) -> None:
        archive = str(node.directory / "put.tar.gz")
        with tempfile.TemporaryDirectory() as scratch:
            packed = Path(scratch) / "put.tar.gz"
            await asyncio.to_thread(_pack, directory, packed)
            await asyncio.to_thread(node.connection.upload, packed, archive)
        await node.connection.do("unpack", archive=archive, target=str(there))

    async def get(self, node: int, directory: Path) -> None:
        there = self._nodes[node]
        archive = str(there.directory / "get.tar.gz")
        await there.connection.do("pack", source=str(self.path(node, directory)), archive=archive)
        with tempfile.TemporaryDirectory() as scratch:
            packed = Path(scratch) / "get.tar.gz"
            await asyncio.to_thread(there.connection.download, archive, packed)
            await asyncio.to_thread(unpack, packed, directory)

    def refresh(self, node: int, file: Path) -> None:
        connection, there = self._nodes[node].connection, str(self.path(node, file))
        sizes = connection.sizes(there)
        if sizes is None:
            if not connection.download(there, file):
                file.unlink(missing_ok=True)
            return
        file.mkdir(parents=True, exist_ok=True)
        for here in file.iterdir():
            if here.is_file() and here.name not in sizes:
                here.unlink()
        for name, size in sizes.items():
            here = file / name
            if not here.exists() or here.stat().st_size != size:
                connection.download(f"{there}/{name}", here)

    # --- what is done to a node ------------------------------------------------------------------

    async def start(self, node: int, spec: ProcessSpec) -> SshProcess:
        there = self._nodes[node]
        spec.stdout_log.parent.mkdir(parents=True, exist_ok=True)
        log = str(self.path(node, spec.stdout_log))
        pid = await there.connection.do(
            "start",
            argv=list(spec.argv),
            cwd=str(self.path(node, spec.directory)),
            env={"PYTHONPATH": str(there.directory / _CODE), **spec.env},
            log=log,
        )

        def collect() -> None:
            there.connection.download(log, spec.stdout_log)

        process = SshProcess(spec, pid, there.connection, collect)
        there.adopt(process)
        return process

    async def signal_marked(self, node: int, mark: str, number: int, within_s: float) -> Marked:
        """To all on a node that has this variable, as NAME=value, in its environment, children of
        children too. With SIGSTOP, SIGCONT and SIGKILL it waits for the effect, so many seconds."""
        answer = await self._nodes[node].connection.do(
            "signal_marked", mark=mark, number=number, within_s=within_s
        )
        left = {int(pid): str(state) for pid, state in answer["left"].items()}
        return Marked(bool(answer["there"]), left)

    async def filter(self, node: int, drops: Collection[Drop]) -> int:
        there = self._nodes[node]
        run, table = there.connection.run, there.table
        dropped = 0
        if there.filtered:
            listing = await run(*there.nft, "--json", "list", "table", "ip", table)
            dropped = dropped_packets(listing)
        await run(*there.nft, "--file", "-", stdin=render(drops, self.harness_address, table))
        there.filtered = bool(drops)
        return dropped

    async def close(self) -> None:
        """Every runner ends what it has started; the logs are here before."""
        for node in self._nodes.values():
            for process in list(node.processes.values()):
                await process.kill()
                await process.wait()
        await asyncio.gather(
            *(asyncio.to_thread(node.connection.close) for node in self._nodes.values())
        )
        self._nodes.clear()


def _by_contents(file: Path) -> str:
    return f"{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}-{file.name}"


def _pack(directory: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(directory, arcname=".", filter=_without_bytecode)


def _without_bytecode(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith("__pycache__") else entry


def unpack(archive: Path, directory: Path) -> None:
    """The directory holds what the archive has, and nothing else; until then, what it had."""
    new, old = (directory.with_name(f".{directory.name}.{word}") for word in ("new", "old"))
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir(parents=True)
    with tarfile.open(archive, "r:gz") as packed:
        packed.extractall(new, filter="data")
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old, ignore_errors=True)
