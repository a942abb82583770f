"""Reassignments that somebody asks for: by AlterPartitionReassignments (KIP-455), or by znode.

As in Kafka's KafkaController: what cannot be is refused by its partition; the rest replaces what
was asked for of the partition before. How it goes on is in reassignments.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import assert_never

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending, reassignments
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Reassignment,
)
from neaptide.clusters.broker.replication.controller.partition_state_machine import reconsider
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.interface.administration import (
    AlterPartitionReassignmentsRequested,
    ListPartitionReassignmentsRequested,
    PartitionResult,
    Reassigned,
    ReassignmentRetry,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    LeaderAndIsrChanged,
    PartitionReassignmentFound,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondAlterPartitionReassignments,
    RespondListPartitionReassignments,
)
from neaptide.clusters.broker.replication.model import ReplicaAssignment, TopicPartition

RETRY_MS = 50


def _postpone(
    broker: Broker, event: AlterPartitionReassignmentsRequested | PartitionReassignmentFound
) -> None:
    controller = broker.active_controller
    assert controller is not None
    postponed = (*controller.reassignments.postponed, event)
    broker.controller = replace(
        controller, reassignments=replace(controller.reassignments, postponed=postponed)
    )
    broker.set_timer(ReassignmentRetry(), RETRY_MS)


def on_reassignment_retry(broker: Broker, timer: ReassignmentRetry, now_ms: int) -> None:
    """In the order in which it was asked for."""
    controller = broker.active_controller
    if controller is None:
        return
    postponed = controller.reassignments.postponed
    broker.controller = replace(
        controller, reassignments=replace(controller.reassignments, postponed=())
    )
    for asked in postponed:
        match asked:
            case AlterPartitionReassignmentsRequested():
                on_alter_partition_reassignments(broker, asked, now_ms)
            case PartitionReassignmentFound():
                on_partition_reassignment_found(broker, asked, now_ms)
            case _:
                assert_never(asked)


# --- the admin API -------------------------------------------------------------------------------


def on_alter_partition_reassignments(
    broker: Broker, event: AlterPartitionReassignmentsRequested, now_ms: int
) -> None:
    """Each partition is refused or written by itself; one answer waits for all of them."""
    controller = broker.active_controller
    if controller is None:
        broker.do(RespondAlterPartitionReassignments(event.request, Error.NOT_CONTROLLER))
        return
    if any(reassignments.is_being_finished(controller, one.partition) for one in event.partitions):
        _postpone(broker, event)
        return
    results: dict[TopicPartition, PartitionResult | None] = {}
    begun: dict[TopicPartition, ReplicaAssignment] = {}
    for asked in event.partitions:
        wanted = _wanted(controller, asked)
        if isinstance(wanted, PartitionResult):
            results[asked.partition] = wanted
        else:
            results[asked.partition] = None
            begun[asked.partition] = wanted
    pending.begin(broker, Reassignment(event.request, results), event.timeout_ms)
    reassignments.forget_znode(broker, begun)
    for tp, assignment in begun.items():
        reassignments.write_assignment(broker, tp, assignment)


def _wanted(controller: Active, asked: Reassigned) -> ReplicaAssignment | PartitionResult:
    """The assignment to write, or why not."""
    tp = asked.partition
    current = reassignments.assignment_of(controller, tp)
    if current is None:
        message = "the partition does not exist"
        return PartitionResult(tp, Error.UNKNOWN_TOPIC_OR_PARTITION, message)
    if asked.replicas is None:
        if not current.is_being_reassigned:
            return PartitionResult(tp, Error.NO_REASSIGNMENT_IN_PROGRESS)
        return current.reassign_to(current.origin)
    invalid = why_invalid(asked.replicas)
    wanted = current.reassign_to(asked.replicas)
    if invalid is None and not controller.brokers.keys() >= set(wanted.adding):
        invalid = "it names brokers that do not live"
    if invalid is not None:
        return PartitionResult(tp, Error.INVALID_REPLICA_ASSIGNMENT, invalid)
    return wanted


def why_invalid(replicas: tuple[int, ...]) -> str | None:
    """Why these can be no partition's replicas, whatever brokers there are."""
    if not replicas:
        return "it names no replica"
    if len(set(replicas)) < len(replicas):
        return f"it names a replica twice: {list(replicas)}"
    if min(replicas) < 0:
        return f"it names a broker that cannot be: {list(replicas)}"
    return None


def on_list_partition_reassignments(
    broker: Broker, event: ListPartitionReassignmentsRequested, now_ms: int
) -> None:
    controller = broker.active_controller
    if controller is None:
        broker.do(RespondListPartitionReassignments(event.request, Error.NOT_CONTROLLER))
        return
    ongoing = controller.reassignments.ongoing
    named = sorted(ongoing) if event.partitions is None else event.partitions
    found = tuple(
        (tp, ongoing[tp]) for tp in named if tp in ongoing and ongoing[tp].is_being_reassigned
    )
    broker.do(RespondListPartitionReassignments(event.request, Error.NONE, found))


# --- the znode -----------------------------------------------------------------------------------


def on_partition_reassignment_found(
    broker: Broker, event: PartitionReassignmentFound, now_ms: int
) -> None:
    """What is new in it is begun; what cannot be is taken out of it."""
    controller = broker.active_controller
    if controller is None:
        return
    if any(reassignments.is_being_finished(controller, tp) for tp in event.targets):
        _postpone(broker, event)
        return
    known = controller.reassignments.of_znode
    of_znode = dict(event.targets)
    broker.controller = replace(
        controller, reassignments=replace(controller.reassignments, of_znode=of_znode)
    )
    refused = []
    for tp, target in event.targets.items():
        if known.get(tp) == target:
            continue
        why_not = _why_not(controller, broker.rules, tp, target)
        current = reassignments.assignment_of(controller, tp)
        if why_not is not None or current is None:
            broker.note(f"{tp} is not reassigned to {list(target)}: {why_not}")
            refused.append(tp)
        else:
            reassignments.write_assignment(broker, tp, current.reassign_to(target))
    reassignments.forget_znode(broker, refused)


def _why_not(
    controller: Active, rules: Generation, tp: TopicPartition, target: tuple[int, ...]
) -> str | None:
    current = reassignments.assignment_of(controller, tp)
    if current is None:
        return "the partition does not exist"
    if (invalid := why_invalid(target)) is not None:
        return invalid
    if current == ReplicaAssignment(target) and not rules.keeps_reassignments_in_topics:
        return "it has these replicas already"
    if not rules.reassigns_to_the_dead and not _live(controller, target):
        return "not all of them live"
    return None


def _live(controller: Active, brokers: Collection[int]) -> bool:
    return controller.brokers.keys() >= set(brokers)


# --- how it goes on ------------------------------------------------------------------------------


def on_assignment_written(broker: Broker, event: AssignmentWritten, now_ms: int) -> None:
    controller = broker.active_controller
    tp = event.partition
    if controller is None or tp not in controller.reassignments.written:
        return
    reassignments.take_answer(broker, tp)
    error = event.error
    if reassignments.assignment_of(controller, tp) is None:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    if error is not Error.NONE:
        reassignments.forget_znode(broker, (tp,))
        reassignments.give_result(broker, PartitionResult(tp, error))
        return
    is_over = tp not in controller.reassignments.ongoing and (
        event.assignment == ReplicaAssignment(controller.replicas(tp))
    )
    if is_over and not _is_waited_for(broker, controller, tp):
        return
    reassignments.begin(broker, tp, event.assignment)
    reassignments.give_result(broker, PartitionResult(tp))
    reconsider(broker, (tp,))


def _is_waited_for(broker: Broker, controller: Active, tp: TopicPartition) -> bool:
    """Whether somebody has asked for these replicas, which the partition has already."""
    return tp in controller.reassignments.of_znode or any(
        tp in one.results and one.results[tp] is None
        for one in pending.waiting(broker, Reassignment)
    )


def on_leader_and_isr_changed(broker: Broker, event: LeaderAndIsrChanged, now_ms: int) -> None:
    """A leader has written the ISR of a partition that is being reassigned, or this controller.

    That is nothing about its brokers: who has fallen is counted as dead by what is being decided.
    """
    controller = broker.active_controller
    if controller is None:
        return
    changed = controller.reassignments.ongoing.keys() & set(event.partitions)
    busy = changed & controller.reconsidering
    unread = controller.reassignments.unread | busy
    broker.controller = replace(
        controller, reassignments=replace(controller.reassignments, unread=unread)
    )
    if changed - busy:
        reconsider(broker, sorted(changed - busy))
