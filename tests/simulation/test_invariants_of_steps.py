"""Invariants asked of one step of a broker: a step that breaks them, and one that nearly does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.group_coordinator import DelayedCommit
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.leader.produce import Appended, DelayedProduce
from neaptide.clusters.broker.replication.model import EpochEntry, LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.partition_rules import CommittedIsr, Leader
from neaptide.clusters.simulation import producing
from neaptide.clusters.simulation.disk import SimulatedLog
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants import fetches, leadership, promises, replicas, waiting
from neaptide.nemesis.search.invariants.seen import Memory, Step
from tests.simulation.worlds import A, B, C, ready, run_for, until

T = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
FETCHER = events.FetcherId(A, 0)


@pytest.fixture(scope="module")
def world() -> World:
    """C leads in epoch 0, and has m1 at offset 0; A is controller."""
    world = ready("2.1")
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: "m1" in world.clients.acked)
    run_for(world, 600)
    assert world.partition == T
    return world


def step(
    world: World, broker: int, event: object, *done: effects.Effect, memory: Memory | None = None
) -> Step:
    core = world.brokers[broker]
    return Step(world, memory or Memory(), broker, core, core.partitions[T], event, done)


@pytest.mark.parametrize(
    ("asked", "epoch", "end_offset", "is_broken"),
    [
        (0, 0, 1, False),
        (0, 0, 0, True),  # where the high watermark may have been
        (0, 0, 2, True),
        (0, -1, 1, False),  # before KIP-279 no epoch is named
        (0, -1, 0, True),
        (0, -1, -1, True),  # it has a record of that epoch
        (3, -1, -1, False),
        (3, 0, 1, False),
        (0, 3, 1, True),  # of a later epoch than was asked for
    ],
)
def test_an_epoch_ends_as_in_the_log(
    world: World, asked: int, epoch: int, end_offset: int, is_broken: bool
) -> None:
    event = events.OffsetForLeaderEpochRequested(1, (events.EpochAsked(T, asked),))
    result = effects.EpochEndOffsetResult(T, Error.NONE, end_offset, epoch)
    answered = effects.RespondOffsetForLeaderEpoch(1, (result,))
    assert bool(fetches.epochs_end_as_in_the_log(step(world, C, event, answered))) == is_broken
    another = replace(answered, request=2)
    assert not fetches.epochs_end_as_in_the_log(step(world, C, event, another))


@pytest.mark.parametrize(("end_offset", "is_broken"), [(1, False), (0, True)])
def test_a_diverging_epoch_ends_as_in_the_log(
    world: World, end_offset: int, is_broken: bool
) -> None:
    fetched = events.FetchedPartition(T, 2, 100, last_fetched_epoch=0)
    result = effects.FetchedResult(
        T, Error.NONE, 1, 0, None, diverging_epoch=EpochEnd(0, end_offset)
    )
    answered = effects.RespondFetch(1, (result,))
    asked = events.FetchRequested(1, A, 0, 0, (fetched,))
    assert bool(fetches.epochs_end_as_in_the_log(step(world, C, asked, answered))) == is_broken


@pytest.mark.parametrize(("asked_in", "is_broken"), [(2, False), (3, True)])
def test_who_is_in_another_leader_epoch_may_ask_again_what_it_had_asked(
    world: World, asked_in: int, is_broken: bool
) -> None:
    end = events.EpochEndOffset(T, Error.NONE, 1, leader_epoch=0)
    answer = events.OffsetForLeaderEpochResponded(FETCHER, 1, (end,))
    again = effects.SendOffsetForLeaderEpoch(FETCHER, 2, (events.EpochAsked(T, 1, 3),))
    memory = Memory(asked_in={B: asked_in})
    assert bool(replicas.truncation_gets_on(step(world, B, answer, again, memory=memory))) == (
        is_broken
    )


@pytest.mark.parametrize(
    ("named", "is_another", "is_broken"), [(9, True, True), (9, False, False), (0, True, False)]
)
def test_a_fetch_of_another_epoch_is_not_counted(
    world: World, named: int, is_another: bool, is_broken: bool
) -> None:
    role = world.brokers[C].partitions[T].role
    assert isinstance(role, Leader)
    before = dict(role.remotes)
    if is_another:
        before[A] = replace(before[A], log_end_offset=0)
    fetched = events.FetchedPartition(T, 1, 100, current_leader_epoch=named)
    asked = events.FetchRequested(1, A, 0, 0, (fetched,))
    seen = step(world, C, asked, memory=Memory(remotes={C: before}))
    assert bool(fetches.epochs_are_fenced(seen)) == is_broken


@pytest.mark.parametrize(
    ("offset", "was", "is_broken"), [(1, 0, False), (0, 0, True), (0, 1, False)]
)
def test_what_is_counted_of_a_follower_is_where_it_fetches_from(
    world: World, offset: int, was: int, is_broken: bool
) -> None:
    """The leader counts 1; where it counted that before, this fetch was not counted at all."""
    role = world.brokers[C].partitions[T].role
    assert isinstance(role, Leader)
    assert role.remotes[A].log_end_offset == 1
    before = {**role.remotes, A: replace(role.remotes[A], log_end_offset=was)}
    asked = events.FetchRequested(1, A, 0, 0, (events.FetchedPartition(T, offset, 100),))
    seen = step(world, C, asked, memory=Memory(remotes={C: before}))
    assert bool(fetches.counts_what_is_asked(seen)) == is_broken


@pytest.mark.parametrize(("required", "is_broken"), [(1, False), (2, True)])
def test_a_commit_is_acknowledged_when_it_is_committed(
    world: World, required: int, is_broken: bool
) -> None:
    waiting_commit = DelayedCommit(5, T, Appended(None, required - 1, required), ())
    memory = Memory(parked={C: {5: waiting_commit}})
    acked = effects.RespondOffsetCommit(5, ((T, Error.NONE),))
    late = effects.RespondOffsetCommit(5, ((T, Error.REQUEST_TIMED_OUT),))
    assert bool(promises.acked_commit_is_committed(step(world, C, None, acked, memory=memory))) == (
        is_broken
    )
    assert not promises.acked_commit_is_committed(step(world, C, None, late, memory=memory))


@pytest.mark.parametrize(
    ("generation", "is_mutant", "registered", "is_older", "is_broken"),
    [
        ("2.1", False, 0, True, True),  # the state was written after it had registered
        ("2.1", False, 0, False, True),
        ("2.1", False, 99, False, True),  # it leads in the state that was written
        ("2.1", False, 99, True, False),
        ("2.1", False, None, True, False),  # a process that is not registered yet
        ("2.1", False, None, False, True),
        ("2.8", False, 99, True, True),
        ("2.8", False, None, True, True),
        ("2.8", True, 99, True, True),  # of 2.8 without that rule it is asked
    ],
)
def test_who_obeys_what_was_sent_to_the_process_before_it_may_believe_in_an_old_isr(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    generation: str,
    is_mutant: bool,
    registered: int | None,
    is_older: bool,
    is_broken: bool,
) -> None:
    """KIP-380: it leads as before, although another ISR was written by the time it registered."""
    state = world.service.states[T]
    rules = GENERATIONS[generation]
    if is_mutant:
        rules = replace(rules, checks_broker_epochs=False)
    written = replace(state, version=state.version + is_older)
    monkeypatch.setattr(world.brokers[C], "rules", rules)
    monkeypatch.setitem(world.service.states, T, written)
    sessions = {} if registered is None else {C: registered}
    seen = step(world, C, None, memory=Memory(registered=sessions))
    with monkeypatch.context() as patched:
        patched.setitem(world.disks[A].logs, T, SimulatedLog())
        assert bool(replicas.weak_isr(seen)) == is_broken
    partition = world.brokers[C].partitions[T]
    assert isinstance(partition.role, Leader)
    without_a = replace(partition.role, isr=CommittedIsr((C, B)))
    fewer = replace(seen, partition=replace(partition, role=without_a))
    assert bool(promises.written_isr_is_counted(fewer)) == is_broken
    assert not promises.written_isr_is_counted(seen)
    assert not replicas.weak_isr(seen)


@pytest.mark.parametrize(
    ("generation", "broker", "is_broken"),
    [("2.1", C, True), ("2.1", A, False), ("2.8", C, True), ("2.8", A, True)],
)
def test_up_to_2_1_a_follower_may_have_deleted_more_than_its_new_leader_has_committed(
    world: World, monkeypatch: pytest.MonkeyPatch, generation: str, broker: int, is_broken: bool
) -> None:
    monkeypatch.setattr(world.brokers[broker], "rules", GENERATIONS[generation])
    seen = step(world, broker, None)
    assert seen.partition is not None
    assert not replicas.log_start_below_high_watermark(seen)
    log = replace(seen.partition.log, start_offset=1)
    behind = replace(seen, partition=replace(seen.partition, log=log, high_watermark=0))
    assert bool(replicas.log_start_below_high_watermark(behind)) == is_broken


def _parked(error: Error | None, offset: int = 0) -> dict[int, DelayedProduce]:
    """A request of two partitions; the other one still waits."""
    partitions = {T: Appended(error, offset, offset + 1), OTHER: Appended(None, 0, 1)}
    return {5: DelayedProduce(5, partitions)}


WAITS = _parked(None)
ACKED = _parked(Error.NONE)
FAILED = _parked(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def _answered(world: World, before: dict[int, DelayedProduce], answered: Error | None) -> Step:
    """A step of C, by whom this was parked before, with the answer for T; None: there is none."""
    done: tuple[effects.Effect, ...] = ()
    if answered is not None:
        done = (effects.RespondProduce(5, -1, (effects.ProducedPartition(T, answered, 0, 0),)),)
    return step(world, C, None, *done, memory=Memory(parked={C: before}))


@pytest.mark.parametrize(
    ("before", "after", "answered", "is_broken"),
    [
        (WAITS, {}, Error.NONE, True),  # found out and answered in this step
        ({}, {}, Error.NONE, True),  # as what has just come
        (ACKED, {}, Error.NONE, False),  # found out in an earlier step, when the ISR was another
        (FAILED, {}, Error.NONE, True),
        (WAITS, {}, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
        (WAITS, ACKED, None, True),  # found out, and the other partition still waits
        ({}, ACKED, None, True),
        (ACKED, ACKED, None, False),
        (WAITS, FAILED, None, False),
        ({}, WAITS, None, False),
    ],
)
def test_an_acknowledgement_is_judged_when_its_outcome_is_known(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[int, DelayedProduce],
    after: dict[int, DelayedProduce],
    answered: Error | None,
    is_broken: bool,
) -> None:
    """A request of two partitions is answered when the slower one is done (DelayedProduce)."""
    monkeypatch.setattr(world.brokers[C], "delayed", after)
    seen = _answered(world, before, answered)
    assert seen.partition is not None
    settings = replace(seen.partition.settings, min_insync_replicas=4)
    few = replace(seen, partition=replace(seen.partition, settings=settings))
    assert bool(promises.acked_by_min_insync(few)) == is_broken
    assert not promises.acked_by_min_insync(seen)  # the ISR is large enough
    uncommitted = replace(seen, partition=replace(seen.partition, high_watermark=0))
    assert bool(promises.acked_is_committed(uncommitted)) == is_broken
    assert not promises.acked_is_committed(seen)


@pytest.mark.parametrize(
    ("before", "after", "answered", "is_broken"),
    [
        (WAITS, ACKED, None, False),
        (ACKED, ACKED, None, False),
        (ACKED, FAILED, None, True),  # T is lost while the other partition waits
        (FAILED, ACKED, None, True),  # and won again
        (ACKED, WAITS, None, True),
        (WAITS, {}, Error.NONE, False),
        (ACKED, {}, Error.NONE, False),
        (ACKED, {}, Error.NOT_LEADER_OR_FOLLOWER, True),
        (ACKED, {}, None, False),  # abandoned
    ],
)
def test_what_became_of_a_partition_stays(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[int, DelayedProduce],
    after: dict[int, DelayedProduce],
    answered: Error | None,
    is_broken: bool,
) -> None:
    monkeypatch.setattr(world.brokers[C], "delayed", after)
    seen = _answered(world, before, answered)
    assert bool(waiting.outcome_is_kept(seen)) == is_broken


@pytest.mark.parametrize(
    ("epochs", "is_broken"),
    [
        (((0, 0),), False),
        (((0, 0), (1, 1)), False),  # a leader's that has not written yet
        ((), True),
        (((0, 0), (1, 0)), True),
        (((1, 0),), True),
        (((0, 0), (1, 1), (2, 1)), True),  # the one before has to make room
        (((0, 1),), True),
    ],
)
def test_epochs_are_those_of_the_records(
    world: World, epochs: tuple[tuple[int, int], ...], is_broken: bool
) -> None:
    """C has one record, of epoch 0, so nothing else may begin before its end."""
    seen = step(world, C, None)
    assert seen.partition is not None
    log = replace(seen.partition.log, epochs=tuple(EpochEntry(*one) for one in epochs))
    noted = replace(seen, partition=replace(seen.partition, log=log))
    assert bool(replicas.epochs_of_the_log(noted)) == is_broken


def test_acknowledgements_of_other_acks_promise_nothing(world: World) -> None:
    one = effects.RespondProduce(5, 1, (effects.ProducedPartition(T, Error.NONE, 7, 0),))
    two = DelayedProduce(5, ACKED[5].partitions, acks=2)
    memory = Memory(parked={C: {5: two}})
    assert not promises.acked_is_committed(step(world, C, None, one))
    assert not promises.acked_is_committed(step(world, C, None, one, memory=memory))


def test_a_request_times_out_by_its_timer(world: World) -> None:
    produced = effects.ProducedPartition(T, Error.REQUEST_TIMED_OUT, 0, 0)
    expired = events.TimerFired(events.DelayedOperationExpired(5))
    for late in (
        effects.RespondProduce(5, -1, (produced,)),
        effects.RespondOffsetCommit(5, ((T, Error.REQUEST_TIMED_OUT),)),
    ):
        assert waiting.times_out_by_its_timer(step(world, C, None, late))
        assert not waiting.times_out_by_its_timer(step(world, C, expired, late))
    in_time = effects.RespondProduce(5, -1, (replace(produced, error=Error.NONE),))
    assert not waiting.times_out_by_its_timer(step(world, C, None, in_time))


@pytest.mark.parametrize(
    ("fallen", "epoch", "is_broken"), [(C, 0, True), (C, 1, False), (B, 0, False), (None, 0, False)]
)
def test_who_fell_while_it_led_is_named_leader_in_a_later_epoch(
    world: World, fallen: int | None, epoch: int, is_broken: bool
) -> None:
    """It came back in a new session, which the controller has seen."""
    now = world.brokers[A].active_controller
    assert isinstance(now, Active)
    earlier = {
        broker: replace(one, epoch=one.epoch - 1) if broker == fallen else one
        for broker, one in now.brokers.items()
    }
    memory = Memory(controllers={A: replace(now, brokers=earlier)})
    state = LeaderAndIsr(C, epoch, (C, B, A), now.controller_epoch)
    sent = events.PartitionState(T, state, (C, B, A), {})
    request = events.LeaderAndIsrRequested(0, A, now.controller_epoch, (sent,), ())
    seen = step(world, A, None, effects.SendControl(C, request), memory=memory)
    assert bool(leadership.fallen_leader_stays_fallen(seen)) == is_broken
    assert bool(leadership.fallen_leaders(seen)) == (fallen == C)
