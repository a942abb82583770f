"""Which partition of a world is looked at, and what was promised to clients in it.

A world looks at its partition 0 unless another is named here; what is looked at decides nothing of
what happens. Not what is wrong with it: see judge, explore and invariants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.world import World


def all_partitions(world: World) -> tuple[TopicPartition, ...]:
    """Of the world's topic."""
    spec = world.spec
    return tuple(TopicPartition(spec.topic, number) for number in spec.configuration.assignment)


@contextmanager
def looking_at(world: World, partition: TopicPartition) -> Iterator[None]:
    """For as long as it lasts; no event happens meanwhile."""
    before, world.partition = world.partition, partition
    try:
        yield
    finally:
        world.partition = before


def each(world: World) -> Iterator[World]:
    """The world, looking at one partition after the other."""
    for partition in all_partitions(world):
        with looking_at(world, partition):
            yield world


def promised(world: World) -> Mapping[str, int | None]:
    """What was acknowledged in this partition, in a way that is a promise here: by its offset."""
    clients, acks = world.clients, world.spec.acks_promised
    if acks is None and len(world.spec.configuration.assignment) == 1:
        return clients.acked
    number = world.partition.partition
    return {
        value: offset
        for value, offset in clients.acked.items()
        if (send := clients.sends[value][0]).partition == number
        and (acks is None or send.acks in acks)
    }


def read(world: World) -> Iterator[tuple[int, str]]:
    """(offset, value) of what consumers read of this partition before the end."""
    number = world.partition.partition
    for poll in world.clients.polls:
        if poll.partition == number and poll.phase == "main":
            yield from poll.records


def deleted_before(world: World, broker_id: int) -> int:
    """Where a broker's log starts, as far as retention has deleted what was before.

    A log start that no retention made hides nothing.
    """
    log = world.nodes[broker_id].disk.logs.get(world.partition)
    if log is None or not log.start_offset:
        return 0
    return min(log.start_offset, world.deleted_before(world.partition))
