"""`python -m neaptide.workloads.adapters.kafka_python`: kafka-python, a program that is driven."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from neaptide.results.record_texts import record_text
from neaptide.workloads.adapters.lines import Consumer, Producer, Refused, Say, serve
from neaptide.workloads.libraries.kafka_python import DEFINITE

_COMMON: Final = {
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 2_000,
    "allow_auto_create_topics": False,
}
_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_POLL_MS: Final = 50
_JOIN_MS: Final = 1_000


def given(settings: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's names and texts, as kafka-python takes them."""
    found: dict[str, Any] = {}
    for name, text in settings.items():
        value: Any = int(text) if text.lstrip("-").isdigit() else text
        found[name.replace(".", "_")] = {"true": True, "false": False}.get(text, value)
    if "partition_assignment_strategy" in found:
        named = str(found["partition_assignment_strategy"]).split(",")
        found["partition_assignment_strategy"] = [_ASSIGNORS[one] for one in named]
    if found.get("auto_offset_reset") == "error":
        found["auto_offset_reset"] = "none"
    return found


class PythonProducer(Producer):
    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": self.bootstrap.split(","),
            "acks": "all",
            "retries": 0,
            "max_in_flight_requests_per_connection": 1,
            "enable_idempotence": False,
            "delivery_timeout_ms": 10_000,
            "request_timeout_ms": 5_000,
            "max_block_ms": 10_000,
            "linger_ms": 5,
            **given(self.settings),
        }
        if self.transactional_id is not None:
            settings["transactional_id"] = self.transactional_id
            settings["enable_idempotence"] = True
        if settings["enable_idempotence"] and "retries" not in self.settings:
            del settings["retries"]
        self._producer = KafkaProducer(**settings)

    def do_start(self, deadline_s: float) -> None:
        if self.transactional_id is not None:
            self._try(self._producer.init_transactions)

    def do_begin_transaction(self, deadline_s: float) -> None:
        self._try(self._producer.begin_transaction)

    def do_send(
        self, records: list[str], partition: int, key: str | None, waits: bool, deadline_s: float
    ) -> str:
        for record in records:
            self.left += 1
            try:
                future = self._producer.send(
                    self.topic,
                    value=record.encode(),
                    key=None if key is None else key.encode(),
                    partition=partition,
                )
            except (KafkaError, ValueError, AssertionError) as refused:  # it took no record
                self.sent(record, None, type(refused).__name__, appended=False)
                continue
            future.add_callback(partial(self._succeeded, record))
            future.add_errback(partial(self._failed, record))
        deadline = time.monotonic() + deadline_s
        while waits and self.left and time.monotonic() < deadline:
            try:
                self._producer.flush(timeout=0.5)
            except KafkaError:
                continue  # it is not over yet
        return self.unanswered() if waits else ""

    def _succeeded(self, record: str, metadata: Any) -> None:
        self.sent(record, metadata.offset if metadata.offset >= 0 else None, None)

    def _failed(self, record: str, error: BaseException) -> None:
        name = type(error).__name__
        self.sent(record, None, name, appended=False if name in DEFINITE else None)

    def do_commit_transaction(self, deadline_s: float) -> None:
        self._try(self._producer.commit_transaction)

    def do_abort_transaction(self, deadline_s: float) -> None:
        self._try(self._producer.abort_transaction)

    def do_leave(self, deadline_s: float) -> None:
        self._try(lambda: self._producer.close(timeout=deadline_s))

    def _try(self, ask: Callable[[], Any]) -> None:
        try:
            ask()
        except KafkaError as failed:
            raise Refused(type(failed).__name__) from failed


class PythonConsumer(Consumer, ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        settings: dict[str, Any] = {
            **_COMMON,
            "bootstrap_servers": self.bootstrap.split(","),
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 100,
            "default_offset_commit_callback": self._committed,
            **given(self.settings),
        }
        self._consumer = KafkaConsumer(**settings)
        self._has_joined = False

    def idle(self) -> None:
        """It stays in its group by polling; its partitions are paused."""
        if self._has_joined and not self.stalled:
            self._poll(0, 1)

    def do_subscribe(self, deadline_s: float) -> str:
        self._consumer.subscribe([self.topic], listener=self)
        self._has_joined = True
        deadline = time.monotonic() + deadline_s
        while not self._consumer.assignment() and time.monotonic() < deadline:
            self._poll(_JOIN_MS, 1)  # a shorter poll gives up a join under way, again and again
        return "" if self._consumer.assignment() else "it was given no partition"

    def do_assign(self, partition: int, deadline_s: float) -> None:
        one = TopicPartition(self.topic, partition)
        self._consumer.assign([one])
        if self.group is None:
            self._consumer.seek(one, 0)
        self._has_joined = True
        self.on_partitions_assigned([one])

    def do_poll(self, records: int, deadline_s: float) -> str:
        deadline, count = time.monotonic() + deadline_s, 0
        self._consumer.resume(*self._consumer.assignment())
        while count < records and not self.has_erred and time.monotonic() < deadline:
            count += self._poll(_POLL_MS, records - count)
        self._consumer.pause(*self._consumer.assignment())
        has_ended, self.has_erred = count == records or self.has_erred, False
        return "" if has_ended else f"it took {count} of {records} records"

    def _poll(self, timeout_ms: int, most: int) -> int:
        """How many records came."""
        try:
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=most)
        except KafkaError as failed:
            self.notify(type(failed).__name__)
            return 0
        count = 0
        for records in polled.values():
            for record in records:
                count += 1
                value = record_text(record.value, record.headers)
                self.polled(value, record.offset, record.partition)
        return count

    def do_commit(
        self, offsets: Sequence[Mapping[str, int]], waits: bool, deadline_s: float
    ) -> None:
        asked = {
            TopicPartition(self.topic, one["partition"]): OffsetAndMetadata(one["offset"], "", -1)
            for one in offsets
        }
        if not waits:
            self._consumer.commit_async(asked, callback=self._committed)
            return
        answer: Any = None
        try:
            self._consumer.commit(asked, timeout_ms=int(deadline_s * 1000))
        except KafkaError as failed:
            answer = failed
        self._committed(asked, answer)

    def do_leave(self, deadline_s: float) -> None:
        self._consumer.close()
        self.stalled = True

    def on_partitions_assigned(self, assigned: Sequence[Any]) -> None:
        self._consumer.pause(*assigned)
        self._say_parts(self._consumer.assignment())

    def on_partitions_revoked(self, revoked: Sequence[Any]) -> None:
        self._say_parts(set(self._consumer.assignment()) - set(revoked))

    def _say_parts(self, parts: Any) -> None:
        self.assigned(one.partition for one in parts)

    def _committed(self, offsets: Mapping[Any, Any], response: Any) -> None:
        error = type(response).__name__ if isinstance(response, BaseException) else None
        for one, position in offsets.items():
            self.committed(one.partition, position.offset, error)


if __name__ == "__main__":
    serve(
        {
            "client": "kafka-python",
            "version": kafka.__version__,
            "can": ["idempotence", "transactions", "groups"],
        },
        {"producer": PythonProducer, "consumer": PythonConsumer},
    )
