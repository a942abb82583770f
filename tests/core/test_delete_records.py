"""KIP-107: records are deleted on request, and the answer waits until every replica has done it."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import BrokerRegistration, TopicPartition
from neaptide.clusters.broker.replication.step import step
from tests.core.given import NOW, A, B, C, T, broker, did, leading, of

RECORDS, HW = 10, 8


def leader(*alive: int) -> Broker:
    """A leads ten records, of which eight are committed; B and C follow."""
    one = leading("2.1", records=RECORDS, high_watermark=HW)
    live = tuple(BrokerRegistration(number, ()) for number in (A, *alive))
    step(one, events.UpdateMetadataRequested(1, C, 1, (), live), NOW)
    for replica in (B, C):
        fetched(one, replica, 0)
    return one


def fetched(one: Broker, replica: int, log_start: int) -> tuple[Effect, ...]:
    asked = events.FetchedPartition(T, HW, 1 << 20, log_start_offset=log_start)
    return step(one, events.FetchRequested(500 + replica, replica, 0, 0, (asked,)), NOW)


def delete(one: Broker, before: int, place: TopicPartition = T) -> tuple[Effect, ...]:
    return step(one, events.DeleteRecordsRequested(7, 30_000, ((place, before),)), NOW)


def answers(done: tuple[Effect, ...]) -> list[tuple[Error, int]]:
    return [
        (one.error, one.low_watermark)
        for answer in done
        if isinstance(answer, effects.RespondDeleteRecords)
        for one in answer.results
    ]


@pytest.mark.parametrize(("asked", "start"), [(5, 5), (HW, HW), (-1, HW)])
def test_what_is_committed_is_deleted_at_once_on_the_leader(asked: int, start: int) -> None:
    one = leader(B, C)
    done = delete(one, asked)
    assert did(done, effects.AdvanceLogStartOffset) == [effects.AdvanceLogStartOffset(T, start)]
    assert of(one).log.start_offset == start
    assert answers(done) == []


def test_the_answer_waits_for_all_replicas_that_live() -> None:
    one = leader(B, C)
    delete(one, 5)
    assert answers(fetched(one, B, 5)) == []
    assert answers(fetched(one, B, 5)) == []
    assert answers(fetched(one, C, 5)) == [(Error.NONE, 5)]


def test_who_is_dead_is_not_waited_for() -> None:
    one = leader(B)
    delete(one, 5)
    assert answers(fetched(one, B, 5)) == [(Error.NONE, 5)]


def test_where_a_replica_does_not_follow_in_time_that_is_answered() -> None:
    one = leader(B, C)
    delete(one, 5)
    fetched(one, B, 5)
    done = step(one, events.TimerFired(events.DelayedOperationExpired(7)), NOW)
    assert answers(done) == [(Error.REQUEST_TIMED_OUT, -1)]


def test_what_is_deleted_already_is_answered_with_where_the_log_starts() -> None:
    one = leader(B, C)
    delete(one, 5)
    for replica in (B, C):
        fetched(one, replica, 5)
    done = delete(one, 3)
    assert answers(done) == [(Error.NONE, 5)]
    assert not did(done, effects.AdvanceLogStartOffset)


@pytest.mark.parametrize("asked", [HW + 1, RECORDS, -2])
def test_what_is_not_committed_is_not_deleted(asked: int) -> None:
    one = leader(B, C)
    assert answers(delete(one, asked)) == [(Error.OFFSET_OUT_OF_RANGE, -1)]
    assert of(one).log.start_offset == 0


def test_only_a_leader_deletes_and_nobody_in_the_log_of_groups() -> None:
    other = TopicPartition("other", 0)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answers(delete(broker("2.1"), 5, other)) == [(unknown, -1)]
    internal = TopicPartition(OFFSETS_TOPIC, 0)
    assert answers(delete(leader(B, C), 0, internal)) == [(Error.INVALID_TOPIC_EXCEPTION, -1)]


def test_who_leads_no_more_answers_so() -> None:
    one = leader(B, C)
    delete(one, 5)
    stopped = events.StopReplicaRequested(1, C, 1, False, (T,))
    assert answers(step(one, stopped, NOW)) == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]
