"""The nouns of replication, as frozen values without behaviour that could need IO.

What belongs here: what several files of the core speak about. Record bytes never do: to the core a
batch is its base offset, its count, its leader epoch, its size and an identity by which the shell
finds the bytes again.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

NO_LEADER: Final = -1
UNKNOWN_OFFSET: Final = -1
LEADER_DURING_DELETE: Final = -2  # who leads a partition of a topic that is being deleted
UNDEFINED_EPOCH: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TOPIC_NAME_MAX_LENGTH: Final = 249
_OF_TOPIC_NAMES: Final = frozenset(f"{string.ascii_letters}{string.digits}._-")


def why_no_topic_name(name: str) -> str | None:
    """Why a text cannot be the name of a topic (Kafka's Topic.validate); None: it can."""
    if not name or len(name) > TOPIC_NAME_MAX_LENGTH or name in (".", ".."):
        return f"a topic's name has 1 to {TOPIC_NAME_MAX_LENGTH} signs"
    if not _OF_TOPIC_NAMES.issuperset(name):
        return "a topic's name has letters, digits, . _ and - only"
    return None


def is_topic_name(name: str) -> bool:
    return why_no_topic_name(name) is None


TEXT_MAX_BYTES: Final = 2**15 - 1


class TextTooLongError(ValueError):
    """A record of an internal topic has no room for a text: its length is a number of 16 bits.

    Raised before anything is appended, so that only the request fails that has brought it.
    """


def text_bytes(text: str | None) -> int:
    """How many a text has in such a record. Raises TextTooLongError."""
    size = 0 if text is None else len(text.encode())
    if size > TEXT_MAX_BYTES:
        raise TextTooLongError(f"a text of {size} bytes in a record of an internal topic")
    return size


class EpochEntry(NamedTuple):
    """One line of `leader-epoch-checkpoint`: a leader epoch and its first offset (KIP-101)."""

    epoch: int
    start_offset: int


class ProducerSequence(NamedTuple):
    """Whose batch it is, and which of its records comes first in it (KIP-98)."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool = False


class EndTransactionMarker(NamedTuple):
    """The control record by which a coordinator ends a producer's transaction in a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch as replication sees it; `identity` is the shell's handle to its bytes.

    `producer` is None where its producer is not idempotent, and for markers.
    """

    base_offset: int
    count: int
    leader_epoch: int
    size: int
    identity: object = None
    producer: ProducerSequence | None = None
    marker: EndTransactionMarker | None = None

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


class SecurityProtocol(IntEnum):
    """What is spoken on a listener, as Kafka numbers it in UpdateMetadata."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener of a broker: what clients or other brokers connect to."""

    listener: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker says of itself under `/brokers/ids/<id>`; `epoch` is that znode's czxid.

    `unclean_shutdown`: it has just started, and did not end cleanly before (KIP-966).
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    unclean_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The state of a partition as kept under `/brokers/topics/T/partitions/P/state`.

    `version` is the znode's version at which this was read or written; a conditional write
    expects it. It is -1 while the znode does not exist.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = -1
    # KIP-966, from 4.0 on: eligible leader replicas, and who led last while nobody does.
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    # The znode's mzxid, which compares with brokers' epochs; -1: it was not read from there.
    written_at: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """A partition's replicas while it is reassigned: those to be, and those that go (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """Those of the target come first, in its order."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            replicas,
            tuple(replica for replica in replicas if replica not in origin),
            tuple(replica for replica in replicas if replica not in target),
        )


@dataclass(frozen=True, slots=True)
class TopicConfiguration:
    """Assigned replicas by partition, in preference order, and the topic's own settings."""

    assignment: Mapping[int, tuple[int, ...]]
    settings: Mapping[str, str] = field(default_factory=dict)
    # While partitions are reassigned (KIP-455): which of the assigned come, and which go.
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    # Its id as text (KIP-516), from 2.8 on; None: it has none. Made by the coordination service.
    topic_id: str | None = None
