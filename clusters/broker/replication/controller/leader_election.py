"""Who leads a partition, and who is in its ISR, when brokers come and go (C3). Pure functions.

First of the ISR that lives, in assigned order. With nobody of the ISR alive: an unclean election
where that is allowed, otherwise no leader, and the ISR is kept so that a member can return.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from neaptide.clusters.broker.replication.model import NO_LEADER, LeaderAndIsr

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
