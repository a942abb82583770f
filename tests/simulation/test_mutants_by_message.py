"""Mutants that take one message before another: plays in which each link is served by name.

As in test_shown_mutants, the unbroken generation is played to the same point.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from neaptide.clusters.broker.replication.interface.coordination_service import WriteLeaderAndIsr
from neaptide.clusters.broker.replication.partition.partition_rules import UncertainIsr
from neaptide.clusters.simulation import faults
from neaptide.clusters.simulation.network import CONTROL, COORDINATION, SERVICE, Hold, Link
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import BrokenError, Watch
from neaptide.nemesis.search.mutants import BY_NAME, applied
from tests.simulation.worlds import A, B, C, ready, run_for, until


@contextmanager
def _played(name: str, *, is_broken: bool) -> Iterator[World]:
    """A world under watch, in which the mutant's rule is broken, or is not."""
    with applied(BY_NAME[name]) if is_broken else nullcontext():
        world = ready()
        watch = Watch()
        watch.begin(world)
        world.watch = watch
        yield world


def _on_its_way(world: World, broker: int, message: type) -> bool:
    head = world.heads().get(Link(broker, SERVICE, COORDINATION))
    return head is not None and isinstance(head.body, message)


def _serve_all_but(world: World, broker: int, until_controller: int) -> None:
    """What is on its way arrives, but what this broker asks, until another is controller."""
    kept = Link(broker, SERVICE, COORDINATION)
    while world.service.controller != until_controller:
        others = [entry for link, entry in world.heads().items() if link != kept]
        world.take(min(others, key=lambda entry: entry.sequence))


def _session_ends_over_a_write(world: World) -> None:
    """B's joining is written, and C's session ends before C learns of it."""
    faults.kill(world, B)
    run_for(world, 1_000)
    faults.restart(world, B)
    until(world, lambda: B in world.service.states[world.partition].isr)
    faults.expire(world, C)
    faults.register(world, C)
    (head,) = (
        e for link, e in world.heads().items() if link.target == C and link.source == SERVICE
    )
    world.take(head)


def test_a_leader_that_forgets_what_it_wrote_does_not_count_who_joined() -> None:
    name = "takes-the-old-isr"
    with (
        pytest.raises(BrokenError, match="written-isr-is-counted"),
        _played(name, is_broken=True) as world,
    ):
        _session_ends_over_a_write(world)
    with _played(name, is_broken=False) as world:
        _session_ends_over_a_write(world)
        role = world.brokers[C].partitions[world.partition].role
        assert isinstance(getattr(role, "isr", None), UncertainIsr)
        run_for(world, 30_000)


def _deposed_over_a_write(world: World) -> None:
    """A has decided that B is dead when it is controller no more; its write comes late."""
    faults.kill(world, B)
    until(world, lambda: _on_its_way(world, A, WriteLeaderAndIsr))
    faults.depose(world)
    _serve_all_but(world, A, until_controller=C)
    world.take(world.heads()[Link(A, SERVICE, COORDINATION)])


def test_a_controller_that_was_deposed_writes_no_more() -> None:
    name = "controller-writes-unfenced"
    with (
        pytest.raises(BrokenError, match="leader-epoch-of-its-controller"),
        _played(name, is_broken=True) as world,
    ):
        _deposed_over_a_write(world)
    with _played(name, is_broken=False) as world:
        _deposed_over_a_write(world)
        run_for(world, 30_000)


def _elected_bounces_over_the_write(world: World) -> int:
    """A has decided that B leads after C; B dies and is back before that is written. Who leads."""
    faults.kill(world, C)
    until(world, lambda: _on_its_way(world, A, WriteLeaderAndIsr))
    session = world.service.sessions[B]
    faults.kill(world, B)
    faults.restart(world, B)
    kept = Link(A, SERVICE, COORDINATION)

    def knows_of_it() -> bool:
        controller = world.brokers[A].active_controller
        assert controller is not None
        return controller.brokers.get(B) not in (None, session)

    while not knows_of_it():
        others = [entry for link, entry in world.heads().items() if link != kept]
        world.take(min(others, key=lambda entry: entry.sequence))
    world.take(world.heads()[kept])
    run_for(world, 10_000)
    return world.service.states[world.partition].leader


def test_who_fell_after_the_decision_is_decided_on_again() -> None:
    name = "later-fall-counted-already"
    with _played(name, is_broken=True) as world:
        leader = _elected_bounces_over_the_write(world)
        assert world.brokers[leader].led(world.partition) is None  # and nobody is to know it
    with _played(name, is_broken=False) as world:
        leader = _elected_bounces_over_the_write(world)
        assert world.brokers[leader].led(world.partition) is not None


def test_what_a_dead_controller_sent_itself_died_with_it() -> None:
    """A leads alone and sends itself its state again, which B's joining overtakes. All die: the
    state stays as B's joining wrote it, and A must not begin anew from the older one."""
    world = ready(min_insync_replicas="1")
    watch = Watch()
    watch.begin(world)
    world.watch = watch
    faults.kill(world, B)
    faults.kill(world, C)
    until(world, lambda: world.service.states[world.partition].isr == (A,))
    run_for(world, 1_000)
    faults.hold(world, Hold("to itself", "request", "leader_and_isr", A, A, None))
    faults.depose(world)
    run_for(world, 1_000)
    faults.restart(world, B)
    until(world, lambda: B in world.service.states[world.partition].isr)
    assert any(entry.link == Link(A, A, CONTROL) for entry in world.network.waiting)
    faults.kill(world, B)
    faults.kill(world, A)
    assert not any(
        e.link == Link(A, A, CONTROL) for e in (*world.network.waiting, *world.network.messages)
    )
    faults.release(world, "to itself")
    faults.restart(world, A)
    run_for(world, 1_000)
