"""What the gate reads out of a message, whatever its version: Fetch, OffsetForLeaderEpoch and
LeaderAndIsr.

Not a codec: nothing is written, fields that no rule or record needs are left out, and the bytes
that pass are always the ones that came. Kafka's message definitions (KIP-482 for the flexible
versions, KIP-227 for fetch sessions, KIP-516 for topic ids, KIP-903 for the replica state).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
OFFSET_FOR_LEADER_EPOCH: Final = 23
LIST_OFFSETS: Final = 2
# What brokers before 0.10.2 ask of each other: whoever asks anything else is a client.
BROKERS_ASK: Final = frozenset(
    {FETCH, LIST_OFFSETS, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN}
)

# A partition's (topic, partition). From Fetch v13 on a message names topics by id: the id as
# text then stands for the topic, until the gate learns its name.
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """Who asks for what; `size` is where the body starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """One partition that a follower asks for: `fetch_offset` is its log end offset."""

    fetch_offset: int
    leader_epoch: int | None = None  # current_leader_epoch, from v9 on


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A Fetch request. `replica_id` is -1 for a consumer."""

    replica_id: int
    session_id: int  # 0: no session yet
    session_epoch: int  # 0 or -1: `partitions` is all there is, else what has changed
    partitions: dict[TopicPartition, FetchPartition]
    forgotten: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What a leader answers for one partition."""

    error: int
    high_watermark: int | None  # None: -1, which comes with some errors
    log_start_offset: int | None  # None before v5
    records_bytes: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A Fetch response; with an `error` of its own there are no partitions."""

    error: int
    session_id: int
    partitions: dict[TopicPartition, FetchedPartition]


@dataclass(frozen=True, slots=True)
class EpochRequest:
    """An OffsetForLeaderEpoch request: which epoch's end is asked for, per partition."""

    replica_id: int | None  # None before v3
    partitions: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class EpochResponse:
    """An OffsetForLeaderEpoch response: the error, per partition."""

    partitions: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LeaderEpoch:
    """What a controller sends to a broker of one partition."""

    leader: int
    leader_epoch: int
