"""The watch on a world: asks every invariant after every event.

What it costs grows with the square of what is written, for all committed records are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TypeVar

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import fetches, leadership
from neaptide.nemesis.search.invariants.leadership import epochs_of, service_epochs
from neaptide.nemesis.search.invariants.moved import asked_for
from neaptide.nemesis.search.invariants.seen import (
    NO_EPOCHS,
    BrokenError,
    Memory,
    OfService,
    OfStep,
    Step,
    with_committed,
)
from neaptide.nemesis.search.invariants.table import INVARIANTS
from neaptide.nemesis.search.looking import all_partitions, looking_at

T = TypeVar("T")


class Watch:
    """Asks the invariants after every event; raises BrokenError for those that may not break."""

    __slots__ = ("allowed", "memory", "others")

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self.allowed = allowed
        self.memory = Memory()  # of the first partition
        self.others: dict[TopicPartition, Memory] = {}

    def copy(self) -> Watch:
        other = Watch(self.allowed)
        other.memory = replace(self.memory)
        other.others = {tp: replace(memory) for tp, memory in self.others.items()}
        return other

    def _each(self, world: World, ask: Callable[[], None]) -> None:
        """Asks about every partition, each with the memory of its own."""
        ask()
        for partition in all_partitions(world)[1:]:
            first, self.memory = self.memory, self.others.get(partition) or Memory()
            try:
                with looking_at(world, partition):
                    ask()
            finally:
                self.others[partition], self.memory = self.memory, first

    def begin(self, world: World) -> None:
        """Remembers a world that is going on already."""
        self._each(world, lambda: self._begin(world))

    def _begin(self, world: World) -> None:
        for broker_id, broker in world.brokers.items():
            partition = broker.partitions.get(world.partition)
            step = Step(world, self.memory, broker_id, broker, partition, None, ())
            self.memory = _remember(step)
        self._note_service(world)

    def _note_written(self, world: World) -> None:
        state = world.service.states.get(world.partition)
        if state is not None and state.version not in self.memory.written:
            self.memory.written = {**self.memory.written, state.version: state.isr}

    def started(self, world: World, broker_id: int) -> None:
        """A new process knows no epoch, and nobody waits for it.

        Where all brokers died together, the last leader leads on in its old epoch, from the high
        watermark that it last checkpointed: so a leader is a process here.
        """
        for memory in (self.memory, *self.others.values()):
            memory.brokers = _without(memory.brokers, broker_id)
            memory.parked = _without(memory.parked, broker_id)
            memory.high_watermarks = _without(memory.high_watermarks, broker_id)
            memory.asked_in = _without(memory.asked_in, broker_id)
            memory.remotes = _without(memory.remotes, broker_id)
            memory.controllers = _without(memory.controllers, broker_id)
            memory.registered = _without(memory.registered, broker_id)

    def handled(
        self, world: World, broker_id: int, event: object, done: tuple[Effect, ...]
    ) -> None:
        self._each(world, lambda: self._reported(world, broker_id, event, done))

    def _reported(
        self, world: World, broker_id: int, event: object, done: tuple[Effect, ...]
    ) -> None:
        broker = world.brokers[broker_id]
        partition = broker.partitions.get(world.partition)
        step = Step(world, self.memory, broker_id, broker, partition, event, done)
        for name, of_step in _asked_of_steps(self.allowed):
            seen = of_step(step)
            if seen is not None:
                raise BrokenError(name, seen)
        self.memory = _remember(step)

    def served(self, world: World) -> None:
        self._each(world, lambda: self._served(world))

    def _served(self, world: World) -> None:
        for name, of_service in _asked_of_services(self.allowed):
            seen = of_service(world, self.memory)
            if seen is not None:
                raise BrokenError(name, seen)
        self._note_service(world)

    def _note_service(self, world: World) -> None:
        self.memory.service = service_epochs(world)
        self.memory.asked = asked_for(world, self.memory)
        self._note_written(world)


@cache
def _asked_of_steps(allowed: frozenset[str]) -> tuple[tuple[str, OfStep], ...]:
    return tuple((i.name, i.of_step) for i in INVARIANTS if i.of_step and i.name not in allowed)


@cache
def _asked_of_services(allowed: frozenset[str]) -> tuple[tuple[str, OfService], ...]:
    asked = (one for one in INVARIANTS if one.name not in allowed)
    return tuple((one.name, one.of_service) for one in asked if one.of_service)


def _without(by_broker: Mapping[int, T], broker_id: int) -> dict[int, T]:
    return {broker: one for broker, one in by_broker.items() if broker != broker_id}


def _parked(broker: Broker) -> Mapping[int, object]:
    """Also what waits for a transaction coordinator: it is not in any log yet."""
    verified = {one.event.request: one for one in broker.verifying.values()}
    return {**broker.delayed, **verified} if verified else dict(broker.delayed)


def _remember(step: Step) -> Memory:
    memory, partition, broker_id = with_committed(step), step.partition, step.broker_id
    memory.brokers = {**memory.brokers, broker_id: epochs_of(step)}
    memory.parked = {**memory.parked, broker_id: _parked(step.broker)}
    epoch = step.broker.broker_epoch
    if epoch is not None and broker_id not in memory.registered:
        memory.registered = {**memory.registered, broker_id: epoch}
    had = step.memory.brokers.get(broker_id, NO_EPOCHS).leader
    if partition is None and had != NO_EPOCHS.leader:
        memory.deleted = {**memory.deleted, broker_id: memory.service.leader}
    asked_in = fetches.asked_in(step)
    if asked_in is not None:
        memory.asked_in = {**memory.asked_in, broker_id: asked_in}
    memory.fallen |= leadership.fallen_leaders(step)
    active = step.broker.active_controller
    if active is not None:
        memory.controllers = {**memory.controllers, broker_id: active}
    if partition is not None and isinstance(partition.role, Leader):
        memory.leaders = {**memory.leaders, partition.leader_epoch: broker_id}
        memory.remotes = {**memory.remotes, broker_id: partition.role.remotes}
    if partition is not None:
        marks = {**memory.high_watermarks, broker_id: partition.high_watermark}
        memory.high_watermarks = marks
    return memory
