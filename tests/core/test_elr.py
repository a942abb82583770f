"""E7, generation 4.0 (KIP-966): who may lead outside the ISR, and what a crash costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.controller.alter_partition import decide
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.controller.leader_election import (
    came_back_torn,
    next_state_with_elr,
)
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import (
    Eligibility,
    is_under_min_isr,
    next_elr,
)
from neaptide.clusters.broker.replication.partition.partition_rules import isr_of
from tests.core import given
from tests.core.world import A, B, C, T, World, cluster

NOW = given.NOW


# --- who is eligible -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "isr", "min_isr", "unclean", "elr"),
    [
        ((A, B, C), (A, B), 2, (), ()),  # the ISR is large enough: nobody else is needed
        ((A, B), (A,), 2, (), (B,)),  # who leaves an ISR that is too small stays eligible
        ((A, B, C), (), 2, (), (A, B, C)),  # the last of the ISR too
        ((A, B), (A,), 2, (B,), ()),  # … unless it may have lost its tail
        ((A, B), (A,), 1, (), ()),
        ((A, B, C), (A, B), 5, (), (C,)),  # no ISR can be larger than the replicas
        ((A, B, C), (A, B, C), 5, (), ()),
    ],
)
def test_e7_eligible_is_who_left_an_isr_that_is_too_small(
    members: tuple[int, ...],
    isr: tuple[int, ...],
    min_isr: int,
    unclean: tuple[int, ...],
    elr: tuple[int, ...],
) -> None:
    assert next_elr(members, isr, (A, B, C), Eligibility(min_isr, frozenset(unclean))) == elr


@pytest.mark.parametrize(
    ("state", "live", "torn", "unclean", "decided"),
    [
        # (leader, ISR, ELR, last known leader), before and after; min.insync.replicas is 2
        ((A, (A, B), (), -1), (A, B, C), (), False, None),
        ((A, (A, B), (), -1), (A, C), (), False, (A, (A,), (B,), -1)),
        ((A, (A,), (B,), -1), (C,), (), False, (-1, (), (A, B), A)),  # nobody of either lives
        ((A, (A,), (B,), -1), (B, C), (), False, (B, (B,), (A,), -1)),  # an eligible one leads
        ((-1, (), (A, B), A), (C,), (), False, None),
        ((-1, (), (A, B), A), (B, C), (B,), False, (-1, (), (A,), A)),  # eligible no longer
        ((-1, (), (A,), A), (A, C), (A,), False, (A, (A,), (), -1)),  # last known, last resort
        ((-1, (), (B,), A), (A, C), (), False, None),  # … but not while an eligible one may come
        ((-1, (), (A,), A), (C,), (), True, (C, (C,), (A,), -1)),  # an unclean election
        ((A, (A, B), (), -1), (A, B), (B,), False, (A, (A,), (), -1)),  # back, but not in sync
        ((A, (A,), (), -1), (A,), (A,), False, (A, (A,), (), -1)),  # it leads on, in a new epoch
    ],
)
def test_e7_the_isr_leads_then_the_eligible_then_the_last_known_leader(
    state: tuple[int, tuple[int, ...], tuple[int, ...], int],
    live: tuple[int, ...],
    torn: tuple[int, ...],
    unclean: bool,
    decided: tuple[int, tuple[int, ...], tuple[int, ...], int] | None,
) -> None:
    leader, isr, elr, last_known = state
    before = LeaderAndIsr(leader, 4, isr, 1, 7, elr, last_known)
    eligibility = Eligibility(2, frozenset(torn))
    after = next_state_with_elr(
        before,
        (A, B, C),
        live,
        2,
        unclean=unclean,
        eligibility=eligibility,
        shrinks_in_new_epoch=True,
    )
    if decided is None:
        assert after is None
    else:
        leader, isr, elr, last_known = decided
        assert after == LeaderAndIsr(leader, 5, isr, 2, 7, elr, last_known)


@pytest.mark.parametrize(
    ("state", "live", "torn", "epoch"),
    [
        ((A, (A, B, C)), (A, C), (), 4),  # B died: A leads on
        ((A, (A, B, C)), (A, B, C), (B,), 4),  # B came back torn
        ((A, (A, B, C)), (B, C), (), 5),
        ((A, (A, B)), (C,), (), 5),  # nobody leads
        ((A, (A,)), (A,), (A,), 5),  # A leads, torn: the others are cut to its new epoch's start
    ],
)
def test_c3_an_isr_that_shrinks_stays_in_its_leader_epoch(
    state: tuple[int, tuple[int, ...]], live: tuple[int, ...], torn: tuple[int, ...], epoch: int
) -> None:
    """KAFKA-15021, with KRaft from 3.6 on."""
    before = LeaderAndIsr(state[0], 4, state[1], 1, 7)
    after = next_state_with_elr(
        before,
        (A, B, C),
        live,
        2,
        unclean=False,
        eligibility=Eligibility(2, frozenset(torn)),
        shrinks_in_new_epoch=False,
    )
    assert after is not None
    assert after.leader_epoch == epoch


@pytest.mark.parametrize(
    ("isr", "min_isr", "under"),
    [((A,), 2, True), ((A, B), 2, False), ((A, B), 3, True), ((A, B, C), 5, False), ((), 1, True)],
)
def test_e7_no_isr_need_be_larger_than_there_are_replicas(
    isr: tuple[int, ...], min_isr: int, under: bool
) -> None:
    assert is_under_min_isr(isr, (A, B, C), min_isr) is under


# --- the controller, with every ISR change of a leader -------------------------------------------


def asked_for(
    isr: tuple[int, ...],
    state: LeaderAndIsr,
    *,
    min_isr: int = 2,
    generation: str = "4.0",
) -> LeaderAndIsr:
    """The state that a controller writes where A, which leads, wants this ISR."""
    settings = {"min.insync.replicas": str(min_isr)}
    controller = Active(
        state.controller_epoch,
        {broker: BrokerRegistration(broker, (), epoch=broker) for broker in (A, B, C)},
        {T.topic: TopicConfiguration({0: (A, B, C)}, settings)},
        {T: state},
    )
    members = tuple(events.IsrMember(member) for member in isr)
    asked = events.AlteredPartition(T, state.leader_epoch, state.version, members)
    decided = decide(given.broker(generation), controller, A, asked)
    assert isinstance(decided, LeaderAndIsr)
    return decided


@pytest.mark.parametrize(("generation", "elr"), [("4.0", (B,)), ("2.1", ())])
def test_e7_who_leaves_an_isr_that_is_too_small_then_stays_eligible(
    generation: str, elr: tuple[int, ...]
) -> None:
    state = LeaderAndIsr(A, 0, (A, B), 1, version=3)
    assert asked_for((A,), state, generation=generation) == replace(state, isr=(A,), elr=elr)


@pytest.mark.parametrize(("min_isr", "elr"), [(2, ()), (3, (B,))])
def test_e7_who_joins_an_isr_that_is_large_enough_ends_all_eligibility(
    min_isr: int, elr: tuple[int, ...]
) -> None:
    """Whoever leads: what was eligible in another leader epoch still is."""
    state = LeaderAndIsr(A, 4, (A,), 1, version=3, elr=(B,))
    assert asked_for((A, C), state, min_isr=min_isr) == replace(state, isr=(A, C), elr=elr)


@pytest.mark.parametrize(("generation", "high_watermark"), [("4.0", 3), ("2.1", 5)])
def test_e7_the_high_watermark_waits_for_an_isr_that_is_large_enough(
    generation: str, high_watermark: int
) -> None:
    leader = given.leading(generation, isr=(A,), records=5, high_watermark=3, min_insync_replicas=2)
    assert isr_of(given.of(leader)) == (A,)
    assert given.of(leader).high_watermark == high_watermark


# --- whole clusters ------------------------------------------------------------------------------


def last_replica_standing(generation: str) -> tuple[World, int]:
    """B leaves by a clean shutdown; A, the last one, loses m2 in a power failure. Both return."""
    world = cluster(generation, (A, B), min_insync_replicas=2)
    world.produce("m1")
    m2 = world.produce("m2")
    world.advance(6_000)
    assert world.is_acked(m2)
    world.stop(B)
    world.run()
    assert world.isr == (A,)
    world.kill(A, lose_from=1)
    world.run()
    world.start(B).advance(100)
    world.start(A).advance(5_000)
    assert set(world.isr) == {A, B}
    return world, m2


def test_e7_the_last_replica_standing_takes_an_acked_record_with_it_on_2_1() -> None:
    world, _ = last_replica_standing("2.1")
    assert (world.leader, world.log(A), world.log(B)) == (A, ["m1"], ["m1"])


def test_e7_an_eligible_replica_leads_in_its_place_on_4_0() -> None:
    world, _ = last_replica_standing("4.0")
    assert (world.leader, world.log(A), world.log(B)) == (B, ["m1", "m2"], ["m1", "m2"])


def test_e7_a_new_controller_has_nobody_follow_one_that_came_back_torn() -> None:
    """All were down; A, which led, comes back without m2. B, eligible, must not be cut to A."""
    world = cluster("4.0", (A, B), min_insync_replicas=2)
    world.produce("m1")
    world.produce("m2")
    world.advance(6_000)
    world.stop(B)
    world.run()
    world.kill(A, lose_from=1)
    world.start(A, B).advance(5_000)
    assert (world.leader, world.log(A), world.log(B)) == (B, ["m1", "m2"], ["m1", "m2"])


@pytest.mark.parametrize("first", [A, B])
def test_e7_where_all_died_uncleanly_the_last_leader_takes_an_acked_record_with_it(
    first: int,
) -> None:
    """B still has m2, but its shutdown was unclean as well: nobody is eligible, whoever is back."""
    world = cluster("4.0", (A, B), min_insync_replicas=2)
    world.produce("m1")
    m2 = world.produce("m2")
    world.advance(6_000)
    assert world.is_acked(m2)
    world.kill(B)
    world.run()
    world.kill(A, lose_from=1)
    world.run()
    world.start(first).advance(100)
    world.start(B if first == A else A).advance(5_000)
    assert (world.leader, world.log(A), world.log(B)) == (A, ["m1"], ["m1"])


def test_e7_an_eligible_replica_that_crashed_is_eligible_no_longer() -> None:
    """Both fell in an unclean way: the last known leader comes back, whatever it has."""
    world = cluster("4.0", (A, B), min_insync_replicas=2)
    world.produce("m1")
    world.advance(6_000)
    world.kill(B)
    world.run()
    assert (world.isr, world.service.states[T].elr) == ((A,), (B,))
    world.kill(A)
    world.run()
    world.start(B).advance(100)
    assert (world.leader, world.service.states[T].elr) == (-1, (A,))
    world.start(A).advance(5_000)
    assert world.leader == A


@pytest.mark.parametrize(("crashes", "leader"), [(True, -1), (False, B)])
def test_e7_a_controller_that_lives_sees_who_comes_back_from_a_crash(
    crashes: bool, leader: int
) -> None:
    """B, eligible, comes back while A is down; C is the controller all the time."""
    world = World("4.0", unclean_leader_election_enable=False).start(C).run()
    world.start(A, B).run()
    world.topic(A, B, min_insync_replicas=2).run()
    world.produce("m1")
    world.advance(6_000)
    (world.kill if crashes else world.stop)(B)
    world.run()
    world.kill(A)
    world.run()
    assert world.service.states[T].elr == (A, B)
    world.start(B).advance(100)
    assert world.leader == leader


@pytest.mark.parametrize(("written_at", "torn"), [(9, {T: frozenset({B})}), (10, {}), (-1, {})])
def test_e7_a_new_controller_knows_who_crashed_before_its_time(
    written_at: int, torn: dict[TopicPartition, frozenset[int]]
) -> None:
    state = LeaderAndIsr(A, 4, (A,), 1, 7, (B,), written_at=written_at)
    brokers = {
        A: BrokerRegistration(A, (), epoch=12),
        B: BrokerRegistration(B, (), epoch=10, unclean_shutdown=True),
        C: BrokerRegistration(C, (), epoch=13, unclean_shutdown=True),  # no member
    }
    assert came_back_torn({T: state}, brokers) == torn


def test_e7_a_record_whose_isr_shrinks_times_out_and_is_committed_when_it_grows_again() -> None:
    world = cluster("4.0", (A, B), min_insync_replicas=2)
    world.produce("m1")
    world.advance(6_000)
    world.hold(events.FetchRequested, source=B, target=A)
    m2 = world.produce("m2", timeout_ms=60_000)
    world.advance(50_000)
    assert (world.isr, world.offsets(A)) == ((A,), (2, 1))
    assert world.result(m2) is None
    world.holds.clear()
    world.advance(5_000)
    assert (set(world.isr), world.offsets(A), world.result(m2)) == ({A, B}, (2, 2), Error.NONE)
