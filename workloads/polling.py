"""Polls: every consumed record is recorded, with the poll that returned it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from neaptide.results.record_texts import record_text, text_of
from neaptide.workloads.kafka_clients import consumer
from neaptide.workloads.recorder import Recorder

_BATCH = 1_000
_POLL_S = 0.1
WATERMARK_TIMEOUT_S = 2.0


def _record_poll(
    recorder: Recorder,
    process: int,
    phase: str,
    invoked_ns: int,
    messages: list[Any],
    on_record: Callable[[Any], None],
) -> int:
    """Writes one poll operation; how many records it returned."""
    good = [message for message in messages if message.error() is None]
    operation = recorder.new_operation()
    completed_ns = recorder.now_ns()
    for row, message in enumerate(good):
        recorder.write(
            operation=operation,
            row=row,
            process=process,
            f="poll",
            type="ok",
            invoked_ns=invoked_ns,
            completed_ns=completed_ns,
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            key=text_of(message.key()),
            value=record_text(message.value(), message.headers()),
            leader_epoch=message.leader_epoch(),
            phase=phase,
        )
        on_record(message)
    return len(good)


def read_on(
    recorder: Recorder,
    process: int,
    phase: str,
    reader: Any,
    position: int,
    end: int,
    deadline: float,
    on_record: Callable[[Any], None],
) -> int:
    """Polls an assigned partition from a position to `end`; where it came to by the deadline."""
    while position < end and time.monotonic() < deadline:
        invoked_ns = recorder.now_ns()
        messages = reader.consume(_BATCH, _POLL_S)
        _record_poll(recorder, process, phase, invoked_ns, messages, on_record)
        position = max([position, *(_behind(message) for message in messages)])
    return position


def _behind(message: Any) -> int:
    """Where a consumer is that was handed this: behind a record, or at the end of the log."""
    if message.error() is None:
        return 1 + int(message.offset())
    at_end = message.error().code() == KafkaError._PARTITION_EOF
    return int(message.offset()) if at_end else 0


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """The log end before the reading, the log start after it; whether all was read in time."""

    start: int
    end: int | None
    reached: bool


def read_to_end(
    recorder: Recorder,
    process: int,
    bootstrap: str,
    settings: Mapping[str, str],
    *,
    topic: str,
    partition: int,
    phase: str,
    end: int | None,
    deadline_s: float,
    on_record: Callable[[Any], None],
) -> ReadToEnd:
    """Reads a partition from its beginning to `end` (None: the high watermark that it receives)."""
    deadline = time.monotonic() + deadline_s
    with_ends = {**settings, "enable.partition.eof": "true"}
    reader = consumer(bootstrap, f"neaptide-{process}", with_ends)
    try:
        assigned = TopicPartition(topic, partition, 0)
        start = 0
        while end is None and time.monotonic() < deadline:
            try:
                start, end = reader.get_watermark_offsets(assigned, timeout=WATERMARK_TIMEOUT_S)
            except KafkaException:
                continue  # no leader yet: the deadline decides
        if end is None:
            return ReadToEnd(0, None, False)
        reader.assign([assigned])
        position = read_on(recorder, process, phase, reader, start, end, deadline, on_record)
        reached = position >= end
        while time.monotonic() < deadline:
            try:  # what was deleted while it was read need not have been read
                start, _ = reader.get_watermark_offsets(assigned, timeout=WATERMARK_TIMEOUT_S)
                return ReadToEnd(start, end, reached)
            except KafkaException:
                continue
        return ReadToEnd(start, end, False)
    finally:
        reader.close()


class Poller:
    """One logical process that polls assigned partitions from the beginning, until closed."""

    def __init__(
        self,
        recorder: Recorder,
        process: int,
        bootstrap: str,
        settings: Mapping[str, str],
        topic: str,
        partitions: int,
    ) -> None:
        self.count = 0
        self._recorder = recorder
        self._process = process
        self._consumer = consumer(bootstrap, f"neaptide-{process}", settings)
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closing.is_set():
            invoked_ns = self._recorder.now_ns()
            messages = self._consumer.consume(_BATCH, _POLL_S)
            self.count += _record_poll(
                self._recorder, self._process, "main", invoked_ns, messages, lambda _: None
            )

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._consumer.close()
