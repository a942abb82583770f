"""Consumers of groups: they ask where their group goes on, read, and commit how far they came.

One thing after the other, each asked again until it is answered: so a commit that is recorded as
`ok` was acknowledged, and the next one is asked for after it. They assign themselves what they
read and are no members of their groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from neaptide.workloads.kafka_clients import consumer
from neaptide.workloads.polling import WATERMARK_TIMEOUT_S, read_on
from neaptide.workloads.recorder import Recorder

_ASK_S = 2.0


@dataclass(slots=True)
class GroupConsumer:
    """One consumer of a group, of one partition, until `deadline` on the monotonic clock."""

    recorder: Recorder
    process: int
    group: str
    topic: str
    partition: int
    phase: str
    deadline: float
    bootstrap: str
    settings: Mapping[str, str]
    _reader: Any = field(init=False)

    def __post_init__(self) -> None:
        self._reader = consumer(self.bootstrap, self.group, self.settings)

    def close(self) -> None:
        self._reader.close()

    def position(self) -> tuple[bool, int | None]:
        """Whether an answer came in time; where the group goes on, None for nowhere yet."""
        return self._ask("committed", None, self._committed)

    def read(self, position: int | None, on_record: Callable[[Any], None]) -> int | None:
        """Reads to the high watermark that it first receives; returns it if it came there."""
        named = TopicPartition(self.topic, self.partition)
        while time.monotonic() < self.deadline:
            try:
                start, end = self._reader.get_watermark_offsets(named, timeout=WATERMARK_TIMEOUT_S)
            except KafkaException:
                continue  # no leader yet: the deadline decides
            first = start if position is None else position
            self._reader.assign([TopicPartition(self.topic, self.partition, first)])
            came_to = read_on(
                self.recorder,
                self.process,
                self.phase,
                self._reader,
                first,
                end,
                self.deadline,
                on_record,
            )
            return int(end) if came_to >= end else None
        return None

    def commit(self, offset: int) -> bool:
        """Whether that was acknowledged in time."""

        def ask() -> int:
            wanted = [TopicPartition(self.topic, self.partition, offset)]
            for answer in self._reader.commit(offsets=wanted, asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return offset

        return self._ask("commit", offset, ask)[0]

    def _committed(self) -> int | None:
        wanted = [TopicPartition(self.topic, self.partition)]
        [answer] = self._reader.committed(wanted, timeout=_ASK_S)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return None if answer.offset < 0 else int(answer.offset)

    def _ask(
        self, f: str, offset: int | None, ask: Callable[[], int | None]
    ) -> tuple[bool, int | None]:
        """Asks until it is answered, and records that as one operation."""
        operation, invoked_ns = self.recorder.new_operation(), self.recorder.now_ns()
        kind, error = "info", None
        while kind == "info" and time.monotonic() < self.deadline:
            try:
                offset, kind, error = ask(), "ok", None
            except KafkaException as failed:
                error = str(failed.args[0].name())
        self.recorder.write(
            operation=operation,
            process=self.process,
            f=f,
            type=kind,
            invoked_ns=invoked_ns,
            completed_ns=self.recorder.now_ns(),
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            key=self.group,
            phase=self.phase,
            error=error,
        )
        return kind == "ok", offset
