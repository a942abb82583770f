"""ISR changes through the controller, 4.0: KIP-497, KIP-841, KIP-903."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Active, Standby
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.coordination_service import (
    BrokersChanged,
    ControllerChanged,
    LeaderAndIsrConflict,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    ReadLeaderAndIsr,
    SessionExpired,
    SessionStarted,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    AlteredResult,
    AlterPartitionRetry,
    IsrExpiration,
    IsrMember,
    TimerFired,
)
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.partition_rules import (
    CommittedIsr,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from neaptide.clusters.broker.replication.step import begin, step
from tests.core import given
from tests.core.given import NOW, A, B, C, T
from tests.core.world import SERVICE, World, cluster

EPOCHS = {A: 11, B: 12, C: 13}  # of the brokers' registrations


def _registrations(**epochs: int) -> dict[int, BrokerRegistration]:
    named = {A: epochs.get("a", 11), B: epochs.get("b", 12), C: epochs.get("c", 13)}
    return {one: BrokerRegistration(one, (), epoch=epoch) for one, epoch in named.items() if epoch}


# --- the leader: what it asks for ----------------------------------------------------------------


def _knows(leader: Broker, controller: int = C, **epochs: int) -> Broker:
    live = tuple(_registrations(**epochs).values())
    step(leader, events.UpdateMetadataRequested(901, controller, 1, (), live), NOW)
    return leader


def _leader(isr: tuple[int, ...] = (A,), records: int = 10, **settings: Any) -> Broker:
    """Broker A leads, C is the controller; all are registered."""
    leader = given.leading("4.0", isr, records=records, high_watermark=records, **settings)
    step(leader, SessionStarted(EPOCHS[A]), NOW)
    return _knows(leader)


def _fetch(replica: int, offset: int, epoch: int | None = None) -> events.FetchRequested:
    epoch = EPOCHS[replica] if epoch is None else epoch
    return replace(given.fetch(replica, offset), broker_epoch=epoch)


def _sent(done: tuple[Effect, ...]) -> list[effects.SendAlterPartition]:
    return [effect for effect in done if isinstance(effect, effects.SendAlterPartition)]


def _answer(
    leader: Broker,
    sent: effects.SendAlterPartition,
    error: Error = Error.NONE,
    isr: tuple[int, ...] = (),
    *,
    top: Error = Error.NONE,
    version: int = 1,
    leader_epoch: int = 0,
    at_ms: int = NOW + 1,
) -> tuple[Effect, ...]:
    state = LeaderAndIsr(A, leader_epoch, isr, 1, version) if error is Error.NONE else None
    results = () if top is not Error.NONE else (AlteredResult(T, error, state),)
    return step(leader, events.AlterPartitionResponded(sent.sequence, top, results), at_ms)


def _expanding(leader: Broker) -> effects.SendAlterPartition:
    [sent] = _sent(step(leader, _fetch(B, 10), NOW))
    return sent


def test_kip_497_a_leader_asks_its_controller_for_a_larger_isr_and_writes_nothing() -> None:
    leader = _leader()
    done = step(leader, _fetch(B, 10), NOW)
    [sent] = _sent(done)
    assert (sent.controller, sent.broker_epoch) == (C, EPOCHS[A])
    members = (IsrMember(A, EPOCHS[A]), IsrMember(B, EPOCHS[B]))
    assert sent.partitions == (AlteredPartition(T, 0, 0, members),)
    assert not given.did(done, effects.Coordinate)
    assert given.role(leader).isr == PendingExpandIsr((A,), B)
    timers = [e.timer for e in begin(given.broker("4.0")) if isinstance(e, effects.SetTimer)]
    assert events.IsrChangePropagation() not in timers  # nobody need be notified


def test_kip_497_the_maximal_isr_counts_while_the_change_is_in_flight() -> None:
    leader = _leader()
    sent = _expanding(leader)
    step(leader, given.produce(request=2), NOW + 40_000)  # long after B was last caught up
    assert given.of(leader).high_watermark == 10
    done = _answer(leader, sent, isr=(A, B), at_ms=NOW + 40_001)
    assert given.role(leader).isr == CommittedIsr((A, B))
    assert given.of(leader).version == 1
    assert not given.did(done, effects.RespondProduce)
    done = step(leader, _fetch(B, 11), NOW + 40_002)
    assert given.did(done, effects.RespondProduce)


def test_kip_497_a_smaller_isr_counts_when_the_controller_has_answered() -> None:
    leader = _leader((A, B), min_insync_replicas=1)
    step(leader, given.produce(), NOW)
    [sent] = _sent(step(leader, TimerFired(IsrExpiration()), NOW + 30_001))
    # B has not fetched from this leader: its registration is not known.
    assert sent.partitions == (AlteredPartition(T, 0, 0, (IsrMember(A, EPOCHS[A]),)),)
    assert given.role(leader).isr == PendingShrinkIsr((A, B), (B,))
    assert given.of(leader).high_watermark == 10
    done = _answer(leader, sent, isr=(A,), at_ms=NOW + 30_002)
    assert given.did(done, effects.RespondProduce)
    assert given.of(leader).high_watermark == 11


def test_kip_497_who_was_rejected_is_out_and_may_be_asked_for_again() -> None:
    leader = _leader()
    _answer(leader, _expanding(leader), Error.INELIGIBLE_REPLICA)
    assert given.role(leader).isr == CommittedIsr((A,))
    assert _expanding(leader).partitions[0].isr[1] == IsrMember(B, EPOCHS[B])


@pytest.mark.parametrize(
    "error",
    [
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.INVALID_REQUEST,
    ],
)
def test_kip_497_a_leader_of_an_old_state_waits_for_the_new_one(error: Error) -> None:
    leader = _leader()
    done = _answer(leader, _expanding(leader), error)
    assert not _sent(done)
    assert not given.did(done, effects.SetTimer)
    assert given.role(leader).isr == PendingExpandIsr((A,), B)  # it may have been written
    step(leader, given.leader_and_isr(A, 1, (A, B), version=7), NOW + 2)
    assert given.role(leader).isr == CommittedIsr((A, B))


@pytest.mark.parametrize("how", ["not controller", "stale", "of the partition", "failed"])
def test_kip_497_a_controller_that_cannot_is_asked_again_or_the_next_one(how: str) -> None:
    leader = _leader()
    sent = _expanding(leader)
    if how == "failed":
        done = step(leader, events.AlterPartitionFailed(sent.sequence), NOW + 1)
    elif how == "of the partition":
        done = _answer(leader, sent, Error.NOT_CONTROLLER)
    else:
        top = Error.NOT_CONTROLLER if how == "not controller" else Error.STALE_BROKER_EPOCH
        done = _answer(leader, sent, top=top)
    assert effects.SetTimer(AlterPartitionRetry(), 50) in done
    assert not _sent(done)
    _knows(leader, controller=B)
    [again] = _sent(step(leader, TimerFired(AlterPartitionRetry()), NOW + 51))
    assert (again.controller, again.partitions) == (B, sent.partitions)
    assert again.sequence != sent.sequence
    _answer(leader, sent, isr=(A, B))  # nobody waits for that answer any more
    assert given.role(leader).isr == PendingExpandIsr((A,), B)
    _answer(leader, again, isr=(A, B))
    assert given.role(leader).isr == CommittedIsr((A, B))


def test_kip_497_where_no_controller_is_known_it_asks_later() -> None:
    leader = _knows(_leader(), controller=-1)
    done = step(leader, _fetch(B, 10), NOW)
    assert not _sent(done)
    assert effects.SetTimer(AlterPartitionRetry(), 50) in done
    _knows(leader, controller=C)
    assert _sent(step(leader, TimerFired(AlterPartitionRetry()), NOW + 50))


def test_kip_497_one_request_is_under_way_and_the_next_has_all_that_came_meanwhile() -> None:
    leader = _leader()
    other = TopicPartition("t", 1)
    state = events.PartitionState(other, LeaderAndIsr(A, 0, (A,), 1, 0), (A, B, C), {})
    step(leader, replace(given.leader_and_isr(A), partitions=(state,)), NOW)
    first = _expanding(leader)
    of_other = replace(_fetch(B, 0).partitions[0], partition=other)
    assert not _sent(step(leader, replace(_fetch(B, 0), partitions=(of_other,)), NOW))
    [second] = _sent(_answer(leader, first, isr=(A, B)))
    assert [asked.partition for asked in second.partitions] == [other]


def test_kip_497_an_answer_of_an_earlier_leader_epoch_changes_nothing() -> None:
    leader = _leader()
    sent = _expanding(leader)
    step(leader, given.leader_and_isr(A, 1, (A,), version=5), NOW + 1)
    _answer(leader, sent, isr=(A, B), version=1)
    assert given.role(leader).isr == CommittedIsr((A,))
    assert given.of(leader).version == 5
    [again] = _sent(step(leader, _fetch(B, 10), NOW + 2))
    assert again.partitions[0].leader_epoch == 1


@pytest.mark.parametrize(("version", "leader_epoch"), [(0, 1), (-1, 0)])
def test_kip_497_an_older_state_is_not_believed(version: int, leader_epoch: int) -> None:
    leader = _leader()
    sent = _expanding(leader)
    _answer(leader, sent, isr=(A, B), version=version, leader_epoch=leader_epoch)
    assert given.of(leader).version == 0
    assert given.role(leader).isr == PendingExpandIsr((A,), B)


def test_kip_497_the_end_of_a_session_leaves_the_change_with_the_controller() -> None:
    leader = _leader()
    sent = _expanding(leader)
    step(leader, SessionExpired(), NOW)
    assert given.role(leader).isr == PendingExpandIsr((A,), B)
    done = step(leader, SessionStarted(99), NOW)
    assert not [e for e in given.did(done, effects.Coordinate) if "Read" in str(e)]
    _answer(leader, sent, isr=(A, B))
    assert given.role(leader).isr == CommittedIsr((A, B))


def test_kip_841_a_leader_does_not_ask_for_who_is_not_registered() -> None:
    leader = _knows(_leader(), b=0)
    assert not _sent(step(leader, _fetch(B, 10), NOW))
    _knows(leader)
    assert _sent(step(leader, _fetch(B, 10), NOW))


def test_kip_903_a_leader_does_not_ask_for_who_has_registered_again() -> None:
    """B's fetches of its earlier process come late, or B's later registration is not known yet."""
    leader = _knows(_leader(), b=20)
    refused = step(leader, _fetch(B, 10, epoch=12), NOW)
    [answer] = given.did(refused, effects.RespondFetch)
    assert isinstance(answer, effects.RespondFetch)
    assert answer.results[0].error is Error.NOT_LEADER_OR_FOLLOWER
    assert given.remote(leader, B) == -1
    assert not _sent(step(leader, _fetch(B, 10, epoch=21), NOW))
    assert given.remote(leader, B) == 10
    assert _sent(step(leader, _fetch(B, 10, epoch=20), NOW))


def test_kip_903_a_follower_names_its_registration_when_it_fetches() -> None:
    epochs = []
    for generation in ("2.1", "4.0"):
        follower = given.following(generation)
        step(follower, SessionStarted(7), NOW)
        done = step(follower, given.epochs_answer(follower, 0), NOW)
        epochs += [one.broker_epoch for one in done if isinstance(one, effects.SendFetch)]
    assert epochs == [-1, 7]


# --- the controller ------------------------------------------------------------------------------

LED_BY_A = LeaderAndIsr(A, 4, (A, B), 3, version=6)


def _controller(state: LeaderAndIsr = LED_BY_A, generation: str = "4.0", **epochs: int) -> Broker:
    """Broker A, the controller in epoch 3, at rest."""
    one = given.broker(generation, min_insync_replicas=1)
    one.controller = Active(
        3, _registrations(**epochs), {T.topic: TopicConfiguration({0: (A, B, C)})}, {T: state}
    )
    return one


def _ask(
    one: Broker,
    *isr: tuple[int, int] | int,
    leader: int = A,
    epoch: int | None = None,
    leader_epoch: int = 4,
    version: int = 6,
    partition: TopicPartition = T,
    request: int = 70,
) -> tuple[Effect, ...]:
    members = tuple(
        IsrMember(*member) if isinstance(member, tuple) else IsrMember(member, EPOCHS[member])
        for member in isr
    )
    asked = AlteredPartition(partition, leader_epoch, version, members)
    sender = EPOCHS.get(leader, -1) if epoch is None else epoch
    event = events.AlterPartitionRequested(request, leader, sender, (asked,))
    return step(one, event, NOW)


def _said(done: tuple[Effect, ...]) -> list[Error]:
    answers = [e for e in done if isinstance(e, effects.RespondAlterPartition)]
    return [answer.results[0].error if answer.results else answer.error for answer in answers]


def _writes(done: tuple[Effect, ...]) -> list[LeaderAndIsr]:
    asked = [e.request for e in done if isinstance(e, effects.Coordinate)]
    return [one.state for one in asked if isinstance(one, WriteLeaderAndIsr)]


def test_kip_497_the_controller_writes_fenced_then_answers_and_informs_all_brokers() -> None:
    one = _controller()
    done = _ask(one, A, B, C)
    wanted = replace(LED_BY_A, isr=(A, B, C))
    assert effects.Coordinate(WriteLeaderAndIsr(T, wanted, True, True)) in done
    assert _said(done) == []
    written = replace(wanted, version=7)
    done = step(one, LeaderAndIsrWritten(T, written, True), NOW)
    [answer] = [e for e in done if isinstance(e, effects.RespondAlterPartition)]
    assert answer == effects.RespondAlterPartition(
        70, Error.NONE, (AlteredResult(T, Error.NONE, written),)
    )
    sent = [e for e in done if isinstance(e, effects.SendControl)]
    assert [one.broker for one in sent] == [A, B, C]
    assert all(isinstance(one.message, events.UpdateMetadataRequested) for one in sent)
    assert all(one.message.partitions[0].state == written for one in sent)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"leader": 9}, Error.STALE_BROKER_EPOCH),
        ({"epoch": 10}, Error.STALE_BROKER_EPOCH),
        ({"partition": TopicPartition("x", 0)}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 5}, Error.NOT_CONTROLLER),
        ({"version": 7}, Error.NOT_CONTROLLER),
        ({"leader_epoch": 3}, Error.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 3, "version": 5}, Error.FENCED_LEADER_EPOCH),
        ({"version": 5}, Error.INVALID_UPDATE_VERSION),
        ({"leader": B}, Error.INVALID_REQUEST),
    ],
)
def test_kip_497_what_a_controller_refuses_and_in_which_order(
    asked: dict[str, object], error: Error
) -> None:
    done = _ask(_controller(), A, **asked)  # type: ignore[arg-type]
    assert (_said(done), _writes(done)) == ([error], [])


@pytest.mark.parametrize("isr", [(B, C), (A, B, (9, -1))])
def test_kip_497_an_isr_has_its_leader_and_nobody_but_replicas(isr: tuple[int, ...]) -> None:
    assert _said(_ask(_controller(), *isr)) == [Error.INVALID_REQUEST]


def test_kip_497_a_broker_that_is_no_controller_says_so() -> None:
    one = given.broker("4.0")
    assert _said(_ask(one, A, B, C)) == [Error.NOT_CONTROLLER]


@pytest.mark.parametrize("version", [5, 6])
def test_kip_497_a_change_that_was_written_already_is_answered_with_the_state(
    version: int,
) -> None:
    """The first answer was lost, and the leader asks again, with the version of then."""
    done = _ask(_controller(), B, A, version=version)
    [answer] = [e for e in done if isinstance(e, effects.RespondAlterPartition)]
    assert answer.results == (AlteredResult(T, Error.NONE, LED_BY_A),)
    assert _writes(done) == []


def test_kip_497_a_lost_race_is_said_and_the_state_is_read_again() -> None:
    one = _controller()
    [wanted] = _writes(_ask(one, A))
    done = step(one, LeaderAndIsrConflict(T, wanted, True), NOW)
    assert _said(done) == [Error.INVALID_UPDATE_VERSION]
    assert effects.Coordinate(ReadLeaderAndIsr((T,))) in done
    later = replace(LED_BY_A, version=9)
    step(one, LeaderAndIsrRead((T,), {T: later}), NOW)
    assert one.active_controller is not None
    assert one.active_controller.states[T] == later
    assert [state.version for state in _writes(_ask(one, A, version=9))] == [9]


def test_kip_497_a_change_waits_for_the_controllers_own() -> None:
    """B's death is being decided when A asks: its turn comes when that is written."""
    one = _controller()
    step(one, BrokersChanged(_registrations(b=0)), NOW)
    assert (_said(_ask(one, A, B, C)), one.active_controller is None) == ([], False)
    done = step(one, LeaderAndIsrRead((T,), {T: LED_BY_A}), NOW)
    [without_b] = _writes(done)
    assert (without_b.isr, without_b.leader_epoch) == ((A,), 4)
    written = replace(without_b, version=7)
    assert _said(step(one, LeaderAndIsrWritten(T, written, True), NOW)) == [
        Error.INVALID_UPDATE_VERSION
    ]


def test_kip_497_the_controllers_own_waits_for_a_change() -> None:
    one = _controller()
    [grown] = _writes(_ask(one, A, B, C))
    done = step(one, BrokersChanged(_registrations(b=0)), NOW)
    assert not given.did(done, effects.Coordinate)
    written = replace(grown, version=7)
    done = step(one, LeaderAndIsrWritten(T, written, True), NOW)
    assert _said(done) == [Error.NONE]
    assert effects.Coordinate(ReadLeaderAndIsr((T,))) in done
    [without_b] = _writes(step(one, LeaderAndIsrRead((T,), {T: written}), NOW))
    assert without_b.isr == (A, C)


def test_kip_497_a_second_change_waits_for_the_first() -> None:
    one = _controller()
    [grown] = _writes(_ask(one, A, B, C))
    assert _writes(_ask(one, A, request=71)) == []
    done = step(one, LeaderAndIsrWritten(T, replace(grown, version=7), True), NOW)
    assert _said(done) == [Error.NONE, Error.INVALID_UPDATE_VERSION]


def test_kip_497_a_state_that_an_earlier_term_asked_for_does_not_disturb_a_change() -> None:
    one = _controller()
    _ask(one, A, B, C)
    assert not step(one, LeaderAndIsrRead((T,), {T: LED_BY_A}), NOW)


@pytest.mark.parametrize("how", [SessionExpired(), ControllerChanged(B)])
def test_kip_497_who_ceases_to_be_controller_answers_all_that_wait(how: object) -> None:
    one = _controller()
    _ask(one, A, B, C)
    done = step(one, how, NOW)
    assert _said(done) == [Error.NOT_CONTROLLER]
    assert isinstance(one.controller, Standby)


@pytest.mark.parametrize(
    ("isr", "epochs", "error"),
    [
        ((A, B, C), {"c": 0}, Error.INELIGIBLE_REPLICA),  # KIP-841: not registered
        ((A, B, C), {"c": 20}, Error.INELIGIBLE_REPLICA),  # KIP-903: registered again
        ((A, B, C), {"b": 20}, Error.INELIGIBLE_REPLICA),  # … also one that is in the ISR
        ((A, B, (C, -1)), {"c": 20}, None),  # its registration is not named
        ((A, B, (C, -1)), {"c": 0}, Error.INELIGIBLE_REPLICA),
        ((A,), {"b": 20}, None),  # who leaves is not asked about
    ],
)
def test_kip_841_and_kip_903_who_may_be_in_an_isr(
    isr: tuple[int, ...], epochs: dict[str, Any], error: Error | None
) -> None:
    done = _ask(_controller(**epochs), *isr)
    assert _said(done) == ([] if error is None else [error])
    assert bool(_writes(done)) == (error is None)


# --- whole clusters ------------------------------------------------------------------------------


def _world(rules_without: str = "", min_insync_replicas: int = 1) -> World:
    """A is controller, B leads; C has left the ISR and comes back: its joining is on its way."""
    rules = GENERATIONS["4.0"]
    if rules_without:
        rules = replace(rules, **{rules_without: False})  # type: ignore[arg-type]
    world = cluster(rules, (B, C, A), min_insync_replicas=min_insync_replicas)
    world.kill(C)
    world.run()
    assert set(world.isr) == {A, B}
    m1 = world.produce("m1")
    world.advance(1_000)
    assert world.is_acked(m1)
    world.hold(events.AlterPartitionRequested, source=B, target=A)
    world.start(C).advance(1_000)
    assert world.held()
    return world


def _lose_disk_and_land(world: World) -> None:
    """C loses its log and registers again, cut off from B; then what B had asked for arrives."""
    world.kill(C, lose_from=0)
    world.run()
    world.hold(events.FetchRequested, source=C, target=B)
    world.hold(events.OffsetForLeaderEpochRequested, source=C, target=B)
    world.start(C).run()
    [old] = [m for m in world.held() if isinstance(m.body, events.AlterPartitionRequested)]
    world.deliver(old)
    world.holds = world.holds[1:]
    world.run()


def test_kip_903_who_came_back_without_its_log_is_not_put_into_the_isr_by_an_old_change() -> None:
    world = _world()
    _lose_disk_and_land(world)
    assert C not in world.isr
    world.kill(A)
    world.kill(B)
    world.run()
    assert world.leader == -1 or world.leader in (A, B)
    world.holds.clear()
    world.start(A, B).advance(40_000)
    assert world.log(world.leader)[:1] == ["m1"]
    assert set(world.isr) == {A, B, C}


def test_kip_903_without_the_check_an_acknowledged_record_is_lost() -> None:
    world = _world("isr_names_broker_epochs")
    _lose_disk_and_land(world)
    assert C in world.isr
    world.kill(A)
    world.kill(B)
    world.run()
    assert (world.leader, world.log(C)) == (C, [])


def test_kip_497_a_cluster_whose_controller_dies_with_the_request_goes_on_with_the_next() -> None:
    world = _world(min_insync_replicas=2)
    world.kill(A)
    world.holds.clear()
    world.advance(5_000)
    assert set(world.isr) == {B, C}
    assert world.service.controller == B
    m2 = world.produce("m2")
    world.advance(1_000)
    assert world.is_acked(m2)
    assert not [m for m in world.in_flight if m.target == SERVICE]
