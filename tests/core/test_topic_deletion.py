"""C5: topics are deleted, from the mark to the last replica; each refusal beside what is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    DeleteTopic,
    LeaderAndIsrChanged,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    MarkTopicForDeletion,
    ReadLeaderAndIsr,
    SessionStarted,
    TopicDeleted,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UnmarkTopics,
    WriteAssignment,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import (
    ControlResponded,
    DelayedOperationExpired,
    TimerFired,
    TopicToDelete,
)
from neaptide.clusters.broker.replication.model import (
    LEADER_DURING_DELETE,
    BrokerRegistration,
    TopicConfiguration,
)
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.administered import ALL, asked, controller, led_by
from tests.core.given import NOW, A, B, C, T

MARKED = TopicsMarkedForDeletion(("t",))


def delete(
    one: Broker, *named: str | TopicToDelete, timeout_ms: int = 1_000, request: int = 9
) -> tuple[Effect, ...]:
    topics = tuple(TopicToDelete(name) if isinstance(name, str) else name for name in named)
    return step(one, events.DeleteTopicsRequested(request, topics, timeout_ms), NOW)


def results(done: tuple[Effect, ...]) -> list[tuple[str | None, Error]]:
    answers = given.did(done, effects.RespondDeleteTopics)
    return [(one.topic, one.error) for answer in answers for one in answer.results]


def sent(done: tuple[Effect, ...], kind: type) -> list[tuple[int, object]]:
    messages = [(e.broker, e.message) for e in done if isinstance(e, effects.SendControl)]
    return [(broker, message) for broker, message in messages if isinstance(message, kind)]


def stopped(done: tuple[Effect, ...]) -> list[tuple[int, bool]]:
    """To whom a StopReplica of T goes, and whether it says to delete."""
    found = []
    for broker, message in sent(done, events.StopReplicaRequested):
        assert isinstance(message, events.StopReplicaRequested)
        assert message.partitions == (T,)
        found.append((broker, message.delete_partitions))
    return found


def deleted_by(one: Broker, *brokers: int) -> tuple[Effect, ...]:
    """They answer that T's replica there is deleted; what the last answer leads to."""
    done: tuple[Effect, ...] = ()
    for broker in brokers:
        done = step(one, ControlResponded(broker, 2, Error.NONE, (T,)), NOW)
    return done


def takes_own_metadata(one: Broker, done: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """The controller is one of the brokers that it informs."""
    [message] = [m for broker, m in sent(done, events.UpdateMetadataRequested) if broker == A]
    return step(one, message, NOW)


def test_c5_a_topic_goes_when_all_of_its_replicas_are_deleted() -> None:
    one = controller(led_by(B))
    done = delete(one, "t")
    assert asked(done, MarkTopicForDeletion) == [MarkTopicForDeletion("t")]
    assert results(done) == []
    assert stopped(done) == []
    done = step(one, MARKED, NOW)
    assert stopped(done) == [(A, False), (B, False), (C, False), (A, True), (B, True), (C, True)]
    informed = sent(done, events.UpdateMetadataRequested)
    assert [broker for broker, _ in informed] == [A, B, C]
    for _, message in informed:
        assert isinstance(message, events.UpdateMetadataRequested)
        assert [each.state.leader for each in message.partitions] == [LEADER_DURING_DELETE]
    assert asked(deleted_by(one, A, B, B), DeleteTopic) == []
    assert asked(deleted_by(one, C), DeleteTopic) == [DeleteTopic("t", 2, is_fenced=True)]
    assert asked(deleted_by(one, C), DeleteTopic) == []  # once
    step(one, TopicDeleted("t"), NOW)
    assert one.active_controller is not None
    assert one.active_controller.deletions.left == {}


def test_c5_an_answer_of_an_earlier_term_or_with_an_error_deletes_nothing() -> None:
    one = controller(led_by(B))
    step(one, MARKED, NOW)
    deleted_by(one, A, B)
    for answer in (
        ControlResponded(C, 1, Error.NONE, (T,)),
        ControlResponded(C, 2, Error.STALE_BROKER_EPOCH, (T,)),
        ControlResponded(C, 2, Error.NONE),  # of another request
    ):
        assert asked(step(one, answer, NOW), DeleteTopic) == []


def test_c5_before_4_0_it_is_answered_when_the_controllers_metadata_know_it_no_more() -> None:
    """Then its name is not free yet: who creates it again is refused (KAFKA-2945's kind)."""
    one = controller(led_by(B), "2.8")
    known = events.PartitionState(T, led_by(B), (B, A, C), {})
    step(one, events.UpdateMetadataRequested(8, A, 2, (known,), tuple(ALL.values())), NOW)
    done = delete(one, "t")
    assert results(done) == []
    done = step(one, MARKED, NOW)
    assert results(done) == []
    done = takes_own_metadata(one, done)
    assert results(done) == [("t", Error.NONE)]
    assert effects.CancelTimer(DelayedOperationExpired(9)) in done
    assert "t" not in one.metadata.topics
    assert results(delete(one, "t")) == [("t", Error.UNKNOWN_TOPIC_OR_PARTITION)]


def test_c5_from_4_0_on_it_is_answered_when_it_is_gone() -> None:
    one = controller(led_by(B), "4.0")
    delete(one, "t")
    done = step(one, MARKED, NOW)
    assert results(takes_own_metadata(one, done)) == []
    assert results(deleted_by(one, A, B, C)) == []
    assert results(step(one, TopicDeleted("t"), NOW)) == [("t", Error.NONE)]


def test_c5_a_broker_that_is_down_is_waited_for_and_asked_when_it_comes() -> None:
    one = controller(led_by(B), live=(A, B))
    done = step(one, MARKED, NOW)
    assert stopped(done) == [(A, False), (B, False), (A, True), (B, True)]
    assert asked(deleted_by(one, A, B), DeleteTopic) == []
    done = step(one, BrokersChanged(ALL), NOW)
    assert stopped(done) == [(C, True)]
    assert sent(done, events.LeaderAndIsrRequested) == []
    assert asked(deleted_by(one, C), DeleteTopic) != []


def test_c5_who_dies_before_it_has_answered_is_asked_again() -> None:
    one = controller(led_by(B))
    step(one, MARKED, NOW)
    deleted_by(one, A, B)
    step(one, BrokersChanged({b: ALL[b] for b in (A, B)}), NOW)
    back = {**ALL, C: BrokerRegistration(C, (), epoch=9)}
    assert stopped(step(one, BrokersChanged(back), NOW)) == [(C, True)]


def test_c5_of_a_topic_that_is_deleted_nobody_is_elected_and_nothing_is_read() -> None:
    one = controller(led_by(B))
    step(one, MARKED, NOW)
    done = step(one, BrokersChanged({b: ALL[b] for b in (A, C)}), NOW)
    assert asked(done, ReadLeaderAndIsr) == asked(done, WriteLeaderAndIsr) == []
    done = step(one, TopicsChanged({"t": TopicConfiguration({0: (B, A, C)})}), NOW)
    assert asked(done, ReadLeaderAndIsr) == []
    asked_for = events.AlteredPartition(T, 4, 7, (events.IsrMember(C),))
    altered = step(one, events.AlterPartitionRequested(5, C, C, (asked_for,)), NOW)
    [answer] = given.did(altered, effects.RespondAlterPartition)
    assert [each.error for each in answer.results] == [Error.UNKNOWN_TOPIC_OR_PARTITION]


def test_c5_a_state_that_was_being_written_is_nobodys_any_more() -> None:
    """The topic is made again under its name: its partition has no state then."""
    one = controller(led_by(B))
    done = step(one, BrokersChanged({b: ALL[b] for b in (A, C)}), NOW)
    done = step(one, LeaderAndIsrRead((T,), {T: led_by(B)}), NOW)
    [write] = asked(done, WriteLeaderAndIsr)
    assert isinstance(write, WriteLeaderAndIsr)
    step(one, MARKED, NOW)
    done = step(one, LeaderAndIsrWritten(T, write.state, True), NOW)
    assert sent(done, events.LeaderAndIsrRequested) == []
    step(one, BrokersChanged(ALL), NOW)
    deleted_by(one, A, B, C)
    step(one, TopicDeleted("t"), NOW)
    done = step(one, TopicsChanged({"t": TopicConfiguration({0: (B, A, C)})}), NOW)
    assert asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,))]
    [write] = asked(step(one, LeaderAndIsrRead((T,), {}), NOW), WriteLeaderAndIsr)
    assert isinstance(write, WriteLeaderAndIsr)
    assert (write.state.version, write.state.leader_epoch) == (-1, 0)


def test_c5_a_reassignment_goes_on_to_its_end_first() -> None:
    moving = TopicConfiguration({0: (C, A, B)}, adding={0: (C,)}, removing={0: (B,)})
    one = given.broker("2.8", unclean_leader_election_enable=False)
    for event in (SessionStarted(1), ControllerElected(2)):
        step(one, event, NOW)
    state = led_by(B, (A, B))
    done = step(one, ClusterLoaded(2, ALL, {"t": moving}, {T: state}, ("t",)), NOW)
    assert stopped(done) == []
    done = step(one, LeaderAndIsrRead((T,), {T: state}), NOW)
    [write] = asked(done, WriteLeaderAndIsr)
    assert isinstance(write, WriteLeaderAndIsr)
    step(one, LeaderAndIsrWritten(T, replace(write.state, version=8), True), NOW)
    caught_up = replace(write.state, isr=(C, A, B), version=9)
    step(one, LeaderAndIsrChanged((T,)), NOW)
    done = step(one, LeaderAndIsrRead((T,), {T: caught_up}), NOW)
    [write] = asked(done, WriteLeaderAndIsr)
    assert isinstance(write, WriteLeaderAndIsr)
    done = step(one, LeaderAndIsrWritten(T, replace(write.state, version=10), True), NOW)
    [assignment] = asked(done, WriteAssignment)
    assert isinstance(assignment, WriteAssignment)
    done = step(one, AssignmentWritten(T, assignment.assignment), NOW)
    assert [one for one in stopped(done) if one[1]] == [(A, True), (C, True)]


def test_c5_another_controller_begins_again() -> None:
    one = given.broker("2.8")
    for event in (SessionStarted(1), ControllerElected(2)):
        step(one, event, NOW)
    topics = {"t": TopicConfiguration({0: (B, A, C)})}
    done = step(one, ClusterLoaded(2, ALL, topics, {T: led_by(B)}, ("t",)), NOW)
    assert [broker for broker, delete in stopped(done) if delete] == [A, B, C]
    assert sent(done, events.LeaderAndIsrRequested) == []
    assert asked(done, ReadLeaderAndIsr) == []


def test_c5_a_topic_without_partitions_goes_at_once() -> None:
    one = controller(led_by(B))
    step(one, TopicsChanged({"t": TopicConfiguration({})}), NOW)
    assert asked(step(one, MARKED, NOW), DeleteTopic) == [DeleteTopic("t", 2, is_fenced=True)]


def test_c5_the_mark_of_no_topic_is_taken_away() -> None:
    done = step(controller(led_by(B)), TopicsMarkedForDeletion(("other",)), NOW)
    assert asked(done, UnmarkTopics) == [UnmarkTopics(("other",), 2, is_fenced=True)]
    assert stopped(done) == []


def test_c5_where_deletion_is_disabled_nothing_is_deleted() -> None:
    one = controller(led_by(B), delete_topic_enable=False)
    assert results(delete(one, "t")) == [("t", Error.TOPIC_DELETION_DISABLED)]
    done = step(one, MARKED, NOW)
    assert asked(done, UnmarkTopics) == [UnmarkTopics(("t",), 2, is_fenced=True)]
    assert stopped(done) == []


@pytest.mark.parametrize(("generation", "enabled"), [("0.11", False), ("2.0", True)])
def test_c5_it_is_enabled_from_1_0_on(generation: str, enabled: bool) -> None:
    assert given.broker(generation).settings.delete_topic_enable is enabled


def test_c5_topics_are_named_by_id_too() -> None:
    one = controller(led_by(B))
    step(one, TopicsChanged({"t": TopicConfiguration({0: (B, A, C)}, topic_id="id")}), NOW)
    done = delete(one, TopicToDelete(None, "id"), TopicToDelete(None, "none"))
    assert asked(done, MarkTopicForDeletion) == [MarkTopicForDeletion("t")]
    done = takes_own_metadata(one, step(one, MARKED, NOW))
    [answer] = given.did(done, effects.RespondDeleteTopics)
    assert answer.results == (
        effects.TopicDeletionResult("t", "id", Error.NONE),
        effects.TopicDeletionResult(None, "none", Error.UNKNOWN_TOPIC_ID),
    )


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (TimerFired(DelayedOperationExpired(9)), Error.REQUEST_TIMED_OUT),
        (ControllerChanged(B), Error.NOT_CONTROLLER),
    ],
)
def test_c5_who_waits_in_vain_for_a_deletion_learns_why(event: object, error: Error) -> None:
    one = controller(led_by(B))
    assert results(delete(one, "t")) == []
    assert results(step(one, event, NOW)) == [("t", error)]


def test_c5_who_does_not_wait_is_answered_at_once_and_the_topic_goes_all_the_same() -> None:
    one = controller(led_by(B))
    done = delete(one, "t", "other", timeout_ms=0)
    assert asked(done, MarkTopicForDeletion) == [MarkTopicForDeletion("t")]
    assert results(done) == [
        ("t", Error.REQUEST_TIMED_OUT),
        ("other", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_c5_only_the_controller_deletes_topics() -> None:
    assert results(delete(given.broker("2.8", None), "t")) == [("t", Error.NOT_CONTROLLER)]


def test_c5_who_is_gone_is_not_answered() -> None:
    one = controller(led_by(B))
    delete(one, "t")
    step(one, events.RequestAbandoned(9), NOW)
    assert results(takes_own_metadata(one, step(one, MARKED, NOW))) == []
