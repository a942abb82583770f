"""Eligible leader replicas (KIP-966): who may lead although it is not in the ISR. Pure functions.

While the ISR is at least min.insync.replicas, nobody outside it is needed. Once it is smaller, the
high watermark stands still, so who leaves the ISR now still has everything that is committed: it is
eligible, until the ISR is large enough again or the replica has shut down uncleanly.

Not as in Kafka: a controller of Kafka writes every ISR change; here the leader does, as in
ZooKeeper mode. A new leader is not told who is eligible: what it does not know it forgets with its
first change, which is safe, for to be eligible is a right, never a duty. And a shutdown was clean
when its marker is there, not when a broker epoch fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    BrokerRegistration,
    LeaderAndIsr,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Eligibility:
    """What an election must know for KIP-966.

    `unclean`: replicas that came back from an unclean shutdown, whose tails may be gone.
    """

    min_insync_replicas: int
    unclean: frozenset[int] = frozenset()


def is_under_min_isr(isr: Collection[int], assigned: Collection[int], min_isr: int) -> bool:
    """No ISR can be larger than there are replicas."""
    return len(isr) < min(min_isr, len(assigned))


def next_elr(
    members: Iterable[int],
    isr: Collection[int],
    assigned: tuple[int, ...],
    eligibility: Eligibility,
) -> tuple[int, ...]:
    """Who is eligible once the ISR is this; `members`: who was in the ISR or eligible before."""
    if not is_under_min_isr(isr, assigned, eligibility.min_insync_replicas):
        return ()
    candidates = set(members) - set(isr) - eligibility.unclean
    return tuple(replica for replica in assigned if replica in candidates)


def next_state(
    state: LeaderAndIsr,
    assigned: tuple[int, ...],
    live: Collection[int],
    controller_epoch: int,
    *,
    unclean: bool,
    eligibility: Eligibility,
) -> LeaderAndIsr | None:
    """As `election.next_state`: first of the ISR that lives, then of the eligible; with neither
    left anywhere, the last known leader, and only then an unclean election. A leader that came back
    torn leads in a new epoch, whose start the others are cut to."""
    members = (*state.isr, *state.elr)
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
    if _means_the_same(decided, state) and leader not in eligibility.unclean:
        return None
    return replace(decided, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)


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
