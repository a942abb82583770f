"""E8, F12, F15: what Fetch and ListOffsets say from 2.8 on.

E8: a follower names the epoch of its last record in its fetches, and learns where it diverges
(KIP-595, KAFKA-10435). F12: who is no replica. F15: offsets of a new leader (KIP-207).
"""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower.replica_fetcher import Fetching
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import FetchedResult
from neaptide.clusters.broker.replication.interface.events import (
    CONSUMER,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    DelayedOperationExpired,
)
from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import LEADER_OF_A, NOW, A, B, C, T
from tests.core.world import cluster

newer = pytest.mark.parametrize("generation", ["2.8", "4.0"])
# Epoch 0 has the offsets 0 to 2, epoch 2 those from 3 to 5, epoch 5 begins at 6.
LEADERS = {0: 0, 2: 3}


def _leader(generation: str = "2.8", high_watermark: int = 3, start: int = 0) -> Broker:
    stored = given.stored(6, high_watermark, start=start, epochs=LEADERS)
    one = given.broker(generation, stored)
    step(one, given.leader_and_isr(A, 5, (A, B)), NOW)
    return one


def _answer(leader: Broker, asked: events.FetchRequested) -> FetchedResult:
    (answer,) = given.did(step(leader, asked, NOW), effects.RespondFetch)
    assert isinstance(answer, effects.RespondFetch)
    return answer.results[0]


# --- E8, the leader ------------------------------------------------------------------------------


@newer
@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        (1, 3, EpochEnd(0, 3)),  # an epoch that the leader never had
        (1, 9, EpochEnd(0, 3)),  # however long that log is
        (3, 6, EpochEnd(2, 6)),
        (0, 5, EpochEnd(0, 3)),  # one that ended earlier here
        (2, 7, EpochEnd(2, 6)),
        (0, 3, None),
        (0, 1, None),
        (2, 4, None),
        (2, 6, None),
        (-1, 4, None),  # who names none is not checked
    ],
)
def test_e8_a_leader_answers_where_the_last_fetched_epoch_diverges(
    generation: str, last_epoch: int, offset: int, diverging: EpochEnd | None
) -> None:
    asked = given.fetch(B, offset, last_epoch=last_epoch, believed=5, max_wait_ms=0)
    result = _answer(_leader(generation), asked)
    assert (result.error, result.diverging_epoch) == (Error.NONE, diverging)
    assert (result.high_watermark, result.log_start_offset) == (3, 0)
    # In the answer that says so there are no records.
    readable = diverging is None and offset < 6
    assert (result.records is not None) is readable


@newer
def test_e8_a_leader_that_does_not_know_the_epoch_has_the_follower_look_where_its_log_is(
    generation: str,
) -> None:
    asked = given.fetch(B, 4, last_epoch=6, max_wait_ms=0)
    assert _answer(_leader(generation), asked).error is Error.OFFSET_OUT_OF_RANGE


def test_e8_out_of_range_is_what_lies_before_the_log_even_where_it_diverges() -> None:
    leader = _leader(start=3)
    before = given.fetch(B, 2, last_epoch=1, max_wait_ms=0)
    assert _answer(leader, before).error is Error.OFFSET_OUT_OF_RANGE
    past = given.fetch(B, 7, last_epoch=5, max_wait_ms=0)
    assert _answer(leader, past).diverging_epoch == EpochEnd(5, 6)
    none = given.fetch(B, 7, max_wait_ms=0)
    assert _answer(leader, none).error is Error.OFFSET_OUT_OF_RANGE


@newer
def test_e8_a_diverging_fetch_moves_nothing_at_the_leader(generation: str) -> None:
    """However far the follower is: it is not the leader's log that is so long (KAFKA-13141)."""
    leader = _leader(generation)
    before = given.of(leader)
    _answer(leader, given.fetch(B, 6, last_epoch=3))
    assert given.of(leader) == before
    step(leader, given.fetch(B, 6, last_epoch=2), NOW)
    assert (given.remote(leader, B), given.of(leader).high_watermark) == (6, 6)


def test_e8_a_diverging_fetch_is_answered_at_once_and_one_that_agrees_waits() -> None:
    leader = _leader()
    agrees = step(leader, given.fetch(B, 6, last_epoch=2), NOW)
    assert given.did(agrees) == [effects.SetTimer(DelayedOperationExpired(500), 500)]
    diverges = step(leader, given.fetch(B, 6, last_epoch=3, request=501), NOW)
    assert given.did(diverges, effects.RespondFetch)


# --- E8, the follower ----------------------------------------------------------------------------


def _fetched(done: tuple[effects.Effect, ...]) -> tuple[int, int, int]:
    """Offset, epoch of the last record, and leader epoch of the fetch that was sent."""
    (fetch,) = given.did(done, effects.SendFetch)
    assert isinstance(fetch, effects.SendFetch)
    (asked,) = fetch.partitions
    return asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch


@newer
def test_e8_a_new_follower_fetches_at_once_and_names_the_epoch_of_its_last_record(
    generation: str,
) -> None:
    follower = given.broker(generation, given.stored(5, 3, epochs={0: 0, 2: 3}))
    done = step(follower, given.leader_and_isr(B, 4), NOW)
    assert not given.did(done, effects.SendOffsetForLeaderEpoch, effects.TruncateLog)
    assert _fetched(done) == (5, 2, 4)


@newer
def test_e8_one_without_an_epoch_truncates_to_its_high_watermark(generation: str) -> None:
    follower = given.broker(generation, given.stored(5, 3))
    done = step(follower, given.leader_and_isr(B, 4), NOW)
    assert given.did(done)[0] == effects.TruncateLog(T, 3)
    assert _fetched(done) == (3, -1, 4)


def test_e8_before_2_8_a_fetch_names_no_last_epoch() -> None:
    follower = given.following("2.1", end=5, high_watermark=3, epochs={0: 0})
    done = step(follower, given.epochs_answer(follower, 5, leader_epoch=0), NOW)
    assert _fetched(done) == (5, -1, 0)


@newer
@pytest.mark.parametrize(
    ("epoch", "end_offset", "left", "last_epoch"),
    [
        (3, 6, 6, 3),  # both know the epoch: up to where the first of the two ends it
        (0, 3, 3, 0),
        (2, 4, 5, 0),  # an epoch that is not known here: to the end of the one before, and again
        (1, 2, 5, 0),
    ],
)
def test_e8_a_diverging_follower_truncates_and_fetches_on(
    generation: str, epoch: int, end_offset: int, left: int, last_epoch: int
) -> None:
    follower = given.fetching(generation, end=8, high_watermark=1, epochs={0: 0, 3: 5})
    done = step(follower, given.diverging_answer(follower, epoch, end_offset, 1), NOW)
    assert effects.TruncateLog(T, left) in done
    assert not given.did(done, effects.AppendToLog)
    assert given.of(follower).log.end_offset == left
    assert follower.fetchers[LEADER_OF_A].followed[T].state == Fetching()
    entries = {entry.epoch for entry in given.of(follower).log.epochs}
    assert _fetched(done) == (left, max(entries), 0)
    assert max(entries) == last_epoch


@newer
def test_e8_an_epoch_in_which_it_wrote_nothing_is_not_named_again(generation: str) -> None:
    """KAFKA-10706: no truncation would reach it."""
    follower = given.fetching(generation, end=5, high_watermark=1, epochs={0: 0, 3: 5})
    done = step(follower, given.diverging_answer(follower, 2, 9), NOW)
    assert effects.WriteLeaderEpochCheckpoint(T, (EpochEntry(0, 0),)) in done
    assert _fetched(done) == (5, 0, 0)


@pytest.mark.parametrize(("generation", "high_watermark"), [("2.8", 4), ("4.0", 1)])
def test_e8_up_to_3_4_a_diverging_answer_moves_the_high_watermark_before_it_truncates(
    generation: str, high_watermark: int
) -> None:
    """KAFKA-14704: that of the leader, who may have other records up to there."""
    follower = given.fetching(generation, end=8, high_watermark=1, epochs={0: 0, 3: 5})
    step(follower, given.diverging_answer(follower, 2, 6, high_watermark=4), NOW)
    assert given.of(follower).high_watermark == high_watermark


@newer
def test_e8_a_deposed_leader_drops_what_its_successor_never_had(generation: str) -> None:
    world = cluster(generation, (C, B, A))
    world.produce("m0")
    world.advance(600)
    world.kill(C)
    world.advance(50_000)
    world.produce("m1")
    world.advance(600)
    world.start(C).advance(5_000)
    assert world.log(C) == world.log(B) == ["m0", "m1"]
    assert C in world.service.states[T].isr


# --- F12 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "believed", "error"),
    [
        ("2.8", 5, Error.NONE),
        ("4.0", 5, Error.UNKNOWN_LEADER_EPOCH),
        ("4.0", -1, Error.NOT_LEADER_OR_FOLLOWER),
        ("4.0", 4, Error.FENCED_LEADER_EPOCH),  # that comes first
    ],
)
@pytest.mark.parametrize("offset", [1, 99])
def test_f12_from_3_3_on_a_broker_that_is_no_replica_is_refused(
    generation: str, believed: int, error: Error, offset: int
) -> None:
    leader = _leader(generation)
    if generation == "2.8" and offset == 99:
        error = Error.OFFSET_OUT_OF_RANGE
    result = _answer(leader, given.fetch(99, offset, believed=believed, max_wait_ms=0))
    assert (result.error, result.records) == (error, None)
    replica = _answer(leader, given.fetch(C, 1, believed=5, max_wait_ms=0, request=501))
    consumer = _answer(leader, given.fetch(CONSUMER, 1, max_wait_ms=0, request=502))
    assert (replica.error, consumer.error) == (Error.NONE, Error.NONE)


def test_f12_who_is_refused_is_answered_at_once() -> None:
    assert given.did(step(_leader("4.0"), given.fetch(99, 6), NOW), effects.RespondFetch)


# --- F15 -----------------------------------------------------------------------------------------


def _listed(leader: Broker, timestamp: int, replica: int = CONSUMER) -> effects.OffsetResult:
    asked = events.ListOffsetsRequested(7, replica, (events.OffsetAsked(T, timestamp, 5),))
    (answer,) = given.did(step(leader, asked, NOW), effects.RespondListOffsets)
    assert isinstance(answer, effects.RespondListOffsets)
    return answer.results[0]


@pytest.mark.parametrize(
    ("generation", "error"),
    [("2.1", Error.NONE), ("2.8", Error.OFFSET_NOT_AVAILABLE), ("4.0", Error.OFFSET_NOT_AVAILABLE)],
)
def test_f15_a_new_leader_gives_no_latest_offset_until_its_epochs_start_is_committed(
    generation: str, error: Error
) -> None:
    leader = _leader(generation)
    latest = _listed(leader, LATEST_TIMESTAMP)
    assert (latest.error, latest.offset) == (error, 3 if error is Error.NONE else -1)
    by_time = _listed(leader, 1)
    assert (by_time.error, by_time.look_up, by_time.end) == (Error.NONE, 1, 3)
    assert by_time.not_found is error
    assert _listed(leader, EARLIEST_TIMESTAMP).offset == 0
    # Replicas read to the end of the log anyway.
    replicas = _listed(leader, LATEST_TIMESTAMP, B)
    assert (replicas.error, replicas.offset) == (Error.NONE, 6)
    step(leader, given.fetch(B, 6, last_epoch=2 if error is not Error.NONE else -1), NOW)
    latest = _listed(leader, LATEST_TIMESTAMP)
    assert (latest.error, latest.offset) == (Error.NONE, 6)
    assert _listed(leader, 1).not_found is Error.NONE


@pytest.mark.parametrize("committed", [3, 5])
def test_the_newest_record_is_looked_up_and_nothing_is_tiered(committed: int) -> None:
    """KIP-734 and KIP-405: timestamps that stand for something."""
    leader = _leader("4.0", high_watermark=committed, start=2)
    newest = _listed(leader, MAX_TIMESTAMP)
    assert (newest.error, newest.look_up, newest.end) == (Error.NONE, MAX_TIMESTAMP, committed)
    assert _listed(leader, EARLIEST_LOCAL_TIMESTAMP) == _listed(leader, EARLIEST_TIMESTAMP)
    assert _listed(leader, EARLIEST_LOCAL_TIMESTAMP).offset == 2
    tiered = _listed(leader, LATEST_TIERED_TIMESTAMP)
    assert (tiered.error, tiered.offset, tiered.look_up) == (Error.NONE, -1, None)
