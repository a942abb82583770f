"""Topic ids (KIP-516) in the core: what a controller sends, and which log a broker goes on with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    ClusterLoaded,
    ControllerElected,
    CreateTopic,
    LeaderAndIsrRead,
    LoadCluster,
    ReadLeaderAndIsr,
    SessionStarted,
    TopicsChanged,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
)
from neaptide.clusters.broker.replication.partition.partition_rules import Follower, Leader
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, C, T

ALL = {b: BrokerRegistration(b, (), epoch=b) for b in (A, B, C)}
STATE = LeaderAndIsr(B, 4, (B, A, C), 1, version=7)
ONE, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
BEFORE, SINCE = "2.1", "2.8"


def _topics(topic_id: str | None, partitions: int = 1) -> dict[str, TopicConfiguration]:
    return {"t": TopicConfiguration({p: (B, A, C) for p in range(partitions)}, topic_id=topic_id)}


def _controller(topic_id: str | None = ONE) -> Broker:
    one = given.broker(SINCE)
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    step(one, ClusterLoaded(2, ALL, _topics(topic_id), {T: STATE}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: STATE}), NOW)
    return one


def _coordinated(done: tuple[Effect, ...], kind: type) -> list[object]:
    asked = [e.request for e in done if isinstance(e, effects.Coordinate)]
    return [request for request in asked if isinstance(request, kind)]


def _become(one: Broker, topic_id: str | None, leader: int = A, epoch: int = 0) -> Error:
    """What the broker answers of T."""
    request = given.leader_and_isr(leader, epoch)
    named = tuple(replace(state, topic_id=topic_id) for state in request.partitions)
    done = step(one, replace(request, partitions=named), NOW)
    [answer] = [one for one in done if isinstance(one, effects.RespondControl)]
    assert answer.error is Error.NONE
    [(_, error)] = answer.partitions
    return error


# --- of a controller ------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "gives"), [(BEFORE, False), (SINCE, True), ("4.0", True)])
def test_c10_from_2_8_on_a_controller_has_ids_given(generation: str, gives: bool) -> None:
    one = given.broker(generation)
    step(one, SessionStarted(1), NOW)
    done = step(one, ControllerElected(2), NOW)
    assert _coordinated(done, LoadCluster) == [LoadCluster(2, gives)]
    step(one, ClusterLoaded(2, ALL, {}, {}), NOW)
    new = events.NewTopic("u", 1, 3, {}, {})
    [created] = _coordinated(
        step(one, events.CreateTopicsRequested(9, (new,), 1_000), NOW), CreateTopic
    )
    assert isinstance(created, CreateTopic)
    assert created.gives_topic_id == gives


def test_c10_the_controller_sends_the_id_with_every_state() -> None:
    one = given.broker(SINCE)
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    done = step(one, ClusterLoaded(2, ALL, _topics(ONE), {T: STATE}), NOW)
    messages = [e.message for e in done if isinstance(e, effects.SendControl)]
    named = {
        (type(message), state.topic_id)
        for message in messages
        if not isinstance(message, events.StopReplicaRequested)
        for state in message.partitions
    }
    assert named == {
        (events.LeaderAndIsrRequested, ONE),
        (events.UpdateMetadataRequested, ONE),
    }


@pytest.mark.parametrize(("topic_id", "is_another"), [(ONE, False), (None, False), (OTHER, True)])
def test_c10_a_topic_with_another_id_begins_anew(topic_id: str | None, is_another: bool) -> None:
    """Without an id it is the same: somebody has overwritten its znode."""
    one = _controller()
    done = step(one, TopicsChanged(_topics(topic_id)), NOW)
    assert (_coordinated(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,))]) == is_another
    controller = one.active_controller
    assert controller is not None
    assert (T in controller.states) == (not is_another)
    assert controller.topics["t"].topic_id == (OTHER if is_another else ONE)


def test_c10_a_topic_that_gets_its_id_later_is_the_same() -> None:
    one = _controller(None)
    step(one, TopicsChanged(_topics(ONE)), NOW)
    controller = one.active_controller
    assert controller is not None
    assert (T in controller.states, controller.topics["t"].topic_id) == (True, ONE)


# --- of a broker with a log -----------------------------------------------------------------------


def test_c10_a_new_log_is_of_the_topic_that_the_controller_names() -> None:
    one = given.broker(SINCE)
    request = given.leader_and_isr(A)
    named = tuple(replace(state, topic_id=ONE) for state in request.partitions)
    done = step(one, replace(request, partitions=named), NOW)
    assert effects.CreateLog(T, {}, ONE) in done
    assert not [e for e in done if isinstance(e, effects.AssignTopicId)]


@pytest.mark.parametrize("is_stored", [False, True])
def test_c10_a_log_of_another_topic_is_not_gone_on_with(is_stored: bool) -> None:
    if is_stored:
        stored = {T: replace(given.stored(3, 2)[T], topic_id=ONE)}
        one = given.broker(SINCE, stored)
    else:
        one = given.broker(SINCE)
        assert _become(one, ONE, B) is Error.NONE
    before = one.partitions.get(T)
    assert _become(one, OTHER, A, 5) is Error.INCONSISTENT_TOPIC_ID
    after = one.partitions[T]
    assert after.topic_id == ONE
    assert not isinstance(after.role, Leader)
    if before is not None:
        assert (after.role, after.leader_epoch) == (Follower(B), 0)
    assert _become(one, ONE, A, 5) is Error.NONE
    assert isinstance(one.partitions[T].role, Leader)


def test_c10_an_old_controller_that_names_no_id_is_obeyed() -> None:
    one = given.broker(SINCE)
    assert _become(one, ONE, B) is Error.NONE
    assert _become(one, None, A, 1) is Error.NONE
    assert one.partitions[T].topic_id == ONE


def test_c10_an_id_is_learned_without_a_new_leader_epoch() -> None:
    one = given.broker(SINCE, given.stored(3, 2))
    assert _become(one, None, B) is Error.NONE
    request = given.leader_and_isr(B)
    named = tuple(replace(state, topic_id=ONE) for state in request.partitions)
    done = step(one, replace(request, partitions=named), NOW)
    assert effects.AssignTopicId(T, ONE) in done
    assert effects.RespondControl(900, Error.NONE, ((T, Error.NONE),)) in done
    assert one.partitions[T].topic_id == ONE
    # Once more it is old news, as is an earlier epoch that brings the id.
    assert _become(one, ONE, B) is Error.STALE_CONTROLLER_EPOCH
    late = given.broker(SINCE, given.stored(3, 2))
    assert _become(late, None, B, 2) is Error.NONE
    assert _become(late, ONE, B, 1) is Error.STALE_CONTROLLER_EPOCH


# --- Fetch and AlterPartition ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error"),
    [(ONE, Error.NONE), (None, Error.NONE), (OTHER, Error.INCONSISTENT_TOPIC_ID)],
)
@pytest.mark.parametrize("leader", [A, B])
def test_c10_a_fetch_of_another_topic_is_refused(
    asked: str | None, error: Error, leader: int
) -> None:
    one = given.broker("4.0")
    assert _become(one, ONE, leader) is Error.NONE
    fetched = events.FetchedPartition(T, 0, 1_000, topic_id=asked)
    done = step(one, events.FetchRequested(7, -1, 0, 0, (fetched,)), NOW)
    [answer] = [one for one in done if isinstance(one, effects.RespondFetch)]
    [result] = answer.results
    if error is Error.NONE and leader != A:
        error = Error.NOT_LEADER_OR_FOLLOWER
    assert result.error is error


def test_c10_a_follower_names_the_id_in_its_fetch() -> None:
    one = given.broker("4.0")
    request = given.leader_and_isr(B)
    named = tuple(replace(state, topic_id=ONE) for state in request.partitions)
    done = step(one, replace(request, partitions=named), NOW)
    sent = [e for e in done if isinstance(e, effects.SendFetch)]
    assert [one.topic_id for fetch in sent for one in fetch.partitions] == [ONE]


@pytest.mark.parametrize(("asked", "is_known"), [(ONE, True), (None, True), (OTHER, False)])
def test_c10_the_isr_of_another_topic_is_not_changed(asked: str | None, is_known: bool) -> None:
    one = given.broker("4.0")
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    step(one, ClusterLoaded(2, ALL, _topics(ONE), {T: STATE}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: STATE}), NOW)
    members = (events.IsrMember(B, B), events.IsrMember(A, A))
    change = events.AlteredPartition(T, STATE.leader_epoch, STATE.version, members, asked)
    done = step(one, events.AlterPartitionRequested(7, B, B, (change,)), NOW)
    refused = [
        result.error
        for e in done
        if isinstance(e, effects.RespondAlterPartition)
        for result in e.results
    ]
    assert refused == ([] if is_known else [Error.UNKNOWN_TOPIC_ID])
