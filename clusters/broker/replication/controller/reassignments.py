"""How reassignments go on: assignments are written, states follow, replicas are deleted at the end.

A reassignment (KIP-455) has these phases, each of which another controller can take up:

1. The assignment is written with the old replicas and the new ones.
2. The partition gets a new leader epoch; all of them are informed; the new ones catch up.
3. When all that are to stay or come are in the ISR, the state is written with them alone, led by
   one of them; the others are to be deleted; the assignment is written without them.

Who asks for it is in partition_reassignment. As Kafka's KafkaController (onPartitionReassignment).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending
from neaptide.clusters.broker.replication.controller.controller_channel_manager import (
    send_stop_replica,
)
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Reassignment,
    Reassignments,
)
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    AlterPartitionReassignmentsRequested,
    PartitionResult,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    PartitionReassignmentFound,
    SetPartitionReassignment,
    WriteAssignment,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondAlterPartitionReassignments,
)
from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.rule import rule


def assignment_of(controller: Active, tp: TopicPartition) -> ReplicaAssignment | None:
    """As it is, or as it will be when what was asked for is written; None: no such partition."""
    configuration = controller.topics.get(tp.topic)
    if configuration is None or tp.partition not in configuration.assignment:
        return None
    written = controller.reassignments.written.get(tp)
    if written is not None:
        return written[0]
    ongoing = controller.reassignments.ongoing.get(tp)
    return ongoing or ReplicaAssignment(controller.replicas(tp))


@rule
def write_assignment(broker: Broker, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
    controller = broker.active_controller
    assert controller is not None
    rules, reassignments = broker.rules, controller.reassignments
    _, before = reassignments.written.get(tp, (assignment, 0))
    written = {**reassignments.written, tp: (assignment, before + 1)}
    _put(broker, replace(reassignments, written=written))
    broker.coordinate(
        WriteAssignment(
            tp,
            assignment,
            controller.controller_epoch,
            rules.keeps_reassignments_in_topics,
            rules.fences_controller_writes,
        )
    )


def take_answer(broker: Broker, tp: TopicPartition) -> None:
    """One write of this partition's assignment is answered."""
    controller = broker.active_controller
    assert controller is not None
    reassignments = controller.reassignments
    last, count = reassignments.written[tp]
    written = {one: asked for one, asked in reassignments.written.items() if one != tp}
    if count > 1:
        written[tp] = (last, count - 1)
    _put(broker, replace(reassignments, written=written))


def is_being_finished(controller: Active, tp: TopicPartition) -> bool:
    """Whether the state that ends its reassignment may be being written: it has to be known what
    came of that, before anything else is asked for."""
    return tp in controller.reassignments.ongoing and tp in controller.writing


@rule
def begin(broker: Broker, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
    """Its assignment is written: from the next state on all of these replicas count."""
    controller = broker.active_controller
    assert controller is not None
    reassignments = controller.reassignments
    gone = frozenset(controller.replicas(tp)) - set(assignment.replicas)
    _assign(broker, tp, assignment.replicas)
    unneeded = dict(reassignments.unneeded)
    doomed = (unneeded.pop(tp, frozenset()) | gone) - set(assignment.replicas)
    if doomed:
        unneeded[tp] = doomed
    _put(
        broker,
        replace(
            reassignments,
            ongoing={**reassignments.ongoing, tp: assignment},
            renewed=reassignments.renewed | {tp},
            unneeded=unneeded,
        ),
    )


def finish_where_done(broker: Broker, tp: TopicPartition, state: LeaderAndIsr) -> None:
    """A state has been written: if it has the target's replicas alone, the rest is cleared away."""
    controller = broker.active_controller
    assert controller is not None
    reassignments = controller.reassignments
    ongoing = reassignments.ongoing.get(tp)
    renewed = reassignments.renewed - {tp}
    if ongoing is None or set(state.isr) != set(ongoing.target):
        _put(broker, replace(reassignments, renewed=renewed))
        return
    target = ongoing.target
    broker.note(f"{tp}: reassigned to {list(target)}")
    doomed = reassignments.unneeded.get(tp, frozenset()) | frozenset(ongoing.removing)
    _assign(broker, tp, target)
    left = {one: asked for one, asked in reassignments.ongoing.items() if one != tp}
    unneeded = {**reassignments.unneeded, tp: doomed} if doomed else reassignments.unneeded
    _put(broker, replace(reassignments, ongoing=left, renewed=renewed, unneeded=unneeded))
    write_assignment(broker, tp, ReplicaAssignment(target))
    forget_znode(broker, (tp,))


def delete_unneeded(broker: Broker, informed: Iterable[TopicPartition]) -> None:
    """Replicas that are none any more, of partitions whose others have been informed.

    One that is in the ISR still, or eligible, may have what nobody else has; where nobody leads,
    any may. It is kept until it cannot.
    """
    controller = broker.active_controller
    assert controller is not None
    reassignments = controller.reassignments
    doomed, left = {}, dict(reassignments.unneeded)
    for tp in informed:
        kept = left.pop(tp, frozenset())
        needed = still_needed(controller.states.get(tp), kept)
        if needed:
            left[tp] = needed
        doomed[tp] = kept - needed
    _put(broker, replace(reassignments, unneeded=left))
    for receiver in sorted({replica for replicas in doomed.values() for replica in replicas}):
        partitions = tuple(tp for tp, replicas in doomed.items() if receiver in replicas)
        send_stop_replica(broker, partitions, (receiver,), delete=True)


@rule
def still_needed(state: LeaderAndIsr | None, replicas: frozenset[int]) -> frozenset[int]:
    if state is None or state.leader == NO_LEADER:
        return replicas
    return replicas & {*state.isr, *state.elr}


def forget_znode(broker: Broker, partitions: Iterable[TopicPartition]) -> None:
    """These need not be in `/admin/reassign_partitions` any more."""
    controller = broker.active_controller
    assert controller is not None
    of_znode = controller.reassignments.of_znode
    left = {tp: target for tp, target in of_znode.items() if tp not in set(partitions)}
    if left != of_znode:
        _put(broker, replace(controller.reassignments, of_znode=left))
        broker.coordinate(
            SetPartitionReassignment(
                left, controller.controller_epoch, broker.rules.fences_controller_writes
            )
        )


def _assign(broker: Broker, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    controller = broker.active_controller
    assert controller is not None
    before = controller.topics[tp.topic]
    assignment = {**before.assignment, tp.partition: replicas}
    topics = {**controller.topics, tp.topic: replace(before, assignment=assignment)}
    broker.controller = replace(controller, topics=topics)


def _put(broker: Broker, reassignments: Reassignments) -> None:
    controller = broker.active_controller
    assert controller is not None
    broker.controller = replace(controller, reassignments=reassignments)


# --- after an election of the controller, or when topics change ----------------------------------


def loaded(topics: Mapping[str, TopicConfiguration]) -> Reassignments:
    """What an earlier controller has begun, as far as topics say so."""
    ongoing = {}
    for topic, one in topics.items():
        for number, replicas in one.assignment.items():
            assignment = ReplicaAssignment(
                tuple(replicas), one.adding.get(number, ()), one.removing.get(number, ())
            )
            if assignment.is_being_reassigned:
                ongoing[TopicPartition(topic, number)] = assignment
    return Reassignments(ongoing=ongoing, renewed=frozenset(ongoing))


def with_own_assignments(
    controller: Active, topics: Mapping[str, TopicConfiguration]
) -> dict[str, TopicConfiguration]:
    """Topics as they were read, but for what this controller is writing meanwhile."""
    merged = dict(topics)
    own = controller.reassignments
    for tp in (*own.ongoing, *own.written):
        read, known = merged.get(tp.topic), controller.topics.get(tp.topic)
        if read is not None and known is not None and tp.partition in known.assignment:
            assignment = {**read.assignment, tp.partition: known.assignment[tp.partition]}
            merged[tp.topic] = replace(read, assignment=assignment)
    return merged


# --- answers -------------------------------------------------------------------------------------


def give_result(broker: Broker, result: PartitionResult) -> None:
    """To the request that has waited for longest."""
    tp = result.partition
    for one in pending.waiting(broker, Reassignment):
        if tp in one.results and one.results[tp] is None:
            pending.give(broker, one.request, tp, result)
            break
    pending.settle(broker, Reassignment)


def forget_postponed(broker: Broker, request: int) -> None:
    """Nobody waits for this answer any more."""
    controller = broker.active_controller
    if controller is not None:
        postponed = tuple(
            one
            for one in controller.reassignments.postponed
            if isinstance(one, PartitionReassignmentFound) or one.request != request
        )
        _put(broker, replace(controller.reassignments, postponed=postponed))


def refuse_postponed(broker: Broker) -> None:
    """Before this broker ceases to be the controller."""
    controller = broker.active_controller
    for one in controller.reassignments.postponed if controller is not None else ():
        if isinstance(one, AlterPartitionReassignmentsRequested):
            broker.do(RespondAlterPartitionReassignments(one.request, Error.NOT_CONTROLLER))
