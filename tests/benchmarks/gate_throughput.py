"""What the gate costs: bytes and messages a second, direct and through it, as JSON.

    python -m tests.benchmarks.gate_throughput

bulk: one client link, one sender, 1 MiB writes. rounds: Fetch v12 rounds with 100 kB of records,
one in flight on each of two connections, through a replication link (without rules, and with one
that matches nothing). Leader and followers are small Python programs of their own, so that on two
cores the numbers say what a broker of the same kind would see; direct and gated runs alternate.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import uvloop

from neaptide.clusters.hosts.local import LocalHost
from neaptide.nemesis.gate.client import Gate
from neaptide.nemesis.gate.model import GateConfig, Rule, cluster_links
from tests.gate import wire
from tests.gate.wire import Answer, Ask

BULK_BYTES: Final = 1 << 30
CHUNK: Final = b"x" * (1 << 20)
ROUNDS: Final = 4_000
CONNECTIONS: Final = 2
RECORDS: Final = b"r" * 100_000
REPEATS: Final = 3


class Leader(asyncio.Protocol):
    """Answers every frame with the same Fetch response, under its correlation id."""

    response = wire.fetch_response(12, [Answer("t", 0, 7, RECORDS)])

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            size = 4 + int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < size:
                return
            correlation_id, self.buffer = self.buffer[8:12], self.buffer[size:]
            self.transport.write(self.response[:4] + correlation_id + self.response[8:])


class Sink(asyncio.Protocol):
    """Counts bytes; answers with one byte when it has them all."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.left = BULK_BYTES

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left <= 0:
            self.transport.write(b"!")


def serve(pipe: Connection) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(kind, "127.0.0.1", 0) for kind in (Leader, Sink)]
        pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(run())


async def bulk(port: int) -> float:
    """Bytes a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.perf_counter()
    for _ in range(BULK_BYTES // len(CHUNK)):
        writer.write(CHUNK)
        await writer.drain()
    await reader.readexactly(1)
    seconds = time.perf_counter() - started
    writer.close()
    return BULK_BYTES / seconds


async def rounds(port: int) -> float:
    """Fetch rounds a second, over all connections."""
    started = time.perf_counter()
    await asyncio.gather(*(_fetch(port, n) for n in range(CONNECTIONS)))
    return CONNECTIONS * ROUNDS / (time.perf_counter() - started)


async def _fetch(port: int, broker: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    client_id = f"broker-{broker}-fetcher-0"
    ask = wire.fetch_request(12, [Ask("t", 0, 7, 1)], replica_id=broker, client_id=client_id)
    for _ in range(ROUNDS):
        writer.write(ask)
        await reader.readexactly(len(Leader.response))
    writer.close()


async def measure(leader: int, sink: int) -> dict[str, dict[str, float]]:
    host, brokers = LocalHost(), (1,)
    links = cluster_links(brokers, replication={1: leader}, client={1: sink})
    with tempfile.TemporaryDirectory() as run:
        gate = await Gate.start(GateConfig(Path(run), time.monotonic_ns(), links), host)
        results: dict[str, list[float]] = {}

        def note(name: str, value: float) -> None:
            results.setdefault(name, []).append(value)

        for repeat in range(REPEATS):
            note("bulk_bytes_per_s direct", await bulk(sink))
            note("bulk_bytes_per_s gate", await bulk(gate.ports["client-1"]))
            note("rounds_per_s direct", await rounds(leader))
            note("rounds_per_s gate", await rounds(gate.ports["replication-1"]))
            rule = Rule(f"r{repeat}", "hold", "response", where="high_watermark > 8")
            await gate.install(rule)
            note("rounds_per_s gate with a rule", await rounds(gate.ports["replication-1"]))
            await gate.remove(rule.id)
        await gate.close()
        await host.close()
    return {name: _summary(values) for name, values in results.items()}


def _summary(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values)), "best": round(max(values))}


def main() -> None:
    os.environ.setdefault("NEAPTIDE_STATE", tempfile.mkdtemp())
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    leader, sink = here.recv()
    print(json.dumps(uvloop.run(measure(leader, sink)), indent=2))
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
