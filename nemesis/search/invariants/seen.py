"""What an invariant looks at: one step of a broker, and what was so before it.

Values only; what is asked of them is in the files beside this one, when it is asked in watch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.broker.replication.partition.remote_replica import RemoteReplica
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.looking import deleted_before


class BrokenError(Exception):
    """An invariant does not hold: which, and what was seen."""

    def __init__(self, name: str, evidence: str) -> None:
        super().__init__(f"{name}: {evidence}")
        self.name = name
        self.evidence = evidence


class Record(NamedTuple):
    epoch: int
    value: object


Committed = Mapping[int, Record]  # by offset


class Epochs(NamedTuple):
    leader: int
    controller: int


class Asked(NamedTuple):
    """The replicas that an operator asks for, and how often the assignment was written by then."""

    target: tuple[int, ...]
    writes: int


NO_EPOCHS: Final = Epochs(-1, -1)


@dataclass(slots=True)
class Memory:
    """What was so before the event: values only, replaced and never changed in place."""

    leaders: Mapping[int, int] = field(default_factory=dict)  # leader epoch → who leads in it
    brokers: Mapping[int, Epochs] = field(default_factory=dict)  # of those that run
    registered: Mapping[int, int] = field(
        default_factory=dict
    )  # of those that run: the broker epoch of the first session of the process
    service: Epochs = NO_EPOCHS
    high_watermarks: Mapping[int, int] = field(default_factory=dict)  # of those that run
    committed: Committed = field(default_factory=dict)
    parked: Mapping[int, Mapping[int, object]] = field(default_factory=dict)  # by their requests
    written: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # ISRs, by their version
    asked: Asked | None = None  # a reassignment that is not over
    deleted: Mapping[int, int] = field(default_factory=dict)  # whose log was, by which leader epoch
    asked_in: Mapping[int, int] = field(
        default_factory=dict
    )  # follower → leader epoch, see KIP-101
    remotes: Mapping[int, Mapping[int, RemoteReplica]] = field(default_factory=dict)  # of leaders
    controllers: Mapping[int, Active] = field(default_factory=dict)
    fallen: frozenset[tuple[int, int]] = (
        frozenset()
    )  # controller epoch, epoch of a leader that fell


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a broker: the event it received, what it did, and its partition, if it has it."""

    world: World
    memory: Memory
    broker_id: int
    broker: Broker
    partition: Partition | None
    event: object
    effects: tuple[Effect, ...]


OfStep = Callable[[Step], str | None]
OfService = Callable[[World, Memory], str | None]


def obeys_for_the_process_before(step: Step) -> bool:
    """Whether it leads in an older state than was written when its process registered.

    Up to 2.1 a process that starts again obeys what was sent to the one before it (KIP-380), until
    it learns what holds. That is asked of the generation, not of a mutant of it.
    """
    state = step.world.service.states.get(step.world.partition)
    partition = step.partition
    rules = GENERATIONS[step.broker.rules.name]
    if rules.checks_broker_epochs or state is None or partition is None:
        return False
    registered = step.memory.registered.get(step.broker_id)
    is_older = partition.version < state.version
    return is_older and (registered is None or state.written_at < registered)


# --- logs ----------------------------------------------------------------------------------------


def records_of(world: World, broker_id: int) -> dict[int, Record]:
    """What a broker's disk holds of the partition, by offset."""
    log = world.nodes[broker_id].disk.logs.get(world.partition)
    if log is None:
        return {}
    return {offset: Record(epoch, value) for offset, epoch, value in log.values()}


def begin_alike(world: World, one: int, other: int, end_offset: int) -> bool:
    """Whether two logs hold the same batches up to an offset, as most do: a cheap look."""
    logs = [world.nodes[broker].disk.logs.get(world.partition) for broker in (one, other)]
    if logs[0] is None or logs[1] is None:
        return False
    count = bisect_left(logs[0].batches, end_offset, key=lambda batch: batch.base_offset)
    return logs[0].batches[:count] == logs[1].batches[:count]


def differs(
    world: World, broker_id: int, committed: Committed, end_offset: int, first: int = 0
) -> tuple[int, Record | None] | None:
    """The first committed offset, not before `first`, where a broker's log has something else, or
    nothing."""
    start_offset = max(first, deleted_before(world, broker_id))
    held = records_of(world, broker_id)
    for offset, record in committed.items():
        if start_offset <= offset < end_offset and held.get(offset) != record:
            return offset, held.get(offset)
    return None


def with_committed(step: Step) -> Memory:
    """With what this step's leader has committed that nobody had before."""
    memory, partition = step.memory, step.partition
    committed = memory.committed
    if partition is not None and isinstance(partition.role, Leader):
        first = max(committed, default=-1) + 1
        if partition.high_watermark > first:
            held = records_of(step.world, step.broker_id)
            new = {o: r for o, r in held.items() if first <= o < partition.high_watermark}
            committed = {**committed, **new}
    return replace(memory, committed=committed)
