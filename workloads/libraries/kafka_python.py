"""kafka-python. Its errors are classes; their names are what is recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError, LeaderNotAvailableError
from kafka.future import Future
from kafka.structs import OffsetAndMetadata

from neaptide.results.record_texts import record_text, text_of
from neaptide.workloads.libraries.deadline import within
from neaptide.workloads.libraries.model import (
    NOT_SENT,
    ConsumerAsked,
    Done,
    Library,
    LibraryError,
    Listener,
    Place,
    Polled,
    ProducerAsked,
    Record,
)

_COMMON: Final = {
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 50,
    "request_timeout_ms": 6_000,
    "metadata_max_age_ms": 2_000,
    "allow_auto_create_topics": False,
}
_BLOCKS_MS: Final = 10_000
_STUCK_S: Final = 20.0
_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}
# Only what a broker refuses before it looks at its log, and what never left the client.
DEFINITE: Final[Mapping[str, str]] = {
    "MessageSizeTooLargeError": "refused: larger than max.message.bytes",
    "InvalidRequiredAcksError": "refused: no such acks",
    "InvalidTopicError": "refused: no such name",
}


class PythonProducer:
    """Implements neaptide.workloads.libraries.model.Producer."""

    def __init__(self, asked: ProducerAsked) -> None:
        tries_on = asked.idempotence or asked.transactional_id is not None
        settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": asked.bootstrap.split(","),
            "acks": int(asked.acks) if asked.acks.isdigit() else asked.acks,
            "enable_idempotence": tries_on,
            "max_in_flight_requests_per_connection": 5 if tries_on else 1,
            "linger_ms": 5,
            "max_block_ms": _BLOCKS_MS,
            "delivery_timeout_ms": 10_000,
        }
        if not tries_on:
            settings["retries"] = 0
        if asked.transactional_id is not None:
            settings["transactional_id"] = asked.transactional_id
            settings["transaction_timeout_ms"] = asked.transaction_timeout_ms
        self._acks = asked.acks
        self._open = 0
        self._refused: str | None = None  # why a record is not in this transaction
        self._producer = KafkaProducer(**settings)

    def send(
        self, topic: str, partition: int, key: str | None, value: str | None, done: Done
    ) -> None:
        try:
            future = self._producer.send(
                topic,
                value=None if value is None else value.encode(),
                key=None if key is None else key.encode(),
                partition=partition,
            )
        except (KafkaError, ValueError, AssertionError):  # it took no record
            self._refused = self._refused or NOT_SENT
            done(None, NOT_SENT)
            return
        self._open += 1

        def succeeded(metadata: Any) -> None:
            self._open -= 1
            offset = metadata.offset
            done(None if self._acks == "0" or offset < 0 else offset, None)

        def failed(error: BaseException) -> None:
            self._open -= 1
            self._refused = self._refused or type(error).__name__
            done(None, type(error).__name__)

        future.add_callback(succeeded)
        future.add_errback(failed)

    def poll(self) -> None: ...

    def drain(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline:
            with _passed_over():
                self._producer.flush(timeout=0.5)
        return self._open

    def close(self) -> None:
        with _passed_over():
            self._producer.close(timeout=0)

    def init_transactions(self, timeout_s: float) -> None:
        with _translated():
            self._producer.init_transactions()

    def begin(self) -> None:
        self._refused = None
        with _translated():
            self._producer.begin_transaction()

    # These wait for an answer of the coordinator for ever: they are given a deadline, as it is not
    # known whether what was asked for was done, and the producer is given up.
    def send_offsets(self, offsets: Mapping[Place, int], consumer: Any) -> None:
        positions = _positions(offsets)
        with _translated():
            within(
                _STUCK_S,
                lambda: self._producer.send_offsets_to_transaction(positions, consumer.group),
            )

    def commit(self, timeout_s: float) -> None:
        """Of all that was sent, or not at all: it commits a transaction of which a batch has
        expired. Who uses it has to look at what became of each send."""
        try:
            self._producer.flush(timeout=_STUCK_S)
        except KafkaError as failed:
            self._refused = self._refused or type(failed).__name__
        if self._refused is not None:
            raise LibraryError(self._refused, aborts=True)
        with _translated():
            within(_STUCK_S, self._producer.commit_transaction)

    def abort(self, timeout_s: float) -> None:
        with _translated():
            within(_STUCK_S, self._producer.abort_transaction)


class PythonConsumer:
    """Implements neaptide.workloads.libraries.model.Consumer."""

    def __init__(self, asked: ConsumerAsked) -> None:
        self.group = asked.group
        self._said: dict[Any, int] = {}
        settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": asked.bootstrap.split(","),
            "group_id": asked.group,
            "enable_auto_commit": asked.auto_commit_ms is not None,
            "auto_offset_reset": "none" if asked.reset == "error" else asked.reset,
            "isolation_level": asked.isolation,
            "fetch_max_wait_ms": 100,
            "session_timeout_ms": asked.session_ms,
            "heartbeat_interval_ms": 500,
            "max_poll_interval_ms": asked.session_ms,
            "partition_assignment_strategy": [_ASSIGNORS[asked.assignor]],
        }
        if asked.auto_commit_ms is not None:
            settings["auto_commit_interval_ms"] = asked.auto_commit_ms
        self._consumer = KafkaConsumer(**settings)
        self._turn = Turn()

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in positions])
        for place, offset in positions.items():
            self._consumer.seek(TopicPartition(*place), offset)

    def poll(self, most: int, timeout_s: float) -> Polled:
        polled = Polled([], [])
        with _passed_over():
            with self._turn.given():
                answer = self._consumer.poll(timeout_ms=int(timeout_s * 1e3), max_records=most)
            for records in answer.values():
                polled.records.extend(map(_record, records))
            if not answer:
                self._add_ends(polled)
        return polled

    def _add_ends(self, polled: Polled) -> None:
        """Where nothing came, it may be at the end: that is asked for."""
        places = self._consumer.assignment()
        ends = offsets_of(self._consumer.end_offsets, places, 500) if places else {}
        for place, end in ends.items():
            if self._consumer.position(place, timeout_ms=500) == end:
                polled.ends.append((place.topic, place.partition, end))

    def ends(self, place: Place, timeout_s: float) -> tuple[int, int]:
        named, timeout_ms = TopicPartition(*place), int(timeout_s * 1e3)
        with _translated():
            starts = offsets_of(self._consumer.beginning_offsets, [named], timeout_ms)
            ends = offsets_of(self._consumer.end_offsets, [named], timeout_ms)
        return int(starts[named]), int(ends[named])

    def committed(self, places: Collection[Place], timeout_s: float) -> dict[Place, int | None]:
        with _translated():
            return {
                place: self._consumer.committed(
                    TopicPartition(*place), timeout_ms=int(timeout_s * 1e3)
                )
                for place in places
            }

    def starts_since(
        self, places: Collection[Place], since_ms: int, timeout_s: float
    ) -> dict[Place, int | None]:
        asked = {TopicPartition(*place): since_ms for place in places}
        with _translated():
            found = self._consumer.offsets_for_times(asked, timeout_ms=int(timeout_s * 1e3))
        return {
            (p.topic, p.partition): None if found.get(p) is None else int(found[p].offset)
            for p in asked
        }

    def close(self) -> None:
        with _passed_over(), self._turn.given():
            self._consumer.close(timeout_ms=5_000)

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        called = CalledInTurn(self._consumer, listener, self._turn)
        self._consumer.subscribe(topics=list(topics), listener=called)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        with _translated():
            self._consumer.commit(_positions(offsets), timeout_ms=5_000)

    def commit_async(
        self, offsets: Mapping[Place, int], done: Callable[[str | None], None]
    ) -> None:
        def answered(_: Any, response: Any) -> None:
            done(type(response).__name__ if isinstance(response, BaseException) else None)

        with _translated():
            self._consumer.commit_async(_positions(offsets), callback=answered)


class Turn:
    """Whose turn it is: the client's own, or that of what its listener does.

    kafka-python calls a listener on the thread of its connections, where nothing may wait for an
    answer: a listener that commits has to do so on another thread. So that the client and its
    listener still never run at once, a listener waits until the client polls or closes.
    """

    def __init__(self) -> None:
        self._client = threading.Lock()
        self._client.acquire()

    @contextmanager
    def given(self) -> Iterator[None]:
        """While the client waits for the library."""
        self._client.release()
        try:
            yield
        finally:
            self._client.acquire()

    def call(self, work: Callable[[], Any]) -> Future:
        """Does it on a thread of its own, once it is its turn. Awaited: what it returned."""
        future = Future()

        def run() -> None:
            try:
                with self._client:
                    value = work()
            except BaseException as failed:
                future.failure(failed)
            else:
                future.success(value)

        threading.Thread(target=run, daemon=True).start()
        return future


class CalledInTurn(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: Any, listener: Listener, turn: Turn) -> None:
        self._consumer = consumer
        self._listener = listener
        self._turn = turn

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        starts = await self._turn.call(lambda: self._listener.assigned(_places(assigned)))
        for place, offset in starts.items():
            self._consumer.seek(TopicPartition(*place), offset)

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        await self._turn.call(lambda: self._listener.revoked(_places(revoked)))

    async def on_partitions_lost(self, lost: Collection[Any]) -> None:
        await self._turn.call(lambda: self._listener.lost(_places(lost)))


def _places(partitions: Collection[Any]) -> list[Place]:
    return [(p.topic, p.partition) for p in partitions]


def _positions(offsets: Mapping[Place, int]) -> dict[Any, Any]:
    return {TopicPartition(*p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}


def _record(record: Any) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        text_of(record.key),
        record_text(record.value, record.headers),
        getattr(record, "leader_epoch", None),
    )


def offsets_of(
    ask: Callable[..., Mapping[TopicPartition, int]],
    partitions: Collection[TopicPartition],
    timeout_ms: int,
) -> Mapping[TopicPartition, int]:
    """Calls `beginning_offsets` or `end_offsets`. Raises KafkaError.

    Of a partition that has no leader at the moment they have no offset, and end with a KeyError.
    """
    try:
        return ask(partitions, timeout_ms=timeout_ms)
    except KeyError as missing:
        raise LeaderNotAvailableError(str(missing)) from missing


@contextmanager
def _passed_over() -> Iterator[None]:
    """What fails here is tried again, or is over."""
    try:
        yield
    except KafkaError:
        return


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KafkaError as failed:
        # Whether a transaction can be aborted it does not say: it is given up.
        raise LibraryError(type(failed).__name__) from failed


KAFKA_PYTHON: Final = Library(
    "kafka-python",
    PythonProducer,
    PythonConsumer,
    DEFINITE,
    frozenset({"transactions", "groups", "cooperative"}),
)
