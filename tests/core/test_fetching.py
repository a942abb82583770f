"""F1-F12: fetch rounds, from the leader's side and from the follower's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower.replica_fetcher import (
    Delayed,
    Fetching,
    FetchState,
    OutOfRange,
    Truncating,
    fetcher_number,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.events import (
    DelayedOperationExpired,
    TimerFired,
)
from neaptide.clusters.broker.replication.java import java_hash
from neaptide.clusters.broker.replication.model import Batch, EpochEntry, TopicPartition
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import LEADER_OF_A, NOW, A, B, C, T


def _state(follower: Broker) -> FetchState:
    return follower.fetchers[LEADER_OF_A].followed[T].state


# --- F1 ------------------------------------------------------------------------------------------


def test_f1_the_nine_steps_from_produce_to_the_followers_high_watermark() -> None:
    leader, follower = given.leading(isr=(A, B)), given.fetching()
    batch = Batch(0, 1, 0, 100, "r1")
    # 1 and 2: the leader writes and its log end offset moves; the answer has to wait.
    assert given.did(step(leader, given.produce(timeout_ms=9), NOW)) == [
        effects.AppendToLog(T, (batch,), assign=True),
        effects.WriteLeaderEpochCheckpoint(T, (EpochEntry(0, 0),)),
        effects.SetTimer(DelayedOperationExpired(1), 9),
    ]
    # 3 to 7, round 1: offset 0 is recorded, the high watermark stays, the record goes out.
    result = effects.FetchedResult(
        T, Error.NONE, 0, 0, effects.LogSlice(0, 1, 1_048_576), last_stable_offset=0
    )
    done = step(leader, given.fetch(B, 0, request=2), NOW)
    assert given.did(done) == [effects.RespondFetch(2, (result,))]
    assert (given.remote(leader, B), given.of(leader).high_watermark) == (0, 0)
    # 8 and 9: the follower writes, its own high watermark is min(1, 0); and 3 again, at offset 1.
    assert given.did(step(follower, given.fetch_answer(follower, 0), NOW)) == [
        effects.AppendToLog(T, (Batch(0, 1, 0, 100, "r0"),), assign=False),
        effects.WriteLeaderEpochCheckpoint(T, (EpochEntry(0, 0),)),
        effects.SendFetch(
            LEADER_OF_A,
            3,
            500,
            1,
            10_485_760,
            (events.FetchedPartition(T, 1, 1_048_576, log_start_offset=0, current_leader_epoch=0),),
        ),
    ]
    # 4 to 7, round 2: offset 1 is recorded, the high watermark moves, the producer is answered.
    assert given.did(step(leader, given.fetch(B, 1, request=3), NOW)) == [
        effects.RespondProduce(1, -1, (effects.ProducedPartition(T, Error.NONE, 0, 0),)),
        effects.CancelTimer(DelayedOperationExpired(1)),
        effects.SetTimer(DelayedOperationExpired(3), 500),
    ]
    # 9: an answer without records brings the high watermark.
    step(follower, given.fetch_answer(follower, high_watermark=1), NOW)
    assert (given.of(follower).log.end_offset, given.of(follower).high_watermark) == (1, 1)


def test_a3_an_answer_at_once_carries_the_high_watermark_of_before_its_fetch_was_counted() -> None:
    """Kafka reads the log, and the high watermark with it, before it counts the fetch."""
    leader = given.leading(isr=(A, B), records=2)
    done = step(leader, given.fetch(B, 1), NOW)
    result = effects.FetchedResult(
        T, Error.NONE, 0, 0, effects.LogSlice(1, 2, 1_048_576), last_stable_offset=1
    )
    assert given.did(done, effects.RespondFetch) == [effects.RespondFetch(500, (result,))]
    assert given.of(leader).high_watermark == 1
    done = step(leader, given.fetch(B, 1, request=501), NOW)
    assert done[0].results[0].high_watermark == 1


def test_a3_without_waiting_too() -> None:
    leader = given.leading(isr=(A, B), records=1)
    done = step(leader, given.fetch(B, 1, max_wait_ms=0), NOW)
    (answer,) = given.did(done, effects.RespondFetch)
    assert answer.results[0].high_watermark == 0
    assert given.of(leader).high_watermark == 1


def test_a3_an_answer_that_waited_carries_the_high_watermark_of_when_it_is_given() -> None:
    leader = given.leading(isr=(A, B), records=1)
    assert not given.did(step(leader, given.fetch(B, 1), NOW), effects.RespondFetch)
    expired = TimerFired(DelayedOperationExpired(500))
    (answer,) = given.did(step(leader, expired, NOW + 500), effects.RespondFetch)
    assert answer.results[0].high_watermark == 1


# --- F2, F3, F5 ----------------------------------------------------------------------------------


def test_f2_a_fetcher_truncates_then_fetches_and_waits_after_an_error() -> None:
    follower = given.following(end=3, high_watermark=1, epochs={0: 0})
    assert _state(follower) == Truncating()
    done = step(follower, given.epochs_answer(follower, 2), NOW)
    assert [type(effect) for effect in given.did(done)] == [effects.TruncateLog, effects.SendFetch]
    assert _state(follower) == Fetching()
    lost = events.FetcherRequestFailed(LEADER_OF_A, given.in_flight(follower))
    assert given.did(step(follower, lost, NOW)) == [
        effects.SetTimer(events.FetcherBackoffOver(LEADER_OF_A), 1_000)
    ]
    assert _state(follower) == Delayed(NOW + 1_000, Fetching())
    backoff = TimerFired(events.FetcherBackoffOver(LEADER_OF_A))
    (fetch,) = given.did(step(follower, backoff, NOW + 1_000))
    assert isinstance(fetch, effects.SendFetch)


def test_f2_one_request_is_in_flight_at_a_time_and_late_answers_are_no_answers() -> None:
    follower = given.fetching(end=3, high_watermark=1, epochs={0: 0})
    late = given.fetch_answer(follower, 3)
    step(follower, given.leader_and_isr(C, 1), NOW)
    step(follower, given.leader_and_isr(B, 2), NOW)
    before = follower.copy()
    assert given.did(step(follower, late, NOW)) == []
    assert follower == before


@pytest.mark.parametrize(
    ("topic", "partition", "fetchers", "number"),
    [("t", 0, 4, 0), ("t", 1, 4, 1), ("events", 7, 3, 2), ("orders-eu", 11, 8, 3)],
)
def test_f3_a_partition_has_one_fetcher_by_kafkas_hash(
    topic: str, partition: int, fetchers: int, number: int
) -> None:
    assert fetcher_number(TopicPartition(topic, partition), fetchers) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("t", 116), ("hello", 99162322), ("polygenelubricants", -(1 << 31))],
)
def test_f3_java_hash_is_the_signed_hash_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_f3_idle_fetchers_are_not_created_and_an_empty_one_is_closed() -> None:
    follower = given.broker(num_replica_fetchers=4)
    step(follower, given.leader_and_isr(B), NOW)
    assert len(follower.fetchers) == 1
    (fetcher,) = follower.fetchers
    done = step(follower, given.leader_and_isr(A, 1), NOW)
    assert effects.CloseFetcher(fetcher) in done
    assert follower.fetchers == {}


def test_f5_partitions_that_were_served_go_behind_the_others() -> None:
    follower = given.broker("0.10")
    for number in range(3):
        message = given.leader_and_isr(B, replicas=(A, B))
        reported_of = replace(message.partitions[0], partition=TopicPartition("t", number))
        step(follower, replace(message, partitions=(reported_of,)), NOW)
    order = []
    for served in (0, 1, 2, 1):
        partition = TopicPartition("t", served)
        end = follower.partitions[partition].log.end_offset
        result = events.FetchResult(partition, Error.NONE, 0, 0, (Batch(end, 1, -1, 9),))
        if partition not in follower.fetchers[LEADER_OF_A].in_flight.sent:
            empty = events.FetchResponded(LEADER_OF_A, given.in_flight(follower), ())
            step(follower, empty, NOW)
        answer = events.FetchResponded(LEADER_OF_A, given.in_flight(follower), (result,))
        (sent,) = given.did(step(follower, answer, NOW), effects.SendFetch)
        assert isinstance(sent, effects.SendFetch)
        order.append([asked.partition.partition for asked in sent.partitions])
    assert order == [[1, 2, 0], [2, 0, 1], [0, 1, 2], [0, 2, 1]]


# --- F6, F7, F12 ---------------------------------------------------------------------------------


def test_f6_an_empty_fetch_is_parked_until_an_append_wakes_it() -> None:
    leader = given.leading()
    assert given.did(step(leader, given.fetch(B, 0), NOW)) == [
        effects.SetTimer(DelayedOperationExpired(500), 500)
    ]
    (answer,) = given.did(step(leader, given.produce(), NOW), effects.RespondFetch)
    assert answer.results[0].records == effects.LogSlice(0, 1, 1_048_576)


def test_f6_a_parked_fetch_is_answered_empty_when_its_time_is_over() -> None:
    leader = given.leading()
    step(leader, given.fetch(B, 0), NOW)
    done = step(leader, TimerFired(DelayedOperationExpired(500)), NOW + 500)
    empty = effects.FetchedResult(T, Error.NONE, 0, 0, None, last_stable_offset=0)
    assert given.did(done) == [effects.RespondFetch(500, (empty,))]
    assert (leader.delayed, leader.watchers) == ({}, {})


def test_f6_min_bytes_are_counted_over_what_was_there_and_what_came() -> None:
    leader = given.leading(records=1)
    asked = given.fetch(B, 0, min_bytes=250, available=100)
    assert not given.did(step(leader, asked, NOW), effects.RespondFetch)
    assert not given.did(step(leader, given.produce(100), NOW), effects.RespondFetch)
    assert given.did(step(leader, given.produce(60, request=3), NOW), effects.RespondFetch)


@pytest.mark.parametrize("asked", [{"max_wait_ms": 0}, {"min_bytes": 0}])
def test_f6_who_does_not_want_to_wait_is_answered_at_once(asked: dict[str, int]) -> None:
    done = step(given.leading(), given.fetch(B, 0, **asked), NOW)
    assert given.did(done, effects.RespondFetch)


def test_f6_nothing_asked_for_and_errors_are_answered_at_once() -> None:
    nothing = replace(given.fetch(B, 0), partitions=())
    assert given.did(step(given.leading(), nothing, NOW)) == [effects.RespondFetch(500, ())]
    (wrong,) = given.did(step(given.leading(), given.fetch(B, 9), NOW))
    assert wrong.results[0].error is Error.OFFSET_OUT_OF_RANGE


def test_f6_a_leader_that_ceases_to_lead_answers_what_is_parked() -> None:
    leader = given.leading()
    step(leader, given.fetch(B, 0), NOW)
    (answer,) = given.did(step(leader, given.leader_and_isr(B, 1), NOW), effects.RespondFetch)
    assert answer.results[0].error is Error.NOT_LEADER_OR_FOLLOWER


def test_f6_a_partition_that_is_asked_for_twice_is_answered_once() -> None:
    leader = given.leading()
    twice = given.fetch(B, 0)
    step(leader, replace(twice, partitions=twice.partitions * 2), NOW)
    done = step(leader, given.produce(acks=1), NOW)
    assert len(given.did(done, effects.RespondFetch)) == 1
    assert (leader.delayed, leader.watchers) == ({}, {})


def test_f6_an_abandoned_fetch_is_never_answered() -> None:
    leader = given.leading()
    step(leader, given.fetch(B, 0), NOW)
    step(leader, events.RequestAbandoned(500), NOW)
    assert not given.did(step(leader, given.produce(), NOW), effects.RespondFetch)
    assert not given.did(step(leader, TimerFired(DelayedOperationExpired(500)), NOW))


@pytest.mark.parametrize(("reader", "end"), [(B, 10), (-1, 4)])
def test_f7_followers_read_to_the_log_end_and_consumers_to_the_high_watermark(
    reader: int, end: int
) -> None:
    leader = given.leading(records=10, high_watermark=4)
    (answer,) = given.did(step(leader, given.fetch(reader, 2), NOW), effects.RespondFetch)
    assert answer.results[0].records == effects.LogSlice(2, end, 1_048_576)


def test_f12_a_broker_that_is_no_replica_gets_nothing_and_moves_nothing() -> None:
    leader = given.leading(isr=(A,), records=3)
    before = given.of(leader)
    (answer,) = given.did(step(leader, given.fetch(9, 3, max_wait_ms=0), NOW))
    assert answer.results[0].records is None
    (answer,) = given.did(step(leader, given.fetch(9, 0, max_wait_ms=0), NOW))
    assert (answer.results[0].error, answer.results[0].records) == (Error.NONE, None)
    assert given.of(leader) == before


@pytest.mark.parametrize("generation", ["0.8", "0.10"])
def test_f12_up_to_0_10_the_whole_fetch_of_a_broker_that_is_no_replica_fails(
    generation: str,
) -> None:
    """As Kafka 0.10.2.2 does it: tests/live/test_leading.py."""
    leader = given.leading(generation, isr=(A,), records=3)
    before = given.of(leader)
    (answer,) = given.did(step(leader, given.fetch(9, 0), NOW))
    (result,) = answer.results
    assert (result.error, result.records) == (Error.UNKNOWN_SERVER_ERROR, None)
    assert given.of(leader) == before
    (answer,) = given.did(step(leader, given.fetch(B, 0, request=501, max_wait_ms=0), NOW))
    assert answer.results[0].error is Error.NONE


# --- F8 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bases", [(2,), (3, 3), (2, 5), (5, 3)])
def test_f8_records_below_the_end_of_the_log_are_never_appended(
    bases: tuple[int, ...],
) -> None:
    follower = given.fetching(end=3, high_watermark=1, epochs={0: 0})
    before = given.of(follower)
    done = step(follower, given.fetch_answer(follower, *bases, high_watermark=3), NOW)
    assert not given.did(done, effects.AppendToLog)
    assert given.of(follower) == before
    assert _state(follower) == Delayed(NOW + 1_000, Fetching())


@pytest.mark.parametrize(("bases", "end"), [((3,), 4), ((4,), 5), ((3, 5), 6), ((5, 9), 10)])
def test_f8_records_above_the_end_of_the_log_leave_a_gap(bases: tuple[int, ...], end: int) -> None:
    follower = given.fetching(end=3, high_watermark=1, epochs={0: 0})
    answer = given.fetch_answer(follower, *bases, high_watermark=9, epoch=2)
    done = step(follower, answer, NOW)
    [append] = given.did(done, effects.AppendToLog)
    assert [batch.base_offset for batch in append.batches] == list(bases)
    partition = given.of(follower)
    assert (partition.log.end_offset, partition.high_watermark) == (end, min(end, 9))
    assert partition.log.epochs == (EpochEntry(0, 0), EpochEntry(2, bases[0]))
    [fetch] = given.did(done, effects.SendFetch)
    assert fetch.partitions[0].fetch_offset == end


@pytest.mark.parametrize(
    ("generation", "size", "followed_on"),
    [
        ("0.10", 10, []),
        ("2.8", 10, [1]),  # KIP-461: before, the fetcher ends
        ("0.10", 9, [0, 1]),
        ("2.8", 9, [0, 1]),
    ],
)
def test_f8_a_batch_larger_than_a_segment_is_not_followed_until_the_next_epoch(
    generation: str, size: int, followed_on: list[int]
) -> None:
    follower = given.broker(generation, log_segment_bytes=9)
    for number in range(2):
        message = given.leader_and_isr(B, replicas=(A, B))
        state = replace(message.partitions[0], partition=TopicPartition("t", number))
        step(follower, replace(message, partitions=(state,)), NOW)
    fetched = events.FetchResult(T, Error.NONE, 0, 0, (Batch(0, 1, -1, size),))
    if T not in follower.fetchers[LEADER_OF_A].in_flight.sent:
        step(follower, events.FetchResponded(LEADER_OF_A, given.in_flight(follower), ()), NOW)
    answer = events.FetchResponded(LEADER_OF_A, given.in_flight(follower), (fetched,))
    done = step(follower, answer, NOW)
    assert bool(given.did(done, effects.AppendToLog)) == (T.partition in followed_on)
    fetcher = follower.fetchers.get(LEADER_OF_A)
    assert sorted(tp.partition for tp in (fetcher.followed if fetcher else ())) == followed_on
    step(follower, given.leader_and_isr(B, 1, replicas=(A, B)), NOW)
    assert T in follower.fetchers[LEADER_OF_A].followed


@pytest.mark.parametrize(
    ("generation", "start", "end", "base", "is_taken"),
    [
        ("2.0", 10, 10, 8, True),
        ("2.0", 10, 10, 5, False),  # it ends at 10
        ("2.0", 9, 10, 8, False),  # the log is not empty
        ("0.11", 10, 10, 8, False),
    ],
)
def test_f8_an_empty_log_that_starts_inside_the_first_batch_starts_with_it(
    generation: str, start: int, end: int, base: int, is_taken: bool
) -> None:
    """KAFKA-6975: a leader's records were deleted up to the middle of a batch."""
    epochs = {0: start} if end > start else {}
    follower = given.broker(generation, given.stored(end, end, start=start, epochs=epochs))
    step(follower, given.leader_and_isr(B), NOW)
    step(follower, given.epochs_answer(follower, end, leader_epoch=0), NOW)
    answer = events.FetchResult(T, Error.NONE, 12, 10, (Batch(base, 5, 0, 100, "m"),))
    sent = given.in_flight(follower)
    done = step(follower, events.FetchResponded(LEADER_OF_A, sent, (answer,)), NOW)
    kinds = (
        effects.TruncateFullyAndStartAt,
        effects.AppendToLog,
        effects.AdvanceLogStartOffset,
    )
    log = given.of(follower).log
    if is_taken:
        assert [type(one) for one in given.did(done, *kinds)] == list(kinds)
        assert given.did(done, effects.TruncateFullyAndStartAt) == [
            effects.TruncateFullyAndStartAt(T, base)
        ]
        assert (log.start_offset, log.end_offset, given.of(follower).high_watermark) == (10, 13, 12)
    else:
        assert not given.did(done, *kinds)
        assert (log.start_offset, log.end_offset) == (start, end)


# --- F9, F10, F11 --------------------------------------------------------------------------------


def _out_of_range(*, end: int, start: int = 0, generation: str = "2.0", **settings: Any) -> Broker:
    epochs = {0: start} if generation not in ("0.8", "0.10") else {}
    stored = given.stored(end, max(start, end - 1), start=start, epochs=epochs)
    follower = given.broker(generation, stored)
    step(follower, given.leader_and_isr(B, **settings), NOW)
    if epochs:
        step(follower, given.epochs_answer(follower, end, leader_epoch=0), NOW)
    end = given.of(follower).log.end_offset
    answer = given.fetch_answer(follower, error=Error.OFFSET_OUT_OF_RANGE)
    assert given.did(step(follower, answer, NOW)) == [
        effects.SendListOffsets(
            LEADER_OF_A, given.in_flight(follower), (events.OffsetAsked(T, -1, 0),)
        )
    ]
    return follower


def test_f9_behind_the_leaders_log_start_all_is_dropped_and_begins_there() -> None:
    follower = _out_of_range(end=3)
    (earliest,) = given.did(step(follower, given.offsets_answer(follower, 90), NOW))
    assert isinstance(earliest, effects.SendListOffsets)
    assert earliest.partitions == (events.OffsetAsked(T, -2, 0),)
    assert _state(follower) == OutOfRange(asks_earliest=True)
    done = given.did(step(follower, given.offsets_answer(follower, 40), NOW))
    assert done[:2] == [
        effects.TruncateFullyAndStartAt(T, 40),
        effects.WriteLeaderEpochCheckpoint(T, ()),
    ]
    log = given.of(follower).log
    assert (log.start_offset, log.end_offset, given.of(follower).high_watermark) == (40, 40, 40)
    assert done[2].partitions[0].fetch_offset == 40


def test_f10_b1_a_log_longer_than_the_leaders_is_cut_to_it() -> None:
    follower = _out_of_range(end=9)
    truncated, fetch = given.did(step(follower, given.offsets_answer(follower, 5), NOW))
    assert truncated == effects.TruncateLog(T, 5)
    assert fetch.partitions[0].fetch_offset == 5


def test_f10_b1_a_leader_that_ends_before_the_own_log_start_leaves_nothing_of_it() -> None:
    follower = _out_of_range(end=9, start=7)
    done = given.did(step(follower, given.offsets_answer(follower, 5), NOW))
    assert done[0] == effects.TruncateFullyAndStartAt(T, 5)
    assert done[-1].partitions[0].fetch_offset == 5


@pytest.mark.parametrize("generation", ["0.8", "0.10", "0.11"])
def test_a5_up_to_1_1_a_leader_that_is_behind_halts_the_follower(generation: str) -> None:
    """Unclean elections are off, so it cannot be: to truncate would lose what is committed."""
    follower = _out_of_range(end=9, generation=generation, unclean_leader_election_enable=False)
    before = given.of(follower)
    done = given.did(step(follower, given.offsets_answer(follower, 5), NOW))
    assert isinstance(done[0], effects.Halt)
    assert "t-0: log truncation is not allowed" in done[0].reason
    assert given.of(follower) == before


@pytest.mark.parametrize("generation", ["0.8", "0.10", "0.11"])
def test_a5_where_unclean_elections_are_on_it_truncates(generation: str) -> None:
    follower = _out_of_range(end=9, generation=generation, unclean_leader_election_enable=True)
    done = given.did(step(follower, given.offsets_answer(follower, 5), NOW))
    assert done[0] == effects.TruncateLog(T, 5)


def test_f10_b2_where_the_leader_has_grown_past_the_log_nothing_is_cut() -> None:
    follower = _out_of_range(end=9)
    before = given.of(follower)
    step(follower, given.offsets_answer(follower, 12), NOW)
    (fetch,) = given.did(step(follower, given.offsets_answer(follower, 0), NOW))
    assert isinstance(fetch, effects.SendFetch)
    assert fetch.partitions[0].fetch_offset == 9
    assert given.of(follower) == before


@pytest.mark.parametrize(
    "error",
    [
        Error.UNKNOWN_LEADER_EPOCH,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.KAFKA_STORAGE_ERROR,
        Error.UNKNOWN_SERVER_ERROR,
    ],
)
def test_f11_after_most_errors_the_same_is_tried_again_later(error: Error) -> None:
    follower = given.fetching(end=3, high_watermark=1, epochs={0: 0})
    before = given.of(follower)
    done = step(follower, given.fetch_answer(follower, 3, error=error), NOW)
    backoff = effects.SetTimer(events.FetcherBackoffOver(LEADER_OF_A), 1_000)
    assert given.did(done) == [backoff]
    assert given.of(follower) == before
    assert _state(follower) == Delayed(NOW + 1_000, Fetching())


def test_f11_a_fenced_epoch_ends_the_following_until_the_controller_speaks() -> None:
    follower = given.fetching(end=3, high_watermark=1, epochs={0: 0})
    answer = given.fetch_answer(follower, error=Error.FENCED_LEADER_EPOCH)
    assert effects.CloseFetcher(LEADER_OF_A) in step(follower, answer, NOW)
    assert follower.fetchers == {}
    (asked,) = given.did(
        step(follower, given.leader_and_isr(B, 1), NOW), effects.SendOffsetForLeaderEpoch
    )
    assert asked.partitions == (events.EpochAsked(T, 0, 1),)


# --- an answer that comes when the leader epoch is another one -----------------------------------


@pytest.mark.parametrize("generation", ["0.8", "0.10", "2.8", "4.0"])
def test_f6_records_that_the_same_leader_sent_in_an_earlier_epoch_are_appended(
    generation: str,
) -> None:
    """Kafka compares where it asked from with where it is now, and no epoch."""
    follower = given.fetching(generation, end=1, high_watermark=1, epochs={0: 0})
    late = given.fetch_answer(follower, 1)
    step(follower, given.leader_and_isr(B, 2, version=1), NOW)
    assert given.did(step(follower, late, NOW), effects.AppendToLog)
    assert given.of(follower).log.end_offset == 2


def test_f6_they_are_not_where_it_has_to_truncate_first() -> None:
    follower = given.fetching("2.1", end=1, high_watermark=1, epochs={0: 0})
    late = given.fetch_answer(follower, 1)
    step(follower, given.leader_and_isr(B, 2, version=1), NOW)
    assert _state(follower) == Truncating()
    assert not given.did(step(follower, late, NOW), effects.AppendToLog)
    assert given.of(follower).log.end_offset == 1


def test_f6_nor_where_its_log_has_another_end_meanwhile() -> None:
    follower = given.fetching("0.10", end=3, high_watermark=1)
    late = given.fetch_answer(follower, 3)
    step(follower, given.leader_and_isr(C, 1), NOW)  # truncates to the high watermark
    step(follower, given.leader_and_isr(B, 2), NOW)
    assert not given.did(step(follower, late, NOW), effects.AppendToLog)
    assert given.of(follower).log.end_offset == 1


def test_f10_where_it_diverges_is_taken_from_an_earlier_epoch_too() -> None:
    follower = given.fetching("2.8", end=3, high_watermark=1, epochs={0: 0, 1: 2})
    late = given.diverging_answer(follower, 0, 2)
    step(follower, given.leader_and_isr(B, 3, version=1), NOW)
    (asked,) = given.did(step(follower, late, NOW), effects.SendFetch)
    assert (given.of(follower).log.end_offset, asked.partitions[0].last_fetched_epoch) == (2, 0)


@pytest.mark.parametrize(("generation", "end"), [("2.0", 2), ("2.1", 4)])
def test_e3_the_end_of_an_epoch_counts_in_the_next_one_up_to_2_0(generation: str, end: int) -> None:
    """KAFKA-7395."""
    follower = given.following(generation, end=4, high_watermark=1, epochs={0: 0})
    late = given.epochs_answer(follower, 2, leader_epoch=0)
    step(follower, given.leader_and_isr(B, 2, version=1), NOW)
    step(follower, late, NOW)
    assert given.of(follower).log.end_offset == end


def test_f11_a_leader_that_refused_an_earlier_epoch_is_asked_again_in_this_one() -> None:
    follower = given.fetching("2.8", end=3, high_watermark=1, epochs={0: 0})
    late = given.fetch_answer(follower, error=Error.FENCED_LEADER_EPOCH)
    step(follower, given.leader_and_isr(B, 1, version=1), NOW)
    step(follower, late, NOW)
    assert _state(follower) == Delayed(NOW + 1_000, Fetching())
