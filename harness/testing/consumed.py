"""A consumer of somebody's own application, whose polls, commits and work are recorded.

What an application does with a record nobody sees: it says `handled` when it has. So a position
that is committed before that is found, as is a record that nobody handles.

The rule: who is assigned partitions begins as another process of the history, for it goes on where
its group is, which need not be where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException

from neaptide.clusters.errors import UsageError
from neaptide.results.record_texts import record_text, text_of

DELIVERIES: Final = ("at-least-once", "at-most-once")
Write = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Notebook:
    """Where operations of consumers are written. `partitions`: of each topic that is judged."""

    write: Write
    now_ns: Callable[[], int]
    new_operation: Callable[[], int]
    new_process: Callable[[], int]
    partitions: Mapping[str, int]

    def note(
        self, process: int, f: str, topic: str, partition: int, *, kind: str = "ok", **more: Any
    ) -> None:
        now_ns = self.now_ns()
        given = {"operation": self.new_operation(), "invoked_ns": now_ns} | more
        self.write(
            process=process,
            f=f,
            type=kind,
            completed_ns=now_ns,
            topic=topic,
            partition=partition,
            **given,
        )


class RecordedConsumer:
    """A `confluent_kafka.Consumer`. What is not here is the consumer's own, and is not recorded."""

    def __init__(
        self, settings: Mapping[str, Any], notes: Notebook, delivery: str = DELIVERIES[0]
    ) -> None:
        if delivery not in DELIVERIES:
            raise UsageError(f"delivery={delivery!r} must be one of {', '.join(DELIVERIES)}.")
        self._notes = notes
        self._group = str(settings["group.id"])
        self._process = notes.new_process()
        self._on_commit = settings.get("on_commit")
        self._consumer: Any = Consumer({**settings, "on_commit": self._committed})
        for place in self._places():
            self._note("setting", *place, key="delivery", value=delivery)
            if settings.get("auto.offset.reset") == "earliest":
                self._note("setting", *place, key="auto.offset.reset", value="earliest")

    def _places(self) -> Iterator[tuple[str, int]]:
        for topic, partitions in self._notes.partitions.items():
            for partition in range(partitions):
                yield topic, partition

    # --- what is assigned ------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., None] | None = None,
        on_revoke: Callable[..., None] | None = None,
        on_lost: Callable[..., None] | None = None,
    ) -> None:
        """As `Consumer.subscribe`; the callbacks get the consumer itself, as they do there."""

        def noting(f: str, asked: Callable[..., None] | None) -> Callable[..., None]:
            def noted(consumer: Any, parts: Sequence[Any]) -> None:
                if f == "assigned":
                    self._process = self._notes.new_process()
                for part in parts:
                    self._note(f, part.topic, part.partition, key=self._group)
                if asked is not None:
                    asked(consumer, parts)

            return noted

        self._consumer.subscribe(
            topics,
            on_assign=noting("assigned", on_assign),
            on_revoke=noting("revoked", on_revoke),
            on_lost=noting("lost", on_lost or on_revoke),
        )

    def assign(self, partitions: Sequence[Any]) -> None:
        self._process = self._notes.new_process()
        self._consumer.assign(list(partitions))

    def seek(self, partition: Any) -> None:
        self._process = self._notes.new_process()
        self._consumer.seek(partition)

    # --- records ---------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Any:
        invoked_ns = self._notes.now_ns()
        message = self._consumer.poll(timeout)
        self._note_polled([] if message is None else [message], invoked_ns)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        invoked_ns = self._notes.now_ns()
        messages: list[Any] = self._consumer.consume(num_messages, timeout)
        self._note_polled(messages, invoked_ns)
        return messages

    def _note_polled(self, messages: Sequence[Any], invoked_ns: int) -> None:
        operation, rows = self._notes.new_operation(), count()
        for message in messages:
            if message.error() is None:
                self._note(
                    "poll",
                    message.topic(),
                    message.partition(),
                    operation=operation,
                    row=next(rows),
                    invoked_ns=invoked_ns,
                    offset=message.offset(),
                    key=text_of(message.key()),
                    value=record_text(message.value(), message.headers()),
                    leader_epoch=message.leader_epoch(),
                )

    def handled(self, message: Any) -> None:
        """The application has done with the record what it is for."""
        place = message.topic(), message.partition()
        self._note("process", *place, offset=message.offset(), key=self._group)

    # --- positions -------------------------------------------------------------------------------

    def commit(self, message: Any = None, offsets: Any = None, asynchronous: bool = True) -> Any:
        """As `Consumer.commit`. One that nobody waits for is recorded when it is answered, which
        the application learns by polling."""
        more = {"message": message} if message is not None else {}
        more |= {"offsets": offsets} if offsets is not None else {}
        invoked_ns = self._notes.now_ns()
        committed = self._consumer.commit(asynchronous=asynchronous, **more)
        if not asynchronous:
            self._note_commits(committed, None, invoked_ns)
        return committed

    def _committed(self, error: Any, parts: Sequence[Any]) -> None:
        self._note_commits(parts, error, self._notes.now_ns())
        if self._on_commit is not None:
            self._on_commit(error, parts)

    def _note_commits(self, parts: Sequence[Any], error: Any, invoked_ns: int) -> None:
        for part in parts or ():
            failed = error if error is not None else part.error
            if part.offset >= 0:
                self._note(
                    "commit",
                    part.topic,
                    part.partition,
                    kind="ok" if failed is None else "info",
                    invoked_ns=invoked_ns,
                    offset=part.offset,
                    key=self._group,
                    error=None if failed is None else _name_of(failed),
                )

    def _note(self, f: str, topic: str, partition: int, **more: Any) -> None:
        self._notes.note(self._process, f, topic, partition, **more)

    # --- the rest --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def __iter__(self) -> Iterator[Any]:
        while True:
            message = self.poll(1.0)
            if message is not None:
                yield message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _name_of(error: Any) -> str:
    known = error.args[0] if isinstance(error, KafkaException) else error
    return str(known.name())
