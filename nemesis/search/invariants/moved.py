"""Invariants of partitions that operators move: what they asked for ends, or is still asked for.

Each looks at the service, and answers with what it saw where it is broken. Their names and
sentences are in the table.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.model import NO_LEADER
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants.seen import Asked, Memory
from neaptide.nemesis.search.observed import assigned


def asked_for(world: World, memory: Memory) -> Asked | None:
    """What `/admin/reassign_partitions` says of the partition, and what was written by then."""
    target = world.service.reassignments.get(world.partition)
    if target is None:
        return None
    known = memory.asked
    is_known = known is not None and known.target == target
    return known if is_known else Asked(target, _writes(world))


def _writes(world: World) -> int:
    return world.service.assignment_writes.get(world.partition, 0)


def reassignment_is_remembered(world: World, memory: Memory) -> str | None:
    """What cannot be is taken out of the znode before anything is begun."""
    asked = memory.asked
    if asked is None or world.partition in world.service.reassignments:
        return None
    now, topic = assigned(world, world.partition), world.service.topics[world.partition.topic]
    number = world.partition.partition
    goes_on = topic.adding.get(number) or topic.removing.get(number)  # as it says itself (KIP-455)
    if goes_on or now == asked.target or _writes(world) == asked.writes:
        return None
    return f"nobody asks for {asked.target} any more, and the partition has {now}"


def leader_is_a_replica(world: World, memory: Memory) -> str | None:
    state = world.service.states.get(world.partition)
    if state is None or state.leader == NO_LEADER:
        return None
    replicas = assigned(world, world.partition)
    if state.leader in replicas:
        return None
    return f"{state.leader} leads in epoch {state.leader_epoch}, and {replicas} are replicas"
