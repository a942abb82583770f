"""What all roles share: a thread of their own, what they record with, how they begin and end.

A role never raises into nothing: what ends its thread early is `failure`, and the run is unknown.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from neaptide.results.record_texts import text_of
from neaptide.workloads.journal import Journal
from neaptide.workloads.libraries.model import (
    ConsumerAsked,
    Library,
    Place,
    Polled,
    Producer,
    ProducerAsked,
    Record,
)
from neaptide.workloads.process import LogicalProcess
from neaptide.workloads.recorder import Recorder

POLL_S: Final = 0.1
DRAIN_S: Final = 30.0
_POLL_RECORDS: Final = 1_000


def transactional_id(kind: str, seed: int, index: int) -> str:
    """Of the client with this number: one that follows a killed one has the same."""
    return f"neaptide-{seed}-{kind}-{index}"


@dataclass(frozen=True, slots=True)
class Task:
    """What one client is to do (as JSON): one of `of` clients with the same role."""

    role: str
    index: int
    of: int
    topics: Mapping[str, int]  # how many partitions each has
    rate: float  # records a second, of this client
    acks: str
    idempotence: bool
    seed: int
    options: Mapping[str, Any]

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple((t, p) for t, count in self.topics.items() for p in range(count))


@dataclass(frozen=True, slots=True)
class Desk:
    """What a role works with."""

    recorder: Recorder
    journal: Journal | None  # None: nobody kills it
    new_process: Callable[[], int]  # a number that no other logical process has
    library: Library
    bootstrap: str
    settings: Mapping[str, str]  # by the library's names
    producer_settings: Mapping[str, str]

    def producer(self, task: Task, transactional_id: str | None = None) -> Producer:
        made: Producer = self.library.producer(
            ProducerAsked(
                self.bootstrap,
                task.acks,
                task.idempotence,
                transactional_id,
                int(task.options.get("transaction_timeout_ms", 10_000)),
                {**self.settings, **self.producer_settings},
            )
        )
        return made

    def consumer(self, group: str, **more: Any) -> Any:
        return self.library.consumer(
            ConsumerAsked(self.bootstrap, group, settings=self.settings, **more)
        )

    def note(self, rows: Sequence[Sequence[Any]], operations: int) -> int:
        return -1 if self.journal is None else self.journal.note(rows, operations)

    def done(self, segment: int) -> None:
        if self.journal is not None:
            self.journal.done(segment)


class Role(ABC):
    """One client. `sends`: it stops before the cluster is healed, the others after it."""

    sends = False

    def __init__(self, desk: Desk, task: Task) -> None:
        self.desk = desk
        self.task = task
        self.counts = {"ok": 0, "fail": 0, "info": 0, "polled": 0}
        self.left = 0  # sends without an answer at the end
        self.failure: str | None = None
        self.stopping = threading.Event()
        self.logical = LogicalProcess(desk.new_process)
        self.chance = random.Random(f"{task.seed}/{self.process}")
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def process(self) -> int:
        """The number of its process in the history, as it is now."""
        return self.logical.number

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing left to do for it, once all senders have stopped."""
        return True

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            traceback.print_exc()  # into the log of this process
            self.failure = f"A client of the role {self.task.role} failed: {error!r}"

    @abstractmethod
    def work(self) -> None:
        """Returns some time after `stopping` is set."""

    def record_poll(self, polled: Polled, invoked_ns: int, *, mop: int | None = None) -> None:
        """One operation of its own."""
        recorder = self.desk.recorder
        operation, completed_ns = recorder.new_operation(), recorder.now_ns()
        for row, record in enumerate(polled.records):
            recorder.write(
                operation=operation,
                row=row,
                process=self.process,
                f="poll",
                type="ok",
                invoked_ns=invoked_ns,
                completed_ns=completed_ns,
                mop=mop,
                **fields_of(record),
            )
        self.counts["polled"] += len(polled.records)


def fields_of(record: Record) -> dict[str, Any]:
    """Of a row: what a poll returned."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        "value": record.value,
        "leader_epoch": record.leader_epoch,
    }


class Sends:
    """Sends of one client that complete when they will; each is one operation."""

    def __init__(self, role: Role, producer: Producer) -> None:
        self.producer = producer
        self._role = role
        self._desk = role.desk
        self._acks = role.task.acks
        self._completing = threading.Lock()

    def send(self, records: Sequence[tuple[str, int, str | None, str | None]]) -> None:
        """Topic, partition, key, value of each."""
        recorder, process = self._desk.recorder, self._role.process
        invoked_ns = recorder.now_ns()
        first = recorder.new_operations(len(records))
        segment = -1
        if self._desk.journal is not None:
            noted = [
                (
                    first + n, 0, process, "send", "invoke", invoked_ns, None, topic, partition,
                    None, text_of(key), text_of(value), self._acks, None,
                )
                for n, (topic, partition, key, value) in enumerate(records)
            ]  # fmt: skip
            segment = self._desk.note(noted, len(noted))
        for n, (topic, partition, key, value) in enumerate(records):
            done = partial(
                self._completed, first + n, invoked_ns, topic, partition, key, value, segment
            )
            self.producer.send(topic, partition, key, value, done)
        self.producer.poll()

    def _completed(
        self,
        operation: int,
        invoked_ns: int,
        topic: str,
        partition: int,
        key: str | None,
        value: str | None,
        segment: int,
        offset: int | None,
        error: str | None,
    ) -> None:
        kind = self._desk.library.completion_type(error)
        role = self._role
        with self._completing:
            role.counts[kind] += 1
        process = role.logical.completed(kind)
        self._desk.recorder.write(
            operation=operation,
            process=process,
            f="send",
            type=kind,
            invoked_ns=invoked_ns,
            completed_ns=self._desk.recorder.now_ns(),
            topic=topic,
            partition=partition,
            offset=offset,
            key=text_of(key),
            value=text_of(value),
            acks=self._acks,
            error=error,
        )
        self._desk.done(segment)

    def finish(self) -> int:
        """Waits for what is on its way; how many have no answer."""
        left = self.producer.drain(DRAIN_S)
        self.producer.close()
        return left


class Pace:
    """So many bursts a second; what was missed is not made up for beyond a second."""

    def __init__(self, rate: float, burst: int) -> None:
        self._gap_s = burst / rate
        self._due = time.monotonic()

    def wait(self, stopping: threading.Event) -> None:
        now = time.monotonic()
        self._due = max(self._due + self._gap_s, now - 1.0)
        stopping.wait(max(0.0, self._due - now))


def burst_of(rate: float) -> int:
    """How many records are sent at once: few, but not one by one where they are many."""
    return max(1, min(50, int(rate / 20)))


def poll_once(consumer: Any) -> Polled:
    polled: Polled = consumer.poll(_POLL_RECORDS, POLL_S)
    return polled
