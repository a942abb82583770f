"""P1-P3: what a producer is answered, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import (
    DelayedOperationExpired,
    TimerFired,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, C, T

OTHER = TopicPartition("t", 1)


def _errors(done: tuple[Effect, ...]) -> list[Error]:
    (answer,) = given.did(done, effects.RespondProduce)
    assert isinstance(answer, effects.RespondProduce)
    return [result.error for result in answer.results]


# --- P1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1])
def test_p1_acks_0_and_1_are_done_when_the_leader_has_appended(acks: int) -> None:
    done = given.did(step(given.leading(), given.produce(acks=acks), NOW))
    answer = effects.RespondProduce(1, acks, (effects.ProducedPartition(T, Error.NONE, 0, 0),))
    assert [type(effect) for effect in done[:2]] == [
        effects.AppendToLog,
        effects.WriteLeaderEpochCheckpoint,
    ]
    assert done[2:] == [answer]


def test_p1_acks_all_waits_for_every_member_of_the_isr() -> None:
    leader = given.leading(isr=(A, B, C))
    assert not given.did(step(leader, given.produce(), NOW), effects.RespondProduce)
    for replica, offset in ((B, 0), (C, 0), (B, 1)):
        done = step(leader, given.fetch(replica, offset, max_wait_ms=0), NOW)
        assert not given.did(done, effects.RespondProduce)
    assert _errors(step(leader, given.fetch(C, 1, max_wait_ms=0), NOW)) == [Error.NONE]


@pytest.mark.parametrize("acks", [2, -2])
def test_p1_other_acks_are_refused(acks: int) -> None:
    leader = given.leading()
    assert _errors(step(leader, given.produce(acks=acks), NOW)) == [Error.INVALID_REQUIRED_ACKS]
    assert given.of(leader).log.end_offset == 0


@pytest.mark.parametrize(
    ("partition", "error"),
    [(T, Error.NOT_LEADER_OR_FOLLOWER), (OTHER, Error.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_p1_who_does_not_lead_appends_nothing(partition: TopicPartition, error: Error) -> None:
    follower = given.following()
    before = follower.copy()
    assert _errors(step(follower, given.produce(partition=partition), NOW)) == [error]
    assert follower == before


# --- P2 ------------------------------------------------------------------------------------------


def test_p2_a_delayed_produce_ends_with_request_timed_out_and_only_once() -> None:
    leader = given.leading(isr=(A, B))
    done = step(leader, given.produce(timeout_ms=1_500), NOW)
    assert effects.SetTimer(DelayedOperationExpired(1), 1_500) in done
    expired = TimerFired(DelayedOperationExpired(1))
    assert _errors(step(leader, expired, NOW + 1_500)) == [Error.REQUEST_TIMED_OUT]
    assert (leader.delayed, leader.watchers) == ({}, {})
    assert step(leader, expired, NOW + 1_501) == ()
    done = step(leader, given.fetch(B, 1), NOW + 1_502)
    assert not given.did(done, effects.RespondProduce)
    assert given.of(leader).high_watermark == 1


def test_p2_it_ends_with_an_error_when_the_leader_loses_its_role() -> None:
    leader = given.leading(isr=(A, B))
    step(leader, given.produce(), NOW)
    done = step(leader, given.leader_and_isr(B, 1), NOW)
    assert _errors(done) == [Error.NOT_LEADER_OR_FOLLOWER]


def test_p2_it_waits_on_where_the_leader_stays_leader_in_a_new_epoch() -> None:
    leader = given.leading(isr=(A, B, C))
    step(leader, given.produce(), NOW)
    done = step(leader, given.leader_and_isr(A, 1, (A, B)), NOW)
    assert not given.did(done, effects.RespondProduce)
    assert _errors(step(leader, given.fetch(B, 1), NOW)) == [Error.NONE]


def _leads_both() -> Broker:
    leader = given.leading(isr=(A, B))
    message = given.leader_and_isr(A, 0, (A, B))
    second = replace(message.partitions[0], partition=OTHER)
    step(leader, replace(message, partitions=(second,)), NOW)
    return leader


def test_p2_what_became_of_a_partition_stays_though_its_role_comes_back() -> None:
    """T is lost and won again while OTHER still waits: T's record may be gone, so no ack."""
    leader = _leads_both()
    first, second = given.produce(), given.produce(partition=OTHER)
    step(leader, replace(first, partitions=first.partitions + second.partitions), NOW)
    step(leader, given.leader_and_isr(B, 1), NOW)
    step(leader, given.leader_and_isr(A, 2, (A,)), NOW)
    caught_up = given.fetch(B, 1)
    asked = (replace(caught_up.partitions[0], partition=OTHER),)
    done = step(leader, replace(caught_up, partitions=asked), NOW)
    assert _errors(done) == [Error.NOT_LEADER_OR_FOLLOWER, Error.NONE]


def test_p2_what_was_acknowledged_of_a_partition_stays_though_its_isr_shrinks() -> None:
    """T is on all of its ISR when OTHER still waits. As Kafka's DelayedProduce, which does not look
    at a partition again whose acks are no longer pending."""
    leader = _leads_both()
    first, second = given.produce(), given.produce(partition=OTHER)
    step(leader, replace(first, partitions=first.partitions + second.partitions), NOW)
    step(leader, given.fetch(B, 1, request=2), NOW)
    message = given.leader_and_isr(A, 1, (A,), min_insync_replicas=2)
    step(leader, message, NOW)
    caught_up = given.fetch(B, 1, request=3)
    asked = (replace(caught_up.partitions[0], partition=OTHER),)
    assert _errors(step(leader, replace(caught_up, partitions=asked), NOW)) == [Error.NONE] * 2


def test_p2_what_is_found_out_when_the_isr_has_shrunk_is_not_acknowledged() -> None:
    leader = _leads_both()
    first, second = given.produce(), given.produce(partition=OTHER)
    step(leader, replace(first, partitions=first.partitions + second.partitions), NOW)
    step(leader, given.leader_and_isr(A, 1, (A,), min_insync_replicas=2), NOW)
    caught_up = given.fetch(B, 1, request=3)
    asked = (replace(caught_up.partitions[0], partition=OTHER),)
    done = step(leader, replace(caught_up, partitions=asked), NOW)
    assert _errors(done) == [Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.NONE]


def test_p2_a_partition_that_is_deleted_leaves_no_watcher_behind() -> None:
    leader = _leads_both()
    first, second = given.produce(), given.produce(partition=OTHER)
    step(leader, replace(first, partitions=first.partitions + second.partitions), NOW)
    step(leader, given.fetch(B, 1, request=2), NOW)
    done = step(leader, events.StopReplicaRequested(3, C, 1, True, (T, OTHER)), NOW)
    assert _errors(done) == [Error.NONE, Error.NOT_LEADER_OR_FOLLOWER]
    assert given.did(done, effects.DeleteLog) == [effects.DeleteLog(T), effects.DeleteLog(OTHER)]
    assert (leader.delayed, leader.watchers, leader.partitions) == ({}, {}, {})


def test_p2_an_abandoned_produce_is_forgotten_and_its_record_stays() -> None:
    leader = given.leading(isr=(A, B))
    step(leader, given.produce(), NOW)
    assert given.did(step(leader, events.RequestAbandoned(1), NOW)) == [
        effects.CancelTimer(DelayedOperationExpired(1))
    ]
    done = step(leader, given.fetch(B, 1, max_wait_ms=0), NOW)
    assert not given.did(done, effects.RespondProduce)
    assert given.of(leader).high_watermark == 1


# --- P3 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (given.produce(99, 101), Error.RECORD_TOO_LARGE),
        (given.produce(99, error=Error.CORRUPT_MESSAGE), Error.CORRUPT_MESSAGE),
        (given.produce(101, error=Error.CORRUPT_MESSAGE), Error.CORRUPT_MESSAGE),
        (replace(given.produce(), partitions=((T, ()),)), Error.CORRUPT_MESSAGE),
    ],
)
def test_p3_what_is_too_large_or_corrupt_is_refused_whole(
    event: events.ProduceRequested, error: Error
) -> None:
    leader = given.leading(message_max_bytes=100)
    before = leader.copy()
    assert _errors(step(leader, event, NOW)) == [error]
    assert leader == before


def test_p3_what_is_just_small_enough_is_appended() -> None:
    leader = given.leading(message_max_bytes=100)
    assert given.did(step(leader, given.produce(99, 100), NOW), effects.AppendToLog)
    assert given.of(leader).log.end_offset == 2


@pytest.mark.parametrize(
    ("sizes", "error"), [((60, 40), Error.NONE), ((60, 41), Error.RECORD_LIST_TOO_LARGE)]
)
def test_a10_what_no_segment_has_room_for_is_refused(sizes: tuple[int, ...], error: Error) -> None:
    leader = given.leading(log_segment_bytes=100, message_max_bytes=100)
    assert _errors(step(leader, given.produce(*sizes, acks=1), NOW)) == [error]


def test_a10_a_topic_may_have_segments_of_its_own_size() -> None:
    leader = given.broker(log_segment_bytes=1_000)
    settings: dict[str, Any] = {"segment_bytes": 50}
    step(leader, given.leader_and_isr(A, 0, (A, B, C), **settings), NOW)
    too_large = Error.RECORD_LIST_TOO_LARGE
    assert _errors(step(leader, given.produce(51, acks=1), NOW)) == [too_large]
