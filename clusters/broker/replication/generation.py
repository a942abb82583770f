"""A generation is a value: the rules that differ between Kafka's releases, by name.

The core consults these rules and knows no version number. A new generation is a new row in
GENERATIONS; a mutant is a row with one rule broken on purpose. Rules that never differed are plain
code elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Truncation(Enum):
    """How a follower of a new leader makes its log a prefix of the leader's."""

    TO_HIGH_WATERMARK = "to-high-watermark"  # up to 0.10: to its own, perhaps stale, HW
    TO_EPOCH_END_OFFSET = "to-epoch-end-offset"  # KIP-101: to where the leader says its epoch ends


class CaughtUp(Enum):
    """When a fetch counts as having caught up with the leader (lastCaughtUpTimeMs moves)."""

    AT_LOG_END_OFFSET = "at-log-end-offset"  # at the LEO now, or at the LEO of the previous fetch
    ON_ANY_FETCH = "on-any-fetch"  # a mutant: what seed 001 warns of


class EpochAssignment(Enum):
    """When a leader writes down the start offset of its leader epoch."""

    NEVER = "never"
    ON_FIRST_APPEND = "on-first-append"  # 0.11
    ON_BECOMING_LEADER = "on-becoming-leader"  # 2.0 (KIP-279)


@dataclass(frozen=True, slots=True)
class Generation:
    """The rules of one generation of the broker."""

    name: str
    truncation: Truncation
    epoch_assignment: EpochAssignment
    caught_up: CaughtUp
    # A replica joins the ISR only when its LEO has also reached the leader epoch's start offset.
    isr_needs_epoch_start: bool
    # unclean.leader.election.enable where nothing is configured: true up to 0.10.
    unclean_leader_election_enable: bool
    # Inter-broker Fetch version; log start offsets travel from v5 on.
    fetch_version: int

    @property
    def records_epochs(self) -> bool:
        return self.epoch_assignment is not EpochAssignment.NEVER


_V0_10: Final = Generation(
    name="0.10",
    truncation=Truncation.TO_HIGH_WATERMARK,
    epoch_assignment=EpochAssignment.NEVER,
    caught_up=CaughtUp.AT_LOG_END_OFFSET,
    isr_needs_epoch_start=False,
    unclean_leader_election_enable=True,
    fetch_version=4,
)
_V0_11: Final = Generation(
    name="0.11",
    truncation=Truncation.TO_EPOCH_END_OFFSET,
    epoch_assignment=EpochAssignment.ON_FIRST_APPEND,
    caught_up=CaughtUp.AT_LOG_END_OFFSET,
    isr_needs_epoch_start=True,
    unclean_leader_election_enable=False,
    fetch_version=5,
)

GENERATIONS: Final = {generation.name: generation for generation in (_V0_10, _V0_11)}
