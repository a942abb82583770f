"""aiokafka: its clients live on one event loop in a thread of their own.

It sends again by itself until a request's time is over, whatever is asked.

It keeps the order of those sends alone of which each was awaited before the next: `send` returns
when the record has its place in a batch, and where the batch is full it waits. So sends to one
partition take turns. One whose turn does not come in a request's time never leaves the client.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from neaptide.results.record_texts import record_text, text_of
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

T = TypeVar("T")
_REQUEST_MS: Final = 6_000
_CALL_S: Final = 15.0
_OPEN_MAX: Final = 10_000
_QUEUE_FULL_S: Final = 0.01
_COMMON: Final = {
    "request_timeout_ms": _REQUEST_MS,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 2_000,
}
DEFINITE: Final[Mapping[str, str]] = {
    "MessageSizeTooLargeError": "refused: larger than max.message.bytes, here or there",
    "InvalidRequiredAcksError": "refused: no such acks",
    "InvalidTopicError": "refused: no such name",
}


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _call(work: Coroutine[Any, Any, T], within_s: float = _CALL_S) -> T:
    """Raises LibraryError."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result(within_s)
    except TimeoutError:
        future.cancel()
        raise LibraryError("_TIMED_OUT") from None
    except KafkaError as failed:
        raise LibraryError(type(failed).__name__) from failed


class AioProducer:
    """Implements neaptide.workloads.libraries.model.Producer."""

    def __init__(self, asked: ProducerAsked) -> None:
        settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": asked.bootstrap.split(","),
            "acks": int(asked.acks) if asked.acks.isdigit() else asked.acks,
            "enable_idempotence": asked.idempotence or asked.transactional_id is not None,
            "linger_ms": 5,
        }
        if asked.transactional_id is not None:
            settings["transactional_id"] = asked.transactional_id
            settings["transaction_timeout_ms"] = asked.transaction_timeout_ms
        self._acks = asked.acks
        self._open = 0
        self._turns: defaultdict[Place, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._placing: set[asyncio.Task[Any]] = set()  # what has no place in a batch yet
        self._transaction = 0
        self._refused: str | None = None  # why a record is not in this transaction
        self._transactional = asked.transactional_id is not None
        self._producer = _call(self._made(settings))
        if not self._transactional:
            _start(self._producer)

    async def _made(self, settings: Mapping[str, Any]) -> Any:
        return AIOKafkaProducer(**settings)

    def send(
        self, topic: str, partition: int, key: str | None, value: str | None, done: Done
    ) -> None:
        while self._open >= _OPEN_MAX:
            time.sleep(_QUEUE_FULL_S)  # nothing reports that there is room
        self._open += 1
        work = self._send(topic, partition, key, value, done)
        asyncio.run_coroutine_threadsafe(work, _loop())

    async def _send(
        self, topic: str, partition: int, key: str | None, value: str | None, done: Done
    ) -> None:
        placing = asyncio.ensure_future(self._place(topic, partition, key, value))
        self._placing.add(placing)
        placing.add_done_callback(self._placing.discard)
        try:
            metadata = await (await placing)
        except Exception as error:  # whatever it is, the send has its end
            name = error.name if isinstance(error, LibraryError) else type(error).__name__
            self._refused = self._refused or name
            self._open -= 1
            done(None, name)
            return
        self._open -= 1
        offset = None if metadata is None or self._acks == "0" else metadata.offset
        done(None if offset is None or offset < 0 else offset, None)

    async def _place(self, topic: str, partition: int, key: str | None, value: str | None) -> Any:
        """What is awaited for its acknowledgement, once the record is in a batch."""
        transaction, deadline = self._transaction, time.monotonic() + _REQUEST_MS / 1e3
        async with self._turns[topic, partition]:  # first come, first served
            if transaction != self._transaction or time.monotonic() > deadline:
                raise LibraryError(NOT_SENT)
            return await self._producer.send(topic, _bytes(value), _bytes(key), partition)

    def poll(self) -> None: ...

    def drain(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while self._open and time.monotonic() < deadline:
            time.sleep(_QUEUE_FULL_S)
        return self._open

    def close(self) -> None:
        _stop(self._producer)

    def init_transactions(self, timeout_s: float) -> None:
        _call(self._producer.start())  # which is where it fences

    def begin(self) -> None:
        self._refused = None
        _call(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Any) -> None:
        positions = {TopicPartition(*place): offset for place, offset in offsets.items()}
        _call(self._producer.send_offsets_to_transaction(positions, consumer.group))

    def commit(self, timeout_s: float) -> None:
        _call(self._commit())

    async def _commit(self) -> None:
        """Of all that was sent, or not at all."""
        await self._placed()
        if self._refused is not None:
            raise LibraryError(self._refused, aborts=True)
        await self._producer.commit_transaction()

    def abort(self, timeout_s: float) -> None:
        _call(self._abort())

    async def _abort(self) -> None:
        """What waits for its turn is of no later transaction."""
        self._transaction += 1
        await self._placed()
        await self._producer.abort_transaction()

    async def _placed(self) -> None:
        while self._placing:
            await asyncio.wait([*self._placing])


class AioConsumer:
    """Implements neaptide.workloads.libraries.model.Consumer, for partitions that are assigned."""

    def __init__(self, asked: ConsumerAsked) -> None:
        self.group = asked.group
        self._consumer = _call(
            self._made(
                {
                    **_COMMON,
                    "bootstrap_servers": asked.bootstrap.split(","),
                    "group_id": asked.group,
                    "enable_auto_commit": False,
                    "auto_offset_reset": asked.reset,
                    "isolation_level": asked.isolation,
                    "fetch_max_wait_ms": 100,
                }
            )
        )
        _start(self._consumer)

    async def _made(self, settings: Mapping[str, Any]) -> Any:
        return AIOKafkaConsumer(**settings)

    def assign(self, positions: Mapping[Place, int]) -> None:
        async def assign() -> None:
            self._consumer.assign([TopicPartition(*place) for place in positions])
            for place, offset in positions.items():
                self._consumer.seek(TopicPartition(*place), offset)

        _call(assign())

    def poll(self, most: int, timeout_s: float) -> Polled:
        polled = Polled([], [])
        try:
            answer = _call(
                self._consumer.getmany(timeout_ms=int(timeout_s * 1e3), max_records=most)
            )
            for records in answer.values():
                polled.records.extend(map(_record, records))
            if not answer:
                _call(self._add_ends(polled))
        except LibraryError:
            return polled  # it is asked again
        return polled

    async def _add_ends(self, polled: Polled) -> None:
        """Where nothing came, it may be at the end: that is asked for."""
        places = self._consumer.assignment()
        for place, end in (await self._consumer.end_offsets(places)).items():
            if await self._consumer.position(place) == end:
                polled.ends.append((place.topic, place.partition, end))

    def ends(self, place: Place, timeout_s: float) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            named = TopicPartition(*place)
            starts = await self._consumer.beginning_offsets([named])
            ends = await self._consumer.end_offsets([named])
            return int(starts[named]), int(ends[named])

        return _call(ask(), timeout_s)

    def committed(self, places: Collection[Place], timeout_s: float) -> dict[Place, int | None]:
        async def ask() -> dict[Place, int | None]:
            return {
                place: await self._consumer.committed(TopicPartition(*place)) for place in places
            }

        return _call(ask(), timeout_s)

    def close(self) -> None:
        _stop(self._consumer)

    # It calls listeners on its event loop, where nothing may wait for it: no members of groups.
    def starts_since(
        self, places: Collection[Place], since_ms: int, timeout_s: float
    ) -> dict[Place, int]:
        raise NotImplementedError

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        raise NotImplementedError

    def commit(self, offsets: Mapping[Place, int]) -> None:
        raise NotImplementedError

    def commit_async(
        self, offsets: Mapping[Place, int], done: Callable[[str | None], None]
    ) -> None:
        raise NotImplementedError


def _start(client: Any) -> None:
    """It has no brokers yet, perhaps: it is asked until it has."""
    while True:
        try:
            _call(client.start())
            return
        except LibraryError:
            time.sleep(_QUEUE_FULL_S)


def _stop(client: Any) -> None:
    try:
        _call(client.stop(), 5.0)
    except LibraryError:
        return  # it goes with its process


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record(record: Any) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        text_of(record.key),
        record_text(record.value, record.headers),
    )


AIOKAFKA: Final = Library(
    "aiokafka", AioProducer, AioConsumer, DEFINITE, frozenset({"transactions"}), since=(0, 10)
)
