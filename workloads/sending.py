"""Sends: unique values, appended by librdkafka; every completion is recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from neaptide.results.record_texts import text_of
from neaptide.workloads.definite import completion_type
from neaptide.workloads.kafka_clients import producer
from neaptide.workloads.process import LogicalProcess
from neaptide.workloads.recorder import Recorder

Completed = Callable[[str, str, int | None, str | None], None]
_POLL_S = 0.05
_QUEUE_FULL_S = 0.01


class Sender:
    """One client that sends, by one producer; completions come on its own thread.

    `new_process` gives the number of a logical process that nobody else has.
    """

    def __init__(
        self,
        recorder: Recorder,
        new_process: Callable[[], int],
        bootstrap: str,
        acks: str,
        settings: Mapping[str, str],
        on_completed: Completed,
    ) -> None:
        self.counts = {"ok": 0, "fail": 0, "info": 0}
        self._recorder = recorder
        self._process = LogicalProcess(new_process)
        self._completing = threading.Lock()  # completions may come on the caller's thread, too
        self._acks = acks
        self._on_completed = on_completed
        self._producer: Producer = producer(bootstrap, acks, settings)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def send(self, topic: str, partition: int, value: str, key: str | None = None) -> None:
        """Hands one record to the producer; waits while its queue is full."""
        operation = self._recorder.new_operation()
        invoked_ns = self._recorder.now_ns()
        of = (operation, invoked_ns, topic, partition, key, value)
        delivered = partial(self._delivered, *of)
        while True:
            try:
                self._producer.produce(
                    topic, value=value, key=key, partition=partition, on_delivery=delivered
                )
                return
            except BufferError:
                # The queue empties as the poll thread reports deliveries.
                self._closing.wait(_QUEUE_FULL_S)
            except KafkaException as error:
                self._completed(*of, None, error.args[0])
                return

    def _delivered(
        self,
        operation: int,
        invoked_ns: int,
        topic: str,
        partition: int,
        key: str | None,
        value: str,
        error: Any,
        message: Any,
    ) -> None:
        reported = message.offset() if error is None else None  # with acks=0 there may be none
        offset = reported if reported is not None and reported >= 0 else None
        self._completed(operation, invoked_ns, topic, partition, key, value, offset, error)

    def _completed(
        self,
        operation: int,
        invoked_ns: int,
        topic: str,
        partition: int,
        key: str | None,
        value: str,
        offset: int | None,
        error: Any,
    ) -> None:
        name = None if error is None else str(error.name())
        kind = completion_type(name)
        with self._completing:
            self.counts[kind] += 1
        process = self._process.completed(kind)
        self._recorder.write(
            operation=operation,
            process=process,
            f="send",
            type=kind,
            invoked_ns=invoked_ns,
            completed_ns=self._recorder.now_ns(),
            topic=topic,
            partition=partition,
            # With acks=0 librdkafka makes an offset up: no broker sent it one.
            offset=None if self._acks == "0" else offset,
            key=None if key is None else text_of(key),
            value=text_of(value),
            acks=self._acks,
            error=name,
        )
        self._on_completed(value, kind, offset, name)

    def _serve(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)

    def drain(self, timeout_s: float) -> int:
        """Waits until every send has completed; how many have not."""
        deadline = time.monotonic() + timeout_s
        while (left := len(self._producer)) and time.monotonic() < deadline:
            self._producer.flush(_POLL_S)
        return int(left)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._producer.purge()
        self._producer.poll(0)
