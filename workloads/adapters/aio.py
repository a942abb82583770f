"""`python -m neaptide.workloads.adapters.aio`: aiokafka, as a program that is driven."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import aiokafka
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.errors import KafkaError

from neaptide.results.record_texts import record_text
from neaptide.workloads.adapters.lines import Consumer, Producer, Refused, Say, serve
from neaptide.workloads.libraries.aio import DEFINITE

T = TypeVar("T")
_COMMON: Final = {"retry_backoff_ms": 50, "metadata_max_age_ms": 2_000, "request_timeout_ms": 5_000}
_PRODUCER: Final = ("acks", "enable_idempotence", "linger_ms", "request_timeout_ms")
_CONSUMER: Final = (
    "auto_offset_reset", "enable_auto_commit", "auto_commit_interval_ms", "session_timeout_ms",
    "heartbeat_interval_ms", "max_poll_interval_ms", "isolation_level",
)  # fmt: skip
_POLL_MS: Final = 50
_LOOK_S: Final = 0.1


def given(settings: Mapping[str, str], known: Sequence[str]) -> dict[str, Any]:
    """Of Kafka's names and texts those that aiokafka has; it tries again by itself."""
    found: dict[str, Any] = {}
    for name, text in settings.items():
        value: Any = int(text) if text.lstrip("-").isdigit() else text
        found[name.replace(".", "_")] = {"true": True, "false": False}.get(text, value)
    if found.get("auto_offset_reset") == "error":
        found["auto_offset_reset"] = "none"
    return {name: value for name, value in found.items() if name in known}


class _Loop:
    """The clients' event loop, in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def call(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Raises Refused."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(within_s)
        except TimeoutError:
            future.cancel()
            raise Refused("TimeoutError") from None
        except KafkaError as failed:
            raise Refused(type(failed).__name__) from failed

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop)


class AioProducer(Producer):
    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        self._loop = _Loop()
        self._settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": self.bootstrap.split(","),
            "acks": "all",
            "linger_ms": 5,
            **given(self.settings, _PRODUCER),
        }
        if self.transactional_id is not None:
            self._settings["transactional_id"] = self.transactional_id

    def do_start(self, deadline_s: float) -> None:
        async def start() -> Any:
            producer = AIOKafkaProducer(**self._settings)
            await producer.start()
            return producer

        self._producer = self._loop.call(start(), deadline_s)

    def do_begin_transaction(self, deadline_s: float) -> None:
        self._loop.call(self._producer.begin_transaction(), deadline_s)

    def do_send(
        self, records: list[str], partition: int, key: str | None, waits: bool, deadline_s: float
    ) -> str:
        self.left += len(records)
        answers = self._loop.call(self._place(records, partition, key), deadline_s)
        try:
            if waits:
                self._loop.call(_all(answers), deadline_s)
        except Refused:
            return self.unanswered()
        return ""

    async def _place(
        self, records: Sequence[str], partition: int, key: str | None
    ) -> list[asyncio.Task[None]]:
        """A record has its place in a batch before the next one is given."""
        answers = []
        for record in records:
            raw = None if key is None else key.encode()
            try:
                sent = await self._producer.send(self.topic, record.encode(), raw, partition)
            except Exception as refused:  # it took no record
                self.sent(record, None, type(refused).__name__, appended=False)
                continue
            answers.append(asyncio.ensure_future(self._answered(record, sent)))
        return answers

    async def _answered(self, record: str, sent: Any) -> None:
        try:
            metadata = await sent
        except Exception as error:
            name = type(error).__name__
            self.sent(record, None, name, appended=False if name in DEFINITE else None)
            return
        offset = None if metadata is None or metadata.offset < 0 else metadata.offset
        self.sent(record, offset, None)

    def do_commit_transaction(self, deadline_s: float) -> None:
        self._loop.call(self._producer.commit_transaction(), deadline_s)

    def do_abort_transaction(self, deadline_s: float) -> None:
        self._loop.call(self._producer.abort_transaction(), deadline_s)

    def do_leave(self, deadline_s: float) -> None:
        self._loop.call(self._producer.stop(), deadline_s)


async def _all(answers: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*answers)


class AioConsumer(Consumer, ConsumerRebalanceListener):  # type: ignore[misc]
    """It beats and joins on tasks of its own; what it is not asked for stays with it."""

    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        self._loop = _Loop()
        self._settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": self.bootstrap.split(","),
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 100,
            **given(self.settings, _CONSUMER),
        }
        self._known: dict[Any, int] = {}  # what was committed by the client itself

    def do_start(self, deadline_s: float) -> None:
        async def start() -> Any:
            consumer = AIOKafkaConsumer(**self._settings)
            await consumer.start()
            return consumer

        self._consumer = self._loop.call(start(), deadline_s)

    def idle(self) -> None:
        """It counts as polling as long as somebody asks it for records."""
        if not self.stalled and self._consumer.assignment():
            self._loop.call(self._stay(), 10.0)

    async def _stay(self) -> None:
        self._consumer.pause(*self._consumer.assignment())
        try:
            await self._consumer.getmany(timeout_ms=0)
        except KafkaError as failed:
            self.notify(type(failed).__name__)

    def do_subscribe(self, deadline_s: float) -> str:
        async def join() -> bool:
            self._consumer.subscribe([self.topic], listener=self)
            for _ in range(int(deadline_s / _LOOK_S)):
                await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=1)
                if self._consumer.assignment():
                    return True
            return False

        joined = self._loop.call(join(), deadline_s + 10)
        if joined and self._settings["enable_auto_commit"]:
            self._loop.spawn(self._watch_commits())
        return "" if joined else "it was given no partition"

    def do_assign(self, partition: int, deadline_s: float) -> None:
        async def assign() -> None:
            one = TopicPartition(self.topic, partition)
            self._consumer.assign([one])
            if self.group is None:
                self._consumer.seek(one, 0)
            await self.on_partitions_assigned([one])

        self._loop.call(assign(), deadline_s)

    def do_poll(self, records: int, deadline_s: float) -> str:
        count = self._loop.call(self._poll(records, deadline_s), deadline_s + 10)
        has_ended, self.has_erred = count == records or self.has_erred, False
        return "" if has_ended else f"it took {count} of {records} records"

    async def _poll(self, records: int, deadline_s: float) -> int:
        """How many came, before an error did or the time was over."""
        loop, count = asyncio.get_running_loop(), 0
        deadline = loop.time() + deadline_s
        self._consumer.resume(*self._consumer.assignment())
        try:
            while count < records and not self.has_erred and loop.time() < deadline:
                polled = await self._consumer.getmany(
                    timeout_ms=_POLL_MS, max_records=records - count
                )
                for record in (one for of in polled.values() for one in of):
                    count += 1
                    value = record_text(record.value, record.headers)
                    self.polled(value, record.offset, record.partition)
        except KafkaError as failed:
            self.notify(type(failed).__name__)
        finally:
            self._consumer.pause(*self._consumer.assignment())
        return count

    def do_commit(
        self, offsets: Sequence[Mapping[str, int]], waits: bool, deadline_s: float
    ) -> None:
        asked = {TopicPartition(self.topic, one["partition"]): one["offset"] for one in offsets}
        if waits:
            self._loop.call(self._commit(asked), deadline_s)
        else:
            self._loop.spawn(self._commit(asked))

    async def _commit(self, asked: Mapping[Any, int]) -> None:
        error = None
        try:
            await self._consumer.commit(asked)
        except KafkaError as failed:
            error = type(failed).__name__
        for one, offset in asked.items():
            self.committed(one.partition, offset, error)

    async def _watch_commits(self) -> None:
        """It reports nothing of the commits that it makes by itself: the coordinator is asked."""
        while True:
            for one in self._consumer.assignment():
                offset = await self._consumer.committed(one)
                if offset is not None and offset != self._known.get(one):
                    self._known[one] = offset
                    self.committed(one.partition, offset, None)
            await asyncio.sleep(_LOOK_S)

    def do_leave(self, deadline_s: float) -> None:
        self.stalled = True
        self._loop.call(self._consumer.stop(), deadline_s)

    async def on_partitions_assigned(self, assigned: Sequence[Any]) -> None:
        self._consumer.pause(*assigned)
        self._say_parts(self._consumer.assignment())

    async def on_partitions_revoked(self, revoked: Sequence[Any]) -> None:
        self._say_parts(set(self._consumer.assignment()) - set(revoked))

    def _say_parts(self, parts: Any) -> None:
        self.assigned(one.partition for one in parts)


if __name__ == "__main__":
    serve(
        {
            "client": "aiokafka",
            "version": aiokafka.__version__,
            "can": ["idempotence", "transactions", "groups"],
        },
        {"producer": AioProducer, "consumer": AioConsumer},
    )
