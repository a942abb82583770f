"""Malformed frames against brokers of our own, as many as one likes: prints JSON.

    python -m tests.hardening.frames [--frames 1000000] [--seed 1] [--generation 2.1 …]

Each generation has one broker process. Frames go to its client port and to its replication port,
over many connections at once; beside them a neighbour with good manners produces and reads. No
frame may end the broker, nor have it take memory without bound; the neighbour is always served; a
restart, and one after a kill, find all that the neighbour was answered to be written.
Exit status: 0 where that held, 1 where it did not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from kio.schema.api_versions.v0.request import ApiVersionsRequest

from neaptide.clusters.broker.wire.codec import encode_request
from tests.hardening.corpus import Corpus, broken_control, corpus, malformed
from tests.live.cluster import LiveCluster
from tests.live.raw import RawConnection, fetch_request, fetched, produce_request, produced
from tests.storage.batches import batch

GENERATIONS: Final = ("0.10", "2.1", "4.0")
FRAMES: Final = 1_000_000
CONNECTIONS: Final = 48
ANSWER_S: Final = 0.5  # for a frame: a Fetch may want to wait for days
SERVED_S: Final = 60.0  # for the neighbour
GROWTH_MAX_MIB: Final = 512
ROUND: Final = 5_000  # frames between two looks at the memory
_FENCE: Final = encode_request(ApiVersionsRequest(), correlation_id=0x0FE4CE, client_id="fence")
_FENCED: Final = (0x0FE4CE).to_bytes(4, "big")
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "zookeeper.session.timeout.ms": "30000",
    "log.segment.bytes": str(1 << 24),
    "log.retention.bytes": str(1 << 26),
    "log.retention.check.interval.ms": "5000",
}
_MIB: Final = 1 << 20


class HardeningError(Exception):
    """The broker has done what it must not; the message says what."""


@dataclass
class Seen:
    """What became of the frames of one generation."""

    frames: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    served: int = 0
    slowest_s: float = 0.0
    memory: list[int] = field(default_factory=list)

    def as_json(self, seconds: float) -> dict[str, Any]:
        return {
            "frames": sum(self.frames.values()),
            "of_kind": dict(sorted(self.frames.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "seconds": round(seconds, 1),
            "neighbour": {"served": self.served, "slowest_ms": round(self.slowest_s * 1000)},
            "memory_mib": {
                "start": self.memory[0] // _MIB,
                "peak": max(self.memory) // _MIB,
                "end": self.memory[-1] // _MIB,
            },
        }


async def _send(port: int, frames: Iterable[tuple[str, bytes]], seen: Seen) -> None:
    """One connection after the other; a frame is over when the fence behind it is answered."""
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for kind, frame in frames:
        seen.frames[kind] += 1
        outcome = "closed"
        try:
            async with asyncio.timeout(ANSWER_S):
                if streams is None:
                    streams = await asyncio.open_connection("127.0.0.1", port)
                reader, writer = streams
                writer.write(frame + _FENCE)
                if kind == "wrong length":
                    writer.write_eof()
                while (await _frame(reader))[:4] != _FENCED:
                    pass
                outcome = "answered"
        except TimeoutError:
            outcome = "waits"
        except (OSError, EOFError):
            pass
        seen.outcomes[outcome] += 1
        if (outcome != "answered" or kind == "wrong length") and streams is not None:
            streams[1].transport.abort()
            streams = None
    if streams is not None:
        streams[1].transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


class Broker:
    """One broker of a generation, and the neighbour that it must not neglect."""

    def __init__(self, directory: Path, generation: str) -> None:
        self.cluster = LiveCluster(directory, _SETTINGS, generation, members=(0,))
        for topic in ("hurt", "served"):
            self.cluster.create_topic(topic, [[0]])
        self.written = 0

    def close(self) -> None:
        self.cluster.close()

    @property
    def process(self) -> psutil.Process:
        """The one that listens on the client port."""
        port = self.cluster.client_port(0)
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # one that has just ended
                for connection in process.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                        return process
        raise HardeningError("the broker has ended")

    def serve(self, seen: Seen) -> None:
        """A record written and read, or HardeningError."""
        if not self.cluster.brokers.is_up(0):
            raise HardeningError("the broker has ended")
        began = time.monotonic()
        try:
            with RawConnection(self.cluster.client_port(0)) as neighbour:
                request = produce_request("served", batch(0, [b"x"]), acks=1)
                error, offset = produced(neighbour.ask(request))
                if (error, offset) != ("none", self.written):
                    raise HardeningError(f"the neighbour's record: {error}, {offset}")
                self.written += 1
                answer = fetched(neighbour.ask(fetch_request("served", offset)))
                if answer.error_code.name != "none" or not answer.records:
                    raise HardeningError(f"the neighbour reads {answer}")
        except (OSError, EOFError) as error:
            raise HardeningError(f"the neighbour is not served: {error!r}") from error
        seen.served += 1
        seen.slowest_s = max(seen.slowest_s, time.monotonic() - began)
        if seen.slowest_s > SERVED_S:
            raise HardeningError(f"the neighbour waited {seen.slowest_s:.0f} s")

    def restart(self, seen: Seen) -> None:
        """A clean end and a start, then a kill and a start."""
        cluster = self.cluster
        for end in (cluster.brokers.stop, cluster.brokers.kill):
            cluster.do(end(0))
            cluster.do(cluster.brokers.forget_session(0))
            cluster.restart(0)
            cluster.await_leader("served", other_than=-1)
            self._await_served(seen)

    def _await_served(self, seen: Seen) -> None:
        deadline = time.monotonic() + SERVED_S
        while True:
            try:
                self.serve(seen)
                return
            except HardeningError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def hurt(
    directory: Path, generation: str, frames: int, number: int, connections: int = CONNECTIONS
) -> dict[str, Any]:
    """So many frames against a broker of a generation. Raises HardeningError."""
    broker = Broker(directory, generation)
    try:
        seen = Seen()
        began = time.monotonic()
        known = corpus(generation, number)
        process = broker.process
        seen.memory.append(process.memory_info().rss)
        sent = 0
        while sent < frames:
            size = min(ROUND, frames - sent)
            asyncio.run(_round(broker, known, size, connections, f"{number}/{sent}", seen))
            sent += size
            broker.serve(seen)
            seen.memory.append(process.memory_info().rss)
            if seen.memory[-1] - seen.memory[0] > GROWTH_MAX_MIB * _MIB:
                raise HardeningError(f"it takes {seen.memory[-1] // _MIB} MiB of memory")
        broker.restart(seen)
        if "Traceback" in broker.cluster.log(0):
            raise HardeningError(f"a traceback in {directory}")
        return seen.as_json(time.monotonic() - began)
    finally:
        broker.close()


async def _round(
    broker: Broker, known: Corpus, frames: int, connections: int, number: str, seen: Seen
) -> None:
    """A share for each connection; every sixth of them is one between brokers."""

    def share(index: int) -> Iterable[tuple[str, bytes]]:
        chance = random.Random(f"{number}/{index}")
        for _ in range(frames // connections + (index < frames % connections)):
            if index % 6 == 0 and chance.random() < 0.5:
                yield broken_control(chance, known)
            else:
                yield malformed(chance, known)

    cluster = broker.cluster
    ports = (cluster.replication_port(0), *[cluster.client_port(0)] * 5)
    senders = (_send(ports[index % 6], share(index), seen) for index in range(connections))
    await asyncio.gather(*senders)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--generation", action="append", choices=GENERATIONS)
    asked = parser.parse_args(arguments)
    generations = asked.generation or list(GENERATIONS)
    report: dict[str, Any] = {"seed": asked.seed, "frames": 0, "generations": {}}
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        os.environ["NEAPTIDE_STATE"] = str(Path(directory) / "state")
        for index, generation in enumerate(generations):
            share = asked.frames // len(generations) + (index < asked.frames % len(generations))
            here = Path(directory) / generation
            here.mkdir()
            try:
                found = hurt(here, generation, share, asked.seed)
                report["frames"] += found["frames"]
            except HardeningError as error:
                found = {"failed": str(error)}
                failed = True
            report["generations"][generation] = found
    print(json.dumps(report, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
