"""What a client library does for a role, whichever it is. A library's file implements it.

Errors have the names that the library gives them; which of them say that a record was surely not
appended is the library's own table (`definite`).

The rule: when in doubt an error is indeterminate. NOT_LEADER_OR_FOLLOWER is in doubt, whatever the
library calls it: a leader that steps down answers so to what it has appended (KAFKA-13574).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

NOT_SENT: Final = "_NOT_SENT"  # of no library: the record never left the client
Place = tuple[str, int]  # topic and partition
Done = Callable[[int | None, str | None], None]  # the offset, or the name of the error
Isolation = Literal["read_committed", "read_uncommitted"]


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    leader_epoch: int | None = None


class Polled(NamedTuple):
    """`ends`: partitions that were read to their end, by where that is: the last stable offset."""

    records: list[Record]
    ends: list[tuple[str, int, int]]


class LibraryError(Exception):
    """What a library could not do. `aborts`: the transaction has to be aborted, and can be."""

    def __init__(self, name: str, *, aborts: bool = False, again: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.aborts = aborts
        self.again = again  # the same call may be repeated


@dataclass(frozen=True, slots=True)
class ProducerAsked:
    bootstrap: str
    acks: str
    idempotence: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = 10_000
    settings: Mapping[str, str] = field(default_factory=dict)  # by the library's own names


@dataclass(frozen=True, slots=True)
class ConsumerAsked:
    bootstrap: str
    group: str
    isolation: Isolation = "read_committed"
    settings: Mapping[str, str] = field(default_factory=dict)  # by the library's own names
    auto_commit_ms: int | None = None
    assignor: str = "range"
    protocol: str = "classic"
    reset: str = "earliest"
    session_ms: int = 6_000


class Acquired(NamedTuple):
    """A record that a share group was given (KIP-932); `delivery_count`: for which time."""

    topic: str
    partition: int
    offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareConsumerAsked:
    """A member of a share group, which begins with the earliest records."""

    bootstrap: str
    group: str
    settings: Mapping[str, str] = field(default_factory=dict)  # by the library's own names


class ShareConsumer(Protocol):
    def subscribe(self, topics: Sequence[str]) -> None: ...

    def poll(self, timeout_s: float) -> list[Acquired]:
        """All of them are to be acknowledged before the next poll."""
        ...

    def acknowledge(
        self, records: Sequence[tuple[Acquired, str]], timeout_s: float
    ) -> Mapping[Place, str | None]:
        """Each record with "accept", "release" or "reject"; the names of errors. Where there is
        one, or no answer, nobody knows whether it was done. Raises LibraryError."""
        ...

    def close(self) -> None: ...


class Producer(Protocol):
    def send(
        self, topic: str, partition: int, key: str | None, value: str | None, done: Done
    ) -> None:
        """Waits while its queue is full; `done` is called once, on any thread."""
        ...

    def poll(self) -> None:
        """Lets completions come, where a library wants to be asked."""
        ...

    def drain(self, timeout_s: float) -> int:
        """Waits until every send has completed; how many have not."""
        ...

    def close(self) -> None: ...

    # What is in transactions raises LibraryError.
    def init_transactions(self, timeout_s: float) -> None: ...

    def begin(self) -> None: ...

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Consumer) -> None: ...

    def commit(self, timeout_s: float) -> None: ...

    def abort(self, timeout_s: float) -> None: ...


class Consumer(Protocol):
    group: str

    def assign(self, positions: Mapping[Place, int]) -> None: ...

    def poll(self, most: int, timeout_s: float) -> Polled: ...

    def ends(self, place: Place, timeout_s: float) -> tuple[int, int]:
        """Log start offset, and high watermark or (read_committed) last stable offset."""
        ...

    def committed(self, places: Collection[Place], timeout_s: float) -> dict[Place, int | None]: ...

    def close(self) -> None: ...

    # Of members of a group:
    def starts_since(
        self, places: Collection[Place], since_ms: int, timeout_s: float
    ) -> dict[Place, int | None]:
        """Offsets of the first records with this timestamp or a later one. None: there is none."""
        ...

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None: ...

    def commit(self, offsets: Mapping[Place, int]) -> None: ...

    def commit_async(
        self, offsets: Mapping[Place, int], done: Callable[[str | None], None]
    ) -> None: ...


class Listener(Protocol):
    """Called while a member polls or closes. `assigned` returns where each partition begins where
    the library shall not choose it."""

    def assigned(self, places: Sequence[Place]) -> Mapping[Place, int]: ...

    def revoked(self, places: Sequence[Place]) -> None: ...

    def lost(self, places: Sequence[Place]) -> None: ...


@dataclass(frozen=True, slots=True)
class Library:
    """One client library: what it is called, can do, and which of its errors are definite."""

    name: str
    producer: Callable[[ProducerAsked], Any]
    consumer: Callable[[ConsumerAsked], Any]
    definite: Mapping[str, str]
    # Of "transactions", "groups", "cooperative", "consumer protocol", "share groups".
    can: frozenset[str]
    since: tuple[int, ...] = (0, 8)  # the first Apache Kafka that it speaks to
    # Workload, partitions, topics and acks: why these cannot be, as the end of a sentence.
    problem: Callable[[str, int, int, str], str | None] = lambda *_: None
    share_consumer: Callable[[ShareConsumerAsked], Any] | None = None
    prepare: Callable[[], None] = lambda: None  # before any process of clients is started
    roles: Mapping[str, Any] = field(default_factory=dict)  # in place of the table's, by name

    def completion_type(self, error: str | None) -> str:
        """`ok`, `fail` or `info`, by Jepsen's meaning."""
        if error is None:
            return "ok"
        return "fail" if error in self.definite or error == NOT_SENT else "info"
