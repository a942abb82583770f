"""What a search sees of commits without ending a world: where what was acknowledged still is.

All of it is read from disks, as `danger` and `is_suspect` do it for records (explore).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from neaptide.clusters.broker.replication.group.committed_offsets import (
    INVALID_OFFSET,
    OffsetAndMetadata,
    partition_for,
)
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.observed import assigned


def copies(world: World) -> int | None:
    """In how many logs of ISR members the worst off of the acknowledged commits is; None: there
    is none."""
    counts = []
    for group, partition, offset in _acknowledged(world):
        of = _partition_of(world, group)
        state = world.service.states.get(of)
        members = state.isr if state is not None else ()
        counts.append(sum(_position(world, b, of, group, partition) >= offset for b in members))
    return min(counts, default=None)


def is_lost(world: World) -> bool:
    """Whether a coordinator has, in its log, less than was acknowledged to its group."""
    for group, partition, offset in _acknowledged(world):
        of = _partition_of(world, group)
        state = world.service.states.get(of)
        if state is None or state.leader == NO_LEADER:
            continue
        if _position(world, state.leader, of, group, partition) < offset:
            return True
    return False


def abstract(world: World) -> Hashable:
    """What two worlds have in common whose commits are not worth a distinction."""
    if not world.spec.internal_topics:
        return None
    return tuple(
        _of_partition(world, TopicPartition(topic, number))
        for topic, number in sorted(world.service.states)
        if topic != world.spec.topic
    )


def _of_partition(world: World, of: TopicPartition) -> Hashable:
    """Where logs and high watermarks are, from the end of the longest log on."""
    state = world.service.states[of]
    ends = {broker: _end(world, broker, of) for broker in assigned(world, of)}
    end = max(ends.values())
    marks = []
    for broker, log_end in ends.items():
        live = world.brokers.get(broker)
        held = live.partitions.get(of) if live else None
        stored = world.disks[broker].high_watermarks.get(of, 0)
        marks.append((log_end - end, (held.high_watermark if held else stored) - end))
    return (state.leader, state.isr, min(end, 3), tuple(marks), copies(world))


def _end(world: World, broker: int, of: TopicPartition) -> int:
    log = world.disks[broker].logs.get(of)
    return log.end_offset if log else 0


def _acknowledged(world: World) -> Iterator[tuple[str, TopicPartition, int]]:
    for (group, number), offset in world.clients.committed.items():
        yield group, TopicPartition(world.spec.topic, number), offset


def _partition_of(world: World, group: str) -> TopicPartition:
    assert world.spec.offsets is not None
    return partition_for(group, len(world.spec.offsets.assignment))


def _position(
    world: World, broker: int, of: TopicPartition, group: str, partition: TopicPartition
) -> int:
    log = world.disks[broker].logs.get(of)
    none = OffsetAndMetadata(INVALID_OFFSET)
    return (log.committed_offsets if log else {}).get((group, partition), none).offset
