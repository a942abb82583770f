"""C5: a broker that stops is relieved first: others lead what it led, and wait for it no longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.leader_election import may_be_counted_on
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.broker.replication.interface.administration import (
    ControlledShutdownFailed,
    ControlledShutdownRequested,
    ControlledShutdownResponded,
    ShutdownRequested,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ControllerChanged,
    IsrChangeNotified,
    SessionStarted,
    TopicsChanged,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import TimerFired
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
)
from neaptide.clusters.broker.replication.partition.partition_rules import Follower
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.administered import ALL, asked, controller, led_by, read, written
from tests.core.given import NOW, A, B, C, T
from tests.core.world import cluster

GENERATIONS = ["0.8", "0.10", "2.1", "2.8", "4.0"]
NOBODY = -1


def ask(one: Broker, broker: int, epoch: int = -1, request: int = 9) -> tuple[Effect, ...]:
    return step(one, ControlledShutdownRequested(request, broker, epoch), NOW)


def answer(done: tuple[Effect, ...]) -> effects.RespondControlledShutdown:
    (answer,) = given.did(done, effects.RespondControlledShutdown)
    assert isinstance(answer, effects.RespondControlledShutdown)
    return answer


def sent(done: tuple[Effect, ...], kind: type) -> dict[int, object]:
    """By receiver."""
    found = given.did(done, effects.SendControl)
    return {e.broker: e.message for e in found if isinstance(e.message, kind)}


# --- who is counted on ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "stopping", "counted"),
    [
        (B, (A, B, C), {B}, {A, C}),  # somebody in sync can lead
        (B, (A, B, C), {C}, {A, B}),
        (B, (B,), {B}, {A, B, C}),  # nobody can
        (B, (B, C), {B, C}, {A, B}),  # those who could are stopping too
        (NOBODY, (C,), {C}, {A, B}),  # nobody leads, and nobody is to begin with it
    ],
)
def test_c5_who_stops_is_not_counted_on_unless_only_it_can_lead(
    leader: int, isr: tuple[int, ...], stopping: set[int], counted: set[int]
) -> None:
    assert may_be_counted_on(led_by(leader, isr), {A, B, C}, stopping) == counted


# --- the controller ------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_what_it_leads_the_next_of_the_isr_leads_then_it_is_answered(generation: str) -> None:
    one = controller(led_by(B), generation)
    done = ask(one, B)
    assert not sent(done, events.StopReplicaRequested)  # it leads: nobody has it stop
    assert not given.did(done, effects.RespondControlledShutdown)
    done = read(one, led_by(B))
    (write,) = asked(done, WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert (state.leader, set(state.isr), state.leader_epoch) == (A, {A, C}, 5)
    done = written(one, done)
    assert answer(done) == effects.RespondControlledShutdown(9, Error.NONE, ())
    assert set(sent(done, events.LeaderAndIsrRequested)) == {A, B, C}  # B follows from now on


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_what_it_follows_it_stops_following_and_leaves_the_isr(generation: str) -> None:
    one = controller(led_by(B), generation)
    done = ask(one, C)
    (stop,) = sent(done, events.StopReplicaRequested).values()
    assert stop.partitions == (T,)  # type: ignore[attr-defined]
    assert stop.delete_partitions is False  # type: ignore[attr-defined]
    done = written(one, read(one, led_by(B)))
    assert one.active_controller is not None
    state = one.active_controller.states[T]
    assert (state.leader, set(state.isr)) == (B, {A, B})
    assert answer(done).remaining == ()
    assert set(sent(done, events.LeaderAndIsrRequested)) == {A, B}  # C must not follow again


def test_c5_what_nobody_else_can_lead_remains() -> None:
    state = led_by(B, (B,))
    one = controller(state)
    ask(one, B)
    done = read(one, state)
    assert not asked(done, WriteLeaderAndIsr)
    assert answer(done).remaining == (T,)
    caught_up = replace(state, isr=(A, B), version=8)
    ask(one, B, request=10)  # it asks again, and by now A is in sync
    done = written(one, read(one, caught_up))
    assert answer(done) == effects.RespondControlledShutdown(10, Error.NONE, ())


def test_c5_a_partition_of_one_replica_is_left_alone() -> None:
    """As in Kafka: it goes down with its broker, and keeps nobody from stopping."""
    state = led_by(B, (B,))
    one = controller(state)
    step(one, TopicsChanged({"t": TopicConfiguration({0: (B,)})}), NOW)
    done = ask(one, B)
    assert answer(done).remaining == ()
    assert not sent(done, events.StopReplicaRequested)


def test_c5_who_is_stopping_is_elected_nowhere_until_it_has_gone() -> None:
    one = controller(led_by(A))
    ask(one, C)
    written(one, read(one, led_by(A)))
    state = LeaderAndIsr(A, 5, (A, B), 2, version=8)
    ask(one, B, request=10)
    written(one, read(one, state))
    ask(one, A, request=11)
    alone = LeaderAndIsr(A, 6, (A,), 2, version=9)
    assert answer(read(one, alone)).remaining == (T,)
    step(one, BrokersChanged({A: ALL[A], B: ALL[B]}), NOW)
    assert one.active_controller is not None
    assert set(one.active_controller.shutting_down) == {A, B}
    again = BrokerRegistration(B, (), epoch=99)
    step(one, BrokersChanged({A: ALL[A], B: again}), NOW)  # it has started again
    assert set(one.active_controller.shutting_down) == {A}


def test_c5_it_leaves_an_isr_once_for_each_request() -> None:
    """As in Kafka: before 3.3 it may join again until it has gone."""
    one = controller(led_by(B))
    ask(one, C)
    written(one, read(one, led_by(B)))
    joined = LeaderAndIsr(B, 5, (A, B, C), 2, version=9)
    step(one, IsrChangeNotified(("n",), (T,)), NOW)
    assert not asked(read(one, joined), WriteLeaderAndIsr)
    ask(one, C, request=10)
    (write,) = asked(read(one, joined), WriteLeaderAndIsr)
    assert set(write.state.isr) == {A, B}  # type: ignore[attr-defined]


def test_c5_who_is_stopping_is_not_elected_when_the_leader_dies() -> None:
    one = controller(led_by(B))
    ask(one, A)
    written(one, read(one, led_by(B)))
    joined = LeaderAndIsr(B, 5, (B, A, C), 2, version=9)
    step(one, BrokersChanged({A: ALL[A], C: ALL[C]}), NOW)
    (write,) = asked(read(one, joined), WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert (state.leader, state.isr) == (C, (C,))


@pytest.mark.parametrize(
    ("broker", "epoch", "error"),
    [
        (B, B, Error.NONE),
        (B, B - 1, Error.STALE_BROKER_EPOCH),  # of an earlier process
        (B, B + 1, Error.NONE),  # of a later one, which this controller does not know yet
        (B, -1, Error.NONE),  # before KIP-380
        (7, -1, Error.BROKER_NOT_AVAILABLE),
    ],
)
def test_c5_only_a_registered_broker_is_relieved(broker: int, epoch: int, error: Error) -> None:
    one = controller(led_by(A, (A,)))
    done = ask(one, broker, epoch)
    if error is Error.NONE:
        done = read(one, led_by(A, (A,)))
    assert answer(done).error is error


def test_c5_who_is_no_controller_or_ceases_to_be_relieves_nobody() -> None:
    assert answer(ask(given.broker("2.8"), B)).error is Error.STALE_CONTROLLER_EPOCH
    one = controller(led_by(B))
    ask(one, B)
    assert answer(step(one, ControllerChanged(C), NOW)).error is Error.STALE_CONTROLLER_EPOCH
    abandoned = controller(led_by(B))
    ask(abandoned, B)
    step(abandoned, events.RequestAbandoned(9), NOW)
    done = step(abandoned, ControllerChanged(C), NOW)
    assert not given.did(done, effects.RespondControlledShutdown)


@pytest.mark.parametrize(("stopping", "error"), [(C, Error.INELIGIBLE_REPLICA), (None, Error.NONE)])
def test_c5_on_4_0_who_is_stopping_joins_no_isr(stopping: int | None, error: Error) -> None:
    """KIP-841. The leader itself, which is in the ISR, may stop and still let others in."""
    state = led_by(B, (B, A))
    one = controller(state, "4.0")
    if stopping is not None:
        ask(one, stopping)
        read(one, state)
    members = tuple(events.IsrMember(b) for b in (A, B, C))
    wanted = events.AlteredPartition(T, 4, 7, members)
    done = step(one, events.AlterPartitionRequested(20, B, B, (wanted,)), NOW)
    if error is Error.NONE:
        (write,) = asked(done, WriteLeaderAndIsr)
        assert set(write.state.isr) == {A, B, C}  # type: ignore[attr-defined]
        return
    (refusal,) = given.did(done, effects.RespondAlterPartition)
    assert [one.error for one in refusal.results] == [error]


def test_c5_on_4_0_a_leader_that_is_stopping_may_let_in_who_will_replace_it() -> None:
    state = led_by(B, (B,))
    one = controller(state, "4.0")
    ask(one, B)
    read(one, state)
    wanted = events.AlteredPartition(T, 4, 7, (events.IsrMember(A), events.IsrMember(B)))
    done = step(one, events.AlterPartitionRequested(20, B, B, (wanted,)), NOW)
    assert len(asked(done, WriteLeaderAndIsr)) == 1


# --- the broker that stops -----------------------------------------------------------------------


def stopping(generation: str = "2.8", **settings: Any) -> Broker:
    """Broker A has registered, C is the controller, and A has asked it."""
    one = given.broker(generation, controlled_shutdown_enable=True, **settings)
    step(one, SessionStarted(7), NOW)
    step(one, events.UpdateMetadataRequested(1, C, 1, (), tuple(ALL.values())), NOW)
    return one


def attempt(done: tuple[Effect, ...]) -> effects.SendControlledShutdown:
    (request,) = given.did(done, effects.SendControlledShutdown)
    assert isinstance(request, effects.SendControlledShutdown)
    return request


def test_c5_a_broker_that_is_to_stop_asks_the_controller_and_ends_when_it_leads_nothing() -> None:
    one = stopping()
    request = attempt(step(one, ShutdownRequested(), NOW))
    assert (request.controller, request.broker_epoch) == (C, 7)
    assert step(one, ShutdownRequested(), NOW) == ()  # it is stopping already
    relieved = ControlledShutdownResponded(request.sequence, Error.NONE)
    assert given.did(step(one, relieved, NOW)) == [effects.Shutdown()]
    assert step(one, relieved, NOW) == ()


@pytest.mark.parametrize(
    "outcome",
    [
        ControlledShutdownResponded(0, Error.NONE, (T,)),
        ControlledShutdownResponded(0, Error.STALE_CONTROLLER_EPOCH),
        ControlledShutdownFailed(0),
    ],
)
def test_c5_it_asks_so_often_and_then_ends_all_the_same(outcome: object) -> None:
    one = stopping(controlled_shutdown_max_retries=2, controlled_shutdown_retry_backoff_ms=70)
    request = attempt(step(one, ShutdownRequested(), NOW))
    retry = administration.ControlledShutdownRetry()
    failed = replace(outcome, sequence=request.sequence)  # type: ignore[type-var]
    assert given.did(step(one, failed, NOW)) == [effects.SetTimer(retry, 70)]
    request = attempt(step(one, TimerFired(retry), NOW))
    failed = replace(outcome, sequence=request.sequence)  # type: ignore[type-var]
    assert given.did(step(one, failed, NOW)) == [effects.Shutdown()]


@pytest.mark.parametrize("retries", [0, -1])
def test_c5_without_any_attempt_it_ends_at_once(retries: int) -> None:
    one = stopping(controlled_shutdown_max_retries=retries)
    assert given.did(step(one, ShutdownRequested(), NOW)) == [effects.Shutdown()]


def test_c5_without_a_controller_it_waits_for_one() -> None:
    one = given.broker("2.8", controlled_shutdown_enable=True)
    step(one, SessionStarted(7), NOW)
    done = step(one, ShutdownRequested(), NOW)
    assert given.did(done) == [effects.SetTimer(administration.ControlledShutdownRetry(), 5_000)]
    step(one, events.UpdateMetadataRequested(1, C, 1, (), tuple(ALL.values())), NOW)
    assert (
        attempt(step(one, TimerFired(administration.ControlledShutdownRetry()), NOW)).controller
        == C
    )


def test_c5_it_ends_at_once_where_that_is_switched_off_or_it_was_never_registered() -> None:
    off = given.broker("2.8", controlled_shutdown_enable=False)
    step(off, SessionStarted(7), NOW)
    unknown = given.broker("2.8", controlled_shutdown_enable=True)
    for one in (off, unknown):
        assert given.did(step(one, ShutdownRequested(), NOW)) == [effects.Shutdown()]


# --- a whole cluster -----------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("who", [A, B, C], ids=["controller", "leader", "follower"])
def test_c5_clients_are_served_all_the_time_and_nothing_is_lost(generation: str, who: int) -> None:
    """Also where the ISR would be too small with a dead member in it."""
    world = cluster(generation, (B, C, A), min_insync_replicas=2, controlled_shutdown_enable=True)
    before = world.produce("m1")
    world.advance(1_000)
    world.stop(who)
    world.run()
    assert who not in world.brokers
    assert world.leader != who
    assert set(world.isr) == {A, B, C} - {who}
    after = world.produce("m2")
    world.advance(2_000)
    assert world.is_acked(before)
    assert world.is_acked(after)
    world.start(who).advance(20_000)
    assert set(world.isr) == {A, B, C}
    assert world.log(who) == ["m1", "m2"]


def test_c5_switched_off_a_leader_stops_as_if_it_had_died() -> None:
    world = cluster("2.1", (B, C, A))
    assert world.isr == (B, C, A)
    world.stop(B)
    assert B not in world.brokers
    assert world.leader == B  # nobody knows yet
    world.run()
    assert world.leader == C


def test_c5_a_controller_that_dies_before_it_answers_is_asked_no_more_but_the_next_is() -> None:
    world = cluster("2.8", (B, C, A), controlled_shutdown_enable=True)
    hold = world.hold(ControlledShutdownRequested)
    world.stop(B)
    world.run()
    assert world.held()
    world.kill(A)
    world.holds.remove(hold)
    world.run()
    assert B in world.brokers
    world.advance(10_000)
    assert B not in world.brokers
    assert (world.leader, world.isr) == (C, (C,))


def test_c5_what_followed_does_not_join_the_isr_again() -> None:
    world = cluster("2.8", (B, C, A), controlled_shutdown_enable=True)
    world.hold(ControlledShutdownResponded)
    world.stop(C)
    world.advance(30_000)
    assert world.isr == (B, A)
    assert world.brokers[C].partitions[T].role == Follower(NOBODY)


@pytest.mark.parametrize(
    ("generation", "live", "moves"),
    [("4.0", (A, B), True), ("4.0", (A, B, C), False), ("2.8", (A, B), False)],
    ids=["gone", "there", "before KIP-841"],
)
def test_c5_r3_the_high_watermark_waits_for_who_has_caught_up_unless_it_has_gone(
    generation: str, live: tuple[int, ...], moves: bool
) -> None:
    """C has caught up and is not in the ISR: it was stopping, say."""
    one = given.leading(generation, isr=(A, B), records=1, high_watermark=1)
    step(one, given.fetch(C, 1, request=501), NOW)
    brokers = tuple(ALL[b] for b in live)
    step(one, events.UpdateMetadataRequested(1, C, 1, (), brokers), NOW)
    produced = step(one, given.produce(request=7), NOW)
    assert not given.did(produced, effects.RespondProduce)
    done = step(one, given.fetch(B, 2, request=502), NOW + 10)
    assert given.of(one).high_watermark == (2 if moves else 1)
    assert bool(given.did(done, effects.RespondProduce)) == moves
