"""Malformed frames against a gate, from both sides: prints JSON.

    python -m tests.hardening.gate_frames [--frames 1000000] [--seed 1]

Frames of clients, replicas and controllers go through links of every kind; behind them stands a
broker that answers with frames that are no better. Beside them a follower with good manners
fetches. No frame may end the gate, make a traceback in its log, or leave a connection behind it;
what it keeps is bounded; the follower is always served.
Exit status: 0 where that held, 1 where it did not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.hosts.local import LocalHost
from neaptide.nemesis.gate.client import Gate
from neaptide.nemesis.gate.errors import GateError
from neaptide.nemesis.gate.model import GateConfig, Target, cluster_links, quorum_links
from tests.gate import wire
from tests.gate.fakes import FOLLOWER, LEADER, FakeFollower, FakeLeader
from tests.gate.wire import Answer, Ask
from tests.hardening.corpus import MUTATIONS, Corpus, corpus, malformed
from tests.hardening.frames import HardeningError

FRAMES: Final = 1_000_000
CONNECTIONS: Final = 32
GROWTH_MAX_MIB: Final = 512
ROUND: Final = 5_000
_SETTLES_WITHIN_S: Final = 30.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MIB: Final = 1 << 20
_READ_LINKS: Final = (f"replication-{LEADER}", f"client-{LEADER}", "controller-100")


@dataclass
class Seen:
    frames: Counter[str] = field(default_factory=Counter)
    served: int = 0
    memory: list[int] = field(default_factory=list)


def _replicas_frames() -> list[bytes]:
    """What replicas and controllers ask, in every version that the gate reads; without lengths."""
    asks = [Ask("t", 0, 5, 1), Ask("t", 1, 7, 1)]
    frames = [wire.fetch_request(version, asks) for version in range(4, 18)]
    frames += [wire.epoch_request(version, "t", 1, 6) for version in (2, 3, 4)]
    frames += [wire.leader_and_isr(v, "t", 3, leader=2, leader_epoch=8) for v in (0, 1, 2)]
    frames.append(wire.flexible_leader_and_isr("t", 3, leader=2, leader_epoch=8))
    return [frame[4:] for frame in frames]


def _answers() -> list[bytes]:
    """Behind the correlation id."""
    answers = [Answer("t", 0, 5, b"r" * 20), Answer("t", 1, 5, b"", error=3)]
    frames = [wire.fetch_response(version, answers) for version in range(4, 18)]
    frames += [wire.epoch_response(version, "t", 1, 0) for version in (2, 3, 4)]
    return [frame[8:] for frame in frames]


def _mutated(chance: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(chance.randrange(0, 3)):
        if changed:
            chance.choice(MUTATIONS)(chance, changed)
    return bytes(changed)


class StrangeBroker:
    """Answers whatever comes with a frame of the same correlation id that is not what it says."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(f"broker/{number}")
        self._known = _answers()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    @property
    def open(self) -> int:
        return len(self._writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(self._answer(data))
                await writer.drain()
        writer.transport.abort()
        self._writers.discard(writer)

    def _answer(self, data: bytes) -> bytes:
        chance = self._chance
        body = data[8:12].ljust(4, b"\0") + _mutated(chance, chance.choice(self._known))
        length = len(body) if chance.random() < 0.97 else chance.choice((-1, 0, 2**31 - 1, 5))
        return struct.pack(">i", length) + body


def _frames(chance: random.Random, known: Corpus, count: int) -> Iterator[tuple[str, bytes]]:
    replicas = _replicas_frames()
    for _ in range(count):
        if chance.random() < 0.4:
            yield malformed(chance, known)
        else:
            source = replicas if chance.random() < 0.8 else known.of_controllers
            frame = _mutated(chance, chance.choice(source))
            yield "between brokers", struct.pack(">i", len(frame)) + frame


async def _send(port: int, frames: Iterator[tuple[str, bytes]], seen: Seen, number: str) -> None:
    chance = random.Random(number)
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for kind, frame in frames:
        seen.frames[kind] += 1
        with suppress(OSError):
            if streams is None:
                streams = await asyncio.open_connection("127.0.0.1", port)
            streams[1].write(frame)
            await streams[1].drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    if await streams[0].read(65_536) and chance.random() < 0.9:
                        continue
        if streams is not None:
            streams[1].transport.abort()
            streams = None
    if streams is not None:
        streams[1].transport.abort()


async def _hurt(run: Path, frames: int, number: int) -> dict[str, Any]:
    known, seen, began = corpus("4.0", number), Seen(), time.monotonic()
    host, strange, leader = LocalHost(), StrangeBroker(number), FakeLeader()
    await strange.start()
    await leader.start()
    ports = {LEADER: strange.port, FOLLOWER: leader.port}
    links = cluster_links((FOLLOWER, LEADER), replication=ports, coordination=strange.port)
    links += quorum_links({100: strange.port})
    links = tuple(
        replace(
            link, reads=link.purpose != "coordination", target=link.target or Target(strange.port)
        )
        for link in links
    )
    gate = await Gate.start(GateConfig(run, time.monotonic_ns(), links), host)
    try:
        good = FakeFollower(gate.ports[f"replication-{FOLLOWER}"], broker=5)
        await good.connect()
        statm = Path(f"/proc/{gate.process.pid}/statm")
        sent = 0
        while sent < frames:
            seen.memory.append(int(statm.read_text("ascii").split()[1]) * _PAGE_BYTES)
            if seen.memory[-1] - seen.memory[0] > GROWTH_MAX_MIB * _MIB:
                raise HardeningError(f"the gate takes {seen.memory[-1] // _MIB} MiB")
            size = min(ROUND, frames - sent)
            share = [size // CONNECTIONS + (n < size % CONNECTIONS) for n in range(CONNECTIONS)]
            await asyncio.gather(
                *(
                    _send(
                        gate.ports[_READ_LINKS[n % len(_READ_LINKS)]],
                        _frames(random.Random(f"{number}/{sent}/{n}"), known, share[n]),
                        seen,
                        f"{number}/{sent}/{n}",
                    )
                    for n in range(CONNECTIONS)
                )
            )
            sent += size
            await good.rounds(1)
            seen.served += 1
        await _settled(gate, strange)
        seen.memory.append(int(statm.read_text("ascii").split()[1]) * _PAGE_BYTES)
        good.close()
        await gate.close()
    except GateError as error:
        raise HardeningError(str(error)) from error
    finally:
        strange.stop()
        leader.stop()
        await host.close()
    log = (run / "logs" / "gate.log").read_text(encoding="utf-8", errors="replace")
    if gate.process.returncode != 0 or "Traceback" in log:
        raise HardeningError(f"the gate ended, status {gate.process.returncode}: {log[-2000:]}")
    return {
        "frames": sum(seen.frames.values()),
        "of_kind": dict(sorted(seen.frames.items())),
        "served": seen.served,
        "seconds": round(time.monotonic() - began, 1),
        "memory_mib": [seen.memory[0] // _MIB, max(seen.memory) // _MIB, seen.memory[-1] // _MIB],
    }


async def _settled(gate: Gate, strange: StrangeBroker) -> None:
    """All who sent are gone: so are the gate's connections, on both sides."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    while True:
        left = len((await gate.state())["connections"]) - 1
        if left == 0 and strange.open == 0:
            return
        if time.monotonic() > deadline:
            raise HardeningError(f"{left} connections of the gate are left, {strange.open} behind")
        await asyncio.sleep(0.1)


def hurt(run: Path, frames: int, number: int) -> dict[str, Any]:
    """So many frames against a gate. Raises HardeningError."""
    return asyncio.run(_hurt(run, frames, number))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["NEAPTIDE_STATE"] = str(Path(directory) / "state")
        try:
            found = hurt(Path(directory) / "run", asked.frames, asked.seed)
        except HardeningError as error:
            found = {"failed": str(error)}
    print(json.dumps(found, indent=2))
    return int("failed" in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
