"""Our broker beside a warm Apache Kafka: one machine, one run, one client, all through the gate.

    python -m tests.benchmarks.broker_on_kafka [--systems S …] [--rows R …] [--turns N]

Three brokers, three replicas, acks=all, min.insync.replicas 2, librdkafka. One system runs at a
time; systems take turns, and each turn starts a new cluster. Kafka gets the heap, the collector and
both compilers that its own scripts give it. Before a rate is measured, every system gets the same
load again and again until its rate rises no more (--warm bounds that); rates of all warm-up loads
are in the output, and whether they had become steady.

start: from nothing to the first acknowledged record. rate: records a second, of 100 bytes and of
1,000, three partitions with a leader on each broker. latency: of 500 records of 1,000 bytes a
second. memory: resident, of the brokers, after those loads. transactions: of one producer, with a
record to each partition, one after the other. groups: from a consumer's subscription to its first
record, and until a second one has its share. failover: from the SIGKILL of a broker
to the first acknowledged record of every partition that it led, one of three; failover-1000: one
third of 1,000. As in every run, the dead broker's session ends at once; with --own-session it takes
its time (6 s for all). JSON on standard output, progress on standard error. A figure that could not
be measured is missing, and `problems` says why.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Consumer, KafkaException, Producer

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.clusters.kafka.properties import USUAL_JAVA
from neaptide.harness.live.stage import Stage
from neaptide.harness.scenarios.systems import (
    KAFKA,
    System,
    client_settings,
    fetch,
    make_cluster,
    parse_system,
)

BROKERS: Final = (0, 1, 2)
VICTIM: Final = 1  # not the first one, which is controller
TOPIC: Final = "t"
SYSTEMS: Final = ("neaptide:2.1", "neaptide:4.0", "kafka:3.9.1", "kafka:4.1.0")
ROWS: Final = (
    *("start", "rate", "latency", "memory", "transactions", "groups", "failover", "failover-1000"),
)
FEW_PARTITIONS: Final = 3
MANY_PARTITIONS: Final = 1_000
RECORD_BYTES: Final = (100, 1_000)
LATENCY_RECORD_BYTES: Final = 1_000
LATENCY_RATE: Final = 500
IN_FLIGHT: Final = 5  # requests of a connection, as Kafka's own client has; what waits is batched
WARM_LOAD_S: Final = 3.0
RISE: Final = 1.03  # a load that is faster by less than this is as fast as the best before
STEADY_LOADS: Final = 2  # so many in a row
SETTINGS: Final = {
    "unclean.leader.election.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    # However many turns there are, the disk does not fill.
    "log.segment.bytes": str(64 * 2**20),
    "log.retention.bytes": str(256 * 2**20),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    # Rebalances are measured, and no delay before them.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
ASK_AGAIN_S: Final = 0.02
SURVIVORS: Final = 4
FAILOVER_WITHIN_S: Final = 120.0
FAILOVER_CLIENT: Final = {
    "retry.backoff.ms": "20",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "50",
    "message.timeout.ms": str(round(FAILOVER_WITHIN_S * 1_000)),
}
UNITS: Final[Mapping[str, tuple[str, bool]]] = {  # and whether more is better
    "start_s": ("seconds", False),
    **{f"records_{size}_bytes_per_s": ("records a second", True) for size in RECORD_BYTES},
    "latency_p50_ms": ("milliseconds", False),
    "latency_p99_ms": ("milliseconds", False),
    "transactions_per_s": ("transactions a second", True),
    "transaction_p50_ms": ("milliseconds", False),
    "transaction_p99_ms": ("milliseconds", False),
    "group_first_record_s": ("seconds", False),
    "group_second_member_s": ("seconds", False),
    "memory_mib": ("MiB of all brokers", False),
    "memory_largest_mib": ("MiB of one broker", False),
    "failover_s": ("seconds", False),
    "failover_1000_s": ("seconds", False),
}


class NotMeasuredError(Exception):
    """Why there is no figure."""


@dataclass(frozen=True, slots=True)
class Given:
    """What was asked for."""

    rows: frozenset[str]
    seconds: float
    warm_s: float
    own_session: bool


@dataclass(slots=True)
class Turn:
    """What one turn of one system came to."""

    figures: dict[str, float] = field(default_factory=dict)
    warm_ups: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


# --- summary, pure --------------------------------------------------------------------------------


def percentile(values: Iterable[float], percent: float) -> float:
    """The least value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def is_steady(rates: Sequence[float]) -> bool:
    """Whether none of the last loads was faster than the best before them."""
    before, last = rates[:-STEADY_LOADS], rates[-STEADY_LOADS:]
    return bool(before) and max(last) < max(before) * RISE


def summary(turns: Sequence[Turn]) -> dict[str, dict[str, Any]]:
    """By figure: of every turn, with median and best."""
    reported = {}
    for name, (unit, more_is_better) in UNITS.items():
        values = [turn.figures[name] for turn in turns if name in turn.figures]
        if values:
            reported[name] = {
                "unit": unit,
                "median": round(statistics.median(values), 4),
                "best": round(max(values) if more_is_better else min(values), 4),
                "turns": [round(value, 4) for value in values],
            }
    return reported


def compared(
    measured: Mapping[str, Mapping[str, Mapping[str, Any]]], own: Iterable[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Medians of ours by the best Kafka's of each figure; a ratio over 1: ours is ahead."""
    own = tuple(own)
    kafkas = [system for system in measured if system not in own]
    reported: dict[str, dict[str, dict[str, Any]]] = {}
    for system in own:
        reported[system] = {}
        for name, (_, more_is_better) in UNITS.items():
            others = {k: measured[k][name]["median"] for k in kafkas if name in measured[k]}
            if name not in measured[system] or not others:
                continue
            best = (max if more_is_better else min)(others, key=lambda k: others[k])
            ours, theirs = measured[system][name]["median"], others[best]
            over, under = (ours, theirs) if more_is_better else (theirs, ours)
            ratio = over / under if under else float("inf")
            reported[system][name] = {
                "best_kafka": best,
                "ratio": round(ratio, 3),
                "ahead": ratio > 1,
            }
    return reported


# --- the client -----------------------------------------------------------------------------------


class Client:
    """librdkafka, acks=all; blocking, so for a thread. One failed record fails the measurement."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str], partitions: int) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "acks": "all", **settings}
        self._partitions = partitions

    def first(self) -> None:
        """Returns when one record is acknowledged."""
        producer = self.producer({})
        errors: list[Any] = []
        producer.produce(TOPIC, b"first", on_delivery=lambda error, _: errors.append(error))
        if producer.flush(90) or errors != [None]:
            raise NotMeasuredError(f"the first record was not acknowledged: {errors}")

    def rate(self, record_bytes: int, seconds: float) -> float:
        """Records a second, from the first that is sent to the last that is acknowledged."""
        failures: list[str] = []
        settings = {
            "linger.ms": 5,
            "queue.buffering.max.messages": 50_000,
            "delivery.report.only.error": True,
        }
        producer = self.producer(settings)
        value, partitions = b"v" * record_bytes, range(self._partitions)

        def send(partition: int) -> None:
            producer.produce(
                TOPIC, value, partition=partition, on_delivery=lambda e, _: failures.append(str(e))
            )

        for partition in partitions:  # connections, metadata
            send(partition)
        if producer.flush(60):
            raise NotMeasuredError("the first records of a load were not acknowledged in 60 s")
        sent, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds and not failures:
            for partition in partitions:
                try:
                    send(partition)
                    sent += 1
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        left = producer.flush(60)
        elapsed = time.perf_counter() - begun
        if failures or left:
            raise NotMeasuredError(f"records of a load were not acknowledged: {failures[:1]}")
        return sent / elapsed

    def latencies_ms(self, seconds: float) -> list[float]:
        """From the call that sends each record to its acknowledgement, at LATENCY_RATE."""
        producer = self.producer({"max.in.flight": IN_FLIGHT})
        value, taken_ms, failures = b"v" * LATENCY_RECORD_BYTES, list[float](), list[str]()

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                taken_ms.append(message.latency() * 1_000)
            else:
                failures.append(str(error))

        begun = time.perf_counter()
        for number in range(round(seconds * LATENCY_RATE)):
            due = begun + number / LATENCY_RATE
            while (left := due - time.perf_counter()) > 0:
                producer.poll(left)
            producer.produce(
                TOPIC, value, partition=number % self._partitions, on_delivery=delivered
            )
        if producer.flush(60) or failures:
            raise NotMeasuredError(f"records at a low rate were not acknowledged: {failures[:1]}")
        return taken_ms

    def transactions_ms(self, seconds: float) -> list[float]:
        """What each took, from its begin to the answer to its commit."""
        producer = self.producer({"transactional.id": "benchmark"})
        producer.init_transactions(60)
        taken_ms, begun = list[float](), time.perf_counter()
        while (now := time.perf_counter()) - begun < seconds:
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(TOPIC, b"v" * RECORD_BYTES[0], partition=partition)
            producer.commit_transaction(60)
            taken_ms.append((time.perf_counter() - now) * 1_000)
        return taken_ms

    def joins_s(self, group: str) -> tuple[float, float]:
        """Until a new member has its first record, and until a second one has partitions."""
        given = {
            "bootstrap.servers": self._settings["bootstrap.servers"],
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,  # by which the first learns of the second
            "log_level": 0,
        }
        members = [Consumer(given) for _ in range(2)]
        taken_s: list[float] = []
        try:
            for number, member in enumerate(members):
                begun = time.perf_counter()
                member.subscribe([TOPIC])
                while not (member.assignment() if number else _has_record(member)):
                    for one in members[: number + 1]:
                        one.poll(0.01)
                    if time.perf_counter() - begun > 60:
                        raise NotMeasuredError("a member of a group got nothing in 60 s")
                taken_s.append(time.perf_counter() - begun)
        finally:
            for member in members:
                member.close()
        return taken_s[0], taken_s[1]

    def producer(self, more: Mapping[str, Any]) -> Any:
        """With linger.ms 0, and `more` of librdkafka's settings. It logs nothing."""
        return Producer({**self._settings, "linger.ms": 0, "log_level": 0, **more})


def _has_record(consumer: Any) -> bool:
    message = consumer.poll(0.01)
    return message is not None and message.error() is None


class Survivors:
    """Producers that go on through the death of a broker, and send one record to each partition.

    librdkafka by itself looks once a second for leaders that it has lost; here one after the other
    is made to ask, one in 20 ms, so that their waiting is no part of the figure. They are several
    because Kafka answers one request of a connection at a time, and librdkafka makes one request
    for each partition.
    """

    def __init__(self, client: Client, partitions: Sequence[int]) -> None:
        self._partitions = tuple(partitions)
        count = min(SURVIVORS, len(self._partitions))
        self._producers = [client.producer(FAILOVER_CLIENT) for _ in range(count)]

    def send_to_all(self) -> float:
        """The moment (time.perf_counter) at which the last partition acknowledged its record."""
        acknowledged: dict[int, float] = {}
        failures: list[str] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acknowledged[message.partition()] = time.perf_counter()
            else:
                failures.append(str(error))

        asking = itertools.cycle(self._producers)
        for partition in self._partitions:
            producer = self._producers[partition % len(self._producers)]
            try:
                producer.produce(TOPIC, b"v", partition=partition, on_delivery=delivered)
            except KafkaException as error:
                raise NotMeasuredError(f"partition {partition} is not known: {error}") from error
        deadline = time.monotonic() + FAILOVER_WITHIN_S
        while len(acknowledged) + len(failures) < len(self._partitions):
            if time.monotonic() > deadline:
                break
            if not sum(producer.poll(0) for producer in self._producers):
                asked = next(asking)
                if not asked.poll(ASK_AGAIN_S):
                    with contextlib.suppress(KafkaException):  # nobody may answer just now
                        asked.list_topics(TOPIC, timeout=1)
        missing = len(self._partitions) - len(acknowledged)
        if missing:
            raise NotMeasuredError(f"{missing} partitions acknowledged nothing: {failures[:1]}")
        return max(acknowledged.values())

    def rounds_until_steady(self, within_s: float) -> dict[str, Any]:
        """So often a record to each partition, until that goes no faster; once at least."""
        rates: list[float] = []
        now = time.monotonic()
        while not is_steady(rates) and (not rates or time.monotonic() < now + within_s):
            begun = time.perf_counter()
            try:
                rates.append(len(self._partitions) / (self.send_to_all() - begun))
            except NotMeasuredError:  # not all brokers know the new topic yet
                if rates or time.monotonic() > now + FAILOVER_WITHIN_S:
                    raise
                time.sleep(ASK_AGAIN_S)
        return _reported(rates)


def _reported(rates: Sequence[float]) -> dict[str, Any]:
    return {"steady": is_steady(rates), "records_per_s": [round(rate) for rate in rates]}


# --- the cluster ----------------------------------------------------------------------------------


def spec(partitions: int) -> ClusterSpec:
    """Partition 0 is led by broker 0, the next by the next."""
    replicas = {n: tuple(BROKERS[(n + k) % 3] for k in range(3)) for n in range(partitions)}
    return ClusterSpec(BROKERS, SETTINGS, TopicSpec(TOPIC, replicas, {"min.insync.replicas": "2"}))


class UsualStage(Stage):
    """A Kafka in it has the heap and the compilers that Kafka usually has."""

    def __init__(self, run: Path, system: System, wanted: ClusterSpec) -> None:
        super().__init__(run, system, wanted)
        self.cluster = make_cluster(system, self.machines, run, wanted, USUAL_JAVA)


def resident_mib(stage: Stage) -> list[float]:
    """Of each broker, with what it has started."""
    sizes = []
    for running in stage.host.running:
        if running.spec.name.startswith("broker "):
            process = psutil.Process(running.pid)
            family = (process, *process.children(recursive=True))
            sizes.append(sum(each.memory_info().rss for each in family) / 2**20)
    return sizes


async def failover(
    stage: Stage, client: Client, *, warm_s: float, own_session: bool
) -> tuple[float, dict[str, Any]]:
    """Seconds from the SIGKILL to the last of the first acknowledgements, and how it was warmed."""
    led = [
        partition
        for partition in stage.spec.topic.assignment
        if (view := stage.view(partition)) is not None and view.leader == VICTIM
    ]
    if not led:
        raise NotMeasuredError(f"broker {VICTIM} leads nothing")
    survivors = Survivors(client, led)
    warm_up = await asyncio.to_thread(survivors.rounds_until_steady, warm_s)
    await stage.gate.sever(VICTIM)
    stage.sever(VICTIM)
    begun = time.perf_counter()
    await stage.cluster.kill(VICTIM)

    async def bury() -> None:
        await stage.gate.bury(VICTIM, "discarded")
        if not own_session:
            await stage.cluster.forget_session(VICTIM)

    ended, _ = await asyncio.gather(asyncio.to_thread(survivors.send_to_all), bury())
    return ended - begun, warm_up


async def warm(client: Client, record_bytes: int, within_s: float) -> dict[str, Any]:
    """Loads until the rate rises no more."""
    rates: list[float] = []
    deadline = time.monotonic() + within_s
    while not is_steady(rates) and time.monotonic() < deadline:
        rates.append(await asyncio.to_thread(client.rate, record_bytes, WARM_LOAD_S))
    return _reported(rates)


# --- turns ----------------------------------------------------------------------------------------


async def turn_with_few(system: System, given: Given, turn: Turn) -> None:
    """All rows but failover-1000."""
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        async with UsualStage(Path(directory), system, spec(FEW_PARTITIONS)) as stage:
            client = Client(stage.bootstrap, client_settings(system), FEW_PARTITIONS)
            await asyncio.to_thread(client.first)
            turn.figures["start_s"] = time.perf_counter() - begun
            for size in RECORD_BYTES if given.rows & {"rate", "memory"} else ():
                turn.warm_ups[f"{size} bytes"] = await warm(client, size, given.warm_s)
                rate = await asyncio.to_thread(client.rate, size, given.seconds)
                turn.figures[f"records_{size}_bytes_per_s"] = rate
            if "latency" in given.rows:
                await asyncio.to_thread(client.latencies_ms, given.seconds)  # warm
                taken_ms = await asyncio.to_thread(client.latencies_ms, given.seconds)
                turn.figures["latency_p50_ms"] = percentile(taken_ms, 50)
                turn.figures["latency_p99_ms"] = percentile(taken_ms, 99)
            if "transactions" in given.rows:
                await asyncio.to_thread(client.transactions_ms, given.seconds)  # warm
                taken_ms = await asyncio.to_thread(client.transactions_ms, given.seconds)
                turn.figures["transactions_per_s"] = 1_000 * len(taken_ms) / sum(taken_ms)
                turn.figures["transaction_p50_ms"] = percentile(taken_ms, 50)
                turn.figures["transaction_p99_ms"] = percentile(taken_ms, 99)
            if "groups" in given.rows:
                await asyncio.to_thread(client.joins_s, "warm")
                first_s, second_s = await asyncio.to_thread(client.joins_s, "measured")
                turn.figures["group_first_record_s"] = first_s
                turn.figures["group_second_member_s"] = second_s
            if "memory" in given.rows:
                each = resident_mib(stage)
                turn.figures["memory_mib"] = sum(each)
                turn.figures["memory_largest_mib"] = max(each)
            if "failover" in given.rows:
                turn.figures["failover_s"], _ = await failover(
                    stage, client, warm_s=0, own_session=given.own_session
                )


async def turn_with_many(system: System, given: Given, turn: Turn) -> None:
    """failover-1000."""
    with tempfile.TemporaryDirectory() as directory:
        async with UsualStage(Path(directory), system, spec(MANY_PARTITIONS)) as stage:
            client = Client(stage.bootstrap, client_settings(system), MANY_PARTITIONS)
            turn.figures["failover_1000_s"], warm_up = await failover(
                stage, client, warm_s=given.warm_s, own_session=given.own_session
            )
            turn.warm_ups["one record for each partition"] = warm_up


async def one_turn(system: System, given: Given) -> Turn:
    turn = Turn()
    parts = []
    if given.rows - {"failover-1000"}:
        parts.append(turn_with_few)
    if "failover-1000" in given.rows:
        parts.append(turn_with_many)
    for part in parts:
        try:
            await part(system, given, turn)
        except Exception as error:  # the other turns are measured none the less
            turn.problems.append(f"{system}: {type(error).__name__}: {error}")
    return turn


def measure(systems: Sequence[System], given: Given, turns: int) -> dict[str, Any]:
    """Every turn begins with another system."""
    done: dict[str, list[Turn]] = {str(system): [] for system in systems}
    for number in range(turns):
        first = number % len(systems)
        for system in (*systems[first:], *systems[:first]):
            turn = asyncio.run(one_turn(system, given))
            done[str(system)].append(turn)
            figures = {name: round(value, 3) for name, value in turn.figures.items()}
            print(f"turn {number + 1} {system} {figures}", *turn.problems, file=sys.stderr)
    measured = {name: summary(of_one) for name, of_one in done.items()}
    own = [str(system) for system in systems if system.kind != KAFKA]
    return {
        "systems": measured,
        "ours_by_the_best_kafka": compared(measured, own),
        "warm_ups": {name: [turn.warm_ups for turn in of_one] for name, of_one in done.items()},
        "problems": [problem for of_one in done.values() for t in of_one for problem in t.problems],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measured load")
    parser.add_argument("--turns", type=int, default=3, help="of each system")
    parser.add_argument("--warm", type=float, default=60.0, help="at most so many seconds a load")
    parser.add_argument("--own-session", action="store_true", help="a dead broker's ends by itself")
    options = parser.parse_args()
    systems = [parse_system(name) for name in options.systems]
    for system in systems:
        fetch(system)
    given = Given(frozenset(options.rows), options.seconds, options.warm, options.own_session)
    load_before = round(os.getloadavg()[0], 2)
    report = measure(systems, given, options.turns)
    head = {
        "benchmark": "broker_on_kafka",
        "cores": os.cpu_count(),
        "load_average_before": load_before,
        "seconds": options.seconds,
        "turns": options.turns,
        "session": "ends by itself" if options.own_session else "ends with the broker",
    }
    print(json.dumps({**head, **report}, indent=2))


if __name__ == "__main__":
    main()
