"""Each invariant sees the world that breaks it, and none sees anything where nothing is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.partition.partition_rules import (
    CommittedIsr,
    Leader,
    Partition,
)
from neaptide.clusters.simulation import faults, producing
from neaptide.clusters.simulation.network import Hold
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.ending import end
from neaptide.nemesis.search.invariants import INVARIANTS, SENTENCES, BrokenError, Watch
from tests.simulation.worlds import A, B, C, ready, run_for, until


def _watch(world: World, *allowed: str) -> None:
    watch = Watch(frozenset(allowed))
    watch.begin(world)
    world.watch = watch


def _watched(generation: str = "2.1") -> World:
    world = ready(generation)
    _watch(world)
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: "m1" in world.clients.acked)
    run_for(world, 600)
    return world


def _put(world: World, broker: int, change: Callable[[Partition], Partition]) -> None:
    held = world.brokers[broker].partitions
    held[world.partition] = change(held[world.partition])


def _led_by_two(world: World) -> None:
    role = world.brokers[C].partitions[world.partition].role
    _put(world, B, lambda partition: replace(partition, role=role))


def _leader_outside(world: World) -> None:
    def without_leader(partition: Partition) -> Partition:
        assert isinstance(partition.role, Leader)
        return replace(partition, role=replace(partition.role, isr=CommittedIsr((A, B))))

    _put(world, C, without_leader)


def _older_controller(world: World) -> None:
    world.brokers[B].controller_epoch -= 1


def _shorter_disk(world: World) -> None:
    world.disks[C].logs[world.partition].cut(0)


def _nobody_watches(world: World) -> None:
    """Of the two fetches that are parked, the later one is forgotten."""
    watchers = world.brokers[C].watchers
    watchers[world.partition] = watchers[world.partition][:1]


BREAKS: dict[str, Callable[[World], None]] = {
    "single-leader-per-epoch": _led_by_two,
    "monotonic-leader-epoch": lambda world: _put(
        world, B, lambda partition: replace(partition, leader_epoch=-1)
    ),
    "monotonic-controller-epoch": _older_controller,
    "high-watermark-in-log": lambda world: _put(
        world, C, lambda partition: replace(partition, high_watermark=9)
    ),
    "leader-in-isr": _leader_outside,
    "isr-of-replicas": lambda world: _put(
        world, C, lambda partition: replace(partition, assigned=(C, B))
    ),
    "core-and-disk-agree": _shorter_disk,
    "parked-is-watched": _nobody_watches,
}


@pytest.mark.parametrize("name", BREAKS)
def test_an_invariant_is_broken_at_the_next_event(name: str) -> None:
    world = _watched()
    BREAKS[name](world)
    with pytest.raises(BrokenError) as broken:
        run_for(world, 6_000)
    assert broken.value.name == name


def test_a_member_of_the_isr_that_has_lost_a_committed_record_is_seen() -> None:
    world = _watched()
    world.disks[A].logs[world.partition].cut(0)
    assert world.watch is not None
    with pytest.raises(BrokenError) as broken:
        world.watch.served(world)
    assert broken.value.name == "strong-isr"
    assert "m1" in str(broken.value)


def test_what_a_generation_may_break_is_not_asked() -> None:
    world = _watched()
    _watch(world, "leader-in-isr", "isr-as-written", "written-isr-is-counted")
    _leader_outside(world)
    run_for(world, 600)


@pytest.mark.parametrize("generation", ["0.10", "2.1", "4.0"])
def test_nothing_is_broken_where_brokers_die_and_return(generation: str) -> None:
    world = _watched(generation)
    for broker in (C, A):
        faults.kill(world, broker)
        producing.produce(world.clients, f"after {broker}", acks=-1)
        run_for(world, 3_000)
        faults.restart(world, broker)
        run_for(world, 3_000)
    assert end(world).level


def test_a_replica_that_is_deleted_may_come_back_in_a_later_epoch_only() -> None:
    world = _watched("2.8")
    for replicas in ((C, B), (C, B, A)):
        world.network.notify(world.service.reassign({world.partition: replicas}))
        run_for(world, 20_000)
        holds = [one for one in (A, B, C) if world.partition in world.brokers[one].partitions]
        assert holds == sorted(replicas)
    _put(world, A, lambda partition: replace(partition, leader_epoch=0))
    with pytest.raises(BrokenError, match="monotonic-leader-epoch"):
        run_for(world, 6_000)


@pytest.mark.parametrize("is_in_isr", [False, True])
def test_a_leader_may_not_know_yet_that_a_replica_was_reassigned_away(is_in_isr: bool) -> None:
    world = _watched("2.8")
    faults.hold(world, Hold("state", "request", "leader_and_isr", A, C))
    faults.hold(world, Hold("metadata", "request", "update_metadata", A, C))
    world.network.notify(world.service.reassign({world.partition: (B, C)}))
    run_for(world, 3_000)
    producing.produce(world.clients, "m2", acks=1)
    run_for(world, 3_000)
    leader = world.brokers[C].partitions[world.partition].role
    assert isinstance(leader, Leader)
    assert A in leader.isr.isr
    assert world.partition not in world.disks[A].logs
    if is_in_isr:
        state = world.service.states[world.partition]
        world.service.states[world.partition] = replace(state, isr=(C, A))
        with pytest.raises(BrokenError, match="weak-isr"):
            run_for(world, 3_000)


def test_a_copy_remembers_for_itself() -> None:
    world = _watched()
    other = world.copy()
    producing.produce(other.clients, "m2", acks=-1)
    until(other, lambda: "m2" in other.clients.acked)
    assert isinstance(world.watch, Watch)
    assert isinstance(other.watch, Watch)
    assert [len(one.memory.committed) for one in (world.watch, other.watch)] == [1, 2]


def test_every_invariant_is_one_sentence() -> None:
    assert {one.name for one in INVARIANTS} < set(SENTENCES)
    assert all(text.endswith(".") and text.count(". ") == 0 for text in SENTENCES.values())
