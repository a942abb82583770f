"""Eligible leader replicas (KIP-966): who may lead although it is not in the ISR. Pure functions.

While the ISR is at least min.insync.replicas, nobody outside it is needed. Once it is smaller, the
high watermark stands still, so who leaves the ISR now still has everything that is committed: it is
eligible, until the ISR is large enough again or the replica has shut down uncleanly.

The controller decides it with every ISR change that it makes or is asked for. Not as in Kafka: a
shutdown was clean when its marker is there, not when a broker epoch fits. Who is elected: see
leader_election.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from neaptide.clusters.broker.replication.rule import rule


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


@rule
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
