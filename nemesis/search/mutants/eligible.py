"""Mutants of eligible leader replicas (KIP-966).

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import (
    leader_election,
    partition_state_machine,
)
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.partition import eligible_leader_replicas, partition_rules
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import Eligibility
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.nemesis.search.mutants.mutant import POWER, TORN, V4_0, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_next_eligible_state = leader_election.next_state_with_elr.own
_maybe_increment = partition_rules.maybe_increment_high_watermark.own
_decide = partition_state_machine.decide_state.own
Live = Collection[int]


def moves_under_min_isr(led: Partition, *, rules: Generation, **others: Any) -> Partition:
    rules = replace(rules, eligible_leader_replicas=False)
    return _maybe_increment(led, rules=rules, **others)


def trusts_the_torn(
    broker: Broker, controller: Active, tp: TopicPartition, state: LeaderAndIsr | None
) -> LeaderAndIsr | None:
    return _decide(broker, replace(controller, unclean={}), tp, state)


def nobody_came_back_torn(states: Any, brokers: Any) -> dict[TopicPartition, frozenset[int]]:
    return {}


def never_clears_eligible(
    members: Collection[int], isr: Live, assigned: tuple[int, ...], eligibility: Eligibility
) -> tuple[int, ...]:
    candidates = set(members) - set(isr) - eligibility.unclean
    return tuple(replica for replica in assigned if replica in candidates)


def prefers_the_last_leader(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Live,
    epoch: int,
    *,
    unclean: bool,
    eligibility: Eligibility,
    shrinks_in_new_epoch: bool,
) -> LeaderAndIsr | None:
    known = max(state.leader, state.last_known_leader)
    if known in live and known in eligibility.unclean:
        decided = replace(state, leader=known, isr=(known,), elr=(), last_known_leader=-1)
        return replace(decided, leader_epoch=state.leader_epoch + 1, controller_epoch=epoch)
    return _next_eligible_state(
        state,
        assigned,
        live,
        epoch,
        unclean=unclean,
        eligibility=eligibility,
        shrinks_in_new_epoch=shrinks_in_new_epoch,
    )


MUTANTS: Final = (
    rule(
        "hw-moves-under-min-isr",
        partition_rules.maybe_increment_high_watermark,
        moves_under_min_isr,
        "The high watermark moves while the ISR is smaller than min.insync.replicas.",
        rules=V4_0,
        acks=("0", "all"),
        faults=(*POWER, "consume"),
    ),
    rule(
        "trusts-the-torn",
        partition_state_machine.decide_state,
        trusts_the_torn,
        "A replica that comes back from an unclean shutdown stays eligible.",
        rules=V4_0,
        faults=POWER,
        steps_only=True,
    ),
    rule(
        "torn-not-seen-by-a-new-controller",
        leader_election.came_back_torn,
        nobody_came_back_torn,
        "A new controller does not ask who came back torn before it was one.",
        rules=V4_0,
        faults=TORN,
        steps_only=True,
        shown="a power failure among clean shutdowns",
    ),
    rule(
        "eligible-for-ever",
        eligible_leader_replicas.next_elr,
        never_clears_eligible,
        "Who was once eligible stays it when the ISR is large enough again.",
        rules=V4_0,
    ),
    rule(
        "prefers-the-last-leader",
        leader_election.next_state_with_elr,
        prefers_the_last_leader,
        "The last leader, back from an unclean shutdown, is elected over one who is eligible.",
        rules=V4_0,
        faults=TORN,
        steps_only=True,
        shown="a power failure among clean shutdowns",
    ),
)
