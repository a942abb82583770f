"""C5: elections that somebody asks for: the preferred leader, or any replica where nobody leads."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.controller.leader_election import with_preferred
from neaptide.clusters.broker.replication.controller.replica_leader_election import imbalanced
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.broker.replication.interface.administration import (
    ElectionType,
    ElectLeadersRequested,
    PartitionResult,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    DeletePreferredReplicaElection,
    LeaderAndIsrWritten,
    PreferredReplicaElectionFound,
    ReadLeaderAndIsr,
    SessionStarted,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import TimerFired
from neaptide.clusters.broker.replication.model import (
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.administered import ALL, asked, controller, led_by, read, written
from tests.core.given import NOW, A, B, C, T
from tests.core.world import World, cluster

NOBODY = -1
GENERATIONS = ["0.8", "0.10", "2.1", "2.8", "4.0"]
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
REBALANCE = administration.AutoPreferredReplicaLeaderElection()


def elect(
    one: Broker,
    partitions: tuple[TopicPartition, ...] | None = (T,),
    kind: ElectionType | None = PREFERRED,
) -> tuple[Effect, ...]:
    return step(one, ElectLeadersRequested(9, kind, partitions, 30_000), NOW)


def answers(done: tuple[Effect, ...]) -> list[tuple[TopicPartition, Error]]:
    (answer,) = given.did(done, effects.RespondElectLeaders)
    assert isinstance(answer, effects.RespondElectLeaders)
    assert answer.error is Error.NONE
    return [(one.partition, one.error) for one in answer.results]


# --- who is elected ------------------------------------------------------------------------------


def test_c5_the_preferred_leader_leads_in_a_new_epoch_with_the_same_isr() -> None:
    state = led_by(C)
    elected = with_preferred(None, state, (B, A, C), {A, B, C}, 2)
    assert elected == LeaderAndIsr(B, 5, (A, B, C), 2, version=7)


@pytest.mark.parametrize(
    ("leader", "isr", "live"),
    [(B, (A, B, C), {A, B, C}), (C, (A, B, C), {A, C}), (C, (A, C), {A, B, C})],
    ids=["leads already", "is dead", "is not in sync"],
)
def test_c5_else_everything_stays(leader: int, isr: tuple[int, ...], live: set[int]) -> None:
    assert with_preferred(None, led_by(leader, isr), (B, A, C), live, 2) is None


# --- ElectLeaders --------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", ["2.8", "4.0"])
def test_c5_an_election_is_answered_when_it_is_written(generation: str) -> None:
    one = controller(led_by(C), generation)
    done = elect(one)
    assert asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,))]
    assert not given.did(done, effects.RespondElectLeaders)
    done = written(one, read(one, led_by(C)))
    assert answers(done) == [(T, Error.NONE)]
    sent = [e.message for e in given.did(done, effects.SendControl)]
    (first, *_) = [m for m in sent if isinstance(m, events.LeaderAndIsrRequested)]
    assert (first.partitions[0].state.leader, first.partitions[0].state.leader_epoch) == (B, 5)


def test_c5_what_cannot_be_is_answered_partition_by_partition() -> None:
    one = controller(led_by(B))
    nowhere, no_partition = TopicPartition("nowhere", 0), TopicPartition("t", 7)
    assert answers(elect(one, (T, nowhere, no_partition))) == [
        (T, Error.ELECTION_NOT_NEEDED),
        (nowhere, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (no_partition, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_c5_of_all_partitions_those_are_answered_that_were_to_be_elected() -> None:
    assert answers(elect(controller(led_by(B)), None)) == []
    one = controller(led_by(C))
    elect(one, None)
    assert answers(written(one, read(one, led_by(C)))) == [(T, Error.NONE)]


@pytest.mark.parametrize("live", [(A, C), (A, B, C)], ids=["dead", "not in sync"])
def test_c5_a_preferred_leader_that_may_not_lead_is_an_error(live: tuple[int, ...]) -> None:
    state = led_by(C, (A, C))
    one = controller(state, live=live)
    elect(one)
    done = read(one, state)
    assert not asked(done, WriteLeaderAndIsr)
    assert answers(done) == [(T, Error.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_c5_an_unclean_election_is_made_where_nobody_leads_whatever_the_settings_say() -> None:
    """The ISR is C alone, which is dead; B, preferred, is the first that lives."""
    state = led_by(NOBODY, (C,))
    one = controller(state, live=(A, B))
    elect(one, kind=UNCLEAN)
    done = read(one, state)
    (write,) = asked(done, WriteLeaderAndIsr)
    assert write.state == LeaderAndIsr(B, 5, (B,), 2, version=7)  # type: ignore[attr-defined]
    assert answers(written(one, done)) == [(T, Error.NONE)]
    assert one.active_controller is not None
    assert not one.active_controller.elections.wanted  # the next one is clean again


def test_c5_a_preferred_election_is_never_unclean() -> None:
    state = led_by(NOBODY, (C,))
    one = controller(state, live=(A, B))
    elect(one)
    done = read(one, state)
    assert not asked(done, WriteLeaderAndIsr)
    assert answers(done) == [(T, Error.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_c5_an_unclean_election_is_not_needed_where_somebody_leads() -> None:
    assert answers(elect(controller(led_by(C)), kind=UNCLEAN)) == [(T, Error.ELECTION_NOT_NEEDED)]


def test_c5_an_election_counts_from_the_decision_after_it_on() -> None:
    """What is being written was decided before anybody asked."""
    one = controller(led_by(C, (A, C)))
    step(one, BrokersChanged({A: ALL[A], B: ALL[B]}), NOW)
    (write,) = asked(read(one, led_by(C, (A, C))), WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert state.leader == A
    elect(one)
    done = step(one, LeaderAndIsrWritten(T, state, True), NOW)
    assert not given.did(done, effects.RespondElectLeaders)
    done = read(one, LeaderAndIsr(A, 5, (A, B), 2, version=8))
    assert answers(written(one, done)) == [(T, Error.NONE)]


def test_c5_an_election_that_takes_too_long_has_timed_out_and_an_abandoned_one_is_forgotten() -> (
    None
):
    one = controller(led_by(C))
    elect(one)
    expired = TimerFired(events.DelayedOperationExpired(9))
    assert answers(step(one, expired, NOW)) == [(T, Error.REQUEST_TIMED_OUT)]
    elect(one)
    step(one, events.RequestAbandoned(9), NOW)
    assert not given.did(step(one, expired, NOW), effects.RespondElectLeaders)
    done = written(one, read(one, led_by(C)))  # it is made all the same
    assert not given.did(done, effects.RespondElectLeaders)


def test_c5_who_is_no_controller_or_ceases_to_be_says_so() -> None:
    (refusal,) = elect(given.broker("2.8"))
    result = PartitionResult(T, Error.NOT_CONTROLLER)
    assert refusal == effects.RespondElectLeaders(9, Error.NOT_CONTROLLER, (result,))
    one = controller(led_by(C))
    elect(one)
    assert answers(step(one, ControllerChanged(C), NOW)) == [(T, Error.NOT_CONTROLLER)]


def test_c5_a_type_of_election_that_is_none_is_refused() -> None:
    refusal = effects.RespondElectLeaders(9, Error.INVALID_REQUEST)
    assert elect(controller(led_by(C)), kind=None) == (refusal,)


# --- the znode -----------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_the_znode_is_deleted_when_what_it_names_is_elected(generation: str) -> None:
    one = controller(led_by(C), generation)
    found = PreferredReplicaElectionFound((T, TopicPartition("nowhere", 0)))
    assert not asked(step(one, found, NOW), DeletePreferredReplicaElection)
    done = read(one, led_by(C))
    assert not asked(done, DeletePreferredReplicaElection)
    fence = (2, generation in ("2.1", "2.8", "4.0"))  # its epoch, whether a later one is refused
    deleted = asked(written(one, done), DeletePreferredReplicaElection)
    assert deleted == [DeletePreferredReplicaElection(*fence)]


@pytest.mark.parametrize("state", [led_by(B), led_by(C, (A, C))], ids=["done", "impossible"])
def test_c5_a_znode_that_asks_for_nothing_that_can_be_is_deleted_too(state: LeaderAndIsr) -> None:
    one = controller(state)
    done = step(one, PreferredReplicaElectionFound((T,)), NOW)
    if not asked(done, DeletePreferredReplicaElection):
        done = read(one, state)
    assert len(asked(done, DeletePreferredReplicaElection)) == 1
    assert not asked(done, WriteLeaderAndIsr)


# --- auto.leader.rebalance.enable ----------------------------------------------------------------


def test_c5_leaders_that_moved_away_go_back_by_themselves_if_that_is_switched_on() -> None:
    one = controller(led_by(C), auto_leader_rebalance_enable=True)
    done = step(one, TimerFired(REBALANCE), NOW)
    assert asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,))]
    assert effects.SetTimer(REBALANCE, 300_000) in done
    written(one, read(one, led_by(C)))
    assert one.active_controller is not None
    assert one.active_controller.states[T].leader == B


@pytest.mark.parametrize(("switched", "timers"), [(True, 1), (False, 0)])
def test_c5_the_first_look_is_five_seconds_after_the_controllers_election(
    switched: bool, timers: int
) -> None:
    one = given.broker("2.8", auto_leader_rebalance_enable=switched)
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    done = step(one, ClusterLoaded(2, ALL, {}, {}), NOW)
    assert given.did(done, effects.SetTimer) == [effects.SetTimer(REBALANCE, 5_000)] * timers


def test_c5_who_is_no_controller_looks_no_more() -> None:
    assert step(given.broker("2.8"), TimerFired(REBALANCE), NOW) == ()


@pytest.mark.parametrize(
    ("away", "isr", "live", "moved"),
    [
        (1, (A, B, C), (A, B, C), 0),  # of ten partitions one: not more than ten percent
        (2, (A, B, C), (A, B, C), 2),
        (2, (A, C), (A, B, C), 0),  # not in sync
        (2, (A, B, C), (A, C), 0),  # dead
    ],
)
def test_c5_more_than_leader_imbalance_per_broker_percentage_have_moved_away(
    away: int, isr: tuple[int, ...], live: tuple[int, ...], moved: int
) -> None:
    partitions = [TopicPartition("t", number) for number in range(10)]
    states = {tp: led_by(C if tp.partition < away else B, isr) for tp in partitions}
    topics = {"t": TopicConfiguration({tp.partition: (B, A, C) for tp in partitions})}
    active = Active(2, {b: ALL[b] for b in live}, topics, states)
    assert imbalanced(active, 10) == tuple(partitions[:moved])


# --- a whole cluster -----------------------------------------------------------------------------


def elected(world: World) -> World:
    for target, event in world.service.elect((T,)):
        world.handle(target, event)
    return world.advance(3_000)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_a_leader_that_was_dead_leads_again_and_nothing_is_lost(generation: str) -> None:
    world = cluster(generation, (B, C, A), min_insync_replicas=2)
    world.kill(B)
    world.run()
    assert world.leader == C
    sent = world.produce("m1")
    world.advance(1_000)
    world.start(B).advance(20_000)
    assert (world.leader, set(world.isr)) == (C, {A, B, C})
    elected(world)
    assert world.leader == B
    assert world.service.elections is None
    assert world.is_acked(sent)
    assert world.log(B) == ["m1"]
    again = world.produce("m2")
    world.advance(2_000)
    assert world.is_acked(again)
    assert world.log(A) == world.log(C) == ["m1", "m2"]


def test_c5_an_election_that_the_controller_did_not_live_to_make_is_made_by_the_next() -> None:
    world = cluster("2.1", (B, C, A))
    world.kill(B)
    world.run()
    world.start(B).advance(20_000)
    assert world.leader == C
    news = world.service.elect((T,))
    assert [target for target, _ in news] == [A]  # it dies before it knows
    world.kill(A)
    world.advance(3_000)
    assert world.leader == B
    assert world.service.elections is None
