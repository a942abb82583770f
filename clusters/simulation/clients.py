"""What the clients of the simulation send, read and commit, as values.

Who holds them is the clients' node. The producer behaves as the live runs' librdkafka does: one
request in flight unless set otherwise, no retries unless set otherwise, but after
NOT_LEADER_OR_FOLLOWER it always sends again; what got no clear answer is unknown. An idempotent one
sends each record with its sequence until its time is over, whatever is answered (see idempotent).
With `linger_ms` a request takes several partitions, as Kafka's own producer does; librdkafka's has
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import ProducerSequence

REQUEST_TIMEOUT_MS: Final = 5_000
MESSAGE_TIMEOUT_MS: Final = 10_000
RECORD_BYTES: Final = 100  # of a record whose size nobody says
RETRY_AFTER_MS: Final = 100

# Refused before anything was appended: surely not in the log.
DEFINITE: Final = frozenset(
    {
        Error.NOT_ENOUGH_REPLICAS,
        Error.RECORD_TOO_LARGE,
        Error.CORRUPT_MESSAGE,
        Error.INVALID_REQUIRED_ACKS,
    }
)
RETRIABLE: Final = frozenset({Error.NOT_ENOUGH_REPLICAS, Error.CORRUPT_MESSAGE})  # of these
RESENT: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True, slots=True)
class Send:
    """One record on its way; `number` orders the sends."""

    number: int
    value: str
    acks: int
    partition: int
    invoked_us: int
    retries_left: int = 0
    to: int | None = None  # the only broker that this client knows
    of_load: bool = False
    sequence: ProducerSequence | None = None
    is_sent: bool = False  # at least once before
    size_bytes: int = RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a send ended: ok, fail (surely not in the log) or info (unknown)."""

    kind: str
    completed_us: int
    offset: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Unnamed records, so many at once, every half second."""

    burst: int
    acks: int


@dataclass(frozen=True, slots=True)
class Read:
    """A consumer on its way through one partition, to the high watermark.

    `seeks_start`: nobody who leads has answered yet where it starts.
    """

    partition: int
    phase: str
    offset: int
    invoked_us: int
    number: int = 1
    request: int | None = None
    seeks_start: bool = False


@dataclass(frozen=True, slots=True)
class Poll:
    """What one answer brought to a consumer; `read`: which of its reads, each a new consumer."""

    read: int
    phase: str
    records: tuple[tuple[int, str], ...]  # (offset, value)
    partition: int = 0


@dataclass(frozen=True, slots=True)
class GroupOperation:
    """A group's position is committed, or asked for: on its way (`kind` is "invoke") or done.

    `offset` of an answer is None where the group has no position.
    """

    f: str  # commit | committed
    group: str
    partition: int
    offset: int | None
    phase: str
    invoked_us: int
    process: int  # as reads are numbered: whose position it is
    kind: str = "invoke"
    completed_us: int = 0
    request: int | None = None
    to: int | None = None


# --- whose send it was ---------------------------------------------------------------------------


def sent_by(
    outcomes: Sequence[tuple[Send, Outcome | None]], first: int, fresh: int
) -> dict[int, int]:
    """The logical process of each send, by its number; `fresh` and those above are nobody's.

    As in `neaptide.workloads`: there is a producer for each broker that is the only one it knows,
    and for each number of acknowledgements; the first of them is `first`. What a producer completes
    after a send that nobody knows the end of is of another process. Sends that never completed come
    last.
    """
    never = max((done.completed_us for _, done in outcomes if done is not None), default=0) + 1
    ended = [
        (never if done is None else done.completed_us, send.number, send, done)
        for send, done in outcomes
    ]
    current: dict[tuple[int | None, int], int] = {}
    for send in sorted((send for send, _ in outcomes), key=lambda send: send.number):
        if _producer(send) not in current:
            current[_producer(send)], fresh = (fresh, fresh + 1) if current else (first, fresh)
    processes = {}
    for _, number, send, done in sorted(ended, key=lambda item: item[:2]):
        processes[number] = current[_producer(send)]
        if done is None or done.kind == "info":
            current[_producer(send)], fresh = fresh, fresh + 1
    return processes


def _producer(send: Send) -> tuple[int | None, int]:
    return send.to, send.acks
