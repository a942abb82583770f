"""Requests that wait for a condition: delayed produce, commit and fetch. Pure functions.

Here is what each waits for; when to look again (an append, a moved high watermark, a changed
role, a timer) is the broker's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OffsetCommitRecord
from neaptide.clusters.broker.replication.interface.events import ACKS_ALL, FetchRequested
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition, isr_of


@dataclass(frozen=True, slots=True)
class Appended:
    """One partition of a produce request: appended at `base_offset`, done when HW ≥ required, or,
    where acks is a number above 1, when so many replicas of the ISR have it.

    `error` is None while that waits. Once it is known it stays: a leader that lost its role and got
    it back may have lost the record too, and must not acknowledge it.
    """

    error: Error | None
    base_offset: int
    required_offset: int


@dataclass(frozen=True, slots=True)
class DelayedProduce:
    """A produce request whose records are not yet below the high watermark, or, with acks above 1
    (0.8), not yet on so many replicas."""

    request: int
    partitions: Mapping[TopicPartition, Appended]
    acks: int = ACKS_ALL

    @property
    def is_done(self) -> bool:
        return all(appended.error is not None for appended in self.partitions.values())


@dataclass(frozen=True, slots=True)
class DelayedCommit:
    """Positions of a group whose record is not yet below the high watermark."""

    request: int
    partition: TopicPartition  # of `__consumer_offsets`
    appended: Appended
    committed: tuple[OffsetCommitRecord, ...]


@dataclass(frozen=True, slots=True)
class FetchBaseline:
    """What a fetch could have read of a partition when it was parked."""

    bytes_available: int
    appended_bytes: int


@dataclass(frozen=True, slots=True)
class DelayedFetch:
    """A fetch that found too little to read."""

    message: FetchRequested
    baselines: Mapping[TopicPartition, FetchBaseline]

    @property
    def request(self) -> int:
        return self.message.request


DelayedOperation = DelayedProduce | DelayedCommit | DelayedFetch


def watched_by(operation: DelayedOperation) -> tuple[TopicPartition, ...]:
    """The partitions by which it may come to be answered."""
    match operation:
        case DelayedProduce():
            return tuple(operation.partitions)
        case DelayedCommit():
            return (operation.partition,)
        case DelayedFetch():
            return tuple(operation.baselines)


def produce_outcome(
    waiting: Appended, partition: Partition | None, acks: int = ACKS_ALL
) -> Error | None:
    """The final error (or NONE) of one partition, or None while it must still wait.

    Where HW got there but the ISR has shrunk below min.insync.replicas meanwhile, the record is
    in the log and stays there, and the producer hears NOT_ENOUGH_REPLICAS_AFTER_APPEND (seed 000).
    """
    if waiting.error is not None:
        return waiting.error
    if partition is None or not isinstance(partition.role, Leader):
        return Error.NOT_LEADER_OR_FOLLOWER
    if acks != ACKS_ALL:
        have_it = replicas_with(partition, waiting.required_offset)
        return Error.NONE if have_it >= acks else None
    if partition.high_watermark < waiting.required_offset:
        return None
    if len(isr_of(partition)) < partition.settings.min_insync_replicas:
        return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return Error.NONE


def replicas_with(partition: Partition, offset: int) -> int:
    """How many replicas of the ISR have all before an offset; the leader has."""
    assert isinstance(partition.role, Leader)
    remotes = partition.role.remotes
    return sum(
        replica not in remotes or remotes[replica].log_end_offset >= offset
        for replica in isr_of(partition)
    )


def bytes_readable(
    partition: Partition, *, fetch_offset: int, end: int, baseline: FetchBaseline
) -> int:
    """How much a fetch could read now; 0 where nothing lies between its offset and `end`.

    Above the high watermark a consumer reads nothing; what lies below it is not measured apart
    from what lies above, so this can be too large by what is not yet committed.
    """
    if fetch_offset >= end:
        return 0
    arrived = partition.log.appended_bytes - baseline.appended_bytes
    return max(1, baseline.bytes_available + arrived)
