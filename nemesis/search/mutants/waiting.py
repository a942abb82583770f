"""Mutants of waiting and of ends: time-outs, roles that change meanwhile, the last of the ISR.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import leader_election
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.leader import produce
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import NO_LEADER, LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.simulation.disk import Disk
from neaptide.nemesis.search.mutants.mutant import unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_respond = produce.respond.own
_produce_outcome = produce.produce_outcome.own
_next_state = leader_election.next_state.own


def acks_what_is_late(
    broker: Broker, request: int, acks: int, appended: Mapping[TopicPartition, Appended]
) -> None:
    known = {
        tp: replace(one, error=Error.NONE) if one.error is None else one
        for tp, one in appended.items()
    }
    _respond(broker, request, acks, known)


def waits_through_a_step_down(
    broker: Broker, waiting: Appended, partition: Partition | None, acks: int = -1
) -> Error | None:
    leads = partition is not None and isinstance(partition.role, Leader)
    if waiting.error is None and not leads:
        return None
    return _produce_outcome(broker, waiting, partition, acks)


def counts_who_joins(partition: Partition) -> tuple[int, ...]:
    return partition.role.isr.maximal if isinstance(partition.role, Leader) else ()


def empties_the_isr(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Collection[int],
    epoch: int,
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    nobody_leads = decided is not None and decided.leader == NO_LEADER
    return replace(decided, isr=()) if decided is not None and nobody_leads else decided


def marks_without_flushing(disk: Disk) -> None:
    disk.was_clean = True


MUTANTS: Final = (
    unseen(
        "late-is-acknowledged",
        produce.respond,
        acks_what_is_late,
        "A produce request whose time is over is acknowledged.",
    ),
    unseen(
        "waits-through-a-step-down",
        produce.produce_outcome,
        waits_through_a_step_down,
        "What waits for its acknowledgement goes on waiting when its leader has stepped down.",
    ),
    unseen(
        "min-insync-counts-who-joins",
        partition_rules.isr_of,
        counts_who_joins,
        "Who is joining the ISR counts for min.insync.replicas.",
    ),
    unseen(
        "last-member-leaves",
        leader_election.next_state,
        empties_the_isr,
        "The controller takes the last member out of the ISR when it dies.",
    ),
    unseen(
        "stopped-without-flush",
        Disk.sync,
        marks_without_flushing,
        "A clean shutdown does not flush the logs.",
    ),
)
