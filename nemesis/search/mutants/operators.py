"""Mutants of what operators ask for: partitions that move, preferred leaders, other controllers.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import (
    leader_election,
    reassignments,
)
from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.broker.replication.model import (
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from neaptide.clusters.simulation.service import Service
from neaptide.nemesis.search.mutants.mutant import ONE, Mutant, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_is_refused = Service.is_refused.own
_begin = reassignments.begin.own
_write_assignment = reassignments.write_assignment.own
Live = Collection[int]
MOVES: Final = ("kill", "hold", "cut", "reassign")
DEPOSED: Final = ("reassign", "depose")


def deletes_for_any_controller(service: Service, request: Any) -> bool:
    if isinstance(request, coordination_service.SetPartitionReassignment):
        return False
    return _is_refused(service, request)


def ends_before_all_are_in_sync(
    decided: LeaderAndIsr | None,
    state: LeaderAndIsr,
    target: tuple[int, ...],
    live: Live,
    controller_epoch: int,
) -> LeaderAndIsr | None:
    now = decided or state
    if not set(target) <= set(live):
        return decided
    return replace(
        now,
        leader=now.leader if now.leader in target else target[0],
        leader_epoch=state.leader_epoch + 1,
        isr=target,
        elr=(),
        controller_epoch=controller_epoch,
    )


def leads_on_outside_the_target(
    decided: LeaderAndIsr | None,
    state: LeaderAndIsr,
    target: tuple[int, ...],
    live: Live,
    controller_epoch: int,
) -> LeaderAndIsr | None:
    now = decided or state
    if not set(target) <= set(now.isr) & set(live):
        return decided
    return replace(
        now,
        leader_epoch=state.leader_epoch + 1,
        isr=target,
        elr=(),
        controller_epoch=controller_epoch,
    )


def prefers_out_of_sync(
    decided: LeaderAndIsr | None,
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Live,
    controller_epoch: int,
) -> LeaderAndIsr | None:
    now, preferred = decided or state, assigned[0]
    if now.leader == preferred or preferred not in live:
        return decided
    return replace(
        now,
        leader=preferred,
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(one for one in assigned if one == preferred or one in now.isr),
        controller_epoch=controller_epoch,
    )


def needs_no_replica(state: LeaderAndIsr | None, replicas: frozenset[int]) -> frozenset[int]:
    return frozenset()


def begins_with_the_deletion(
    broker: Broker, tp: TopicPartition, assignment: ReplicaAssignment
) -> None:
    _begin(broker, tp, assignment)
    controller = broker.active_controller
    assert controller is not None
    unneeded = {**controller.reassignments.unneeded, tp: frozenset(assignment.removing)}
    broker.controller = replace(
        controller, reassignments=replace(controller.reassignments, unneeded=unneeded)
    )


def assigns_the_target_at_once(
    broker: Broker, tp: TopicPartition, assignment: ReplicaAssignment
) -> None:
    _write_assignment(broker, tp, ReplicaAssignment(assignment.target))


MUTANTS: Final = (
    rule(
        "reassignment-deleted-unfenced",
        Service.is_refused,
        deletes_for_any_controller,
        "A controller that is deposed takes out of the znode what its successor is asked for.",
        faults=DEPOSED,
    ),
    rule(
        "reassigned-before-in-sync",
        leader_election.with_reassigned,
        ends_before_all_are_in_sync,
        "A reassignment ends when its replicas live, whether or not they are in the ISR.",
        faults=MOVES,
    ),
    rule(
        "led-from-outside-the-target",
        leader_election.with_reassigned,
        leads_on_outside_the_target,
        "A reassignment ends with the old leader, whether or not it stays a replica.",
        faults=MOVES,
    ),
    rule(
        "prefers-out-of-sync",
        leader_election.with_preferred,
        prefers_out_of_sync,
        "The preferred leader is elected where it lives, whether or not it is in the ISR.",
        faults=("kill", "hold", "cut", "wait", "elect"),
        topic_settings=ONE,
    ),
    Mutant(
        "deletes-before-it-leaves-the-isr",
        "A reassignment begins with the deletion of the replicas that are to go.",
        replaced=(
            (reassignments.still_needed, needs_no_replica),
            (reassignments.begin, begins_with_the_deletion),
        ),
        faults=MOVES,
    ),
    rule(
        "assigns-the-target-at-once",
        reassignments.write_assignment,
        assigns_the_target_at_once,
        "A reassignment is written without the old replicas, before the new ones are in sync.",
        faults=MOVES,
    ),
)
