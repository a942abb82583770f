"""Sends of somebody's own application, recorded as operations of a run.

The rule: a send that begins is in the history whatever becomes of it. What nobody ended when the
history is closed is of unknown end, and a producer that had such a send goes on as a new process.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import Producer

from neaptide.clusters.errors import UsageError
from neaptide.results.record_texts import MARK_HEADER, mark_header, marked, text_of
from neaptide.results.run import Written
from neaptide.workloads.definite import completion_type
from neaptide.workloads.process import LogicalProcess
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.worker import PROCESSES_PER_WORKER

RECORDER: Final = 400  # no process of clients has this number
Data = str | bytes | None
_NEVER_SENT: Final = "_NEVER_SENT"  # a definite end: it was given to no partition


@dataclass(frozen=True, slots=True)
class _Begun:
    operation: int
    invoked_ns: int
    topic: str
    key: str | None
    value: str | None
    acks: str
    mark: str | None  # None: its records cannot have one


class History:
    """What an application has sent. Safe for several threads.

    `marks`: the system keeps the headers of records, so that a record can have a mark of its own:
    then an application may send the same value as often as it likes.
    """

    def __init__(self, recorder: Recorder, *, marks: bool) -> None:
        self._recorder = recorder
        self._marks = marks
        self._processes = itertools.count((RECORDER - 1) * PROCESSES_PER_WORKER + 1)
        self._lock = threading.Lock()
        self._open: dict[int, Send] = {}
        self._closed = False
        self.began = 0
        self.partitions: Mapping[str, int] = {}  # how many each topic has, so far as is known

    def begin(self, client: LogicalProcess, topic: str, value: Data, key: Data, acks: str) -> Send:
        with self._lock:
            if self._closed:
                raise RuntimeError("The cluster was checked: nothing can be sent to it any more.")
            self.began += 1
            operation = self._recorder.new_operation()
            mark = str(self.began) if self._marks else None
            began_ns, texts = self._recorder.now_ns(), (text_of(key), text_of(value))
            begun = _Begun(operation, began_ns, topic, *texts, acks, mark)
            send = Send(self, client, begun)
            self._open[operation] = send
            return send

    def client(self) -> LogicalProcess:
        """One producer: its sends are in order, so far as it promises one."""
        return LogicalProcess(self._new_process)

    def _new_process(self) -> int:
        with self._lock:
            return next(self._processes)

    def end(
        self,
        client: LogicalProcess,
        begun: _Begun,
        kind: str,
        partition: int | None,
        offset: int | None,
        error: str | BaseException | None,
        *,
        has_mark: bool,
    ) -> None:
        """The second end of a send, and one that comes after the close, changes nothing."""
        if partition is None and self.partitions.get(begun.topic) == 1:
            partition = 0  # there is no other
        for name, number in (("partition", partition), ("offset", offset)):
            if number is not None and type(number) is not int:
                raise TypeError(f"{name} must be a whole number, not {number!r}")
        with self._lock:
            if self._open.pop(begun.operation, None) is None:
                return
        self._recorder.write(
            operation=begun.operation,
            process=client.completed(kind),
            f="send",
            type=kind,
            invoked_ns=begun.invoked_ns,
            completed_ns=self._recorder.now_ns(),
            topic=begun.topic,
            partition=partition,
            offset=None if begun.acks == "0" else offset,
            key=begun.key,
            value=marked(begun.value, begun.mark if has_mark else None),
            acks=begun.acks,
            error=error if error is None or isinstance(error, str) else _named(error),
        )

    def write(self, **row: Any) -> None:
        """An operation that is no send. Nothing is written any more once it is closed."""
        with self._lock:
            if not self._closed:
                self._recorder.write(**row)

    def close(self) -> Written:
        """Ends what is open as unknown; how many rows there are. Raises StoreError."""
        with self._lock:
            self._closed = True
            still_open = list(self._open.values())
        for send in still_open:
            send.unknown("never ended")
        self._recorder.close()
        return self._recorder.written


class Send:
    """A record on its way. End it once, by `ok`, `failed` or `unknown`."""

    def __init__(self, history: History, client: LogicalProcess, begun: _Begun) -> None:
        self._history = history
        self._client = client
        self._begun = begun
        self._has_mark = False

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Give these to the record: by its mark it is known, whatever else has its value. Who does
        not ask for them sends without. Empty where the system keeps no headers."""
        if self._begun.mark is None:
            return []
        self._has_mark = True
        return [mark_header(self._begun.mark)]

    def ok(self, partition: int, offset: int | None = None) -> None:
        """It was acknowledged; `offset` where the client says so."""
        self._end("ok", partition, offset, None)

    def failed(self, error: str | BaseException, partition: int | None = None) -> None:
        """It was surely not appended. Whoever is not sure calls `unknown`."""
        self._end("fail", partition, None, error)

    def unknown(self, error: str | BaseException, partition: int | None = None) -> None:
        """Timed out, or an error that does not say that nothing was appended."""
        self._end("info", partition, None, error)

    def _end(
        self,
        kind: str,
        partition: int | None,
        offset: int | None,
        error: str | BaseException | None,
    ) -> None:
        self._history.end(
            self._client, self._begun, kind, partition, offset, error, has_mark=self._has_mark
        )


class RecordedProducer:
    """A `confluent_kafka.Producer` whose sends are recorded. Everything else is the producer's."""

    def __init__(self, producer: Producer, history: History, acks: str) -> None:
        self._producer = producer
        self._history = history
        self._acks = acks
        self._client = history.client()

    def produce(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
        **more: Any,
    ) -> None:
        """As `Producer.produce`. The record gets one more header, its mark."""
        asked = more.pop("callback", None) or on_delivery
        send = self._history.begin(self._client, topic, value, key, self._acks)
        if send.headers:
            more["headers"] = _with_mark(more.get("headers"), send.headers)

        def delivered(error: Any, message: Any) -> None:
            _end(send, error, message)
            if asked is not None:
                asked(error, message)

        try:
            self._producer.produce(
                topic, value=value, key=key, partition=partition, on_delivery=delivered, **more
            )
        except BaseException:
            send.failed(_NEVER_SENT)  # refused before it was queued
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush()


def acks_text(acks: str | int) -> str:
    """As one client or another writes it: 0, 1, -1, "all". Raises UsageError."""
    text = "all" if str(acks) == "-1" else str(acks)
    if text not in ("0", "1", "all"):
        raise UsageError(f"acks={acks!r} must be 0, 1, -1 or 'all'.")
    return text


def _named(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _end(send: Send, error: Any, message: Any) -> None:
    partition = message.partition()
    partition = partition if partition is not None and partition >= 0 else None
    if error is None and partition is not None:
        offset = message.offset()
        send.ok(partition, offset if offset is not None and offset >= 0 else None)
        return
    name = str(error.name()) if error is not None else _NEVER_SENT
    if partition is None or completion_type(name) == "fail":
        send.failed(name, partition)
    else:
        send.unknown(name, partition)


def _with_mark(given: Any, mark: list[tuple[str, bytes]]) -> list[tuple[str, Any]]:
    """Headers as librdkafka takes them; who passes those of another record on has its mark."""
    own = given.items() if isinstance(given, Mapping) else given or ()
    return [*((name, data) for name, data in own if name != MARK_HEADER), *mark]
