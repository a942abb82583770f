"""I5, E5, E6: what the generations 0.8, 2.0 and 2.1 do otherwise than those before them."""

from __future__ import annotations

from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower.replica_fetcher import Delayed, Fetching
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    LeaderAndIsrConflict,
    LeaderAndIsrWritten,
)
from neaptide.clusters.broker.replication.model import EpochEntry, LeaderAndIsr
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache
from neaptide.clusters.broker.replication.partition.partition_rules import PendingShrinkIsr
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.broker.replication.step import begin, step
from neaptide.clusters.broker.server.apis.table import client_apis, replication_apis
from neaptide.clusters.broker.wire.apis import Api
from tests.core import given
from tests.core.given import LEADER_OF_A, NOW, A, B, C, T
from tests.core.world import World, cluster

EPOCHS = (EpochEntry(1, 2), EpochEntry(3, 5), EpochEntry(4, 9))
LATER = NOW + 5_000  # an ISR check, with everybody still caught up in time

# --- I5: 0.8 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "behind", "leaves"),
    [("0.8", 4_001, True), ("0.8", 4_000, False), ("0.10", 4_001, False), ("2.1", 4_001, False)],
)
def test_i5_only_on_0_8_too_many_messages_behind_is_out_of_sync(
    generation: str, behind: int, leaves: bool
) -> None:
    leader = given.leading(generation, isr=(A, B), records=behind)
    step(leader, given.fetch(B, 0), NOW)
    done = step(leader, events.TimerFired(events.IsrExpiration()), LATER)
    assert bool(given.did(done, effects.Coordinate)) == leaves


def test_i5_one_that_has_not_fetched_from_this_leader_yet_is_not_behind() -> None:
    leader = given.leading("0.8", isr=(A, B), records=9_000)
    done = step(leader, events.TimerFired(events.IsrExpiration()), LATER)
    assert not given.did(done, effects.Coordinate)


def test_i5_on_0_8_time_counts_as_well() -> None:
    leader = given.leading("0.8", isr=(A, B))
    done = step(leader, events.TimerFired(events.IsrExpiration()), NOW + 10_001)
    assert given.did(done, effects.Coordinate)


# --- A6: 0.8 is 0.8.2 --------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "leaves"), [("0.8", False), ("0.10", True)])
def test_a6_on_0_8_who_fetches_at_all_is_not_stuck(generation: str, leaves: bool) -> None:
    """Always behind, but by less than replica.lag.max.messages."""
    leader = given.leading(generation, isr=(A, B), records=9)
    for number in range(1, 4):
        step(leader, given.fetch(B, number), NOW + number * 5_000)
        step(leader, given.produce(request=number), NOW + number * 5_000)
    done = step(leader, events.TimerFired(events.IsrExpiration()), NOW + 16_000)
    assert bool(given.did(done, effects.Coordinate)) == leaves


@pytest.mark.parametrize(("generation", "every_ms"), [("0.8", 10_000), ("0.10", 5_000)])
def test_a6_on_0_8_replicas_are_looked_at_every_full_lag_time(
    generation: str, every_ms: int
) -> None:
    timer = effects.SetTimer(events.IsrExpiration(), every_ms)
    assert timer in begin(given.broker(generation))
    leader = given.leading(generation)
    assert timer in step(leader, events.TimerFired(events.IsrExpiration()), NOW)


@pytest.mark.parametrize(("generation", "high_watermark"), [("0.8", 4), ("0.10", 2)])
def test_a6_on_0_8_the_high_watermark_waits_for_the_isr_alone(
    generation: str, high_watermark: int
) -> None:
    """B has caught up with what was there and is not in the ISR yet: its place is being written."""
    leader = given.leading(generation, isr=(A, C), records=2)
    step(leader, given.fetch(B, 2), NOW)
    step(leader, given.fetch(C, 2, request=501), NOW)
    state = given.role(leader).isr.maximal
    assert B in state
    refused = LeaderAndIsr(A, 0, (A, C), 1, 0)
    step(leader, LeaderAndIsrConflict(T, refused, False), NOW)  # it did not get in
    for request in (1, 2):
        step(leader, given.produce(acks=1, request=request), NOW)
    step(leader, given.fetch(C, 4, request=502), NOW)
    assert given.of(leader).high_watermark == high_watermark


@pytest.mark.parametrize(("generation", "reports"), [("0.8", False), ("0.10", True)])
def test_a6_on_0_8_the_controller_learns_nothing_of_isr_changes(
    generation: str, reports: bool
) -> None:
    timers = [e.timer for e in begin(given.broker(generation)) if isinstance(e, effects.SetTimer)]
    assert (events.IsrChangePropagation() in timers) == reports
    leader = given.leading(generation, isr=(A, B))
    (asked,) = given.did(
        step(leader, events.TimerFired(events.IsrExpiration()), NOW + 40_000), effects.Coordinate
    )
    written = LeaderAndIsrWritten(T, asked.request.state, False)
    step(leader, written, NOW + 40_000)
    assert bool(leader.isr_changes.partitions) == reports


def test_a6_on_0_8_acks_2_waits_for_two_replicas_of_the_isr() -> None:
    leader = given.leading("0.8")
    assert not given.did(step(leader, given.produce(acks=2), NOW), effects.RespondProduce)
    done = step(leader, given.fetch(C, 1), NOW)
    answer = effects.RespondProduce(1, 2, (effects.ProducedPartition(T, Error.NONE, 0, 0),))
    assert given.did(done, effects.RespondProduce) == [answer]
    assert given.of(leader).high_watermark == 0  # B still has nothing


def test_a6_on_0_8_a_replica_outside_the_isr_does_not_count_for_acks_2() -> None:
    leader = given.leading("0.8", isr=(A, B), records=1, high_watermark=1)
    step(leader, given.produce(acks=2), NOW)
    assert not given.did(step(leader, given.fetch(C, 2), NOW), effects.RespondProduce)
    assert given.did(step(leader, given.fetch(B, 2), NOW), effects.RespondProduce)


def test_a6_on_0_8_acks_3_runs_out_of_time_where_the_isr_is_smaller() -> None:
    leader = given.leading("0.8", isr=(A, B))
    step(leader, given.produce(acks=3), NOW)
    step(leader, given.fetch(B, 1), NOW)
    expired = events.TimerFired(events.DelayedOperationExpired(1))
    (answer,) = given.did(step(leader, expired, NOW + 30_000), effects.RespondProduce)
    assert answer.results[0].error is Error.REQUEST_TIMED_OUT


def test_a6_on_0_8_any_acks_below_zero_are_all() -> None:
    leader = given.leading("0.8", isr=(A, B))
    step(leader, given.produce(acks=-2), NOW)
    (answer,) = given.did(step(leader, given.fetch(B, 1), NOW), effects.RespondProduce)
    assert answer.results[0].error is Error.NONE


# --- I5 on both ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "changes"), [("0.8", 6), ("0.10", 0)])
def test_i5_every_burst_shrinks_the_isr_and_expands_it_again_on_0_8(
    generation: str, changes: int
) -> None:
    world = cluster(generation, (A, B), replica_lag_max_messages=3)
    before = world.service.states[T].version
    for burst in range(3):
        slow = world.hold(events.FetchResponded, source=A, target=B)
        for number in range(5):
            world.produce(f"m{burst}-{number}", acks=1)
        world.advance(10_000)
        assert set(world.isr) == ({A} if changes else {A, B})
        world.holds.remove(slow)
        world.advance(1_000)
        assert set(world.isr) == {A, B}
    assert world.service.states[T].version - before == changes
    assert world.log(A) == world.log(B)


# --- E5: 2.0 (KIP-279) ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (4, (4, 12)),  # the latest: the log end offset
        (3, (3, 9)),
        (2, (1, 5)),  # one that it never had: the one before, where the one after starts
        (1, (1, 5)),
        (0, (0, 2)),  # before all that it knows: nothing of it is left here
        (5, (-1, -1)),  # after all that it knows
        (-1, (-1, -1)),
    ],
)
def test_e5_the_answer_names_the_largest_epoch_up_to_the_one_asked_for(
    asked: int, answer: tuple[int, int]
) -> None:
    assert leader_epoch_file_cache.largest_epoch_up_to(EPOCHS, asked, 12) == answer


def test_e5_a_log_without_epochs_knows_none() -> None:
    assert leader_epoch_file_cache.largest_epoch_up_to((), 0, 12) == (-1, -1)
    assert leader_epoch_file_cache.largest_epoch_up_to((), -1, 12) == (-1, -1)


@pytest.mark.parametrize(("generation", "named"), [("0.11", -1), ("2.0", 0), ("2.1", 0)])
def test_e5_a_leader_names_the_epoch_from_2_0_on(generation: str, named: int) -> None:
    leader = given.leading(generation, records=3)
    asked = events.OffsetForLeaderEpochRequested(7, (events.EpochAsked(T, 0),))
    result = effects.EpochEndOffsetResult(T, Error.NONE, 3, named)
    assert given.did(step(leader, asked, NOW)) == [
        effects.RespondOffsetForLeaderEpoch(7, (result,))
    ]


@pytest.mark.parametrize(
    ("leaders", "point"),
    [
        ((4, 20), (12, True)),  # the same latest epoch: the shorter log is a prefix
        ((4, 10), (10, True)),
        ((3, 7), (7, True)),  # both have it: up to where the first of the two ends it
        ((3, 30), (9, True)),
        ((2, 8), (5, False)),  # unknown here: cut it all, ask for the one before
        ((0, 2), (2, True)),  # before all that this log has: nothing of it is common
        ((9, 12), (12, True)),  # later than all here: nothing to compare with
    ],
)
def test_e5_histories_meet_where_the_first_of_the_two_ends_a_common_epoch(
    leaders: tuple[int, int], point: tuple[int, bool]
) -> None:
    found = leader_epoch_file_cache.meeting_point(
        EPOCHS, 12, leader_epoch_file_cache.EpochEnd(*leaders)
    )
    assert found == point


def test_e5_a_follower_cuts_and_asks_again_until_the_histories_meet() -> None:
    """The leader has (0, 0), (2, 4), (5, 5)."""
    log: dict[str, Any] = {"end": 9, "high_watermark": 2, "epochs": {0: 0, 1: 3, 3: 6}}
    follower = given.following("2.0", epoch=6, **log)
    done = step(follower, given.epochs_answer(follower, 5, leader_epoch=2), NOW)
    assert given.of(follower).log.end_offset == 6
    (again,) = given.did(done, effects.SendOffsetForLeaderEpoch)
    assert again.partitions == (events.EpochAsked(T, 1, 6),)
    done = step(follower, given.epochs_answer(follower, 4, leader_epoch=0), NOW)
    assert given.of(follower).log.end_offset == 3
    assert given.of(follower).log.epochs == ((0, 0),)
    (fetch,) = given.did(done, effects.SendFetch)
    assert fetch.partitions[0].fetch_offset == 3


def test_e5_on_0_11_the_same_answer_ends_the_truncation_too_early() -> None:
    follower = given.following("0.11", epoch=6, end=9, high_watermark=2, epochs={0: 0, 1: 3, 3: 6})
    done = step(follower, given.epochs_answer(follower, 5, leader_epoch=2), NOW)
    assert given.of(follower).log.end_offset == 5
    assert given.did(done, effects.SendFetch)


def test_e5_an_epoch_that_the_leader_cannot_know_leaves_the_high_watermark() -> None:
    follower = given.following("2.0", epoch=6, end=9, high_watermark=2, epochs={0: 0})
    step(follower, given.epochs_answer(follower, -1), NOW)
    assert given.of(follower).log.end_offset == 2


def test_e5_an_epoch_in_which_the_follower_led_and_wrote_nothing_is_forgotten() -> None:
    """Else it would ask for it again and again: no truncation reaches an epoch without records."""
    follower = given.broker("2.0", given.stored(9, 2, epochs={0: 0, 3: 9}))
    step(follower, given.leader_and_isr(B, 6), NOW)
    done = step(follower, given.epochs_answer(follower, 5, leader_epoch=2), NOW)
    assert given.of(follower).log.epochs == ((0, 0),)
    assert effects.WriteLeaderEpochCheckpoint(T, (EpochEntry(0, 0),)) in done
    (again,) = given.did(done, effects.SendOffsetForLeaderEpoch)
    assert again.partitions == (events.EpochAsked(T, 0, 6),)


def test_e5_from_2_0_a_leader_notes_its_epoch_before_its_first_record() -> None:
    leader = given.broker("2.0", given.stored(3, 0, epochs={0: 0}))
    done = step(leader, given.leader_and_isr(A, 5), NOW)
    entries = (EpochEntry(0, 0), EpochEntry(5, 3))
    assert effects.WriteLeaderEpochCheckpoint(T, entries) in done
    done = step(leader, given.produce(), NOW)
    assert not given.did(done, effects.WriteLeaderEpochCheckpoint)
    assert given.of(leader).log.epochs == entries


def test_e5_an_epoch_in_which_nothing_was_written_makes_room_for_the_next() -> None:
    noted = leader_epoch_file_cache.assign(EPOCHS, 6, 12)
    assert noted == (*EPOCHS, (6, 12))
    assert leader_epoch_file_cache.assign(noted, 8, 12) == (*EPOCHS, (8, 12))
    assert (
        leader_epoch_file_cache.assign(noted, 4, 12) == EPOCHS
    )  # a record of an older epoch came instead


@pytest.mark.parametrize(
    ("generation", "epoch", "truncates"),
    [("0.11", 4, False), ("2.0", 1, False), ("2.0", 2, True), ("2.1", 1, True)],
)
def test_e5_a_follower_whose_leader_stays_truncates_where_it_missed_an_epoch(
    generation: str, epoch: int, truncates: bool
) -> None:
    """KAFKA-7164; from 2.1 on after every epoch, since its requests must name it."""
    follower = given.fetching(generation, end=5, high_watermark=2, epochs={0: 0})
    late = given.fetch_answer(follower, 5)
    step(follower, given.leader_and_isr(B, epoch), NOW)
    done = step(follower, late, NOW)  # its fetcher has one request in flight at a time
    asked = given.did(done, effects.SendOffsetForLeaderEpoch)
    assert bool(asked) == truncates
    assert given.of(follower).log.end_offset == (5 if truncates else 6)
    if truncates:
        assert asked[0].partitions == (events.EpochAsked(T, 0, epoch),)


def _fast_failover(generation: str, *, writes: bool) -> World:
    """A leads with a1, a2; B alone with b1; A again before B has ever asked it (unclean)."""
    world = cluster(generation, (A, B), unclean_leader_election_enable=True)
    world.produce("m0")
    world.advance(6_000)
    slow = world.hold(events.FetchResponded, source=A, target=B)
    world.produce("a1", acks=1)
    world.produce("a2", acks=1)
    world.run()
    world.kill(A)
    world.holds.remove(slow)
    world.run()
    world.produce("b1", acks=1)
    world.advance(6_000)  # and has it below its checkpointed high watermark
    world.kill(B)
    world.start(A).advance(100)
    if writes:
        world.produce("a3", acks=1)
    world.start(B).advance(3_000)
    assert (world.leader, set(world.isr)) == (A, {A, B})
    return world


@pytest.mark.parametrize("writes", [False, True])
def test_e5_fast_failover_diverges_in_silence_on_0_11(writes: bool) -> None:
    world = _fast_failover("0.11", writes=writes)
    last = ["a3"] if writes else []
    assert world.log(A) == ["m0", "a1", "a2", *last]
    assert world.log(B) == ["m0", "b1", "a2", *last]


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("generation", ["2.0", "2.1"])
def test_e5_after_a_fast_failover_the_replicas_agree_from_2_0_on(
    generation: str, writes: bool
) -> None:
    world = _fast_failover(generation, writes=writes)
    last = ["a3"] if writes else []
    assert world.log(A) == world.log(B) == ["m0", "a1", "a2", *last]


# --- E6: 2.1 (KIP-320) ---------------------------------------------------------------------------

FENCING = [
    ("2.1", 4, Error.FENCED_LEADER_EPOCH),
    ("2.1", 5, Error.NONE),
    ("2.1", 6, Error.UNKNOWN_LEADER_EPOCH),
    ("2.1", -1, Error.NONE),
    ("2.0", 4, Error.NONE),
    ("2.0", 6, Error.NONE),
]
fencing = pytest.mark.parametrize(("generation", "believed", "error"), FENCING)


def _in_epoch_5(generation: str, leader: int = A) -> Broker:
    one = given.broker(generation, given.stored(3, 3, epochs={0: 0}))
    step(one, given.leader_and_isr(leader, 5, (leader,)), NOW)
    return one


def _fetch(replica: int, believed: int) -> events.FetchRequested:
    asked = events.FetchedPartition(T, 1, 1_000, log_start_offset=0, current_leader_epoch=believed)
    return events.FetchRequested(7, replica, 0, 1, (asked,))


@fencing
@pytest.mark.parametrize("replica", [events.CONSUMER, B])
def test_e6_a_fetch_in_another_leader_epoch_is_refused(
    generation: str, believed: int, error: Error, replica: int
) -> None:
    leader = _in_epoch_5(generation)
    done = step(leader, _fetch(replica, believed), NOW)
    (answer,) = given.did(done, effects.RespondFetch)
    assert answer.results[0].error is error
    if replica == B:
        assert given.remote(leader, B) == (1 if error is Error.NONE else -1)


@fencing
def test_e6_the_end_of_an_epoch_is_refused_to_one_in_another_leader_epoch(
    generation: str, believed: int, error: Error
) -> None:
    asked = events.OffsetForLeaderEpochRequested(7, (events.EpochAsked(T, 0, believed),))
    (answer,) = given.did(step(_in_epoch_5(generation), asked, NOW))
    assert answer.results[0].error is error


@fencing
@pytest.mark.parametrize("timestamp", [events.EARLIEST_TIMESTAMP, events.LATEST_TIMESTAMP, 1])
def test_e6_offsets_are_refused_to_one_in_another_leader_epoch(
    generation: str, believed: int, error: Error, timestamp: int
) -> None:
    asked = events.ListOffsetsRequested(7, -1, (events.OffsetAsked(T, timestamp, believed),))
    (answer,) = given.did(step(_in_epoch_5(generation), asked, NOW))
    assert answer.results[0].error is error


@pytest.mark.parametrize(
    ("believed", "error"),
    [
        (4, Error.FENCED_LEADER_EPOCH),
        (5, Error.NOT_LEADER_OR_FOLLOWER),
        (6, Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_e6_a_follower_says_first_which_epoch_is_wrong(believed: int, error: Error) -> None:
    follower = _in_epoch_5("2.1", leader=B)
    (answer,) = given.did(step(follower, _fetch(events.CONSUMER, believed), NOW))
    assert answer.results[0].error is error


def test_e6_offsets_are_reported_with_their_epochs() -> None:
    leader = _in_epoch_5("2.1")
    found = []
    for timestamp in (events.EARLIEST_TIMESTAMP, events.LATEST_TIMESTAMP):
        asked = events.ListOffsetsRequested(7, -1, (events.OffsetAsked(T, timestamp),))
        (answer,) = given.did(step(leader, asked, NOW))
        found += [(one.offset, one.leader_epoch) for one in answer.results]
    assert found == [(0, 0), (3, 5)]


def test_e6_a_follower_waits_for_a_leader_that_does_not_know_the_epoch_yet() -> None:
    follower = given.fetching("2.1", end=5, high_watermark=2, epochs={0: 0})
    step(follower, given.fetch_answer(follower, error=Error.UNKNOWN_LEADER_EPOCH), NOW)
    assert follower.fetchers[LEADER_OF_A].followed[T].state == Delayed(NOW + 1_000, Fetching())


def test_e6_a_parked_fetch_of_an_old_epoch_is_refused_when_its_leader_learns_of_the_new_one() -> (
    None
):
    leader = _in_epoch_5("2.1")
    asked = events.FetchedPartition(T, 3, 1_000, log_start_offset=0, current_leader_epoch=5)
    assert not given.did(
        step(leader, events.FetchRequested(7, C, 500, 1, (asked,)), NOW), effects.RespondFetch
    )
    done = step(leader, given.leader_and_isr(A, 6, (A,), version=1), NOW)
    (answer,) = given.did(done, effects.RespondFetch)
    assert answer.results[0].error is Error.FENCED_LEADER_EPOCH


def _consumer_past_the_end(generation: str) -> tuple[World, Error, list[int]]:
    """A consumer has read m1 to m3 in epoch 0; B, with m1 only, is elected uncleanly, writes on."""
    world = cluster(generation, (A, B), unclean_leader_election_enable=True)
    world.produce("m1")
    world.advance(6_000)
    world.kill(B)
    world.run()
    for name in ("m2", "m3"):
        world.produce(name)
    world.run()
    world.kill(A)
    world.start(B).advance(100)
    for name in ("n2", "n3", "n4"):
        world.produce(name)
    world.run()
    asked = events.FetchedPartition(T, 3, 1_000, current_leader_epoch=1)
    world.handle(B, events.FetchRequested(9_001, events.CONSUMER, 0, 1, (asked,)))
    epoch = world.service.states[T].leader_epoch
    ask = events.OffsetForLeaderEpochRequested(9_002, (events.EpochAsked(T, 1, epoch),))
    world.handle(B, ask)
    (fetched,), (ended,) = world.answers[9_001], world.answers[9_002]
    assert isinstance(fetched, effects.RespondFetch)
    assert isinstance(ended, effects.RespondOffsetForLeaderEpoch)
    return world, fetched.results[0].error, [one.end_offset for one in ended.results]


def test_e6_before_2_1_a_consumer_reads_on_past_a_truncation_unaware() -> None:
    world, error, _ = _consumer_past_the_end("2.0")
    assert world.log(B) == ["m1", "n2", "n3", "n4"]
    assert error is Error.NONE  # it goes on with n4, and never sees n2 and n3


def test_e6_from_2_1_on_a_consumer_is_fenced_and_learns_where_its_epoch_ended() -> None:
    _, error, ended = _consumer_past_the_end("2.1")
    assert error is Error.FENCED_LEADER_EPOCH
    assert ended == [1]  # below its position, 3: what it had read from there on is gone


# --- what is spoken ------------------------------------------------------------------------------


def test_every_generation_says_what_it_speaks_and_speaks_what_it_sends() -> None:
    for name, rules in GENERATIONS.items():
        spoken = replication_apis(name)
        assert rules.fetch_version in spoken[Api.FETCH]
        assert rules.list_offsets_version in spoken[Api.LIST_OFFSETS]


def test_e6_clients_are_offered_leader_epochs_from_2_1_on_only() -> None:
    offered = {
        name: (
            9 in client_apis(name)[Api.FETCH],
            4 in client_apis(name)[Api.LIST_OFFSETS],
            7 in client_apis(name)[Api.METADATA],
            Api.OFFSET_FOR_LEADER_EPOCH in client_apis(name),
        )
        for name in GENERATIONS
    }
    newer = [offered.pop(name) for name in ("2.1", "2.8", "4.0")]
    assert newer == [(True,) * 4] * 3
    assert set(offered.values()) == {(False,) * 4}


def test_e6_librdkafka_believes_epochs_from_2_8_on() -> None:
    """From Metadata v9 on (KAFKA-9212); v10 has topic ids (KIP-516)."""
    highest = {name: client_apis(name)[Api.METADATA].highest for name in GENERATIONS}
    assert [highest[name] for name in ("2.0", "2.1", "2.8", "4.0")] == [6, 7, 11, 13]


# --- A7: 4.0 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "leaves"), [("2.0", True), ("2.1", False), ("4.0", False)])
def test_a7_from_2_1_on_a_follower_at_the_leaders_end_is_in_sync_whatever_the_time(
    generation: str, leaves: bool
) -> None:
    leader = given.leading(generation, isr=(A, B), records=3)
    step(leader, given.fetch(B, 3), NOW)
    step(leader, events.TimerFired(events.IsrExpiration()), NOW + 40_000)
    assert isinstance(given.role(leader).isr, PendingShrinkIsr) == leaves
    step(leader, given.produce(acks=1), NOW + 40_000)
    step(leader, events.TimerFired(events.IsrExpiration()), NOW + 40_000)
    assert isinstance(given.role(leader).isr, PendingShrinkIsr)  # now it is behind


@pytest.mark.parametrize(
    ("generation", "lag_ms", "message_bytes", "session_ms"),
    [("2.1", 10_000, 1_000_012, 6_000), ("4.0", 30_000, 1_048_588, 18_000)],
)
def test_a7_the_defaults_of_4_0_are_those_from_2_5_on(
    generation: str, lag_ms: int, message_bytes: int, session_ms: int
) -> None:
    rules = GENERATIONS[generation]
    settings = replication_settings({}, rules)
    assert settings.replica_lag_time_max_ms == lag_ms
    assert settings.message_max_bytes == message_bytes
    assert rules.zookeeper_session_timeout_ms == session_ms
    named = {"replica.lag.time.max.ms": "5000", "message.max.bytes": "77"}
    settings = replication_settings(named, rules)
    assert (settings.replica_lag_time_max_ms, settings.message_max_bytes) == (5_000, 77)


@pytest.mark.parametrize("timestamp", [-6, -7, -(2**63)])
def test_times_of_versions_that_are_not_spoken_are_refused(timestamp: int) -> None:
    asked = events.ListOffsetsRequested(7, -1, (events.OffsetAsked(T, timestamp),))
    (answer,) = given.did(step(_in_epoch_5("2.8"), asked, NOW))
    assert [(one.error, one.offset) for one in answer.results] == [(Error.UNSUPPORTED_VERSION, -1)]
