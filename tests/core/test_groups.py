"""G1, G3: who coordinates a group; when a commit is acknowledged, known, lost and refused."""

from __future__ import annotations

from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    OffsetAndMetadata,
    OffsetCommitRecord,
    partition_for,
    with_committed,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import CreateTopic
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TextTooLongError,
    TopicPartition,
)
from neaptide.clusters.broker.replication.step import step
from tests.core.given import NOW, A, B, C, T, broker, did

G = TopicPartition(OFFSETS_TOPIC, 0)
LIVE = tuple(BrokerRegistration(number, ()) for number in (A, B, C))


def _state(leader: int, epoch: int, isr: tuple[int, ...]) -> events.PartitionState:
    return events.PartitionState(
        G, LeaderAndIsr(leader, epoch, isr, 1, epoch), (A, B, C), {"min.insync.replicas": "2"}
    )


def _lead(
    one: Broker, leader: int = A, epoch: int = 0, isr: tuple[int, ...] = (A, B, C)
) -> tuple[Effect, ...]:
    """The controller names a leader of the groups' partition, and all brokers learn of it."""
    state = _state(leader, epoch, isr)
    step(one, events.UpdateMetadataRequested(1, C, 1, (state,), LIVE, {OFFSETS_TOPIC: 1}), NOW)
    return step(one, events.LeaderAndIsrRequested(1, C, 1, (state,), LIVE), NOW)


def _coordinator(
    isr: tuple[int, ...] = (A, B, C), generation: str = "2.1", **settings: Any
) -> Broker:
    one = broker(generation, None, **settings)
    assert did(_lead(one, isr=isr), effects.ReadCommittedOffsets) == [
        effects.ReadCommittedOffsets(G)
    ]
    step(one, events.CommittedOffsetsRead(G, {}), NOW)
    return one


def _commit(offset: int, group: str = "g", generation_id: int = -1) -> events.OffsetCommitRequested:
    committed = (OffsetCommitRecord(group, T, OffsetAndMetadata(offset)),)
    return events.OffsetCommitRequested(7, group, generation_id, committed)


def _replicate(one: Broker, end: int) -> tuple[Effect, ...]:
    """B and C have all before `end`."""
    done: tuple[Effect, ...] = ()
    for replica in (B, C):
        asked = events.FetchedPartition(G, end, 1 << 20)
        done += step(one, events.FetchRequested(500 + replica, replica, 0, 0, (asked,)), NOW)
    return done


def _answers(done: tuple[Effect, ...]) -> list[Effect]:
    return did(done, effects.RespondOffsetCommit)


def _position(
    one: Broker, group: str = "g", partitions: tuple[TopicPartition, ...] | None = (T,)
) -> effects.FetchedOffsets:
    asked = events.OffsetFetchRequested(9, (events.WantedOffsets(group, partitions),))
    [answer] = did(step(one, asked, NOW))
    assert isinstance(answer, effects.RespondOffsetFetch)
    [found] = answer.groups
    return found


def _found(offset: int, error: Error = Error.NONE, group: str = "g") -> effects.FetchedOffsets:
    return effects.FetchedOffsets(group, error, ((T, OffsetAndMetadata(offset)),))


def _coordinator_is(
    name: str, coordinator: int, error: Error = Error.NONE
) -> effects.RespondFindCoordinator:
    return effects.RespondFindCoordinator(5, (effects.FoundCoordinator(name, error, coordinator),))


def _unknown(name: str) -> effects.RespondFindCoordinator:
    return _coordinator_is(name, -1, Error.COORDINATOR_NOT_AVAILABLE)


# As a JVM gives them: Math.abs(group.hashCode()) % 50.
@pytest.mark.parametrize(("group", "partition"), [("g", 3), ("", 0), ("my-group", 12)])
def test_g1_a_group_belongs_to_the_partition_of_its_hash(group: str, partition: int) -> None:
    assert partition_for(group, 50) == TopicPartition(OFFSETS_TOPIC, partition)


def test_g1_the_coordinator_leads_the_groups_partition() -> None:
    one = _coordinator()
    asked = events.FindCoordinatorRequested(5, ("g",))
    assert did(step(one, asked, NOW)) == [_coordinator_is("g", A)]
    _lead(one, leader=B, epoch=1)
    assert did(step(one, asked, NOW)) == [_coordinator_is("g", B)]


def _notified_of(
    one: Broker, numbers: range, leader: int = A, offsets_partitions: int = 50
) -> None:
    """The controller has reported some partitions of the groups' topic."""
    states = tuple(
        events.PartitionState(
            TopicPartition(OFFSETS_TOPIC, number), LeaderAndIsr(leader, 0, (A,), 1, 0), (A,), {}
        )
        for number in numbers
    )
    counts = {OFFSETS_TOPIC: offsets_partitions} if offsets_partitions else {}
    step(one, events.UpdateMetadataRequested(1, C, 1, states, LIVE, counts), NOW)
    step(one, events.LeaderAndIsrRequested(1, C, 1, states, LIVE), NOW)
    for state in states:
        step(one, events.CommittedOffsetsRead(state.partition, {}), NOW)


def test_a2_a_group_has_no_coordinator_before_its_own_partition_is_reported() -> None:
    """7 of 50 are known, and the group belongs to number 12."""
    one = broker("2.1", None)
    asked = events.FindCoordinatorRequested(5, ("my-group",))
    _notified_of(one, range(7))
    assert did(step(one, asked, NOW)) == [_unknown("my-group")]
    refused = effects.RespondOffsetCommit(7, ((T, Error.NOT_COORDINATOR),))
    assert did(step(one, _commit(3, "my-group"), NOW)) == [refused]
    assert _position(one, "my-group").error is Error.NOT_COORDINATOR
    _notified_of(one, range(7, 50))
    assert did(step(one, asked, NOW)) == [_coordinator_is("my-group", A)]
    [appended] = did(step(one, _commit(3, "my-group"), NOW), effects.AppendToLog)
    assert isinstance(appended, effects.AppendToLog)
    assert appended.partition == TopicPartition(OFFSETS_TOPIC, 12)


def test_a2_nobody_coordinates_while_the_number_of_partitions_is_not_known() -> None:
    one = broker("2.1", None)
    _notified_of(one, range(7), offsets_partitions=0)
    [answer] = did(step(one, events.FindCoordinatorRequested(5, ("g",)), NOW))
    assert answer == _unknown("g")
    [refused] = _answers(step(one, _commit(3), NOW))
    assert refused == effects.RespondOffsetCommit(7, ((T, Error.NOT_COORDINATOR),))


def test_a2_clients_may_not_produce_into_an_internal_topic() -> None:
    one = _coordinator()
    batches = (events.ProducedBatch(1, 100, "forged"),)
    done = step(one, events.ProduceRequested(8, 1, 1_000, ((G, batches),)), NOW)
    [answer] = did(done)
    assert isinstance(answer, effects.RespondProduce)
    assert [result.error for result in answer.results] == [Error.INVALID_TOPIC_EXCEPTION]


def test_a9_before_kip_115_the_topic_is_made_with_the_brokers_that_there_are() -> None:
    """Two brokers, three replicas wanted: made with two before 0.11, not at all from then on."""
    asked = events.FindCoordinatorRequested(5, ("g",))
    for generation, replicas in (("0.8", 2), ("0.10", 2), ("0.11", None), ("4.0", None)):
        one = broker(generation, None)
        step(one, events.UpdateMetadataRequested(1, C, 1, (), LIVE[:2]), NOW)
        created = did(step(one, asked, NOW), effects.Coordinate)
        found = [len(c.request.configuration.assignment[0]) for c in created]
        assert found == ([] if replicas is None else [replicas])


def test_g1_the_first_who_asks_has_the_topic_made() -> None:
    one = broker("2.1", None)
    step(one, events.UpdateMetadataRequested(1, C, 1, (), LIVE), NOW)
    created, answer = did(step(one, events.FindCoordinatorRequested(5, ("g",)), NOW))
    assert isinstance(created, effects.Coordinate)
    assert isinstance(created.request, CreateTopic)
    assert created.request.topic == OFFSETS_TOPIC
    assert len(created.request.configuration.assignment) == 50
    assert answer == _unknown("g")


def test_g3_a_commit_is_acknowledged_when_all_of_the_isr_have_it() -> None:
    one = _coordinator()
    done = step(one, _commit(3), NOW)
    assert [type(effect) for effect in did(done, effects.AppendToLog)] == [effects.AppendToLog]
    assert _answers(done) == []
    assert _position(one) == _found(-1)  # nor is it known before
    assert _answers(_replicate(one, 1)) == [effects.RespondOffsetCommit(7, ((T, Error.NONE),))]
    assert _position(one) == _found(3)
    assert _position(one, "h") == _found(-1, group="h")


def test_g3_with_required_acks_of_one_it_is_acknowledged_when_it_is_appended() -> None:
    one = _coordinator(offsets_commit_required_acks=1)
    assert _answers(step(one, _commit(3), NOW)) == [
        effects.RespondOffsetCommit(7, ((T, Error.NONE),))
    ]
    assert _position(one) == _found(3)


def test_g3_from_kip_1041_on_all_must_have_it_whatever_is_set() -> None:
    one = _coordinator(generation="4.0", offsets_commit_required_acks=1)
    assert _answers(step(one, _commit(3), NOW)) == []
    assert _answers(_replicate(one, 1)) == [effects.RespondOffsetCommit(7, ((T, Error.NONE),))]


def test_g3_all_positions_of_a_group_are_reported_where_no_partition_is_named() -> None:
    one = _coordinator(offsets_commit_required_acks=1)
    step(one, _commit(3), NOW)
    step(one, _commit(4, "h"), NOW)
    assert _position(one, partitions=None) == _found(3)


@pytest.mark.parametrize(
    ("isr", "expected"),
    [((A,), Error.COORDINATOR_NOT_AVAILABLE), ((A, B, C), None)],
    ids=["too few replicas", "enough"],
)
def test_g3_a_commit_needs_min_insync_replicas(
    isr: tuple[int, ...], expected: Error | None
) -> None:
    one = _coordinator(isr)
    answers = _answers(step(one, _commit(3), NOW))
    assert answers == (
        [] if expected is None else [effects.RespondOffsetCommit(7, ((T, expected),))]
    )


def test_g3_a_commit_that_is_not_replicated_in_time_is_not_known() -> None:
    one = _coordinator()
    step(one, _commit(3), NOW)
    late = events.TimerFired(events.DelayedOperationExpired(7))
    timed_out = effects.RespondOffsetCommit(7, ((T, Error.REQUEST_TIMED_OUT),))
    assert _answers(step(one, late, NOW + 5_000)) == [timed_out]
    _replicate(one, 1)
    assert _position(one) == _found(-1)


def test_g3_who_leads_no_longer_refuses_what_waits_and_what_comes() -> None:
    one = _coordinator()
    step(one, _commit(3), NOW)
    refused = effects.RespondOffsetCommit(7, ((T, Error.NOT_COORDINATOR),))
    assert _answers(_lead(one, leader=B, epoch=1)) == [refused]
    assert _answers(step(one, _commit(3), NOW)) == [refused]
    assert _position(one) == _found(-1, Error.NOT_COORDINATOR)


def test_g3_who_leads_anew_reads_all_of_its_log() -> None:
    one = _coordinator()
    step(one, _commit(3), NOW)
    _lead(one, leader=B, epoch=1)
    assert did(_lead(one, epoch=2), effects.ReadCommittedOffsets) == [
        effects.ReadCommittedOffsets(G)
    ]
    step(one, events.CommittedOffsetsRead(G, {("g", T): OffsetAndMetadata(3)}), NOW)
    assert _position(one) == _found(3)


@pytest.mark.parametrize("generation_id", [0, 5])
def test_g3_a_commit_of_a_generation_is_refused_for_there_are_no_members(
    generation_id: int,
) -> None:
    one = _coordinator()
    done = step(one, _commit(3, generation_id=generation_id), NOW)
    assert did(done) == [effects.RespondOffsetCommit(7, ((T, Error.ILLEGAL_GENERATION),))]


def test_g3_the_last_record_of_a_group_and_a_partition_counts() -> None:
    first, second = (
        OffsetCommitRecord("g", T, OffsetAndMetadata(1)),
        OffsetCommitRecord("g", T, OffsetAndMetadata(2)),
    )
    other = OffsetCommitRecord("h", T, OffsetAndMetadata(9))
    known = with_committed({}, (first, other, second))
    assert known == {("g", T): OffsetAndMetadata(2), ("h", T): OffsetAndMetadata(9)}
    assert with_committed(known, (OffsetCommitRecord("g", T, None),)) == {
        ("h", T): OffsetAndMetadata(9)
    }


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g3_other_topics_are_read_by_nobody(generation: str) -> None:
    one = broker(generation, None)
    state = events.PartitionState(T, LeaderAndIsr(A, 0, (A, B, C), 1, 0), (A, B, C), {})
    done = step(one, events.LeaderAndIsrRequested(1, C, 1, (state,), LIVE), NOW)
    assert did(done, effects.ReadCommittedOffsets) == []


def test_g3_where_the_group_has_positions_it_is_the_member_that_is_not_there() -> None:
    one = _coordinator()
    step(one, events.CommittedOffsetsRead(G, {("g", T): OffsetAndMetadata(3)}), NOW)
    done = step(one, _commit(4, generation_id=5), NOW)
    assert did(done) == [effects.RespondOffsetCommit(7, ((T, Error.UNKNOWN_MEMBER_ID),))]
    others = step(one, _commit(4, group="h", generation_id=5), NOW)
    assert did(others) == [effects.RespondOffsetCommit(7, ((T, Error.ILLEGAL_GENERATION),))]


def test_g3_a_group_without_a_name_may_commit_as_kafka_lets_it() -> None:
    one = _coordinator()
    done = step(one, _commit(3, group=""), NOW)
    assert _answers(done + _replicate(one, 1)) == [
        effects.RespondOffsetCommit(7, ((T, Error.NONE),))
    ]
    assert _position(one, "") == _found(3, group="")


@pytest.mark.parametrize(("group", "topic"), [("g" * 32_768, "t"), ("g", "t" * 32_768)])
def test_a10_a_commit_that_no_record_has_room_for_appends_nothing(group: str, topic: str) -> None:
    one = _coordinator()
    before = one.partitions[G].log.end_offset
    committed = OffsetCommitRecord(group, TopicPartition(topic, 0), OffsetAndMetadata(1))
    with pytest.raises(TextTooLongError):
        step(one, events.OffsetCommitRequested(1, group, -1, (committed,)), NOW)
    assert one.partitions[G].log.end_offset == before
