"""How every run ends: heal, wait until the replicas are level, read to the end, read the disks.

What cannot be reached is said, never passed over: a run whose replicas never became level, or
whose final reads stopped short, is unknown by what is written here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

from neaptide.clusters.cluster import TopicSpec
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.observed import StageObserved
from neaptide.harness.live.stage import Stage
from neaptide.nemesis.steps import record_of
from neaptide.results.run import Converged, FinalRead
from neaptide.results.schema import REPLICAS
from neaptide.results.tables import write_table

LEVEL_WITHIN_S = 60.0
READ_WITHIN_S = 120.0
_LOOK_S = 0.25  # nothing reports that a listener is closed
_LAST = "0/last"  # a value that means nothing to any workload; to `bank`, no money
_LAST_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Ending:
    converged: Converged
    final_reads: tuple[FinalRead, ...]
    replicas_written: bool


async def heal_all(stage: Stage, faults: Faults, rules: tuple[str, ...]) -> None:
    """Releases held messages, heals cuts, resumes and starts brokers that are down."""
    state = await stage.gate.state()
    known = {str(rule["rule"]) for rule in state["rules"]} | {
        str(event["rule"]) for event in stage.gate.held.values()
    }
    for rule in rules:
        if rule in known:
            await faults.release(rule)
    for broker in sorted(stage.paused):
        await faults.resume(broker)
    await faults.heal()
    await faults.heal_machines()
    for node in stage.nodes:
        if not stage.cluster.is_up(node):
            await faults.restart(node)


async def end(stage: Stage) -> Ending:
    """After healing: convergence, final reads, replica logs.

    Of a cluster that is just used nobody sees the wire, or a disk: it is as level as it says, has
    one record more in each partition, and goes on.
    """
    await stage.watch_rounds()
    converged = await _converge(stage)
    if stage.cluster.managed:
        final_reads = await _read_all(stage)
    else:
        final_reads = await _read_behind_last(stage)
    if not await _ask_groups(stage):
        final_reads = tuple(replace(read, reached=False) for read in final_reads)
    await stage.clients.do("flush")
    await stage.gate.flush()
    if not stage.cluster.managed:
        return Ending(converged, final_reads, replicas_written=False)
    await _stop_all(stage)
    rows = [
        row
        for broker in sorted(stage.spec.brokers)
        for row in await stage.cluster.read_replicas(broker)
    ]
    names = [field.name for field in REPLICAS]
    written = write_table(
        stage.run / "replicas", REPLICAS, (tuple(row[name] for name in names) for row in rows)
    )
    for writer, count in written.items():
        stage.account.wrote("replicas", writer, count)
    return Ending(converged, final_reads, replicas_written=True)


async def _converge(stage: Stage) -> Converged:
    partitions = [
        (topic, partition, StageObserved(stage, partition, topic))
        for topic, partition in _partitions(stage)
    ]

    def is_level(one: tuple[TopicSpec, int, StageObserved]) -> bool:
        topic, partition, observed = one
        view = stage.view(partition, topic.name)
        return (
            view is not None
            and view.leader is not None
            and set(view.isr) == set(topic.assignment[partition])
            and (not stage.cluster.managed or observed.settled_at(0))
        )

    withdrawn = asyncio.create_task(first_withdrawn(stage))
    try:
        await stage.until(
            lambda: withdrawn.done() or all(map(is_level, partitions)),
            LEVEL_WITHIN_S,
            "every replica is in the ISR and level",
        )
    except TimeoutError as error:
        late = [one for one in partitions if not is_level(one)]
        return Converged(False, f"{error}: {'; '.join(_lag(stage, *one[:2]) for one in late)}")
    finally:
        withdrawn.cancel()
        await asyncio.wait([withdrawn])
    return Converged(True) if withdrawn.cancelled() else Converged(False, withdrawn.result())


def _partitions(stage: Stage) -> list[tuple[TopicSpec, int]]:
    return [(topic, number) for topic in stage.spec.topics for number in sorted(topic.assignment)]


def _lag(stage: Stage, topic: TopicSpec, partition: int) -> str:
    """What a partition lacks, as the coordination service knows it."""
    named = f"partition {partition}" + (f" of {topic.name}" if stage.spec.more else "")
    view = stage.view(partition, topic.name)
    if view is None or view.leader is None:
        return f"{named} has no leader"
    out = sorted(set(topic.assignment[partition]) - set(view.isr))
    if not out:
        return f"{named} has a replica that is not level"
    brokers = ", ".join(map(str, out))
    return f"{named} lacks {'broker' if len(out) == 1 else 'brokers'} {brokers}"


async def first_withdrawn(stage: Stage) -> str:
    """Returns when a broker that listened does so no longer, although it is registered and runs.

    It has given up, and will never be level: Kafka before 0.11 waits for itself for ever when a
    follower is ahead of its leader.
    """
    listened: set[int] = set()
    while True:
        for broker in stage.spec.brokers:
            if await stage.is_listening(broker):
                listened.add(broker)
            elif broker in listened & stage.observer.registered and stage.cluster.is_up(broker):
                log = stage.cluster.logs()[f"broker-{broker}"]
                return f"broker {broker} listens no longer although it runs: see {log}"
        await asyncio.sleep(_LOOK_S)


async def _read_all(stage: Stage) -> tuple[FinalRead, ...]:
    reads = []
    for topic, partition in _partitions(stage):
        result = await stage.clients.do(
            "consume",
            topic=topic.name,
            partition=partition,
            phase="final",
            end=None,
            deadline_s=READ_WITHIN_S,
        )
        reads.append(
            FinalRead(
                topic.name,
                partition,
                result["end"],
                bool(result["reached"]),
                result["start"],
            )
        )
    return tuple(reads)


async def _read_behind_last(stage: Stage) -> tuple[FinalRead, ...]:
    """Where nobody sees the wire the end that a leader reports may be one that it will yet raise.

    So each partition gets one more record. When that is acknowledged by all, whatever was
    acknowledged before is committed too, or is gone; and reads that have it have come to the end.
    """
    last = {
        (topic.name, partition): f"{_LAST}-{topic.name}-{partition}"
        for topic, partition in _partitions(stage)
    }
    for (topic, partition), value in last.items():
        await stage.clients.do(
            "produce", topic=topic, partition=partition, acks="all", values=[value]
        )
    acked = stage.sends.acked
    with suppress(TimeoutError):
        await stage.until(
            lambda: all(record_of(value) in acked for value in last.values()),
            _LAST_WITHIN_S,
            "a last record of each partition is acknowledged",
        )
    reads = await _read_all(stage)
    return tuple(
        replace(read, reached=read.reached and is_behind(read, acked.get(record_of(value))))
        for read in reads
        for value in (last[read.topic, read.partition],)
    )


def is_behind(read: FinalRead, last: int | None) -> bool:
    """Whether a final read came further than the last record, which was acknowledged at `last`."""
    return last is not None and read.end_offset is not None and read.end_offset > last


async def _ask_groups(stage: Stage) -> bool:
    """Whether it is known where every group goes on that has committed anything."""
    for group, partition in sorted(stage.sends.committed):
        result = await stage.clients.do(
            "position",
            group=group,
            topic=stage.spec.topic.name,
            partition=partition,
            deadline_s=READ_WITHIN_S,
        )
        if not result["known"]:
            return False
    return True


async def _stop_all(stage: Stage) -> None:
    """All at one moment, so that no election changes a log any more; nothing written is lost."""
    for broker in stage.spec.brokers:
        stage.sever(broker)
        await stage.gate.sever(broker)
    await stage.cluster.remember()
    for broker in stage.spec.brokers:
        if stage.cluster.is_up(broker):
            await stage.cluster.kill(broker)
