"""What the clients of the simulation send, read and commit, as values.

Who holds them is the clients' node. The producer behaves as the live runs' librdkafka does: one
request in flight unless set otherwise, no retries unless set otherwise, but after
NOT_LEADER_OR_FOLLOWER it always sends again; what got no clear answer is unknown. An idempotent one
sends each record with its sequence until its time is over, whatever is answered (see idempotent).
With `linger_ms` a request takes several partitions, as Kafka's own producer does; librdkafka's has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.events import FetchResult
from neaptide.clusters.broker.replication.model import Batch, ProducerSequence
from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction

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
    # Whose it is, if that client has a name, and which of its transactions.
    client: str | None = None
    transaction: int | None = None


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


class FetchAnswered(NamedTuple):
    """A broker's answer to a consumer. `aborted`: of what its log has."""

    request: int
    result: FetchResult
    aborted: tuple[AbortedTransaction, ...]

    @property
    def committed(self) -> Iterator[Batch]:
        """What a consumer of committed records is given: no markers, and nothing that was aborted.

        As KIP-98 has it ("Consumer"): from its first record on, up to its marker.
        """
        for batch in self.result.batches:
            producer = batch.producer
            is_aborted = producer is not None and any(
                producer.is_transactional
                and one.producer_id == producer.producer_id
                and one.first_offset <= batch.base_offset < one.last_offset
                for one in self.aborted
            )
            if batch.marker is None and not is_aborted:
                yield batch


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


# --- producers of transactions --------------------------------------------------------------------


class Asked(NamedTuple):
    """A request of such a producer that waits for its answer."""

    request: int
    to: int
    what: str  # init | add | produce | end


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """One client with a transactional id. It does one thing at a time.

    `is_raw`: one from before KIP-360, which gives up what is in flight when it aborts. `error`: why
    its transaction can only be aborted; with `is_over`, why nothing can be done at all.
    """

    name: str
    transactional_id: str
    timeout_ms: int
    is_raw: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    is_initialized: bool = False
    sequences: Mapping[int, int] = field(default_factory=dict)  # the next, by partition
    transaction: int | None = None  # its number in the world; None: it is in none
    added: frozenset[int] = frozenset()  # partitions
    sent: tuple[Send, ...] = ()  # all of the transaction
    sending: tuple[Send, ...] = ()  # of these, what is not acknowledged, in order
    written: Mapping[str, int | None] = field(default_factory=dict)  # what is, and where
    ending: bool | None = None  # whether it is to be committed; None: it goes on
    asked: Asked | None = None
    error: str = ""
    is_over: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that ends by itself."""
        goes_on = not self.is_initialized or self.ending is not None
        return not self.is_over and (goes_on or bool(self.sending and not self.error))


# --- whose send it was ---------------------------------------------------------------------------


def sent_by(
    outcomes: Sequence[tuple[Send, Outcome | None]], first: int, fresh: int
) -> dict[int, int]:
    """The logical process of each send, by its number; `fresh` and those above are nobody's.

    As in `neaptide.workloads`: there is a producer for each broker that is the only one it knows,
    and for each number of acknowledgements; the first of them is `first`. Clients with names have
    processes of their own. What a producer completes after a send that nobody knows the end of is
    of another process. Sends that never completed come last. A transaction is one operation.
    """
    never = max((done.completed_us for _, done in outcomes if done is not None), default=0) + 1
    ended = [
        (never if done is None else done.completed_us, send.number, send, done)
        for send, done in outcomes
    ]
    current: dict[_Producer, int] = {}
    for send in sorted((send for send, _ in outcomes), key=lambda send: send.number):
        if _producer(send) not in current:
            current[_producer(send)], fresh = (fresh, fresh + 1) if current else (first, fresh)
    processes: dict[int, int] = {}
    for together in by_operation(
        (send, done) for _, _, send, done in sorted(ended, key=lambda item: item[:2])
    ):
        send, done = together[-1]
        processes.update((one.number, current[_producer(send)]) for one, _ in together)
        if done is None or done.kind == "info":
            current[_producer(send)], fresh = fresh, fresh + 1
    return processes


_Producer = tuple[str | None, int | None, int]


def _producer(send: Send) -> _Producer:
    return send.client, send.to, send.acks


def by_operation(
    outcomes: Iterable[tuple[Send, Outcome | None]],
) -> Iterable[list[tuple[Send, Outcome | None]]]:
    """The records of a transaction together, any other by itself; in the order of their firsts."""
    operations: dict[tuple[int | None, int], list[tuple[Send, Outcome | None]]] = {}
    for send, outcome in outcomes:
        one = (send.transaction, 0 if send.transaction is not None else send.number)
        operations.setdefault(one, []).append((send, outcome))
    return operations.values()
