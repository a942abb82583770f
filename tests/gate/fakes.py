"""A leader, a follower and a gate between them: the smallest cluster that has fetch rounds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from neaptide.clusters.hosts.local import LocalHost
from neaptide.nemesis.gate import decode
from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.client import Gate
from neaptide.nemesis.gate.fetch_answer import fetch_response
from neaptide.nemesis.gate.model import GateConfig, Rule, Target, cluster_links, quorum_links
from tests.gate import wire
from tests.gate.wire import Answer, Ask

LEADER, FOLLOWER = 3, 1


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


@dataclass
class FakeLeader:
    """Answers every Fetch at once: high watermark = the fetch offset, one more byte of log."""

    records: bytes = b"r"
    error: int = 0  # of every partition that is asked for
    requests: list[m.RequestHeader] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    open: int = 0  # connections that their other end has not closed
    port: int = 0
    answering: bool = True

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """End like a process that is killed: nothing listens, every connection closes."""
        self._server.close()
        for writer in self.writers:
            writer.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.came.clear()
                await self.came.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.open += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._answer(await read_frame(reader), writer)
        finally:
            writer.close()
            self.open -= 1
            self.came.set()

    async def _answer(self, raw: bytes, writer: asyncio.StreamWriter) -> None:
        header = decode.request_header(raw)
        self.requests.append(header)
        if header.api_key == m.FETCH:
            request = decode.fetch_request(raw, header)
            assert request is not None
            answers = []
            for (topic, partition), asked in request.partitions.items():
                self.offsets.append(asked.fetch_offset)
                answers.append(
                    Answer(topic, partition, asked.fetch_offset, self.records, error=self.error)
                )
            reply = wire.fetch_response(
                header.api_version, answers, correlation_id=header.correlation_id
            )
        elif header.api_key == m.OFFSET_FOR_LEADER_EPOCH:
            epochs = decode.epoch_request(raw, header)
            assert epochs is not None
            ((topic, partition),) = epochs.partitions
            reply = wire.epoch_response(
                header.api_version,
                topic,
                partition,
                self.error,
                correlation_id=header.correlation_id,
            )
        else:
            reply = wire.frame(header.correlation_id.to_bytes(4, "big") + b"ok")
        self.came.set()
        if self.answering:
            writer.write(reply)
            await writer.drain()


@dataclass
class FakeFollower:
    """Fetches in rounds: asks from its log end offset, which grows by one with each answer."""

    port: int
    version: int = 12
    broker: int = FOLLOWER
    topic: str = "t"
    leader_epoch: int = 4
    log_end_offset: int = 0
    correlation_id: int = 0
    high_watermark: int | None = None

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    def close(self) -> None:
        self.writer.close()

    def ask(self) -> None:
        self.correlation_id += 1
        self.writer.write(
            wire.fetch_request(
                self.version,
                [Ask(self.topic, 0, self.log_end_offset, self.leader_epoch)],
                replica_id=self.broker,
                correlation_id=self.correlation_id,
                client_id=f"broker-{self.broker}-fetcher-0" if self.broker >= 0 else "consumer",
            )
        )

    async def take(self) -> None:
        raw = await asyncio.wait_for(read_frame(self.reader), 20)
        assert decode.correlation_id(raw) == self.correlation_id
        (answer,) = fetch_response(raw, self.version).partitions.values()
        self.high_watermark = answer.high_watermark
        self.log_end_offset += 1

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            self.ask()
            await self.take()

    async def ended(self) -> bool:
        """Wait for the end of the connection; True if nothing else came."""
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(self.reader.read(), 20) == b""
        return True


@dataclass
class World:
    """A gate with a leader behind it."""

    gate: Gate
    leader: FakeLeader
    host: LocalHost
    run: Path
    followers: list[FakeFollower] = field(default_factory=list)

    async def follower(self, version: int = 12, broker: int = FOLLOWER) -> FakeFollower:
        follower = FakeFollower(self.gate.ports[f"replication-{LEADER}"], version, broker)
        await follower.connect()
        self.followers.append(follower)
        return follower

    async def held_at_death(self) -> FakeFollower:
        """A follower to which an answer is held of a leader that has died since."""
        follower = await self.follower()
        await self.gate.install(Rule("h", "hold", "response", source=LEADER))
        follower.ask()
        await self.gate.wait_held("h")
        await self.gate.sever(LEADER)
        self.leader.stop()
        return follower


@contextlib.asynccontextmanager
async def world(run: Path, *, shared: bool = False) -> AsyncIterator[World]:
    """Everything started, and everything stopped. `shared`: clients use the replicas' links."""
    host, leader = LocalHost(), FakeLeader()
    await leader.start()
    ports = {LEADER: leader.port}
    clients = ports if shared else None
    links = cluster_links(
        (FOLLOWER, LEADER), replication=ports, client=clients, coordination=leader.port
    )
    links += quorum_links({100: leader.port})
    if not shared:  # no link but the replicas' leads to the same port in a cluster
        links = tuple(
            replace(link, target=Target(leader.port)) if link.name == f"client-{LEADER}" else link
            for link in links
        )
    gate = await Gate.start(GateConfig(run, time.monotonic_ns(), links), host)
    made = World(gate, leader, host, run)
    try:
        yield made
        await gate.close()
        assert gate.process.returncode == 0, (run / "logs" / "gate.log").read_text()
    finally:
        for follower in made.followers:
            follower.close()
        leader.stop()
        await host.close()
