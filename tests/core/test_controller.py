"""C1-C9: the controller, and what brokers do when it speaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Active, Standby
from neaptide.clusters.broker.replication.controller.leader_election import (
    initial_state,
    next_state,
)
from neaptide.clusters.broker.replication.controller.replica_assignment import assign_replicas
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ClusterLoaded,
    ControllerChanged,
    ControllerElected,
    CreateTopic,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    ReadLeaderAndIsr,
    SessionExpired,
    SessionStarted,
    TopicCreated,
    TopicsChanged,
    TryBecomeController,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import (
    DelayedOperationExpired,
    HighWatermarkCheckpoint,
    TimerFired,
)
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
)
from neaptide.clusters.broker.replication.partition.partition_rules import Follower
from neaptide.clusters.broker.replication.step import shut_down, step
from tests.core import given
from tests.core.given import NOW, A, B, C, T
from tests.core.world import cluster

ALL = {b: BrokerRegistration(b, (), epoch=b) for b in (A, B, C)}
LED_BY_B = LeaderAndIsr(B, 4, (B, A, C), 1, version=7)


def _controller(state: LeaderAndIsr = LED_BY_B, generation: str = "0.11") -> Broker:
    """Broker A, controller of epoch 2, which has looked at everything there is."""
    one = given.broker(generation)
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    topics = {"t": TopicConfiguration({0: (B, A, C)})}
    step(one, ClusterLoaded(2, ALL, topics, {T: state}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: state}), NOW)
    return one


def _asked(done: tuple[Effect, ...], kind: type) -> list[object]:
    asked = [e.request for e in done if isinstance(e, effects.Coordinate)]
    return [request for request in asked if isinstance(request, kind)]


def _decided(one: Broker, state: LeaderAndIsr) -> list[LeaderAndIsr]:
    done = step(one, LeaderAndIsrRead((T,), {T: state}), NOW)
    return [write.state for write in _asked(done, WriteLeaderAndIsr)]  # type: ignore[attr-defined]


# --- C1, C2 --------------------------------------------------------------------------------------


def test_c1_the_first_is_controller_and_its_death_elects_another_in_a_later_epoch() -> None:
    world = cluster("0.11", (A, B, C))
    assert (world.service.controller, world.service.controller_epoch) == (A, 1)
    world.kill(A)
    world.run()
    assert (world.service.controller, world.service.controller_epoch) == (B, 2)
    assert isinstance(world.brokers[B].controller, Active)
    assert world.brokers[C].controller == Standby(registered=True)
    assert {broker.controller_epoch for broker in world.brokers.values()} == {2}


@pytest.mark.parametrize(
    "message",
    [
        given.leader_and_isr(B, 9, controller_epoch=1),
        events.StopReplicaRequested(900, C, 1, True, (T,)),
        events.UpdateMetadataRequested(900, C, 1, (), ()),
    ],
)
def test_c1_requests_of_an_older_controller_epoch_are_refused(message: object) -> None:
    leader = given.leading()
    step(leader, events.UpdateMetadataRequested(1, B, 2, (), ()), NOW)
    before = leader.copy()
    refusal = effects.RespondControl(900, Error.STALE_CONTROLLER_EPOCH)
    assert given.did(step(leader, message, NOW)) == [refusal]
    assert leader == before


def test_c1_a_controller_that_is_refused_resigns() -> None:
    one = _controller()
    stale = events.ControlResponded(B, 2, Error.STALE_CONTROLLER_EPOCH)
    step(one, events.ControlResponded(B, 1, Error.STALE_CONTROLLER_EPOCH), NOW)  # of an older term
    assert isinstance(one.controller, Active)
    assert effects.StopSendingControl(None) in step(one, stale, NOW)
    resigned: object = one.controller
    assert resigned == Standby(registered=True)


def test_c1_every_registered_broker_tries_when_there_is_no_controller() -> None:
    one = given.broker()
    assert step(one, ControllerChanged(None), NOW) == ()  # not registered yet
    assert effects.Coordinate(TryBecomeController()) in step(one, SessionStarted(1), NOW)
    assert step(one, ControllerChanged(B), NOW) == ()
    assert step(one, ControllerChanged(None), NOW) == (effects.Coordinate(TryBecomeController()),)


def test_c2_a_brokers_death_and_return_are_noticed() -> None:
    world = cluster("0.11", (B, C, A))
    world.kill(B)
    world.run()
    assert (world.leader, set(world.brokers[C].metadata.brokers)) == (C, {A, C})
    world.start(B).advance(3_000)
    assert set(world.brokers[C].metadata.brokers) == {A, B, C}
    assert set(world.isr) == {A, B, C}


def test_c2_a_broker_that_bounced_unseen_is_dead_once() -> None:
    """B led and came back in a new session before anyone looked: it may have lost its tail."""
    one = _controller()
    bounced = {**ALL, B: BrokerRegistration(B, (), epoch=99)}
    done = step(one, BrokersChanged(bounced), NOW)
    sent = [e.message for e in done if isinstance(e, effects.SendControl) and e.broker == B]
    assert [type(message) for message in sent] == [events.UpdateMetadataRequested]
    (state,) = _decided(one, LED_BY_B)
    assert (state.leader, state.leader_epoch, state.isr) == (A, 5, (A, C))
    written = LeaderAndIsr(A, 5, (A, C), 2, version=8)
    done = step(one, LeaderAndIsrWritten(T, written, True), NOW)
    notified = [
        e.broker
        for e in done
        if isinstance(e, effects.SendControl)
        and isinstance(e.message, events.LeaderAndIsrRequested)
    ]
    assert notified == [A, B, C]
    assert _asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,))]
    assert _decided(one, written) == []  # and then it lives again


def test_c2_a_broker_that_is_back_before_its_death_is_decided_is_dead_once() -> None:
    """With its old state it would lead on, without its tail, at a version that has passed."""
    one = _controller()
    step(one, BrokersChanged({A: ALL[A], C: ALL[C]}), NOW)
    done = step(one, BrokersChanged({**ALL, B: BrokerRegistration(B, (), epoch=99)}), NOW)
    sent = [e.message for e in done if isinstance(e, effects.SendControl)]
    assert not [m for m in sent if isinstance(m, events.LeaderAndIsrRequested)]
    assert [(state.leader, state.isr) for state in _decided(one, LED_BY_B)] == [(A, (A, C))]


def test_c2_a_bounce_during_a_decision_is_counted_in_the_next() -> None:
    one = _controller()
    without_c = {A: ALL[A], B: ALL[B]}
    step(one, BrokersChanged(without_c), NOW)
    assert [state.isr for state in _decided(one, LED_BY_B)] == [(B, A)]
    step(one, BrokersChanged({**without_c, B: BrokerRegistration(B, (), epoch=99)}), NOW)
    written = LeaderAndIsr(B, 5, (B, A), 2, version=8)
    step(one, LeaderAndIsrWritten(T, written, True), NOW)
    assert [state.leader for state in _decided(one, written)] == [A]


# --- C3, C6 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "live", "unclean", "leader", "isr"),
    [
        ((A, B), (A, B), False, B, None),  # nothing to change
        ((A, B, C), (A, B), False, B, (B, A)),  # a member died: it leaves, the leader stays
        ((A, B, C), (A, C), False, A, (A, C)),  # the leader died: the first that lives
        ((B, C), (A, C), True, C, (C,)),  # … of the ISR, also where it need not be clean
        ((A, B), (C,), False, -1, (A, B)),  # nobody of it lives: no leader, the ISR is kept
        ((A, B), (C,), True, C, (C,)),  # … or any replica, and the ISR is it alone
        ((A, B), (), True, -1, (A, B)),
    ],
)
def test_c3_the_leader_is_the_first_of_the_isr_that_lives_in_assigned_order(
    members: tuple[int, ...],
    live: tuple[int, ...],
    unclean: bool,
    leader: int,
    isr: tuple[int, ...] | None,
) -> None:
    state = LeaderAndIsr(B, 4, members, 1, version=7)
    decided = next_state(state, (B, A, C), live, 2, unclean=unclean)
    assert decided == (None if isr is None else LeaderAndIsr(leader, 5, isr, 2, version=7))


def test_c3_a_partition_without_leader_gets_one_when_a_member_returns() -> None:
    state = LeaderAndIsr(-1, 5, (A, B), 2, version=8)
    assert next_state(state, (B, A, C), (C,), 2, unclean=False) is None
    returned = next_state(state, (B, A, C), (A, C), 2, unclean=False)
    assert returned == LeaderAndIsr(A, 6, (A,), 2, version=8)


def test_c3_a_new_partition_is_led_by_its_first_live_replica() -> None:
    assert initial_state((B, A, C), {A, C}, 2) == LeaderAndIsr(A, 0, (A, C), 2)
    assert initial_state((B,), {A, C}, 2) is None


@pytest.mark.parametrize(("unclean", "leader", "isr"), [(False, -1, (A, B)), (True, C, (C,))])
def test_c6_the_choice_between_waiting_and_losing_is_as_configured(
    unclean: bool, leader: int, isr: tuple[int, ...]
) -> None:
    decided = next_state(LeaderAndIsr(B, 4, (A, B), 1), (B, A, C), (C,), 2, unclean=unclean)
    assert decided is not None
    assert (decided.leader, decided.isr) == (leader, isr)


# --- C4, C7 --------------------------------------------------------------------------------------


def test_c4_leader_and_isr_makes_leaders_and_followers_and_answers_each() -> None:
    one = given.broker()
    done = step(one, given.leader_and_isr(A), NOW)
    assert given.did(done)[0] == effects.CreateLog(T, {})
    assert effects.RespondControl(900, Error.NONE, ((T, Error.NONE),)) in done
    assert given.role(one).isr.isr == (A, B, C)
    step(one, given.leader_and_isr(B, 1), NOW)
    assert given.of(one).role == Follower(B)


def test_c4_a_broker_that_is_no_replica_refuses_the_partition() -> None:
    one = given.broker()
    done = step(one, given.leader_and_isr(B, replicas=(B, C)), NOW)
    refused = ((T, Error.UNKNOWN_TOPIC_OR_PARTITION),)
    assert effects.RespondControl(900, Error.NONE, refused) in done
    assert one.partitions == {}


def test_c4_a_dead_leader_is_not_truncated_for_but_followed_when_it_lives_again() -> None:
    one = given.broker("0.10", given.stored(5, 3))
    named = replace(given.leader_and_isr(B, 1), live_leaders=())
    done = step(one, named, NOW)
    assert not given.did(done, effects.TruncateLog)
    assert not given.did(done, effects.SendFetch)
    assert given.of(one).log.end_offset == 5
    returned = events.UpdateMetadataRequested(7, C, 1, (), tuple(ALL.values()))
    done = step(one, returned, NOW)
    assert effects.TruncateLog(T, 3) in done
    [fetch] = given.did(done, effects.SendFetch)
    assert fetch.fetcher.leader == B


@pytest.mark.parametrize("delete", [True, False])
def test_c4_stop_replica_keeps_the_log_unless_it_is_to_be_deleted(delete: bool) -> None:
    follower = given.fetching(end=3, high_watermark=3, epochs={0: 0})
    done = step(follower, events.StopReplicaRequested(7, C, 1, delete, (T,)), NOW)
    assert follower.fetchers == {}
    assert (T in follower.partitions) == (not delete)
    assert (effects.DeleteLog(T) in done) == delete
    assert given.did(done, effects.RespondControl) == [
        effects.RespondControl(7, Error.NONE, ((T, Error.NONE),))
    ]


def test_c4_nothing_is_deleted_that_is_not_there_and_late_news_of_it_is_ignored() -> None:
    one = given.broker()
    done = step(one, events.StopReplicaRequested(7, C, 1, True, (T,)), NOW)
    assert not given.did(done, effects.DeleteLog)
    assert step(one, events.LogTruncated(T, 3), NOW) == ()


def test_c4_update_metadata_fills_the_cache() -> None:
    one = given.broker()
    state = given.leader_and_isr(B).partitions[0]
    update = events.UpdateMetadataRequested(7, C, 3, (state,), tuple(ALL.values()))
    assert given.did(step(one, update, NOW)) == [effects.RespondControl(7, Error.NONE)]
    assert one.metadata.brokers == ALL
    assert one.metadata.topics == {"t": {0: state}}
    assert one.metadata.controller_id == C


def test_c7_high_watermarks_are_checkpointed_every_5_000_ms_from_the_first_leader_and_isr() -> None:
    one = given.broker("0.11", given.stored(5, 3, epochs={0: 0}))
    timer = effects.SetTimer(HighWatermarkCheckpoint(), 5_000)
    assert timer in step(one, given.leader_and_isr(B), NOW)
    assert timer not in step(one, given.leader_and_isr(B, 1), NOW)
    written = effects.WriteHighWatermarkCheckpoint(((T, 3),))
    done = step(one, TimerFired(HighWatermarkCheckpoint()), NOW + 5_000)
    assert given.did(done) == [written, timer]


def test_c7_a_partition_that_no_controller_has_named_is_not_forgotten() -> None:
    one = given.broker("0.11", given.stored(5, 3, epochs={0: 0}))
    assert shut_down(one) == (effects.WriteHighWatermarkCheckpoint(((T, 3),)),)


# --- C8, C9 --------------------------------------------------------------------------------------


def test_c8_stale_metadata_gets_not_leader_or_follower() -> None:
    follower = given.following()
    (produced,) = given.did(step(follower, given.produce(), NOW))
    (fetched,) = given.did(step(follower, given.fetch(-1, 0), NOW))
    assert produced.results[0].error is Error.NOT_LEADER_OR_FOLLOWER
    assert fetched.results[0].error is Error.NOT_LEADER_OR_FOLLOWER


def test_c8_every_broker_knows_the_leader_after_a_failover() -> None:
    world = cluster("0.11", (C, B, A))
    world.kill(C)
    world.run()
    for broker in world.brokers.values():
        assert broker.metadata.topics["t"][0].state.leader == B
        assert set(broker.metadata.brokers) == {A, B}


def test_c8_a_leaders_entry_in_leader_and_isr_does_not_hide_its_listeners() -> None:
    one = given.broker()
    full = BrokerRegistration(B, (), rack="r1", epoch=5)
    step(one, events.UpdateMetadataRequested(7, C, 1, (), (full,)), NOW)
    step(one, given.leader_and_isr(B), NOW)
    assert one.metadata.brokers[B] == full


@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_c9_leaders_and_replicas_are_spread_evenly(brokers: int) -> None:
    replication = min(3, brokers)
    assigned = assign_replicas("t", range(brokers), 2 * brokers, replication)
    leaders = Counter(replicas[0] for replicas in assigned.values())
    held = Counter(replica for replicas in assigned.values() for replica in replicas)
    assert set(leaders.values()) == {2}
    assert set(held.values()) == {2 * replication}
    assert all(len(set(replicas)) == replication for replicas in assigned.values())


@pytest.mark.parametrize("replication", [2, 3])
def test_a9_no_rack_has_two_replicas_before_every_rack_has_one(replication: int) -> None:
    racks = {0: "x", 1: "x", 2: "x", 3: "y", 4: "y", 5: "z"}
    assigned = assign_replicas("t", tuple(racks), 12, replication, racks)
    assert all(len({racks[b] for b in replicas}) == replication for replicas in assigned.values())
    assert set(Counter(replicas[0] for replicas in assigned.values()).values()) == {2}


def test_a9_racks_count_only_where_every_broker_has_one() -> None:
    racks = {0: "x", 1: "x", 2: None, 3: "y"}
    without = assign_replicas("t", tuple(racks), 8, 2)
    assert assign_replicas("t", tuple(racks), 8, 2, racks) == without
    assert assign_replicas("t", tuple(racks), 8, 2, {**racks, 2: "z"}) != without


def test_a9_a_topic_with_a_bad_setting_is_refused_alone() -> None:
    one = _controller()
    topics = (
        events.NewTopic("good", 1, 2, {}, {}),
        events.NewTopic("bad", 1, 2, {}, {"min.insync.replicas": "two"}),
        events.NewTopic("worse", 1, 2, {}, {}, refused="segment.bytes cannot be 3."),
    )
    done = step(one, events.CreateTopicsRequested(9, topics, 1_000), NOW)
    assert [asked.topic for asked in _asked(done, CreateTopic)] == ["good"]  # type: ignore[attr-defined]
    assert _results(step(one, TimerFired(DelayedOperationExpired(9)), NOW)) == [
        ("good", Error.REQUEST_TIMED_OUT),
        ("bad", Error.INVALID_CONFIG),
        ("worse", Error.INVALID_CONFIG),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "topics",
    [
        (events.NewTopic("u", 2**31 - 1, 1, {}, {}),),
        (events.NewTopic("u", 10_001, 1, {}, {}),),
        (events.NewTopic("u", -1, -1, {number: (A,) for number in range(10_001)}, {}),),
        tuple(events.NewTopic(f"u{number}", 1, 1, {}, {}) for number in range(20_000)),
    ],
    ids=["2^31-1 partitions", "10001 partitions", "10001 assigned", "20000 topics"],
)
def test_a10_more_partitions_than_a_request_may_have_are_refused_at_once(
    topics: tuple[events.NewTopic, ...],
) -> None:
    one = _controller()
    done = step(one, events.CreateTopicsRequested(9, topics, 1_000), NOW)
    assert [type(effect) for effect in given.did(done)] == [effects.RespondCreateTopics]
    assert set(_results(done)) == {(new.topic, Error.POLICY_VIOLATION) for new in topics}


def test_a10_as_many_partitions_as_a_request_may_have_are_created() -> None:
    topics = (events.NewTopic("u", 9_999, 1, {}, {}), events.NewTopic("v", 1, 1, {}, {}))
    done = step(_controller(), events.CreateTopicsRequested(9, topics, 1_000), NOW)
    assert [asked.topic for asked in _asked(done, CreateTopic)] == ["u", "v"]  # type: ignore[attr-defined]


def test_a1_settings_that_change_make_a_partition_without_leader_be_looked_at_again() -> None:
    """unclean.leader.election.enable, switched on while the partition waits."""
    one = _controller()
    before = one.controller.topics
    assert not _asked(step(one, TopicsChanged(before), NOW), ReadLeaderAndIsr)
    settings = {"unclean.leader.election.enable": "true"}
    after = {"t": TopicConfiguration(before["t"].assignment, settings)}
    (asked,) = _asked(step(one, TopicsChanged(after), NOW), ReadLeaderAndIsr)
    assert asked == ReadLeaderAndIsr((T,))


def test_c9_or_as_the_request_assigns_them() -> None:
    one = _controller()
    new = events.NewTopic("u", -1, -1, {0: (C, A), 1: (A, B)}, {})
    done = step(one, events.CreateTopicsRequested(9, (new,), 1_000), NOW)
    (request,) = _asked(done, CreateTopic)
    assert request == CreateTopic(9, "u", TopicConfiguration({0: (C, A), 1: (A, B)}, {}))


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (events.NewTopic("x.y", 1, 1, {}, {}), None),
        (events.NewTopic("a_b", 1, 1, {}, {}), Error.INVALID_TOPIC_EXCEPTION),  # a.b is there
        (events.NewTopic("a-b", 1, 1, {}, {}), None),
        (events.NewTopic("u", 2, -1, {0: (C, A), 1: (A, B)}, {}), Error.INVALID_REQUEST),
        (events.NewTopic("u", -1, 2, {0: (C, A), 1: (A, B)}, {}), Error.INVALID_REQUEST),
        (
            events.NewTopic("u", -1, -1, {0: (C, A), 1: (A,)}, {}),
            Error.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_what_kafka_refuses_of_a_new_topic_is_refused(
    new: events.NewTopic, error: Error | None
) -> None:
    one = _controller()
    there = {**one.controller.topics, "a.b": TopicConfiguration({0: (A,)}, {})}
    step(one, TopicsChanged(there), NOW)
    done = step(one, events.CreateTopicsRequested(9, (new,), 1_000), NOW)
    if error is None:
        assert _asked(done, CreateTopic)
    else:
        assert _results(done) == [(new.topic, error)]


# --- A4: requests for an earlier registration (KIP-380), leaders that fell after a decision -------


def _registered(generation: str, epoch: int = 7) -> Broker:
    one = given.broker(generation)
    step(one, SessionStarted(epoch), NOW)
    return one


def _for_epoch(epoch: int) -> tuple[object, ...]:
    return (
        replace(given.leader_and_isr(A, 1), broker_epoch=epoch),
        events.StopReplicaRequested(900, C, 1, True, (T,), broker_epoch=epoch),
        events.UpdateMetadataRequested(900, C, 1, (), (), broker_epoch=epoch),
    )


@pytest.mark.parametrize("message", _for_epoch(6))
def test_a4_from_2_2_on_what_was_meant_for_an_earlier_process_is_refused(message: object) -> None:
    one = _registered("4.0")
    refusal = effects.RespondControl(900, Error.STALE_BROKER_EPOCH)
    before = one.copy()
    assert given.did(step(one, message, NOW)) == [refusal]
    assert one == before


@pytest.mark.parametrize("message", _for_epoch(6))
def test_a4_before_2_2_it_is_obeyed(message: object) -> None:
    (answer,) = given.did(step(_registered("2.1"), message, NOW), effects.RespondControl)
    assert answer.error is Error.NONE


@pytest.mark.parametrize("epoch", [-1, 7, 8])
def test_a4_what_is_meant_for_this_process_is_obeyed(epoch: int) -> None:
    """-1: the controller does not say. 8: it knows of a registration of which this broker does not
    know yet."""
    for message in _for_epoch(epoch):
        (answer,) = given.did(step(_registered("4.0"), message, NOW), effects.RespondControl)
        assert answer.error is Error.NONE


def test_a4_a_process_that_has_not_registered_waits_to_know_which_requests_are_its_own() -> None:
    one = given.broker("4.0")
    early, later = (replace(given.leader_and_isr(A, 1), broker_epoch=e, request=e) for e in (6, 7))
    assert step(one, early, NOW) == ()
    assert step(one, later, NOW) == ()
    answers = given.did(step(one, SessionStarted(7), NOW), effects.RespondControl)
    assert [(answer.request, answer.error) for answer in answers] == [
        (6, Error.STALE_BROKER_EPOCH),
        (7, Error.NONE),
    ]
    assert not given.did(step(one, SessionStarted(8), NOW), effects.RespondControl)


@pytest.mark.parametrize(("generation", "epoch"), [("2.1", -1), ("4.0", B)])
def test_a4_a_controller_names_the_registration_that_it_speaks_to(
    generation: str, epoch: int
) -> None:
    one = _controller(generation=generation)
    sent = given.did(step(one, BrokersChanged({A: ALL[A], B: ALL[B]}), NOW), effects.SendControl)
    epochs = {s.broker: s.message.broker_epoch for s in sent}
    assert epochs[B] == epoch


@pytest.mark.parametrize("generation", ["0.11", "2.1", "4.0"])
def test_a4_nobody_is_to_follow_a_leader_that_fell_after_the_decision(generation: str) -> None:
    """B is to lead after C; while that is written, B falls and is back, without its tail."""
    led_by_c = LeaderAndIsr(C, 4, (B, A, C), 1, version=7)
    one = _controller(led_by_c, generation)
    step(one, BrokersChanged({A: ALL[A], B: ALL[B]}), NOW)
    (decided,) = _decided(one, led_by_c)
    assert decided.leader == B
    back = replace(ALL[B], epoch=9, unclean_shutdown=True)
    step(one, BrokersChanged({A: ALL[A], B: back}), NOW)
    done = step(one, LeaderAndIsrWritten(T, replace(decided, version=8), True), NOW)
    notified = [e.broker for e in done if _is_leader_and_isr(e)]
    assert notified == []
    (after,) = _decided(one, replace(decided, version=8))
    assert after.leader == A
    done = step(one, LeaderAndIsrWritten(T, replace(after, version=9), True), NOW)
    assert {e.broker for e in done if _is_leader_and_isr(e)} == {A, B}


def _is_leader_and_isr(effect: Effect) -> bool:
    return isinstance(effect, effects.SendControl) and isinstance(
        effect.message, events.LeaderAndIsrRequested
    )


@pytest.mark.parametrize(("generation", "is_fenced"), [("2.0", False), ("2.1", True)])
def test_a8_writes_of_a_controller_are_fenced_from_2_1_on(generation: str, is_fenced: bool) -> None:
    """KAFKA-6082. Before, a controller that is none any more needs the version alone."""
    one = _controller(generation=generation)
    step(one, BrokersChanged({A: ALL[A], C: ALL[C]}), NOW)
    done = step(one, LeaderAndIsrRead((T,), {T: LED_BY_B}), NOW)
    (write,) = _asked(done, WriteLeaderAndIsr)
    assert (write.by_controller, write.is_fenced) == (True, is_fenced)  # type: ignore[attr-defined]


# --- CreateTopics: always one answer -------------------------------------------------------------


def _create(one: Broker, *names: str, timeout_ms: int = 1_000) -> tuple[Effect, ...]:
    topics = tuple(events.NewTopic(name, 1, 2, {}, {}) for name in names)
    return step(one, events.CreateTopicsRequested(9, topics, timeout_ms), NOW)


def _results(done: tuple[Effect, ...]) -> list[tuple[str | None, Error]]:
    answers = given.did(done, effects.RespondCreateTopics)
    return [(r.topic, r.error) for answer in answers for r in answer.results]


def test_c5_c9_a_topic_is_answered_when_it_has_leaders_and_the_wrong_one_by_itself() -> None:
    one = _controller()
    done = _create(one, "u", "bad name", "t")
    assert _results(done) == []
    assert effects.SetTimer(DelayedOperationExpired(9), 1_000) in done
    (request,) = _asked(done, CreateTopic)
    assert isinstance(request, CreateTopic)
    topics = {**one.controller.topics, "u": request.configuration}
    step(one, TopicCreated(9, "u", None), NOW)
    step(one, TopicsChanged(topics), NOW)
    partition = T._replace(topic="u")
    (write,) = _asked(step(one, LeaderAndIsrRead((partition,), {}), NOW), WriteLeaderAndIsr)
    done = step(one, LeaderAndIsrWritten(partition, write.state, True), NOW)  # type: ignore[attr-defined]
    assert _results(done) == []  # this broker's own metadata do not know yet
    done = given.informed(one, done)
    assert _results(done) == [
        ("u", Error.NONE),
        ("bad name", Error.INVALID_TOPIC_EXCEPTION),
        ("t", Error.TOPIC_ALREADY_EXISTS),
    ]
    assert effects.CancelTimer(DelayedOperationExpired(9)) in done
    (answer,) = given.did(done, effects.RespondCreateTopics)
    created = [one.configuration for one in answer.results]
    assert created == [topics["u"], None, None]


def test_c5_c9_a_request_with_nothing_right_in_it_is_answered_at_once() -> None:
    assert _results(_create(_controller(), "t", "u", "u")) == [
        ("t", Error.TOPIC_ALREADY_EXISTS),
        ("u", Error.INVALID_REQUEST),
    ]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (TimerFired(DelayedOperationExpired(9)), Error.REQUEST_TIMED_OUT),
        (ControllerChanged(B), Error.NOT_CONTROLLER),
        (SessionExpired(), Error.NOT_CONTROLLER),
        (events.ControlResponded(B, 2, Error.STALE_CONTROLLER_EPOCH), Error.NOT_CONTROLLER),
        (TopicCreated(9, "u", "TOPIC_ALREADY_EXISTS"), Error.TOPIC_ALREADY_EXISTS),
    ],
)
def test_c5_c9_a_creation_that_does_not_succeed_is_answered_too(
    event: object, error: Error
) -> None:
    one = _controller()
    _create(one, "u")
    assert _results(step(one, event, NOW)) == [("u", error)]
    assert _results(step(one, TimerFired(DelayedOperationExpired(9)), NOW)) == []


def test_c5_c9_an_abandoned_creation_is_forgotten() -> None:
    one = _controller()
    _create(one, "u")
    step(one, events.RequestAbandoned(9), NOW)
    assert one.controller.pending == {}


def test_c5_c9_who_is_no_controller_says_so() -> None:
    assert _results(_create(given.broker(), "u")) == [("u", Error.NOT_CONTROLLER)]
