"""Documented scenarios as plays of a whole cluster: what one generation loses, the next keeps."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.controller.controller_context import Active, Standby
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.model import BrokerRegistration, EpochEntry
from neaptide.clusters.broker.replication.partition.partition_rules import isr_of
from tests.core.world import SERVICE, A, B, C, T, World, cluster

# --- KIP-101 -------------------------------------------------------------------------------------


def _lost_by_truncation(generation: str) -> tuple[World, int]:
    """Acks m2 with A one fetch round late; C dies, B leads, B dies, A leads: clean elections."""
    world = cluster(generation, (C, B, A), min_insync_replicas=2)
    world.produce("m1")
    world.advance(600)
    assert [world.offsets(b) for b in (A, B, C)] == [(1, 1)] * 3
    m2 = world.produce("m2")
    while world.offsets(A)[0] < 2:  # A has m2; the answer that says it is committed is to come
        world.deliver(world.in_flight[0])
    world.hold(events.FetchResponded, source=C, target=A)
    world.hold(events.FetchRequested, source=A, target=B)
    world.run()
    assert (world.is_acked(m2), world.offsets(A)) == (True, (2, 1))
    world.kill(C)
    world.advance(1_200)
    assert (world.leader, world.isr) == (B, (B, A))
    world.kill(B)
    world.run()
    assert (world.leader, world.isr) == (A, (A,))
    return world, m2


def test_e2_kip_101_scenario_1_loses_an_acked_record_on_0_10() -> None:
    world, m2 = _lost_by_truncation("0.10")
    assert world.log(A) == ["m1"]
    assert world.is_acked(m2)


def test_e2_kip_101_scenario_1_keeps_the_acked_record_on_0_11() -> None:
    world, _ = _lost_by_truncation("0.11")
    assert world.log(A) == ["m1", "m2"]


def _both_down_one_tail_lost(generation: str) -> World:
    """Power failure: B loses m2 and leads first, with m3 in its place; A, with HW 2, comes back."""
    world = cluster(generation, (A, B), unclean_leader_election_enable=True)
    world.produce("m1")
    world.advance(600)
    world.produce("m2")
    world.advance(6_000)  # and both have their high watermark, 2, checkpointed
    world.kill(A)
    world.kill(B, lose_from=1)
    world.run()
    world.start(B).advance(100)
    assert world.leader == B
    world.produce("m3", acks=1)
    world.start(A).advance(5_000)
    return world


def test_e2_kip_101_scenario_2_diverges_in_silence_on_0_10() -> None:
    world = _both_down_one_tail_lost("0.10")
    assert (world.log(B), world.log(A)) == (["m1", "m3"], ["m1", "m2"])
    assert set(world.isr) == {A, B}


def test_e2_kip_101_scenario_2_converges_on_0_11() -> None:
    world = _both_down_one_tail_lost("0.11")
    assert (world.log(B), world.log(A)) == (["m1", "m3"], ["m1", "m3"])


# --- F9, F10: out of range -----------------------------------------------------------------------


def _old_leader_returns(generation: str, *, longer_by: int) -> World:
    """A leads alone, to LEO 3; B is elected uncleanly with m0 only; A returns with `longer_by`."""
    world = cluster(generation, (A, B), unclean_leader_election_enable=True)
    world.produce("m0")
    world.advance(6_000)
    world.kill(B)
    world.run()
    for name in ("a1", "a2"):
        world.produce(name)
    world.advance(6_000)
    world.kill(A)
    world.start(B).advance(100)
    for number in range(2 - longer_by):
        world.produce(f"b{number}")
    world.start(A).advance(3_000)
    return world


@pytest.mark.parametrize("generation", ["0.10", "0.11"])
def test_f10_b1_the_longer_old_leader_is_cut_to_the_new_leaders_end(generation: str) -> None:
    world = _old_leader_returns(generation, longer_by=2)
    assert (world.log(A), world.log(B)) == (["m0"], ["m0"])
    assert world.offsets(A) == world.offsets(B) == (1, 1)


@pytest.mark.parametrize(
    ("generation", "of_the_old_leader"),
    [("0.10", ["m0", "a1", "a2"]), ("0.11", ["m0", "b0", "b1"])],
)
def test_f10_b2_where_the_new_leader_has_grown_the_old_one_diverges_before_0_11(
    generation: str, of_the_old_leader: list[str]
) -> None:
    world = _old_leader_returns(generation, longer_by=0)
    assert (world.log(B), world.log(A)) == (["m0", "b0", "b1"], of_the_old_leader)


@pytest.mark.parametrize("generation", ["0.10", "0.11"])
def test_f9_a_follower_behind_the_leaders_log_start_begins_there(generation: str) -> None:
    world = cluster(generation, (A, B))
    for number in range(3):
        world.produce(f"m{number}")
    world.advance(1_000)
    world.kill(B)
    world.run()
    for number in range(3, 6):
        world.produce(f"m{number}")
    world.advance(6_000)
    world.kill(A)
    world.delete_before(A, 4)
    log = world.disks[A].logs[T]
    log.epochs = (EpochEntry(log.epochs[-1].epoch, 4),) if log.epochs else ()
    world.start(A).run()
    world.start(B).advance(3_000)
    assert (world.log(B), world.offsets(B)) == (["m4", "m5"], (6, 6))
    assert world.brokers[B].partitions[T].log.start_offset == 4


# --- E4, C1, C6, I6, P2 --------------------------------------------------------------------------


def test_e4_a_leader_that_is_gone_before_it_answers_causes_no_truncation() -> None:
    world = cluster("0.11", (C, B, A), min_insync_replicas=2)
    world.produce("m1")
    world.advance(600)
    world.produce("m2")
    world.advance(600)
    world.hold(events.OffsetForLeaderEpochResponded, source=B, target=A)
    world.kill(C)
    world.advance(100)
    assert [m.target for m in world.held()] == [A]
    world.kill(B)
    world.advance(2_000)
    assert (world.leader, world.log(A)) == (A, ["m1", "m2"])
    assert world.service.states[T].leader_epoch == 2


def test_c1_a_controller_that_was_cut_off_is_refused_and_resigns() -> None:
    world = cluster("0.11", (B, C, A))
    world.holds.append(lambda m: m.source == SERVICE and m.target == A)
    world.expire(A)  # A does not learn of it
    world.run()
    assert world.service.controller != A
    assert isinstance(world.brokers[A].controller, Active)
    world.handle(A, BrokersChanged({B: BrokerRegistration(B, ())}))  # what it saw last: C is gone
    world.run()
    assert world.refused == [(B, Error.STALE_CONTROLLER_EPOCH)]
    assert isinstance(world.brokers[A].controller, Standby)


@pytest.mark.parametrize(
    ("unclean", "leader_meanwhile", "kept"),
    [(False, -1, ["m1", "m2"]), (True, B, ["m1"])],
)
def test_c6_with_all_replicas_down_it_waits_or_takes_the_first_that_comes_back(
    unclean: bool, leader_meanwhile: int, kept: list[str]
) -> None:
    world = cluster("0.11", (A, B, C), unclean_leader_election_enable=unclean)
    world.produce("m1")
    world.advance(600)
    world.kill(C)
    world.kill(B)
    world.run()
    world.produce("m2")
    world.kill(A)
    world.start(B).advance(100)
    assert world.leader == leader_meanwhile
    world.start(A).start(C).advance(5_000)
    assert [world.log(b) for b in (A, B, C)] == [kept] * 3


def test_i6_a_lost_race_keeps_the_old_isr_until_the_controller_notifies() -> None:
    world = cluster("0.11", (B, A, C), replica_lag_time_max_ms=3_000)
    world.hold(events.FetchRequested, source=C, target=B)
    world.holds.append(lambda m: isinstance(m.body, WriteLeaderAndIsr) and not m.body.by_controller)
    world.advance(4_600)
    (ours,) = [m.body for m in world.held() if isinstance(m.body, WriteLeaderAndIsr)]
    assert ours.state.isr == (B, A)
    world.kill(A)  # the controller; its successor takes A out of the ISR first
    world.run()
    assert world.isr == (B, C)
    sent_by_controller = world.brokers[B].partitions[T]
    world.holds.clear()
    world.run()
    assert world.isr == (B, C)
    assert world.brokers[B].partitions[T].version == sent_by_controller.version
    assert isr_of(world.brokers[B].partitions[T]) == (B, C)


def test_p2_a_produce_that_no_follower_confirms_times_out_and_is_answered_once() -> None:
    world = cluster("0.11", (C, B, A))
    world.hold(events.FetchRequested, target=C)
    world.advance(600)
    request = world.produce("m", timeout_ms=1_500)
    world.advance(1_499)
    assert world.result(request) is None
    world.advance(1)
    assert world.result(request) is Error.REQUEST_TIMED_OUT
    world.holds.clear()
    world.advance(1_000)
    assert len(world.answers[request]) == 1
    assert [world.log(b) for b in (A, B, C)] == [["m"]] * 3


# --- sessions ------------------------------------------------------------------------------------


def test_i6_an_isr_change_whose_answer_was_lost_with_the_session_still_holds_the_ack() -> None:
    """B joins in the service, its leader never learns of it; alone it must not ack what B lacks."""
    world = cluster("0.11", (A, B), replica_lag_time_max_ms=3_000)
    world.kill(B)
    world.run()
    world.hold(WriteLeaderAndIsr, source=A, target=SERVICE)
    world.start(B).advance(50)
    (write,) = [
        held
        for held in world.held()
        if isinstance(held.body, WriteLeaderAndIsr) and not held.body.by_controller
    ]
    world.holds.clear()
    world.deliver(write)
    world.hold(events.FetchRequested, source=B, target=A)
    world.hold(events.FetchResponded, source=A, target=B)
    world.holds.append(lambda m: m.source == SERVICE and m.target == A)
    world.expire(A)
    world.register(A)
    assert world.isr == (A, B)
    notice_of_expiry = next(m for m in world.in_flight if m.source == SERVICE and m.target == A)
    world.deliver(notice_of_expiry)
    request = world.produce("m", to=A)
    world.run()
    assert world.result(request) is not Error.NONE
