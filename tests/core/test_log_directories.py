"""R11: a log directory that fails takes its own replicas offline, and others lead (KIP-112)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerElected,
    DeleteLogDirEventNotifications,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    LogDirEventNotified,
    NotifyLogDirEvent,
    ReadLeaderAndIsr,
    SessionStarted,
    TopicsChanged,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, C, T

U = TopicPartition("t", 1)
FAILED = events.LogDirectoryFailed((T,))
OFFLINE = Error.KAFKA_STORAGE_ERROR
ALL = {b: BrokerRegistration(b, (), epoch=b) for b in (A, B, C)}
LED_BY_B = LeaderAndIsr(B, 4, (B, A, C), 1, version=7)


def asked(done: tuple[effects.Effect, ...], kind: type) -> list[object]:
    requests = [one.request for one in done if isinstance(one, effects.Coordinate)]
    return [one for one in requests if isinstance(one, kind)]


def outcomes(done: tuple[effects.Effect, ...]) -> list[tuple[TopicPartition, Error]]:
    [answer] = [one for one in done if isinstance(one, effects.RespondControl)]
    return list(answer.partitions)


# --- the broker that has lost it -----------------------------------------------------------------


def test_r11_its_replicas_answer_storage_error_and_who_waits_is_answered() -> None:
    leader = given.leading("2.1", isr=(A, B))
    step(leader, given.produce(request=1), NOW)
    step(leader, given.fetch(C, 1, request=2, max_wait_ms=9_000), NOW)
    done = step(leader, FAILED, NOW)
    assert {type(one): one for one in done if isinstance(one, effects.RespondProduce)} == {
        effects.RespondProduce: effects.RespondProduce(
            1, -1, (effects.ProducedPartition(T, OFFLINE, -1, -1),)
        )
    }
    assert [one.results[0].error for one in done if isinstance(one, effects.RespondFetch)] == [
        OFFLINE
    ]
    assert asked(done, NotifyLogDirEvent) == [NotifyLogDirEvent()]
    for request in (given.produce(request=3), given.fetch(B, 0, request=4, max_wait_ms=0)):
        [answer] = given.did(
            step(leader, request, NOW), effects.RespondProduce, effects.RespondFetch
        )
        assert answer.results[0].error is OFFLINE


def test_r11_a_partition_in_another_directory_goes_on() -> None:
    leader = given.leading("2.1", isr=(A,))
    step(leader, events.LogDirectoryFailed((U,)), NOW)
    [answer] = given.did(step(leader, given.produce(acks=1), NOW), effects.RespondProduce)
    assert answer.results[0].error is Error.NONE


def test_r11_a_follower_asks_for_what_is_offline_no_more() -> None:
    follower = given.fetching("2.1")
    step(follower, FAILED, NOW)
    assert not follower.fetchers
    assert T not in follower.partitions


def test_r11_the_controller_is_answered_which_replicas_are_offline() -> None:
    leader = given.leading("2.1")
    step(leader, FAILED, NOW)
    assert outcomes(step(leader, given.leader_and_isr(B, 1), NOW)) == [(T, OFFLINE)]
    stop = events.StopReplicaRequested(9, B, 1, True, (T,))
    done = step(leader, stop, NOW)
    assert outcomes(done) == [(T, OFFLINE)]
    assert not given.did(done, effects.DeleteLog)


@pytest.mark.parametrize(("is_new", "outcome"), [(True, Error.NONE), (False, OFFLINE)])
def test_r11_a_missing_log_is_made_anew_only_of_a_new_replica(is_new: bool, outcome: Error) -> None:
    """The one that is missing may be in the directory that could not be read."""
    one = given.broker("2.1")
    one.has_offline_log_directory = True
    asked = given.leader_and_isr(A, 0)
    [state] = asked.partitions
    done = step(one, replace(asked, partitions=(replace(state, is_new=is_new),)), NOW)
    assert outcomes(done) == [(T, outcome)]
    assert bool(given.did(done, effects.CreateLog)) is is_new


def test_r11_without_an_offline_directory_a_missing_log_is_made() -> None:
    done = step(given.broker("2.1"), given.leader_and_isr(A, 0), NOW)
    assert outcomes(done) == [(T, Error.NONE)]
    assert given.did(done, effects.CreateLog)


# --- the controller ------------------------------------------------------------------------------


def controller() -> Broker:
    """Broker A, controller of epoch 2, which has looked at everything there is."""
    one = given.broker("2.1")
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    topics = {"t": TopicConfiguration({0: (B, A, C)})}
    step(one, ClusterLoaded(2, ALL, topics, {T: LED_BY_B}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: LED_BY_B}), NOW)
    return one


def answered(**results: tuple[TopicPartition, ...]) -> events.ControlResponded:
    return events.ControlResponded(B, 2, Error.NONE, **results)


def decided(one: Broker, state: LeaderAndIsr = LED_BY_B) -> list[LeaderAndIsr]:
    done = step(one, LeaderAndIsrRead((T,), {T: state}), NOW)
    return [write.state for write in asked(done, WriteLeaderAndIsr)]  # type: ignore[attr-defined]


def test_r11_the_controller_asks_the_broker_which_replicas_it_has_lost() -> None:
    done = step(controller(), LogDirEventNotified(("log_dir_event_1",), (B,)), NOW)
    [sent] = given.did(done, effects.SendControl)
    assert isinstance(sent, effects.SendControl)
    assert isinstance(sent.message, events.LeaderAndIsrRequested)
    assert (sent.broker, [one.partition for one in sent.message.partitions]) == (B, [T])
    assert asked(done, DeleteLogDirEventNotifications) == [
        DeleteLogDirEventNotifications(("log_dir_event_1",))
    ]


def test_r11_others_lead_what_is_offline_until_its_broker_has_started_again() -> None:
    one = controller()
    done = step(one, answered(offline=(T,)), NOW)
    assert asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,), False)]
    [state] = decided(one)
    assert (state.leader, state.isr) == (A, (A, C))
    assert not asked(step(one, answered(offline=(T,)), NOW), ReadLeaderAndIsr)  # known already
    again = {**ALL, B: replace(ALL[B], epoch=9)}
    step(one, BrokersChanged(again), NOW)
    assert one.active_controller is not None
    assert not one.active_controller.offline


def test_r11_a_replica_that_is_online_is_left_alone() -> None:
    one = controller()
    done = step(one, answered(online=(T,)), NOW)
    assert not asked(done, ReadLeaderAndIsr)


def test_r11_brokers_learn_which_replicas_are_offline() -> None:
    one = controller()
    step(one, answered(offline=(T,)), NOW)
    [state] = decided(one)
    done = step(one, LeaderAndIsrWritten(T, replace(state, version=8), True), NOW)
    informed = [
        each.message.partitions[0].offline
        for each in given.did(done, effects.SendControl)
        if isinstance(each, effects.SendControl)
        and isinstance(each.message, events.UpdateMetadataRequested)
    ]
    assert informed == [(B,), (B,), (B,)]


def test_r11_only_a_partition_without_a_state_is_sent_as_new() -> None:
    one = controller()
    step(one, TopicsChanged({"t": TopicConfiguration({0: (B, A, C), 1: (C, A, B)})}), NOW)
    done = step(one, LeaderAndIsrRead((U,), {}), NOW)
    [write] = asked(done, WriteLeaderAndIsr)
    state = replace(write.state, version=0)  # type: ignore[attr-defined]
    done = step(one, LeaderAndIsrWritten(U, state, True), NOW)
    assert new_in(done) == {U}
    assert new_in(step(one, LogDirEventNotified(("log_dir_event_1",), (B,)), NOW)) == set()


def new_in(done: tuple[effects.Effect, ...]) -> set[TopicPartition]:
    return {
        one.partition
        for each in given.did(done, effects.SendControl)
        if isinstance(each, effects.SendControl)
        and isinstance(each.message, events.LeaderAndIsrRequested)
        for one in each.message.partitions
        if one.is_new
    }
