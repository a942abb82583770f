"""I1-I9: who is in sync, who decides it, and who is notified."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import CaughtUp
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    LeaderAndIsrConflict,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    NotifyIsrChange,
    ReadLeaderAndIsr,
    SessionExpired,
    SessionStarted,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import (
    IsrChangePropagation,
    IsrExpiration,
    TimerFired,
)
from neaptide.clusters.broker.replication.model import LeaderAndIsr
from neaptide.clusters.broker.replication.partition.partition_rules import (
    CommittedIsr,
    Leader,
    PendingExpandIsr,
    PendingShrinkIsr,
    UncertainIsr,
    isr_of,
)
from neaptide.clusters.broker.replication.partition.remote_replica import (
    NEVER_MS,
    RemoteReplica,
    record_fetch,
)
from neaptide.clusters.broker.replication.step import begin, step
from tests.core import given
from tests.core.given import NOW, A, B, C, T
from tests.core.world import cluster


def _expire(leader: Broker, now_ms: int) -> list[LeaderAndIsr]:
    """The states that the leader wants to write when the timer fires."""
    return _written(step(leader, TimerFired(IsrExpiration()), now_ms))


def _written(done: tuple[Effect, ...]) -> list[LeaderAndIsr]:
    asked = [e.request for e in done if isinstance(e, effects.Coordinate)]
    return [request.state for request in asked if isinstance(request, WriteLeaderAndIsr)]


# --- I1, I2 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (20, NOW),  # at the leader's end now
        (10, NOW - 400),  # at what was its end at the previous fetch: as of then
        (9, NOW - 9_000),  # behind both: nothing moves
    ],
)
def test_i1_caught_up_time_moves_at_the_end_now_or_at_the_end_of_the_previous_fetch(
    offset: int, expected: int
) -> None:
    replica = RemoteReplica(
        log_end_offset=8,
        log_start_offset=0,
        last_fetch_leader_log_end_offset=10,
        last_fetch_time_ms=NOW - 400,
        last_caught_up_time_ms=NOW - 9_000,
    )
    after = record_fetch(
        replica,
        fetch_offset=offset,
        log_start_offset=0,
        leader_log_end_offset=20,
        now_ms=NOW,
        rule=CaughtUp.AT_LOG_END_OFFSET,
    )
    assert after == RemoteReplica(offset, 0, 20, NOW, expected)


@pytest.mark.parametrize("behind", [0, 1])
def test_i2_a_slow_follower_leaves_and_one_that_keeps_up_stays(behind: int) -> None:
    """B fetches each second, one record a second comes; with `behind` it is always two back."""
    leader = given.leading(isr=(A, B), records=5)
    for second in range(1, 13):
        now_ms = NOW + 1_000 * second
        end = given.of(leader).log.end_offset
        offset = end - 2 if behind else end
        step(leader, given.fetch(B, offset, request=second, max_wait_ms=0), now_ms)
        step(leader, given.produce(acks=1, request=100 + second), now_ms)
    wanted = [state.isr for state in _expire(leader, NOW + 12_000)]
    assert wanted == ([(A,)] if behind else [])


def test_i2_a_stuck_follower_leaves_and_joins_again_only_when_it_has_caught_up() -> None:
    leader = given.leading(isr=(A, B), records=5, high_watermark=5)
    assert [state.isr for state in _expire(leader, NOW + 10_001)] == [(A,)]
    shrunk = LeaderAndIsr(A, 0, (A,), 1, version=1)
    step(leader, LeaderAndIsrWritten(T, shrunk, False), NOW + 10_002)
    assert _written(step(leader, given.fetch(B, 4), NOW + 11_000)) == []
    joined = _written(step(leader, given.fetch(B, 5, request=7), NOW + 11_001))
    assert joined == [LeaderAndIsr(A, 0, (A, B), 1, version=1)]


# --- I3 ------------------------------------------------------------------------------------------


def test_i3_the_check_runs_every_half_of_the_lag_time() -> None:
    half = effects.SetTimer(IsrExpiration(), 5_000)
    assert half in begin(given.broker())
    assert half in step(given.leading(), TimerFired(IsrExpiration()), NOW)


@pytest.mark.parametrize(
    ("since_caught_up", "leaves"), [(5_000, False), (10_000, False), (10_001, True)]
)
def test_i3_a_replica_leaves_after_more_than_the_lag_time(
    since_caught_up: int, leaves: bool
) -> None:
    leader = given.leading(isr=(A, B))
    assert bool(_expire(leader, NOW + since_caught_up)) == leaves


@pytest.mark.parametrize("dies_after_ms", [600, 2_345, 4_990, 7_777])
def test_i3_a_dead_follower_stays_for_10_000_to_15_000_ms(dies_after_ms: int) -> None:
    world = cluster("0.11", (A, B))
    world.advance(dies_after_ms)
    world.hold(events.FetchRequested, source=B)
    caught_up = given.role(world.brokers[A]).remotes[B].last_caught_up_time_ms
    while B in world.isr:
        world.advance(10)
    assert 10_000 < world.now_ms - caught_up <= 15_010


# --- I4 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "offset", "joins"),
    [("0.11", 4, True), ("0.11", 3, False), ("2.0", 9, False), ("2.0", 10, True)],
)
def test_i4_a_replica_joins_at_the_high_watermark_and_from_2_0_1_at_the_epochs_start(
    generation: str, offset: int, joins: bool
) -> None:
    leader = given.leading(generation, isr=(A, C), records=10, high_watermark=4)
    done = step(leader, given.fetch(B, offset), NOW)
    expected = [LeaderAndIsr(A, 0, (A, B, C), 1, version=0)] if joins else []
    assert _written(done) == expected
    isr = PendingExpandIsr((A, C), B) if joins else CommittedIsr((A, C))
    assert given.role(leader).isr == isr


def test_i4_a_joining_replica_counts_for_the_high_watermark_before_the_answer_is_here() -> None:
    leader = given.leading(isr=(A,), records=10, high_watermark=10)
    step(leader, given.fetch(B, 10), NOW)
    step(leader, given.produce(request=2), NOW + 20_000)  # long after B was last caught up
    assert given.of(leader).high_watermark == 10
    joined = LeaderAndIsr(A, 0, (A, B), 1, version=1)
    done = step(leader, LeaderAndIsrWritten(T, joined, False), NOW + 20_001)
    assert not given.did(done, effects.RespondProduce)
    done = step(leader, given.fetch(B, 11, request=3), NOW + 20_002)
    assert given.did(done, effects.RespondProduce)


def test_i4_a_broker_that_is_not_assigned_never_joins() -> None:
    leader = given.leading(isr=(A,), records=3)
    assert _written(step(leader, given.fetch(9, 3, max_wait_ms=0), NOW)) == []


# --- I6 ------------------------------------------------------------------------------------------


def test_i6_a_shrink_is_written_with_the_version_known_and_counts_when_it_is_answered() -> None:
    leader = given.leading(isr=(A, B), records=5)
    (state,) = _expire(leader, NOW + 10_001)
    assert state == LeaderAndIsr(A, 0, (A,), 1, version=0)
    assert given.role(leader).isr == PendingShrinkIsr((A, B), (B,))
    assert given.of(leader).high_watermark == 0
    step(leader, LeaderAndIsrWritten(T, LeaderAndIsr(A, 0, (A,), 1, 1), False), NOW + 10_002)
    assert given.role(leader).isr == CommittedIsr((A,))
    assert (given.of(leader).version, given.of(leader).high_watermark) == (1, 5)


def test_i6_a_lost_race_keeps_the_old_isr_and_version() -> None:
    leader = given.leading(isr=(A, B), records=5)
    before = given.of(leader)
    (state,) = _expire(leader, NOW + 10_001)
    step(leader, LeaderAndIsrConflict(T, state, False), NOW + 10_002)
    assert given.of(leader) == before


@pytest.mark.parametrize("answer", [LeaderAndIsrWritten, LeaderAndIsrConflict])
def test_i6_an_answer_of_an_earlier_epoch_changes_nothing(
    answer: type[LeaderAndIsrWritten] | type[LeaderAndIsrConflict],
) -> None:
    leader = given.leading(isr=(A, B), records=5)
    (state,) = _expire(leader, NOW + 10_001)
    step(leader, given.leader_and_isr(B, 1), NOW + 10_002)
    step(leader, given.leader_and_isr(A, 2, (A, C), version=7), NOW + 10_003)
    (pending,) = _expire(leader, NOW + 30_000)
    before = leader.copy()
    assert step(leader, answer(T, state, False), NOW + 30_001) == ()
    assert leader == before
    assert pending.version == 7


def test_i6_after_the_session_ended_a_change_is_in_doubt_until_it_is_read() -> None:
    leader = given.leading(isr=(A,), records=10, high_watermark=10)
    step(leader, given.fetch(B, 10), NOW)
    step(leader, SessionExpired(), NOW + 1)
    assert given.role(leader).isr == UncertainIsr((A,), (A, B))
    step(leader, given.produce(), NOW + 20_000)
    assert given.of(leader).high_watermark == 10
    done = step(leader, SessionStarted(5), NOW + 20_001)
    assert effects.Coordinate(ReadLeaderAndIsr((T,))) in done
    written = LeaderAndIsr(A, 0, (A, B), 1, version=1)
    step(leader, LeaderAndIsrRead((T,), {T: written}), NOW + 20_002)
    assert given.role(leader).isr == CommittedIsr((A, B))
    assert given.of(leader).version == 1


def test_i6_a_state_that_is_read_while_a_change_is_under_way_does_not_end_it() -> None:
    leader = given.leading(isr=(A,), records=10, high_watermark=10)
    step(leader, given.fetch(B, 10), NOW)
    before = given.of(leader)
    old = LeaderAndIsr(A, 0, (A,), 1, version=0)
    step(leader, LeaderAndIsrRead((T,), {T: old}), NOW)
    assert given.of(leader) == before


# --- I7 ------------------------------------------------------------------------------------------


def _reported_at(leader: Broker, changed_ms: list[int], until_ms: int) -> list[int]:
    """When the controller is notified, if changes come at these times and the timer at its own."""
    shrunk = LeaderAndIsr(A, 0, (A,), 1, version=1)
    times = []
    for now_ms in range(NOW + 2_500, NOW + until_ms, 2_500):
        while changed_ms and NOW + changed_ms[0] <= now_ms:
            at_ms = NOW + changed_ms.pop(0)
            leader.partitions[T] = given.of(given.leading(isr=(A, B)))
            _expire(leader, at_ms + 10_001)
            step(leader, LeaderAndIsrWritten(T, shrunk, False), at_ms)
        done = step(leader, TimerFired(IsrChangePropagation()), now_ms)
        assert effects.SetTimer(IsrChangePropagation(), 2_500) in done
        if effects.Coordinate(NotifyIsrChange((T,))) in done:
            times.append(now_ms - NOW)
    return times


def test_i7_a_change_is_reported_at_the_first_look_more_than_5_000_ms_after_it() -> None:
    assert _reported_at(given.leading(isr=(A, B)), [2_600], 30_000) == [10_000]
    assert _reported_at(given.leading(isr=(A, B)), [2_500], 30_000) == [10_000]


def test_i7_changes_that_never_rest_are_reported_after_60_000_ms() -> None:
    busy = list(range(2_000, 120_000, 2_000))
    assert _reported_at(given.leading(isr=(A, B)), busy, 120_000) == [65_000]


def test_i7_the_controller_reads_and_notifies_the_brokers_and_deletes_the_note() -> None:
    world = cluster("0.11", (B, A, C), replica_lag_time_max_ms=3_000)
    world.hold(events.FetchRequested, source=C, target=B)
    world.advance(14_000)
    assert world.isr == (B, A)
    assert world.service.notifications == {}
    for broker in world.brokers.values():
        assert broker.metadata.topics["t"][0].state.isr == (B, A)


# --- I8, I9 --------------------------------------------------------------------------------------


def test_i8_the_leader_stays_in_the_isr_and_assigned_replicas_are_isr_and_the_rest() -> None:
    leader = given.leading(isr=(A, B, C))
    (state,) = _expire(leader, NOW + 10_001)
    assert state.isr == (A,)
    assert isr_of(given.of(leader)) == (A, B, C)
    assert given.of(leader).assigned == (A, B, C)
    assert set(given.role(leader).remotes) == {B, C}


def test_i8_whom_the_controller_took_out_of_the_isr_does_not_hold_up_commits() -> None:
    leader = given.leading(isr=(A, B), records=5)
    step(leader, given.fetch(B, 5), NOW)
    step(leader, given.produce(request=2), NOW + 1)
    done = step(leader, given.leader_and_isr(A, 1, (A,)), NOW + 2)
    assert given.did(done, effects.RespondProduce)
    assert given.role(leader).remotes[B].last_caught_up_time_ms == NEVER_MS


def test_i9_too_small_an_isr_refuses_acks_all_before_the_append() -> None:
    leader = given.leading(isr=(A,), min_insync_replicas=2)
    (answer,) = given.did(step(leader, given.produce(), NOW))
    assert answer.results[0].error is Error.NOT_ENOUGH_REPLICAS
    assert given.of(leader).log.end_offset == 0
    assert given.did(step(leader, given.produce(acks=1), NOW), effects.AppendToLog)


@pytest.mark.parametrize(
    ("generation", "error"), [("2.8", Error.NOT_ENOUGH_REPLICAS), ("4.0", Error.NONE)]
)
def test_i9_min_insync_replicas_counts_no_more_replicas_than_there_are(
    generation: str, error: Error
) -> None:
    """KAFKA-15583: from 3.7 on."""
    leader = given.broker(generation)
    step(leader, given.leader_and_isr(A, 0, (A,), replicas=(A,), min_insync_replicas=2), NOW)
    (answer,) = given.did(step(leader, given.produce(), NOW), effects.RespondProduce)
    assert answer.results[0].error is error


def test_i9_an_isr_that_shrank_after_the_append_gives_error_20_and_the_record_stays() -> None:
    leader = given.leading(isr=(A, B), min_insync_replicas=2)
    step(leader, given.produce(), NOW)
    _expire(leader, NOW + 10_001)
    shrunk = LeaderAndIsrWritten(T, LeaderAndIsr(A, 0, (A,), 1, 1), False)
    (answer,) = given.did(step(leader, shrunk, NOW + 10_002), effects.RespondProduce)
    assert answer.results[0].error is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert int(answer.results[0].error) == 20
    assert given.of(leader).log.end_offset == 1


# --- an ISR that the controller has shrunk in the same leader epoch (KAFKA-15021) ----------------


def _shrunk(version: int = 3, epoch: int = 0) -> events.LeaderAndIsrRequested:
    return given.leader_and_isr(A, epoch, (A, B), version=version)


def _outcome(done: tuple[Effect, ...]) -> Error:
    [answer] = [effect for effect in done if isinstance(effect, effects.RespondControl)]
    [(_, error)] = answer.partitions
    return error


def _isr(leader: Broker) -> object:
    role = given.of(leader).role
    assert isinstance(role, Leader)
    return role.isr


def test_c4_a_leader_takes_an_isr_of_its_epoch_and_acknowledges_what_waited() -> None:
    leader = given.leading("4.0", records=0)
    step(leader, given.produce(acks=-1), NOW)
    step(leader, given.fetch(B, 1, believed=0, last_epoch=0), NOW)
    assert given.of(leader).high_watermark == 0  # C has nothing yet
    done = step(leader, _shrunk(), NOW)
    assert _outcome(done) is Error.NONE
    assert isr_of(given.of(leader)) == (A, B)
    assert (given.of(leader).high_watermark, given.of(leader).version) == (1, 3)
    assert given.of(leader).leader_epoch == 0
    [answer] = given.did(done, effects.RespondProduce)
    assert [result.error for result in answer.results] == [Error.NONE]


@pytest.mark.parametrize(("generation", "version"), [("2.8", 3), ("4.0", 0)])
def test_c4_otherwise_a_state_of_the_same_epoch_is_left_alone(
    generation: str, version: int
) -> None:
    leader = given.leading(generation)
    assert _outcome(step(leader, _shrunk(version), NOW)) is Error.STALE_CONTROLLER_EPOCH
    assert isr_of(given.of(leader)) == (A, B, C)


def test_c4_what_the_leader_has_asked_for_itself_is_void_then() -> None:
    leader = given.leading("4.0", records=1)
    step(leader, given.fetch(B, 1, believed=0, last_epoch=0), NOW)
    step(leader, TimerFired(IsrExpiration()), NOW + 60_000)
    assert isinstance(_isr(leader), PendingShrinkIsr)
    step(leader, _shrunk(), NOW + 60_000)
    assert _isr(leader) == CommittedIsr((A, B))
