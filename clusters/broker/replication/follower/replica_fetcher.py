"""A fetcher: follows some partitions of one leader, one request at a time. Pure functions.

It repeats: truncate what must be truncated, then fetch (seed 003). A partition in it is
Truncating (asks the leader where its epoch ends), OutOfRange (asks the leader where its log is),
Fetching, or Delayed after an error. Whose turn it is in a request goes round robin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.events import FetcherId
from neaptide.clusters.broker.replication.java import java_abs, java_hash
from neaptide.clusters.broker.replication.model import TopicPartition


def fetcher_number(partition: TopicPartition, num_replica_fetchers: int) -> int:
    """`Utils.abs(31 * topic.hashCode + partition) % num.replica.fetchers`, in Java's ints."""
    return java_abs(31 * java_hash(partition.topic) + partition.partition) % num_replica_fetchers


# --- states of a partition in a fetcher ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truncating:
    """Must learn from the leader where this log's latest epoch ends before it may fetch."""


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The leader refused the fetch offset: ask for its latest, then for its earliest offset."""

    asks_earliest: bool


@dataclass(frozen=True, slots=True)
class Fetching:
    """Ready to fetch from its own log end offset."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """After an error: nothing until `until_ms`, then `then`."""

    until_ms: int
    then: Truncating | OutOfRange | Fetching


FetchState = Truncating | OutOfRange | Fetching | Delayed


@dataclass(frozen=True, slots=True)
class PartitionFetchState:
    """One partition in a fetcher; `leader_epoch` is the one in which it was added."""

    leader_epoch: int
    state: FetchState


@dataclass(frozen=True, slots=True)
class InFlight:
    """The request that waits for its answer, with the offset sent for each partition.

    `sequence` is never used twice by a broker, so that no answer to a closed fetcher's request is
    taken for one to its successor's.

    An answer counts for a partition only if that partition is still followed from the same offset,
    in a state that fits the answer: the leader epoch may be another by then.
    """

    sequence: int
    sent: Mapping[TopicPartition, tuple[PartitionFetchState, int]]


@dataclass(frozen=True, slots=True)
class ReplicaFetcher:
    fetcher_id: FetcherId
    followed: Mapping[TopicPartition, PartitionFetchState]
    in_flight: InFlight | None = None


def follow(
    fetcher: ReplicaFetcher, partition: TopicPartition, followed: PartitionFetchState
) -> ReplicaFetcher:
    return replace(fetcher, followed={**fetcher.followed, partition: followed})


def unfollow(fetcher: ReplicaFetcher, partition: TopicPartition) -> ReplicaFetcher:
    followed = {key: value for key, value in fetcher.followed.items() if key != partition}
    return replace(fetcher, followed=followed)


def move_to_end(
    fetcher: ReplicaFetcher, partition: TopicPartition, followed: PartitionFetchState
) -> ReplicaFetcher:
    """Puts a partition that has just been served behind all others (F5)."""
    return follow(unfollow(fetcher, partition), partition, followed)


def wake(fetcher: ReplicaFetcher, now_ms: int) -> ReplicaFetcher:
    """Ends the delays that are over."""
    followed = {
        partition: replace(entry, state=entry.state.then)
        if isinstance(entry.state, Delayed) and entry.state.until_ms <= now_ms
        else entry
        for partition, entry in fetcher.followed.items()
    }
    return replace(fetcher, followed=followed)


def delay(fetcher: ReplicaFetcher, partition: TopicPartition, until_ms: int) -> ReplicaFetcher:
    entry = fetcher.followed[partition]
    then = entry.state.then if isinstance(entry.state, Delayed) else entry.state
    return move_to_end(fetcher, partition, replace(entry, state=Delayed(until_ms, then)))


def next_wake_ms(fetcher: ReplicaFetcher) -> int | None:
    """When the earliest delay ends, or None where none is running."""
    ends = [
        entry.state.until_ms
        for entry in fetcher.followed.values()
        if isinstance(entry.state, Delayed)
    ]
    return min(ends, default=None)


# --- what an error in a Fetch response means to a follower (F11) ---------------------------------


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Try the same again after replica.fetch.backoff.ms: the leader or we will learn soon."""


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """Drop the partition from the fetcher until a controller says who leads."""


@dataclass(frozen=True, slots=True)
class AskForOffsets:
    """Find out where the leader's log is, and adjust the own log."""


Reaction = RetryLater | StopFollowing | AskForOffsets

REACTIONS: Mapping[Error, Reaction] = {
    Error.OFFSET_OUT_OF_RANGE: AskForOffsets(),
    # Our epoch is older than the leader's: a newer LeaderAndIsr is on its way to us.
    Error.FENCED_LEADER_EPOCH: StopFollowing(),
    # Our epoch is newer than the leader's: it will learn of it.
    Error.UNKNOWN_LEADER_EPOCH: RetryLater(),
    Error.NOT_LEADER_OR_FOLLOWER: RetryLater(),
    Error.UNKNOWN_TOPIC_OR_PARTITION: RetryLater(),
    Error.KAFKA_STORAGE_ERROR: RetryLater(),
}


def reaction_to(error: Error) -> Reaction:
    return REACTIONS.get(error, RetryLater())
