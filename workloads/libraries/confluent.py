"""librdkafka, by confluent-kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    AcknowledgeType,
    IllegalStateException,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer
from confluent_kafka import ShareConsumer as RdShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from neaptide.results.record_texts import record_text, text_of
from neaptide.workloads.definite import DEFINITE
from neaptide.workloads.kafka_clients import COMMON, MESSAGE_TIMEOUT_MS, RETRIES_MAX, ignore
from neaptide.workloads.libraries.deadline import STUCK, within
from neaptide.workloads.libraries.model import (
    NOT_SENT,
    Acquired,
    ConsumerAsked,
    Done,
    Library,
    LibraryError,
    Listener,
    Place,
    Polled,
    ProducerAsked,
    Record,
    ShareConsumerAsked,
)

_QUEUE_FULL_S: Final = 0.01
_COMMIT_S: Final = 5.0
_STUCK_S: Final = 20.0
_ASSIGNORS: Final = {"cooperative": "cooperative-sticky"}
_ACKNOWLEDGEMENTS: Final = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


class ConfluentProducer:
    """Implements neaptide.workloads.libraries.model.Producer."""

    def __init__(self, asked: ProducerAsked) -> None:
        tries_on = asked.idempotence or asked.transactional_id is not None
        settings: dict[str, Any] = {
            **COMMON,
            "bootstrap.servers": asked.bootstrap,
            "acks": asked.acks,
            "enable.idempotence": tries_on,
            "message.send.max.retries": RETRIES_MAX if tries_on else 0,
            "max.in.flight.requests.per.connection": 5 if tries_on else 1,
            "linger.ms": 5,
            "request.timeout.ms": 5_000,
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "queue.buffering.max.messages": 100_000,
            "error_cb": ignore,
            **asked.settings,
        }
        if asked.transactional_id is not None:
            settings["transactional.id"] = asked.transactional_id
            settings["transaction.timeout.ms"] = asked.transaction_timeout_ms
            settings["message.timeout.ms"] = min(MESSAGE_TIMEOUT_MS, asked.transaction_timeout_ms)
        self._acks = asked.acks
        self._is_stuck = False
        self._producer = RdProducer(settings)

    def send(
        self, topic: str, partition: int, key: str | None, value: str | None, done: Done
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                done(None, str(error.name()))
            else:
                # With acks=0 librdkafka makes an offset up: no broker sent it one.
                offset = message.offset()
                done(None if self._acks == "0" or offset < 0 else offset, None)

        while True:
            try:
                self._producer.produce(
                    topic, value=value, key=key, partition=partition, on_delivery=delivered
                )
                return
            except BufferError:
                self._producer.poll(_QUEUE_FULL_S)
            except KafkaException:  # what it refuses it will not send
                done(None, NOT_SENT)
                return

    def poll(self) -> None:
        with suppress(KafkaException):  # an error for good is that of each send, too
            self._producer.poll(0)

    def drain(self, timeout_s: float) -> int:
        with suppress(KafkaException):
            self._producer.flush(timeout_s)
        return len(self._producer)

    def close(self) -> None:
        """To let go of one that has failed for good may take long, and nobody waits for it."""
        with suppress(KafkaException):
            self._producer.purge()
        self.poll()
        threading.Thread(target=_let_go, args=([self._producer],), daemon=True).start()
        del self._producer

    def init_transactions(self, timeout_s: float) -> None:
        with _translated():
            self._producer.init_transactions(timeout_s)

    def begin(self) -> None:
        with _translated():
            self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[Place, int], consumer: Any) -> None:
        """librdkafka may never come back from this, whatever time it is given: then this producer
        is given up, and its transaction with it."""

        def send() -> None:
            with _translated():
                self._producer.send_offsets_to_transaction(
                    _positions(offsets), consumer.metadata(), _COMMIT_S
                )

        try:
            within(_STUCK_S, send)
        except LibraryError as error:
            self._is_stuck = error.name == STUCK
            raise

    def commit(self, timeout_s: float) -> None:
        with _translated():
            self._producer.commit_transaction(timeout_s)

    def abort(self, timeout_s: float) -> None:
        if self._is_stuck:
            raise LibraryError(STUCK)
        with _translated():
            self._producer.abort_transaction(timeout_s)


class ConfluentConsumer:
    """Implements neaptide.workloads.libraries.model.Consumer."""

    def __init__(self, asked: ConsumerAsked) -> None:
        self.group = asked.group
        settings: dict[str, Any] = {
            **COMMON,
            "bootstrap.servers": asked.bootstrap,
            "group.id": asked.group,
            "enable.auto.commit": asked.auto_commit_ms is not None,
            "enable.auto.offset.store": asked.auto_commit_ms is not None,
            "auto.offset.reset": asked.reset,
            "isolation.level": asked.isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "max.poll.interval.ms": asked.session_ms,
            "error_cb": ignore,
            **asked.settings,
        }
        if asked.auto_commit_ms is not None:
            settings["auto.commit.interval.ms"] = asked.auto_commit_ms
        if asked.protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["session.timeout.ms"] = asked.session_ms
            settings["heartbeat.interval.ms"] = 500
            settings["partition.assignment.strategy"] = _ASSIGNORS.get(
                asked.assignor, asked.assignor
            )
        self._consumer = RdConsumer(settings)
        self._cooperates = asked.assignor == "cooperative" or asked.protocol == "consumer"

    def metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._consumer.assign(_positions(positions))

    def poll(self, most: int, timeout_s: float) -> Polled:
        polled = Polled([], [])
        for message in self._consumer.consume(most, timeout_s):
            error = message.error()
            if error is None:
                polled.records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                polled.ends.append(_record(message)[:3])
        return polled

    def ends(self, place: Place, timeout_s: float) -> tuple[int, int]:
        with _translated():
            start, end = self._consumer.get_watermark_offsets(
                TopicPartition(*place), timeout=timeout_s
            )
        return int(start), int(end)

    def committed(self, places: Collection[Place], timeout_s: float) -> dict[Place, int | None]:
        with _translated():
            answers = self._consumer.committed(
                [TopicPartition(*place) for place in places], timeout=timeout_s
            )
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
        return {(a.topic, a.partition): a.offset if a.offset >= 0 else None for a in answers}

    def starts_since(
        self, places: Collection[Place], since_ms: int, timeout_s: float
    ) -> dict[Place, int | None]:
        with _translated():
            answers = self._consumer.offsets_for_times(
                [TopicPartition(*place, since_ms) for place in places], timeout=timeout_s
            )
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
        return {(a.topic, a.partition): a.offset if a.offset >= 0 else None for a in answers}

    def close(self) -> None:
        self._consumer.close()

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        def assigned(consumer: Any, partitions: list[Any]) -> None:
            starts = listener.assigned([(p.topic, p.partition) for p in partitions])
            for one in partitions:
                one.offset = starts.get((one.topic, one.partition), OFFSET_INVALID)
            if self._cooperates:
                consumer.incremental_assign(partitions)
            else:
                consumer.assign(partitions)

        def revoked(consumer: Any, partitions: list[Any]) -> None:
            listener.revoked([(p.topic, p.partition) for p in partitions])

        def lost(consumer: Any, partitions: list[Any]) -> None:
            listener.lost([(p.topic, p.partition) for p in partitions])

        self._consumer.subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        with _translated():
            for answer in self._consumer.commit(offsets=_positions(offsets), asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)

    def commit_async(
        self, offsets: Mapping[Place, int], done: Callable[[str | None], None]
    ) -> None:
        """librdkafka has no callback of one commit by this interface: nobody learns its end."""
        with _translated():
            self._consumer.commit(offsets=_positions(offsets), asynchronous=True)
        done("_NOBODY_WAITS")


class ConfluentShareConsumer:
    """Implements neaptide.workloads.libraries.model.ShareConsumer."""

    def __init__(self, asked: ShareConsumerAsked) -> None:
        common = {**COMMON, "bootstrap.servers": asked.bootstrap, **asked.settings}
        common.pop("allow.auto.create.topics", None)  # which a share consumer does not take
        _begin_with_the_earliest(common, asked.group)
        self._consumer = RdShareConsumer(
            {
                **common,
                "group.id": asked.group,
                "share.acknowledgement.mode": "explicit",
                "fetch.wait.max.ms": 100,
                "error_cb": ignore,
            }
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        with _translated():
            self._consumer.subscribe(list(topics))

    def poll(self, timeout_s: float) -> list[Acquired]:
        with _translated():
            polled = self._consumer.poll(timeout_s)
        return [_acquired(one) for one in polled if one.error() is None]

    def acknowledge(
        self, records: Sequence[tuple[Acquired, str]], timeout_s: float
    ) -> Mapping[Place, str | None]:
        with _translated():
            for record, how in records:
                self._consumer.acknowledge_offset(*record[:3], _ACKNOWLEDGEMENTS[how])
            answers = self._consumer.commit_sync(timeout_s)
        return {
            (place.topic, place.partition): None if failed is None else str(failed.args[0].name())
            for place, failed in answers.items()
        }

    def close(self) -> None:
        with suppress(KafkaException):
            self._consumer.close()


def _acquired(message: Any) -> Acquired:
    return Acquired(
        message.topic(), message.partition(), message.offset(), message.delivery_count()
    )


def _begin_with_the_earliest(settings: dict[str, Any], group: str) -> None:
    """A share group begins with the latest records, where its setting says nothing else."""
    earliest = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    named = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    with _translated():
        admin = AdminClient(settings)  # which is to live until it has an answer
        for done in admin.incremental_alter_configs([named], request_timeout=_COMMIT_S).values():
            done.result()


def _let_go(producers: list[Any]) -> None:
    producers.clear()


def _positions(offsets: Mapping[Place, int]) -> list[Any]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        text_of(message.key()),
        record_text(message.value(), message.headers()),
        message.leader_epoch(),
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KafkaException as failed:
        error = failed.args[0]
        raise LibraryError(
            str(error.name()), aborts=error.txn_requires_abort(), again=error.retriable()
        ) from failed
    except IllegalStateException as failed:  # what a share consumer had is another's
        raise LibraryError("_STATE") from failed


CONFLUENT: Final = Library(
    "confluent-kafka",
    ConfluentProducer,
    ConfluentConsumer,
    DEFINITE,
    frozenset({"transactions", "groups", "cooperative", "consumer protocol", "share groups"}),
    share_consumer=ConfluentShareConsumer,
)
