"""Invariants of a term: a step that breaks each of them, and one that nearly does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.leader.produce import Appended, DelayedProduce
from neaptide.clusters.broker.replication.model import UNKNOWN_OFFSET
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import terms
from neaptide.nemesis.search.invariants.seen import Epochs, Memory, Step
from tests.simulation.test_invariants_of_steps import OTHER, T, step, world
from tests.simulation.worlds import A, B, C

__all__ = ["world"]  # a fixture

OF_A = events.FetchRequested(1, A, 0, 0, (events.FetchedPartition(T, 1, 100),))
OF_B = replace(OF_A, replica_id=B)


def with_ends(world: World, end_of_a: int, event: object, memory: Memory) -> Step:
    """C leads; it takes A to end there, and knows nothing of B."""
    seen = step(world, C, event, memory=memory)
    assert seen.partition is not None
    assert isinstance(seen.partition.role, Leader)
    ends = {A: end_of_a, B: UNKNOWN_OFFSET}
    remotes = {
        one: replace(remote, log_end_offset=ends[one])
        for one, remote in seen.partition.role.remotes.items()
    }
    role = replace(seen.partition.role, remotes=remotes)
    return replace(seen, partition=replace(seen.partition, role=role))


@pytest.mark.parametrize(
    ("led_by", "knew", "end_of_a", "event", "is_broken"),
    [
        (A, 1, UNKNOWN_OFFSET, None, False),  # a new leader, which knew something in another term
        (A, 1, 1, None, True),
        (A, 1, 1, OF_A, False),
        (A, 1, 1, OF_B, True),
        (C, 1, 1, None, False),  # it led before, and goes on
        (C, 0, 1, None, True),
        (C, 0, 1, OF_A, False),
    ],
)
def test_a_leader_knows_of_a_follower_what_that_one_fetched_in_its_term(
    world: World, led_by: int, knew: int, end_of_a: int, event: object, is_broken: bool
) -> None:
    before = with_ends(world, knew, None, Memory()).partition
    assert before is not None
    assert isinstance(before.role, Leader)
    memory = Memory(
        leaders={7: led_by}, brokers={C: Epochs(7, 0)}, remotes={C: before.role.remotes}
    )
    assert bool(terms.knows_by_fetches(with_ends(world, end_of_a, event, memory))) == is_broken


@pytest.mark.parametrize(("leader", "is_broken"), [(C, False), (B, True)])
@pytest.mark.parametrize("asks", ["fetch", "epochs"])
def test_a_follower_asks_its_leader(world: World, leader: int, is_broken: bool, asks: str) -> None:
    fetcher = events.FetcherId(leader, 0)
    sent: effects.Effect = (
        effects.SendFetch(fetcher, 1, 0, 0, 0, (events.FetchedPartition(T, 1, 100),))
        if asks == "fetch"
        else effects.SendOffsetForLeaderEpoch(fetcher, 1, (events.EpochAsked(T, 0),))
    )
    assert bool(terms.fetches_from_the_leader(step(world, A, None, sent))) == is_broken


def test_a_leader_asks_nobody(world: World) -> None:
    sent = effects.SendOffsetForLeaderEpoch(events.FetcherId(C, 0), 1, (events.EpochAsked(T, 0),))
    assert terms.fetches_from_the_leader(step(world, C, None, sent))
    other = replace(sent, partitions=(events.EpochAsked(OTHER, 0),))
    assert not terms.fetches_from_the_leader(step(world, C, None, other))


@pytest.mark.parametrize(("asked_in", "is_broken"), [(0, False), (-1, True), (1, True)])
def test_a_log_is_cut_by_what_was_asked_in_the_epoch_of_now(
    world: World, asked_in: int, is_broken: bool
) -> None:
    answered = events.OffsetForLeaderEpochResponded(events.FetcherId(C, 0), 1, ())
    memory = Memory(asked_in={A: asked_in})
    assert world.brokers[A].partitions[T].leader_epoch == 0
    cut = step(world, A, answered, effects.TruncateLog(T, 0), memory=memory)
    assert bool(terms.cut_by_an_answer_of_now(cut)) == is_broken
    assert not terms.cut_by_an_answer_of_now(step(world, A, answered, memory=memory))
    by_controller = replace(cut, event=None)
    assert not terms.cut_by_an_answer_of_now(by_controller)


@pytest.mark.parametrize(
    ("generation", "before", "isr", "is_broken"),
    [
        ("4.0", 0, (C,), True),
        ("4.0", 0, (C, A), False),
        ("4.0", 1, (C,), False),  # it does not move
        ("2.1", 0, (C,), False),
    ],
)
def test_with_kip_966_a_high_watermark_moves_with_min_insync_replicas(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    generation: str,
    before: int,
    isr: tuple[int, ...],
    is_broken: bool,
) -> None:
    monkeypatch.setattr(world.brokers[C], "rules", GENERATIONS[generation])
    seen = step(world, C, None)
    assert seen.partition is not None
    partition: Partition = replace(
        seen.partition, settings=replace(seen.partition.settings, min_insync_replicas=2)
    )
    memory = Memory(high_watermarks={C: before}, written={partition.version: isr})
    assert partition.high_watermark == 1
    seen = replace(seen, partition=partition, memory=memory)
    assert bool(terms.moves_by_the_written_isr(seen)) == is_broken


def test_a_high_watermark_is_as_high_as_it_may_when_a_fetch_is_counted(world: World) -> None:
    seen = step(world, C, OF_A)
    assert seen.partition is not None
    assert not terms.moves_as_far_as_it_may(seen)
    low = replace(seen, partition=replace(seen.partition, high_watermark=0))
    assert terms.moves_as_far_as_it_may(low)
    # That somebody is caught up no more, a leader may find out later.
    assert not terms.moves_as_far_as_it_may(replace(low, event=None))


@pytest.mark.parametrize(("required", "is_broken"), [(1, True), (2, False)])
def test_nobody_waits_for_what_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch, required: int, is_broken: bool
) -> None:
    waits = DelayedProduce(5, {T: Appended(None, required - 1, required)})
    monkeypatch.setattr(world.brokers[C], "delayed", {5: waits})
    assert bool(terms.waits_for_something(step(world, C, None))) == is_broken
    known = DelayedProduce(5, {T: replace(waits.partitions[T], error=Error.NONE)})
    monkeypatch.setattr(world.brokers[C], "delayed", {5: known})
    assert not terms.waits_for_something(step(world, C, None))
