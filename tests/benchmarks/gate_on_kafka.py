"""What the gate costs a real Kafka under load, and whether it hits the rounds that it aims at.

    python -m tests.benchmarks.gate_on_kafka [--system kafka:3.9.1] [--records N] [--aims N]

Throughput: one librdkafka producer, acks=all, records of --record-bytes, partitions of three
replicas, each led by the next broker, min.insync.replicas 2; with clients and replicas through the
gate, and with the same brokers at each other's own ports. Both clusters run all the time and take
turns, --warm times each until Java is warm, then --repeats times; all of that --pairs times, for no
two processes of Java compile alike. All share the machine's cores; with --own-core brokers and
client share one, gated or not, and the gate has the others. Aims: while a load goes on, a hold is
set for one round of one follower that is still to come; hit means that this round was held, and
none before it. JSON; processor time is the median of a turn's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from neaptide.clusters.cluster import ClusterSpec, Listeners, TopicSpec
from neaptide.clusters.producer import ProducerOptions
from neaptide.harness.live.stage import Stage
from neaptide.harness.scenarios.systems import client_settings, parse_systems
from neaptide.nemesis.gate.model import Rule

BROKERS: Final = (0, 1, 2)
SETTINGS: Final = {
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "30000",
    # However many turns there are, the disk does not fill.
    "log.segment.bytes": str(64 * 2**20),
    "log.retention.bytes": str(256 * 2**20),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
AHEAD: Final = 40  # rounds from now: far enough to be still to come when the hold is set
LOAD_RATE: Final = 2_000


def spec(partitions: int) -> ClusterSpec:
    """Partition 0 is led by broker 0, the next by the next."""
    replicas = {n: tuple(BROKERS[(n + k) % 3] for k in range(3)) for n in range(partitions)}
    return ClusterSpec(BROKERS, SETTINGS, TopicSpec("t", replicas, {"min.insync.replicas": "2"}))


class DirectStage(Stage):
    """The same, but clients and replicas reach each broker at its own ports."""

    def listeners(self, broker: int) -> Listeners:
        client, replication = self.cluster.ports(broker)
        gated = super().listeners(broker)
        return replace(gated, client_port=client, replication_port=replication)

    def client_address(self, broker: int) -> str:
        return f"127.0.0.1:{self.cluster.ports(broker)[0]}"


@dataclass(frozen=True, slots=True)
class Load:
    """What is produced in one turn."""

    records: int
    record_bytes: int
    partitions: int


def produce(bootstrap: str, settings: dict[str, str], load: Load) -> float:
    """Records a second, from the first that is sent to the last that is acknowledged."""
    value = b"v" * load.record_bytes
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, **settings})
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for n in range(1_000):  # connections, metadata
        producer.produce("t", value, partition=n % load.partitions, on_delivery=delivered)
    producer.flush()
    begun = time.perf_counter()
    for n in range(load.records):
        while True:
            try:
                producer.produce("t", value, partition=n % load.partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush()
    elapsed = time.perf_counter() - begun
    assert not failures, failures[0]
    return load.records / elapsed


def give_the_other_core(pid: int) -> None:
    """Let a process run where this one and all that it has started do not."""
    others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), others)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn came to. `processor_s` by who used it."""

    records_per_s: float
    processor_s: dict[str, float]


def processor_s(stage: Stage, brokers: list[psutil.Process]) -> dict[str, float]:
    """What has been used so far."""
    gate = psutil.Process(stage.gate.process.pid)
    used = {"brokers": brokers, "gate": [gate], "client": [psutil.Process()]}
    return {
        who: sum(sum(process.cpu_times()[:2]) for process in processes)  # user and system
        for who, processes in used.items()
    }


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


async def one_pair(
    system: str, load: Load, *, warm: int, repeats: int, own_core: bool
) -> tuple[list[Turn], list[Turn]]:
    """The turns of two clusters, direct and gated, in the order in which they were measured."""
    [parsed] = parse_systems([system])
    settings = dict(client_settings(parsed))
    turns: dict[Stage, list[Turn]] = {}
    brokers: dict[Stage, list[psutil.Process]] = {}
    async with AsyncExitStack() as stack:
        for kind in (DirectStage, Stage):
            before = children()
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stage = await stack.enter_async_context(kind(directory, parsed, spec(load.partitions)))
            if own_core:
                give_the_other_core(stage.gate.process.pid)
            turns[stage] = []
            brokers[stage] = [each for each in children() - before if each.name() == "java"]
        for number in range(warm + repeats):
            for stage in turns:
                bootstrap = ",".join(stage.client_address(broker) for broker in BROKERS)
                before_s = processor_s(stage, brokers[stage])
                rate = await asyncio.to_thread(produce, bootstrap, settings, load)
                after_s = processor_s(stage, brokers[stage])
                if number >= warm:
                    used = {who: after_s[who] - before_s[who] for who in after_s}
                    turns[stage].append(Turn(rate, used))
    direct, gated = turns.values()
    return direct, gated


def reported(turns: list[Turn]) -> dict[str, Any]:
    """Of all pairs."""
    return {
        "records_per_s": [round(turn.records_per_s) for turn in turns],
        "median_records_per_s": round(statistics.median(turn.records_per_s for turn in turns)),
        "processor_s": {
            who: round(statistics.median(turn.processor_s[who] for turn in turns), 2)
            for who in turns[0].processor_s
        },
    }


async def hits(system: str, aims: int) -> tuple[int, list[str]]:
    """How many of the aimed rounds were held, and what went wrong with the others."""
    with tempfile.TemporaryDirectory() as directory:
        [parsed] = parse_systems([system])
        async with Stage(Path(directory), parsed, spec(1)) as stage:
            await stage.start_clients(ProducerOptions())
            await stage.watch_rounds()
            await stage.clients.do(
                "load", topic="t", partitions=1, acks="all", rate=LOAD_RATE, senders=1
            )
            hit, misses = 0, []
            for number in range(aims):
                problem = await _aim(stage, number)
                hit += problem is None
                if problem is not None:
                    misses.append(problem)
            await stage.clients.do("stop_load")
            return hit, misses


async def _aim(stage: Stage, number: int) -> str | None:
    follower = BROKERS[1 + number % 2]
    key = (follower, "t", 0)
    await stage.until(lambda: key in stage.gate.positions, 30, "the follower fetches")
    target = stage.gate.positions[key].round + AHEAD
    rule = Rule(
        id=f"aim {number}",
        action="hold",
        message="response" if number % 4 < 2 else "request",
        source=0 if number % 4 < 2 else follower,
        destination=follower if number % 4 < 2 else 0,
        where=f"round == {target}",
        times=1,
    )
    await stage.gate.install(rule)
    try:
        [event] = await stage.gate.wait_held(rule.id, timeout_s=20)
    except TimeoutError:
        return f"aim {number}: round {target} was never held"
    finally:
        await stage.gate.release(rule.id)
    held = [partition["round"] for partition in event["partitions"]]
    return None if held == [target] else f"aim {number}: wanted {target}, held {held}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", default="kafka:3.9.1")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--record-bytes", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--aims", type=int, default=100)
    parser.add_argument("--warm", type=int, default=3, help="turns that are not counted")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=3, help="of clusters, one after the other")
    parser.add_argument("--own-core", action="store_true", help="the gate has a core to itself")
    given = parser.parse_args()
    if given.own_core:
        os.sched_setaffinity(0, {0})
    load = Load(given.records, given.record_bytes, given.partitions)
    direct: list[Turn] = []
    gated: list[Turn] = []
    for _ in range(given.pairs):
        pair = one_pair(
            given.system,
            load,
            warm=given.warm,
            repeats=given.repeats,
            own_core=given.own_core,
        )
        for turns, more in zip((direct, gated), asyncio.run(pair), strict=True):
            turns.extend(more)
    hit, misses = asyncio.run(hits(given.system, given.aims))
    of_direct, of_gated = reported(direct), reported(gated)
    cost = 1 - of_gated["median_records_per_s"] / of_direct["median_records_per_s"]
    print(
        json.dumps(
            {
                "system": given.system,
                **asdict(load),
                "gate_has_its_own_core": given.own_core,
                "pairs": given.pairs,
                "direct": of_direct,
                "gated": of_gated,
                "gate_cost": round(cost, 3),
                "aimed_rounds": given.aims,
                "hit": hit,
                "misses": misses,
                "load_average": round(os.getloadavg()[0], 1),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
