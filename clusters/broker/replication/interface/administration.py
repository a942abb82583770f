"""Events of administration: what operators, and brokers that stop, ask of the controller.

As in events, `request` is the shell's handle to who waits for the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import UNKNOWN_BROKER_EPOCH, TopicPartition


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


# --- controlled shutdown -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """A broker that stops asks the controller to hand over what it leads."""

    request: int
    broker_id: int
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # of its registration (KIP-380)


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """Of the shell: this broker is to stop. The effect Shutdown says when it may."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownResponded:
    """`remaining`: what this broker still leads, since nobody else could."""

    sequence: int  # of the request that it answers
    error: Error
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlledShutdownFailed:
    """The request got no answer: no connection, a broken one, or a time-out."""

    sequence: int


# --- reassignments (KIP-455) ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reassigned:
    """The replicas that a partition is to have; None: those that it had before."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsRequested:
    request: int
    partitions: tuple[Reassigned, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsRequested:
    """`partitions` None: all that are being reassigned."""

    request: int
    partitions: tuple[TopicPartition, ...] | None


# --- timers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReassignmentRetry:
    """Timer: for what was asked for while another reassignment of the partition was ending."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownRetry:
    """Timer: controlled.shutdown.retry.backoff.ms after an attempt that did not succeed."""


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    """Timer of a controller: every leader.imbalance.check.interval.seconds."""
