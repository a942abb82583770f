"""C5: partitions are reassigned: new replicas catch up, old ones go, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.leader_election import (
    renewed,
    with_reassigned,
)
from neaptide.clusters.broker.replication.controller.partition_reassignment import why_invalid
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import administration, effects, events
from neaptide.clusters.broker.replication.interface.administration import (
    AlterPartitionReassignmentsRequested,
    ListPartitionReassignmentsRequested,
    Reassigned,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    BrokersChanged,
    ControllerChanged,
    LeaderAndIsrChanged,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    PartitionReassignmentFound,
    ReadLeaderAndIsr,
    SetPartitionReassignment,
    TopicsChanged,
    WriteAssignment,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.interface.events import TimerFired
from neaptide.clusters.broker.replication.model import (
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.administered import ALL, D, asked, controller, four, led_by
from tests.core.given import NOW, A, B, C, T
from tests.core.world import World
from tests.proof import proof_but

GENERATIONS = ["0.8", "0.10", "0.11", "2.1", "2.8", "4.0"]
FENCED = ["2.1", "2.8", "4.0"]
BY_API = ["2.8", "4.0"]

# --- assignments ---------------------------------------------------------------------------------


def test_c5_the_target_comes_first_then_what_goes() -> None:
    now = ReplicaAssignment((A, B, C))
    moving = now.reassign_to((C, D, B))
    assert moving == ReplicaAssignment((C, D, B, A), (D,), (A,))
    assert (moving.target, moving.origin) == ((C, D, B), (C, B, A))
    assert moving.reassign_to(moving.origin) == ReplicaAssignment((C, B, A))
    assert moving.reassign_to((A, B)) == ReplicaAssignment((A, B, C), (), (C,))  # D is unneeded
    assert not now.reassign_to((C, B, A)).is_being_reassigned  # another order only


@pytest.mark.parametrize("replicas", [(), (A, A), (A, -1)])
def test_c5_what_can_be_no_partitions_replicas(replicas: tuple[int, ...]) -> None:
    assert why_invalid(replicas) is not None
    assert why_invalid((A, B)) is None


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "target", "next_leader"), [(A, (B, A), A), (A, (B, C), B), (C, (A,), A)]
)
def test_c5_when_all_of_the_target_are_in_sync_they_are_the_isr_and_one_of_them_leads(
    leader: int, target: tuple[int, ...], next_leader: int
) -> None:
    state = with_reassigned(None, led_by(leader), target, {A, B, C}, 2)
    assert state == LeaderAndIsr(next_leader, 5, target, 2, version=7)


@pytest.mark.parametrize(
    ("isr", "live"), [((A, C), {A, B, C}), ((A, B, C), {A, C})], ids=["not in sync", "dead"]
)
def test_c5_before_that_nothing_is_moved(isr: tuple[int, ...], live: set[int]) -> None:
    assert with_reassigned(None, led_by(A, isr), (A, B), live, 2) is None


def test_c5_a_renewed_state_is_one_of_a_new_epoch_in_any_case() -> None:
    assert renewed(None, led_by(A), 2) == LeaderAndIsr(A, 5, (A, B, C), 2, version=7)
    decided = led_by(B, (A, B), epoch=5)
    assert renewed(decided, led_by(A), 2) is decided


# --- a controller, step by step ------------------------------------------------------------------


def alter(
    one: Broker, *wanted: Reassigned, request: int = 9, timeout_ms: int = 30_000
) -> tuple[Effect, ...]:
    return step(one, AlterPartitionReassignmentsRequested(request, wanted, timeout_ms), NOW)


def results(done: tuple[Effect, ...]) -> Mapping[TopicPartition, Error]:
    (answer,) = given.did(done, effects.RespondAlterPartitionReassignments)
    assert isinstance(answer, effects.RespondAlterPartitionReassignments)
    assert answer.error is Error.NONE
    return {one.partition: one.error for one in answer.results}


def assigned(done: tuple[Effect, ...]) -> list[ReplicaAssignment]:
    return [write.assignment for write in asked(done, WriteAssignment)]  # type: ignore[attr-defined]


def listed(one: Broker, partitions: tuple[TopicPartition, ...] | None = None) -> object:
    done = step(one, ListPartitionReassignmentsRequested(10, partitions), NOW)
    (answer,) = given.did(done)
    assert isinstance(answer, effects.RespondListPartitionReassignments)
    return dict(answer.ongoing)


def deleted(done: tuple[Effect, ...]) -> set[int]:
    return {
        e.broker
        for e in given.did(done, effects.SendControl)
        if isinstance(e.message, events.StopReplicaRequested) and e.message.delete_partitions
    }


def informed(done: tuple[Effect, ...]) -> set[int]:
    return {
        e.broker
        for e in given.did(done, effects.SendControl)
        if isinstance(e.message, events.LeaderAndIsrRequested)
    }


def small(generation: str = "2.8", state: LeaderAndIsr | None = None) -> Broker:
    """The partition is of B and A; C is to come."""
    one = controller(state or led_by(B, (B, A)), generation)
    topics = one.active_controller.topics
    step(one, TopicsChanged({"t": type(topics["t"])({0: (B, A)})}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: state or led_by(B, (B, A))}), NOW)
    return one


@pytest.mark.parametrize("generation", BY_API)
def test_c5_a_replica_comes_another_goes_each_phase_in_its_turn(generation: str) -> None:
    one = small(generation)
    moving = ReplicaAssignment((C, A, B), (C,), (B,))
    done = alter(one, Reassigned(T, (C, A)))
    assert assigned(done) == [moving]
    assert not given.did(done, effects.RespondAlterPartitionReassignments)
    assert listed(one) == {}
    done = step(one, AssignmentWritten(T, moving), NOW)
    assert results(done) == {T: Error.NONE}
    assert asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,), True)]
    assert listed(one) == listed(one, (T,)) == {T: moving}
    assert listed(one, (TopicPartition("t", 1),)) == {}

    done = step(one, LeaderAndIsrRead((T,), {T: led_by(B, (B, A))}), NOW)
    (write,) = asked(done, WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert (state.leader, state.leader_epoch, set(state.isr)) == (B, 5, {A, B})
    done = step(one, LeaderAndIsrWritten(T, state, True), NOW)
    assert informed(done) == {A, B, C}
    assert not deleted(done)

    done = step(one, LeaderAndIsrChanged((T,)), NOW)
    assert asked(done, ReadLeaderAndIsr) == [ReadLeaderAndIsr((T,), True)]
    in_sync = LeaderAndIsr(B, 5, (B, A, C), 2, version=9)
    done = step(one, LeaderAndIsrRead((T,), {T: in_sync}), NOW)
    (write,) = asked(done, WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert (state.leader, state.leader_epoch, state.isr) == (C, 6, (C, A))
    done = step(one, LeaderAndIsrWritten(T, state, True), NOW)
    assert informed(done) == {A, C}
    assert deleted(done) == {B}
    assert assigned(done) == [ReplicaAssignment((C, A))]
    assert listed(one) == {}
    done = step(one, AssignmentWritten(T, ReplicaAssignment((C, A))), NOW)
    assert given.did(done) == []


def test_c5_what_cannot_be_is_refused_partition_by_partition() -> None:
    one = small()
    nowhere = TopicPartition("nowhere", 0)
    for wanted, error in (
        (Reassigned(nowhere, (A,)), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (Reassigned(T, (A, 77)), Error.INVALID_REPLICA_ASSIGNMENT),
        (Reassigned(T, ()), Error.INVALID_REPLICA_ASSIGNMENT),
        (Reassigned(T, (A, A)), Error.INVALID_REPLICA_ASSIGNMENT),
        (Reassigned(T, None), Error.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        done = alter(one, wanted)
        assert results(done) == {wanted.partition: error}
        assert not assigned(done)


def test_c5_a_dead_replica_may_stay_but_none_may_come() -> None:
    one = small()
    step(one, BrokersChanged({A: ALL[A], C: ALL[C]}), NOW)
    assert assigned(alter(one, Reassigned(T, (B, C))))
    dead = small()
    step(dead, BrokersChanged({A: ALL[A], B: ALL[B]}), NOW)
    assert results(alter(dead, Reassigned(T, (B, C)))) == {T: Error.INVALID_REPLICA_ASSIGNMENT}


def _moving(generation: str = "2.8") -> Broker:
    """C comes, B goes; all are informed, C is not in sync yet."""
    one = small(generation)
    alter(one, Reassigned(T, (C, A)))
    step(one, AssignmentWritten(T, ReplicaAssignment((C, A, B), (C,), (B,))), NOW)
    done = step(one, LeaderAndIsrRead((T,), {T: led_by(B, (B, A))}), NOW)
    (write,) = asked(done, WriteLeaderAndIsr)
    step(one, LeaderAndIsrWritten(T, write.state, True), NOW)  # type: ignore[attr-defined]
    return one


@pytest.mark.parametrize("wanted", [None, (A, B), (B, A)], ids=["cancelled", "back", "as before"])
def test_c5_a_reassignment_is_taken_back(wanted: tuple[int, ...] | None) -> None:
    """The replica that was to come is deleted, and leaves the ISR first."""
    one = _moving()
    (back,) = assigned(alter(one, Reassigned(T, wanted), request=11))
    assert set(back.replicas) == {A, B}
    assert not back.is_being_reassigned
    step(one, AssignmentWritten(T, back), NOW)
    in_sync = LeaderAndIsr(B, 5, (B, A, C), 2, version=9)
    done = step(one, LeaderAndIsrRead((T,), {T: in_sync}), NOW)
    (write,) = asked(done, WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert (state.leader, set(state.isr)) == (B, {A, B})
    done = step(one, LeaderAndIsrWritten(T, state, True), NOW)
    assert informed(done) == {A, B}
    assert deleted(done) == {C}
    assert listed(one) == {}


@pytest.mark.parametrize("generation", BY_API)
def test_c5_a_replica_that_is_not_needed_is_kept_while_only_it_is_in_sync(generation: str) -> None:
    """Kafka deletes it, and all that it has."""
    one = _moving(generation)
    (back,) = assigned(alter(one, Reassigned(T, None), request=11))
    step(one, AssignmentWritten(T, back), NOW)
    only_c = LeaderAndIsr(C, 7, (C,), 2, version=11)
    done = step(one, LeaderAndIsrRead((T,), {T: only_c}), NOW)
    (write,) = asked(done, WriteLeaderAndIsr)
    state = write.state  # type: ignore[attr-defined]
    assert (state.leader, state.isr) == (-1, (C,))
    assert not deleted(step(one, LeaderAndIsrWritten(T, state, True), NOW))


def _ending() -> tuple[Broker, LeaderAndIsr]:
    """The state that ends the reassignment is being written."""
    one = _moving()
    step(one, LeaderAndIsrChanged((T,)), NOW)
    in_sync = LeaderAndIsr(B, 5, (B, A, C), 2, version=9)
    (write,) = asked(step(one, LeaderAndIsrRead((T,), {T: in_sync}), NOW), WriteLeaderAndIsr)
    return one, write.state  # type: ignore[attr-defined]


RETRY = administration.ReassignmentRetry()


@pytest.mark.parametrize(
    "late",
    [
        AlterPartitionReassignmentsRequested(12, (Reassigned(T, (B,)),), 30_000),
        PartitionReassignmentFound({T: (B,)}),
    ],
)
def test_c5_what_is_asked_while_a_reassignment_ends_waits_for_its_end(late: object) -> None:
    one, state = _ending()
    assert given.did(step(one, late, NOW)) == [effects.SetTimer(RETRY, 50)]
    step(one, LeaderAndIsrWritten(T, state, True), NOW)
    (again,) = assigned(step(one, TimerFired(RETRY), NOW))
    assert again == ReplicaAssignment((B, C, A), (B,), (C, A))
    assert step(one, TimerFired(RETRY), NOW) == ()


def test_c5_what_waits_for_the_end_of_another_is_refused_or_forgotten_as_all_is() -> None:
    one, _ = _ending()
    alter(one, Reassigned(T, (B,)), request=12)
    alter(one, Reassigned(T, (A,)), request=13)
    step(one, events.RequestAbandoned(13), NOW)
    done = given.did(
        step(one, ControllerChanged(C), NOW), effects.RespondAlterPartitionReassignments
    )
    assert done == [effects.RespondAlterPartitionReassignments(12, Error.NOT_CONTROLLER)]
    assert step(one, TimerFired(RETRY), NOW) == ()


def test_c5_while_another_assignment_is_being_written_no_reassignment_ends() -> None:
    one = _moving()
    alter(one, Reassigned(T, None), request=11)
    step(one, LeaderAndIsrChanged((T,)), NOW)
    in_sync = LeaderAndIsr(B, 5, (B, A, C), 2, version=9)
    done = step(one, LeaderAndIsrRead((T,), {T: in_sync}), NOW)
    assert not asked(done, WriteLeaderAndIsr)


@pytest.mark.parametrize("error", [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_CONTROLLER])
def test_c5_a_write_that_is_refused_is_an_error_and_changes_nothing(error: Error) -> None:
    one = small()
    (moving,) = assigned(alter(one, Reassigned(T, (C, A))))
    done = step(one, AssignmentWritten(T, moving, error), NOW)
    assert results(done) == {T: error}
    assert listed(one) == {}


def test_c5_reassignments_time_out_are_abandoned_and_refused_by_who_is_no_controller() -> None:
    one = small()
    alter(one, Reassigned(T, (C, A)))
    expired = TimerFired(events.DelayedOperationExpired(9))
    assert results(step(one, expired, NOW)) == {T: Error.REQUEST_TIMED_OUT}
    alter(one, Reassigned(T, (C, A)))
    step(one, events.RequestAbandoned(9), NOW)
    assert given.did(step(one, expired, NOW)) == []
    alter(one, Reassigned(T, (C, A)))
    refusal = effects.RespondAlterPartitionReassignments(9, Error.NOT_CONTROLLER)
    assert refusal in step(one, ControllerChanged(C), NOW)
    assert alter(one, Reassigned(T, (C, A))) == (refusal,)
    done = step(one, ListPartitionReassignmentsRequested(9, None), NOW)
    assert done == (effects.RespondListPartitionReassignments(9, Error.NOT_CONTROLLER),)


def test_c5_nothing_is_deleted_while_nobody_leads() -> None:
    """C, unneeded, is not in the ISR; but who is has gone, and C may have to do."""
    one = _moving("4.0")
    (back,) = assigned(alter(one, Reassigned(T, None), request=11))
    step(one, BrokersChanged({C: ALL[C]}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: LeaderAndIsr(B, 5, (B, A), 2, version=8)}), NOW)
    nobody = LeaderAndIsr(-1, 6, (), 2, version=9, elr=(B, A))
    step(one, LeaderAndIsrWritten(T, nobody, True), NOW)
    step(one, AssignmentWritten(T, back), NOW)
    done = step(one, LeaderAndIsrRead((T,), {T: nobody}), NOW)
    (write,) = asked(done, WriteLeaderAndIsr)
    done = step(one, LeaderAndIsrWritten(T, write.state, True), NOW)  # type: ignore[attr-defined]
    assert not deleted(done)


@pytest.mark.parametrize("is_changed", [False, True])
def test_c5_a_replica_that_fell_is_dead_once_though_the_state_is_read_again(
    is_changed: bool,
) -> None:
    """A change of the state while it is reconsidered is no new death."""
    one = _moving()
    bounced = {**ALL, A: type(ALL[A])(A, (), epoch=99)}
    step(one, BrokersChanged(bounced), NOW)
    in_sync = LeaderAndIsr(B, 5, (B, A), 2, version=8)
    if is_changed:
        step(one, LeaderAndIsrChanged((T,)), NOW)
    (write,) = asked(step(one, LeaderAndIsrRead((T,), {T: in_sync}), NOW), WriteLeaderAndIsr)
    without_a = write.state  # type: ignore[attr-defined]
    assert without_a.isr == (B,)
    done = step(one, LeaderAndIsrWritten(T, without_a, True), NOW)
    assert asked(done, ReadLeaderAndIsr)  # what has come back is looked at once more
    back = LeaderAndIsr(B, 6, (B, A), 2, version=10)
    done = step(one, LeaderAndIsrRead((T,), {T: back}), NOW)
    assert not asked(done, WriteLeaderAndIsr)


# --- the znode -----------------------------------------------------------------------------------


def found(one: Broker, **targets: tuple[int, ...]) -> tuple[Effect, ...]:
    named = {TopicPartition(topic, 0): target for topic, target in targets.items()}
    return step(one, PartitionReassignmentFound(named), NOW)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_what_the_znode_asks_for_and_cannot_be_is_taken_out_of_it(generation: str) -> None:
    one = small(generation)
    done = found(one, nowhere=(A,), t=(C, A))
    assert assigned(done) == [ReplicaAssignment((C, A, B), (C,), (B,))]
    fence = (2, generation in FENCED)  # its epoch, whether a later one is refused
    assert asked(done, SetPartitionReassignment) == [SetPartitionReassignment({T: (C, A)}, *fence)]
    assert found(one, t=(C, A)) == ()  # its own write is reported to it
    done = found(one, t=())
    assert asked(done, SetPartitionReassignment) == [SetPartitionReassignment({}, *fence)]


@pytest.mark.parametrize(
    ("generation", "target", "taken"),
    [
        ("0.8", (A, 77), False),  # only 0.8 asks whether they live
        ("0.10", (A, 77), True),
        ("2.8", (A, 77), True),
        ("2.1", (B, A), False),  # it has these replicas
        ("2.8", (B, A), True),
    ],
)
def test_c5_generations_differ_in_what_the_znode_may_ask_for(
    generation: str, target: tuple[int, ...], taken: bool
) -> None:
    assert bool(assigned(found(small(generation), t=target))) == taken


def test_c5_the_api_replaces_what_the_znode_asks_for() -> None:
    one = small()
    found(one, t=(C, A))
    done = alter(one, Reassigned(T, (A, C)))
    assert asked(done, SetPartitionReassignment) == [SetPartitionReassignment({}, 2, True)]


# --- a whole cluster -----------------------------------------------------------------------------


def reassign(world: World, *target: int) -> None:
    for receiver, event in world.service.reassign({T: target}):
        world.handle(receiver, event)


def settled(world: World, *target: int) -> bool:
    return is_assigned(world, *target) and holders(world) == set(target)


def is_assigned(world: World, *target: int) -> bool:
    topic = world.service.topics[T.topic]
    return (
        tuple(topic.assignment[0]) == target
        and not any(topic.adding.values())
        and not any(topic.removing.values())
        and sorted(world.isr) == sorted(target)
        and not world.service.reassignments
    )


def holders(world: World) -> set[int]:
    return {broker for broker, disk in world.disks.items() if T in disk.logs}


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(
    "target", [(D, C), (B, D), (C, A, B), (B,), (A, B), (D,), (B, A, C, D)], ids=str
)
def test_c5_all_records_are_where_the_partition_is_and_no_log_is_left_where_it_is_not(
    generation: str, target: tuple[int, ...]
) -> None:
    world = four(generation, B, A)
    before = world.produce("m1")
    world.advance(1_000)
    reassign(world, *target)
    world.advance(20_000)
    assert settled(world, *target)
    after = world.produce("m2")
    world.advance(2_000)
    assert world.is_acked(before)
    assert world.is_acked(after)
    assert all(world.log(broker) == ["m1", "m2"] for broker in target)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_a_replica_that_was_given_away_can_come_back(generation: str) -> None:
    world = four(generation, B, A)
    sent = [world.produce("m1")]
    world.advance(1_000)
    for number, target in enumerate([(C, A), (B, A), (B, C), (B, A)]):
        reassign(world, *target)
        world.advance(20_000)
        assert settled(world, *target), number
        sent.append(world.produce(f"m{number + 2}"))
        world.advance(1_000)
    assert all(world.is_acked(one) for one in sent)
    assert world.log(B) == world.log(A) == ["m1", "m2", "m3", "m4", "m5"]


@pytest.mark.parametrize("generation", ["0.10", "2.1", "2.8", "4.0"])
@pytest.mark.parametrize("seed", range(12))
def test_c5_whenever_the_controller_dies_the_next_one_ends_what_it_has_begun(
    generation: str, seed: int
) -> None:
    random = Random(seed)
    world = four(generation, B, C)
    sent = world.produce("m1")
    world.advance(1_000)
    reassign(world, D, C)
    for _ in range(random.randint(0, 60)):
        if world.in_flight:
            world.deliver(world.in_flight[0])
        else:
            world.advance(100, deliver=False)
    assert world.service.controller == A
    # As in Kafka: nobody else knows that this replica is to be deleted.
    lost = any(isinstance(m.body, events.StopReplicaRequested) for m in world.in_flight)
    world.kill(A)
    world.advance(25_000)
    assert is_assigned(world, D, C)
    assert holders(world) - ({B} if lost else set()) == {C, D}
    assert world.is_acked(sent)
    assert world.log(D) == ["m1"]


@pytest.mark.parametrize("generation", ["0.10", "2.1", "4.0"])
def test_c5_it_goes_on_when_a_replica_that_is_to_come_is_back(generation: str) -> None:
    world = four(generation, B, A)
    world.kill(D)
    world.run()
    reassign(world, D, A)
    world.advance(10_000)
    assert not settled(world, D, A)
    assert world.leader == B
    world.start(D).advance(30_000)
    assert settled(world, D, A)


@pytest.mark.parametrize("generation", ["0.10", "2.1", "2.8", "4.0"])
@pytest.mark.parametrize("seed", proof_but([*range(8), 19, 36], 0, 19, 36))
def test_c5_under_load_and_with_deaths_nothing_acknowledged_is_lost(
    generation: str, seed: int
) -> None:
    """Kills, restarts and reassignments in any order; 0.10 may lose, but must come to rest."""
    random = Random(seed)
    world = four(generation, B, C, A, min_insync_replicas=2, replica_lag_time_max_ms=3_000)
    sent: dict[int, str] = {}
    targets = [(B, C, A), (D, C), (A, D, B), (C, B), (D, A, C)]
    for _ in range(120):
        act = random.random()
        if act < 0.3 and world.leader in world.brokers:
            name = f"m{len(sent)}"
            sent[world.produce(name)] = name
        elif act < 0.4:
            reassign(world, *random.choice(targets))
        elif act < 0.45 and len(world.brokers) > 3:
            world.kill(random.choice(sorted(world.brokers)))
        elif act < 0.55 and (dead := sorted({A, B, C, D} - world.brokers.keys())):
            world.start(random.choice(dead))
        else:
            world.advance(random.choice((10, 200, 1_600)))
    for broker in (A, B, C, D):
        if broker not in world.brokers:
            world.start(broker)
    world.advance(20_000)
    reassign(world, B, C, A)
    world.advance(40_000)
    assert tuple(world.service.topics[T.topic].assignment[0]) == (B, C, A)
    assert sorted(world.isr) == [A, B, C]
    acked = {name for number, name in sent.items() if world.is_acked(number)}
    if generation != "0.10":
        assert acked <= set(world.log(world.leader))
