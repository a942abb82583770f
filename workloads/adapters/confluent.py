"""`python -m neaptide.workloads.adapters.confluent`: librdkafka, as a program that is driven.

It also is the `raw_producer` of scenarios, which is no client of anybody's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from neaptide.results.forgone import forgo

if __name__ == "__main__":
    forgo()

import confluent_kafka
from confluent_kafka import OFFSET_STORED, KafkaException, TopicPartition

from neaptide.results.record_texts import record_text
from neaptide.workloads.adapters.lines import IDLE_S, Consumer, Producer, Refused, Say, serve
from neaptide.workloads.definite import completion_type
from neaptide.workloads.kafka_clients import RETRIES_MAX, consumer, producer
from neaptide.workloads.libraries.model import NOT_SENT
from neaptide.workloads.raw_connection import RawError
from neaptide.workloads.raw_producer import RawProducer

_START_S: Final = 20.0  # to be introduced to a transaction's coordinator


def _name(error: KafkaException | Any) -> str:
    known = error.args[0] if isinstance(error, KafkaException) else error
    return str(known.name())


class ConfluentProducer(Producer):
    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        given = dict(self.settings)
        if self.transactional_id is not None:
            given |= {"transactional.id": self.transactional_id, "enable.idempotence": "true"}
            given.setdefault("retries", str(RETRIES_MAX))
        self._producer = producer(self.bootstrap, given.pop("acks", "all"), given)

    def idle(self) -> None:
        self._poll(0)

    def _poll(self, timeout_s: float) -> None:
        """Reports what was delivered, and a fatal error, which librdkafka raises once."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as fatal:
            self.notify(_name(fatal))

    def do_start(self, deadline_s: float) -> None:
        if self.transactional_id is not None:
            self._try(lambda: self._producer.init_transactions(_START_S))

    def do_begin_transaction(self, deadline_s: float) -> None:
        self._try(self._producer.begin_transaction)

    def do_send(
        self, records: list[str], partition: int, key: str | None, waits: bool, deadline_s: float
    ) -> str:
        for record in records:
            self.left += 1
            try:
                self._producer.produce(
                    self.topic,
                    value=record,
                    key=key,
                    partition=partition,
                    on_delivery=partial(self._delivered, record),
                )
            except KafkaException as refused:  # such a producer is fenced: nothing left it
                self.notify(_name(refused))
                self.sent(record, None, NOT_SENT, appended=False)
        self._poll(0)
        deadline = time.monotonic() + deadline_s
        while waits and self.left and time.monotonic() < deadline:
            self._poll(IDLE_S)
        return self.unanswered() if waits else ""

    def _delivered(self, record: str, error: Any, message: Any) -> None:
        if error is None:
            offset = message.offset()  # with acks=0 there may be none
            self.sent(record, offset if offset is not None and offset >= 0 else None, None)
            return
        transacts = self.transactional_id is not None
        is_definite = completion_type(_name(error), has_transactions=transacts) == "fail"
        self.sent(record, None, _name(error), appended=False if is_definite else None)

    def do_commit_transaction(self, deadline_s: float) -> None:
        self._try(lambda: self._producer.commit_transaction(deadline_s))

    def do_abort_transaction(self, deadline_s: float) -> None:
        self._try(lambda: self._producer.abort_transaction(deadline_s))

    def _try(self, ask: Callable[[], Any]) -> None:
        try:
            ask()
        except KafkaException as failed:
            raise Refused(_name(failed)) from failed


class RawTransactions(Producer):
    """The same for a producer that takes no care of itself."""

    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        named = str(self.transactional_id)
        self._producer = RawProducer(self.bootstrap, self.topic, named, dict(self.settings))

    def do_start(self, deadline_s: float) -> None:
        self._producer.start()

    def do_begin_transaction(self, deadline_s: float) -> None:
        self._producer.begin()

    def do_send(
        self, records: list[str], partition: int, key: str | None, waits: bool, deadline_s: float
    ) -> None:
        for record in records:
            offset, error = None, None
            try:
                offset = self._producer.send(partition, record, key, waits=waits)
            except RawError as failed:
                error = str(failed)
                self.notify(error)
            if waits:
                is_definite = completion_type(error, has_transactions=True) == "fail"
                self.sent(record, offset, error, appended=False if is_definite else None)

    def do_commit_transaction(self, deadline_s: float) -> None:
        self._end(commits=True)

    def do_abort_transaction(self, deadline_s: float) -> None:
        self._end(commits=False)

    def _end(self, *, commits: bool) -> None:
        try:
            self._producer.end(commits=commits)
        except RawError as failed:
            raise Refused(str(failed)) from failed


class ConfluentConsumer(Consumer):
    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        super().__init__(config, say)
        mine: dict[str, Any] = {"on_commit": self._committed}
        given = {"enable.auto.offset.store": "true", **self.settings, **mine}
        self._consumer = consumer(self.bootstrap, self.group or "neaptide-driven", given)
        self._cooperates = cooperates(self.settings)
        self._parts: list[TopicPartition] = []
        self._count = 0

    def idle(self) -> None:
        if not self.stalled:
            self._poll(0)

    def do_subscribe(self, deadline_s: float) -> str:
        self._consumer.subscribe(
            [self.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        deadline = time.monotonic() + deadline_s
        while not self._parts and time.monotonic() < deadline:
            self._poll(IDLE_S)
        return "" if self._parts else "it was given no partition"

    def do_assign(self, partition: int, deadline_s: float) -> None:
        start = 0 if self.group is None else OFFSET_STORED
        self._assigned(self._consumer, [TopicPartition(self.topic, partition, start)])

    def do_poll(self, records: int, deadline_s: float) -> str:
        """Until so many have come, or an error."""
        deadline, wanted = time.monotonic() + deadline_s, self._count + records
        self._consumer.resume(self._parts)
        problem = ""
        while self._count < wanted and not self.has_erred:
            self._poll(IDLE_S)
            if time.monotonic() > deadline:
                problem = f"it took {records - (wanted - self._count)} of {records} records"
                break
        self._consumer.pause(self._parts)
        self.has_erred = False
        return problem

    def do_commit(
        self, offsets: Sequence[Mapping[str, int]], waits: bool, deadline_s: float
    ) -> None:
        asked = [TopicPartition(self.topic, one["partition"], one["offset"]) for one in offsets]
        try:
            if waits:
                for one in self._consumer.commit(offsets=asked, asynchronous=False):
                    self._commit_ended(one.error, one)
            else:
                self._consumer.commit(offsets=asked, asynchronous=True)
        except KafkaException as failed:
            for one in asked:
                self._commit_ended(failed.args[0], one)

    def do_leave(self, deadline_s: float) -> None:
        self._consumer.close()
        self.stalled = True

    def _poll(self, timeout_s: float) -> None:
        """Takes a record, or an error in its place; a fatal one librdkafka raises."""
        try:
            message: Any = self._consumer.poll(timeout_s)
        except KafkaException as fatal:
            self.notify(_name(fatal))
            return
        if message is None:
            return
        if message.error() is not None:
            self.notify(_name(message.error()))
            return
        self._count += 1
        value = record_text(message.value(), message.headers())
        self.polled(value, message.offset(), message.partition(), message.leader_epoch())

    def _assigned(self, of: Any, parts: list[TopicPartition]) -> None:
        """Records come when a step asks for them, and not before."""
        if self._cooperates:  # these come to those that it has
            of.incremental_assign(parts)
            self._parts = [*self._parts, *parts]
        else:
            of.assign(parts)
            self._parts = parts
        of.pause(parts)
        self._say_parts()

    def _revoked(self, of: Any, parts: list[TopicPartition]) -> None:
        """librdkafka lets go of them itself, all or these."""
        gone = {(part.topic, part.partition) for part in parts} if self._cooperates else None
        self._parts = [
            part for part in self._parts if gone and (part.topic, part.partition) not in gone
        ]
        self._say_parts()

    def _say_parts(self) -> None:
        self.assigned(part.partition for part in self._parts)

    def _committed(self, error: Any, parts: list[TopicPartition]) -> None:
        """Of commits that nobody waits for: those that librdkafka makes by itself, too."""
        for part in parts:
            self._commit_ended(error or part.error, part)

    def _commit_ended(self, error: Any, part: TopicPartition) -> None:
        if part.offset >= 0:  # otherwise nothing was to be committed
            name = None if error is None else _name(error)
            self.committed(part.partition, part.offset, name)


def cooperates(settings: Mapping[str, str]) -> bool:
    """Whether a group with these settings takes and gives single partitions (KIP-429, KIP-848):
    librdkafka refuses `assign` there."""
    by_protocol = settings.get("group.protocol") == "consumer"
    return by_protocol or "cooperative" in settings.get("partition.assignment.strategy", "")


if __name__ == "__main__":
    serve(
        {
            "client": "confluent-kafka",
            "version": confluent_kafka.version()[0],
            "can": ["idempotence", "transactions", "groups"],
        },
        {
            "producer": ConfluentProducer,
            "raw_producer": RawTransactions,
            "consumer": ConfluentConsumer,
        },
    )
