"""Events of administration: what operators, and brokers that stop, ask of the controller.

As in events, `request` is the shell's handle to who waits for the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What a request came to for one partition; `message` is a sentence where it failed."""

    partition: TopicPartition
    error: Error = Error.NONE
    message: str | None = None


# --- elections -----------------------------------------------------------------------------------


class ElectionType(IntEnum):
    """Kafka's numbers (KIP-460)."""

    PREFERRED = 0  # the first assigned replica, if it lives and is in sync
    UNCLEAN = 1  # any live replica, where there is no leader


@dataclass(frozen=True, slots=True)
class ElectLeadersRequested:
    """ElectLeaders (KIP-183, KIP-460). `partitions` None: all that there are.

    `election_type` None: one that Kafka does not have.
    """

    request: int
    election_type: ElectionType | None
    partitions: tuple[TopicPartition, ...] | None
    timeout_ms: int
