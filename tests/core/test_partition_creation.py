"""C9: a topic gets more partitions; each refusal beside what is taken."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    ControllerChanged,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    WriteAssignment,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import (
    DelayedOperationExpired,
    NewPartitions,
    TimerFired,
)
from neaptide.clusters.broker.replication.model import ReplicaAssignment, TopicPartition
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.administered import asked, controller, led_by
from tests.core.given import NOW, A, B, C

NEW = TopicPartition("t", 1)


def create(
    one: Broker, *topics: NewPartitions, request: int = 9, validate_only: bool = False
) -> tuple[Effect, ...]:
    event = events.CreatePartitionsRequested(request, topics, 1_000, validate_only)
    return step(one, event, NOW)


def results(done: tuple[Effect, ...]) -> list[tuple[str | None, Error]]:
    answers = given.did(done, effects.RespondCreatePartitions)
    return [(found.topic, found.error) for answer in answers for found in answer.results]


def written(one: Broker, done: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """All assignments are written, then the states that the new partitions get."""
    for write in asked(done, WriteAssignment):
        assert isinstance(write, WriteAssignment)
        step(one, AssignmentWritten(write.partition, write.assignment), NOW)
        done = step(one, LeaderAndIsrRead((write.partition,), {}), NOW)
        [state] = asked(done, WriteLeaderAndIsr)
        assert isinstance(state, WriteLeaderAndIsr)
        done = step(one, LeaderAndIsrWritten(write.partition, state.state, True), NOW)
    return done


@pytest.mark.parametrize("generation", ["0.11", "2.8", "4.0"])
def test_c9_it_is_answered_when_the_new_partitions_have_leaders(generation: str) -> None:
    one = controller(led_by(B), generation)
    done = create(one, NewPartitions("t", 2, ((C, B, A),)))
    assert results(done) == []
    [write] = asked(done, WriteAssignment)
    assert isinstance(write, WriteAssignment)
    assert (write.partition, write.assignment) == (NEW, ReplicaAssignment((C, B, A)))
    done = written(one, done)
    assert results(done) == []  # this broker's own metadata do not know yet
    done = given.informed(one, done)
    assert results(done) == [("t", Error.NONE)]
    assert effects.CancelTimer(DelayedOperationExpired(9)) in done
    assert one.active_controller is not None
    assert one.active_controller.topics["t"].assignment == {0: (B, A, C), 1: (C, B, A)}
    assert one.active_controller.states[NEW].leader == C
    assert one.active_controller.pending == {}


def test_c9_the_controller_assigns_where_nobody_does() -> None:
    one = controller(led_by(B))
    done = create(one, NewPartitions("t", 4))
    replicas = [write.assignment.replicas for write in asked(done, WriteAssignment)]  # type: ignore[attr-defined]
    assert [sorted(each) for each in replicas] == [[A, B, C]] * 3
    assert len({each[0] for each in replicas}) == 3  # leaders go round the brokers


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (NewPartitions("nowhere", 3), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("__consumer_offsets", 90), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 1), Error.INVALID_PARTITIONS),
        (NewPartitions("t", 0), Error.INVALID_PARTITIONS),
        (NewPartitions("t", 2**31 - 1), Error.POLICY_VIOLATION),
        (NewPartitions("t", 3, ((A, B, C),)), Error.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 2, ((A, B),)), Error.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 2, ((A, B, B),)), Error.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 2, ((A, B, 77),)), Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_c9_what_cannot_be_is_refused_and_nothing_is_written(
    wanted: NewPartitions, error: Error
) -> None:
    done = create(controller(led_by(B)), wanted)
    assert results(done) == [(wanted.topic, error)]
    assert asked(done, WriteAssignment) == []


def test_c9_a_replication_factor_needs_as_many_brokers() -> None:
    one = controller(led_by(B, (B, A)), live=(A, B))
    assert results(create(one, NewPartitions("t", 2))) == [("t", Error.INVALID_REPLICATION_FACTOR)]


def test_c9_a_topic_that_is_named_twice_or_grows_already_is_refused() -> None:
    one = controller(led_by(B))
    twice = create(one, NewPartitions("t", 2), NewPartitions("t", 3))
    assert set(results(twice)) == {("t", Error.INVALID_REQUEST)}
    assert results(create(one, NewPartitions("t", 2))) == []
    assert results(create(one, NewPartitions("t", 3), request=10)) == [("t", Error.INVALID_REQUEST)]


def test_c9_to_validate_writes_nothing() -> None:
    done = create(controller(led_by(B)), NewPartitions("t", 2), validate_only=True)
    assert results(done) == [("t", Error.NONE)]
    assert asked(done, WriteAssignment) == []


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (TimerFired(DelayedOperationExpired(9)), Error.REQUEST_TIMED_OUT),
        (ControllerChanged(B), Error.NOT_CONTROLLER),
        (
            AssignmentWritten(NEW, ReplicaAssignment((A, B, C)), Error.UNKNOWN_TOPIC_OR_PARTITION),
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
)
def test_c9_who_waits_in_vain_learns_why(event: object, error: Error) -> None:
    one = controller(led_by(B))
    create(one, NewPartitions("t", 2, ((A, B, C),)))
    assert results(step(one, event, NOW)) == [("t", error)]


def test_c9_only_the_controller_creates_partitions() -> None:
    done = create(given.broker("2.8", None), NewPartitions("t", 2))
    assert results(done) == [("t", Error.NOT_CONTROLLER)]


def test_c9_who_is_gone_is_not_answered_and_the_partitions_come_all_the_same() -> None:
    one = controller(led_by(B))
    done = create(one, NewPartitions("t", 2, ((C, B, A),)))
    step(one, events.RequestAbandoned(9), NOW)
    assert one.active_controller is not None
    assert one.active_controller.pending == {}
    [write] = asked(done, WriteAssignment)
    assert isinstance(write, WriteAssignment)
    step(one, AssignmentWritten(NEW, write.assignment), NOW)
    assert one.active_controller.topics["t"].assignment[1] == (C, B, A)
