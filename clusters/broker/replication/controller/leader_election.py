"""Who leads a partition, and who is in its ISR, when brokers come and go (C3). Pure functions.

First of the ISR that lives, in assigned order. With nobody of the ISR alive: an unclean election
where that is allowed, otherwise no leader, and the ISR is kept so that a member can return. With
eligible leader replicas (KIP-966): `next_state_with_elr`. As Kafka's
PartitionLeaderElectionAlgorithms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    BrokerRegistration,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import (
    Eligibility,
    next_elr,
)
from neaptide.clusters.broker.replication.rule import rule

INITIAL_LEADER_EPOCH = 0


def initial_state(
    assigned: tuple[int, ...], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The first state of a new partition: all live replicas in sync, the first of them leads.

    None while no replica lives: the partition waits.
    """
    isr = tuple(replica for replica in assigned if replica in live)
    if not isr:
        return None
    return LeaderAndIsr(isr[0], INITIAL_LEADER_EPOCH, isr, controller_epoch)


@rule
def next_state(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Collection[int],
    controller_epoch: int,
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    """The state that replaces this one now that these brokers live; None where it may stay.

    Every change is a new leader epoch, also where only the ISR shrinks (Kafka's controller takes
    dead replicas out of the ISR itself).
    """
    live_isr = tuple(replica for replica in assigned if replica in state.isr and replica in live)
    if state.leader in live and state.leader in state.isr:
        leader, isr = state.leader, live_isr
    elif live_isr:
        leader, isr = live_isr[0], live_isr
    else:
        candidates = [replica for replica in assigned if replica in live] if unclean else []
        leader = candidates[0] if candidates else NO_LEADER
        isr = (leader,) if candidates else state.isr
    if leader == state.leader and set(isr) == set(state.isr):
        return None
    return replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
    )


def may_be_counted_on(
    state: LeaderAndIsr, live: Collection[int], shutting_down: Collection[int]
) -> frozenset[int]:
    """The live brokers without those in controlled shutdown; but a leader stays that nobody in sync
    can replace (ControlledShutdownPartitionLeaderElection)."""
    staying = frozenset(live) - frozenset(shutting_down)
    if state.leader in live and staying.isdisjoint(state.isr):
        return staying | {state.leader}
    return staying


@rule
def with_preferred(
    decided: LeaderAndIsr | None,
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Collection[int],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """As decided, but led by the first assigned replica where that lives and is in sync."""
    now, preferred = decided or state, assigned[0]
    if now.leader == preferred or preferred not in live or preferred not in now.isr:
        return decided
    return replace(
        now,
        leader=preferred,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )


@rule
def with_reassigned(
    decided: LeaderAndIsr | None,
    state: LeaderAndIsr,
    target: tuple[int, ...],
    live: Collection[int],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """As decided, but with the target's replicas alone where all of them live and are in sync.

    The leader stays where it is one of them, else the first of them leads
    (ReassignPartitionLeaderElection).
    """
    now = decided or state
    if not set(target) <= set(now.isr) & set(live):
        return decided
    return replace(
        now,
        leader=now.leader if now.leader in target else target[0],
        leader_epoch=state.leader_epoch + 1,
        isr=target,
        elr=(),
        controller_epoch=controller_epoch,
    )


def renewed(
    decided: LeaderAndIsr | None, state: LeaderAndIsr, controller_epoch: int
) -> LeaderAndIsr:
    """As decided, in a new leader epoch in any case: so all replicas take notice."""
    epoch = state.leader_epoch + 1
    return decided or replace(state, leader_epoch=epoch, controller_epoch=controller_epoch)


# --- eligible leader replicas (KIP-966) -----------------------------------------------------------


@rule
def next_state_with_elr(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Collection[int],
    controller_epoch: int,
    *,
    unclean: bool,
    eligibility: Eligibility,
    shrinks_in_new_epoch: bool,
) -> LeaderAndIsr | None:
    """As `next_state`: first of the ISR that lives, then of the eligible; with neither
    left anywhere, the last known leader, and only then an unclean election. A leader that came back
    torn leads in a new epoch, whose start the others are cut to; one that stays while others leave
    does not, where the rule is so."""
    members = (*state.isr, *state.elr)
    if not set(members) & set(assigned) and members and not unclean:
        return _without_leader(state, controller_epoch)
    trusted = [r for r in assigned if r in live and r not in eligibility.unclean]
    live_isr = tuple(r for r in trusted if r in state.isr)
    live_elr = [r for r in trusted if r in state.elr]
    leader = NO_LEADER
    isr: tuple[int, ...] = ()
    if live_isr:
        leader, isr = (state.leader if state.leader in live_isr else live_isr[0]), live_isr
    elif live_elr:
        leader, isr = live_elr[0], (live_elr[0],)
    elr = next_elr(members, isr, assigned, eligibility)
    if leader == NO_LEADER:
        leader = _of_last_resort(state, assigned, live, elr, unclean=unclean)
        if leader != NO_LEADER:
            isr = (leader,)
            elr = next_elr(elr, isr, assigned, eligibility)
    last_known = NO_LEADER
    if leader == NO_LEADER:
        last_known = state.last_known_leader if state.leader == NO_LEADER else state.leader
    decided = replace(state, leader=leader, isr=isr, elr=elr, last_known_leader=last_known)
    is_torn = leader in eligibility.unclean
    if _means_the_same(decided, state) and not is_torn:
        return None
    stays = leader == state.leader and not is_torn and not shrinks_in_new_epoch
    epoch = state.leader_epoch + (0 if stays else 1)
    return replace(decided, leader_epoch=epoch, controller_epoch=controller_epoch)


def _without_leader(state: LeaderAndIsr, controller_epoch: int) -> LeaderAndIsr | None:
    """None of the in-sync and eligible replicas is assigned any more (a reassignment was taken
    back): who has everything is remembered, and kept."""
    if state.leader == NO_LEADER:
        return None
    epoch = state.leader_epoch + 1
    return replace(state, leader=NO_LEADER, leader_epoch=epoch, controller_epoch=controller_epoch)


@rule
def came_back_torn(
    states: Mapping[TopicPartition, LeaderAndIsr], brokers: Mapping[int, BrokerRegistration]
) -> dict[TopicPartition, frozenset[int]]:
    """Who came back from an unclean shutdown while there was no controller to see it.

    That is who registered after the partition's state was last written, and owns up to it.
    """
    torn = {b: one.epoch for b, one in brokers.items() if one.unclean_shutdown}
    found = {
        tp: frozenset(
            replica
            for replica in (*state.isr, *state.elr)
            if 0 <= state.written_at < torn.get(replica, -1)
        )
        for tp, state in states.items()
    }
    return {tp: replicas for tp, replicas in found.items() if replicas}


def _of_last_resort(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Collection[int],
    elr: tuple[int, ...],
    *,
    unclean: bool,
) -> int:
    known = state.last_known_leader if state.leader == NO_LEADER else state.leader
    if not elr and known in assigned and known in live:
        return known
    candidates = [replica for replica in assigned if replica in live] if unclean else []
    return candidates[0] if candidates else NO_LEADER


def _means_the_same(one: LeaderAndIsr, other: LeaderAndIsr) -> bool:
    return (
        one.leader == other.leader
        and set(one.isr) == set(other.isr)
        and set(one.elr) == set(other.elr)
        and one.last_known_leader == other.last_known_leader
    )
