"""A transactional producer that speaks the protocol of Kafka 0.11, and does not look after itself.

librdkafka asks for a new epoch when it gives up what is on its way (KIP-360), so that what arrives
late is of an epoch that is over. Clients before it did not: what KIP-890 is about. This one does
what it is asked for, one request after the other, in versions that every Kafka since 0.11 knows.
"""

from __future__ import annotations

import datetime
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from crc32c import crc32c
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from neaptide.clusters.broker.storage.record_writer import record_batch
from neaptide.workloads.kafka_clients import producer
from neaptide.workloads.raw_connection import Connection, RawError, ask_for_coordinator, kind_of

_TRANSACTIONAL: Final = 0x10
_ATTRIBUTES_AT, _CHECKSUM_AT, _PRODUCER_AT = 21, 17, 43
# What is asked again: the coordinator is not there yet, or still at the transaction before.
_AGAIN: Final = ("coordinator_", "not_coordinator", "concurrent_transactions")
_AGAIN_S: Final = 0.1
_TIMEOUT_S: Final = 20.0


class RawProducer:
    """One partition, one transaction at a time."""

    def __init__(
        self, bootstrap: str, topic: str, transactional_id: str, settings: Mapping[str, str]
    ) -> None:
        self._asks = producer(bootstrap, "all", settings)  # who is where
        self._bootstrap = bootstrap
        self._topic = topic
        self._id = TransactionalId(transactional_id)
        self._producer = (-1, -1)
        self._sequence = 0
        self._coordinator: Connection
        self._unanswered: list[Connection] = []

    def start(self) -> None:
        """Finds its coordinator, and has an id and an epoch."""
        found = self._until_answered(self._find)
        self._coordinator = Connection((str(found.host), int(found.port)))
        request = kind_of("init_producer_id", 0, "InitProducerIdRequest")(
            transactional_id=self._id, transaction_timeout=_ms(60_000)
        )
        given = self._until_answered(lambda: self._coordinator.ask(request))
        self._producer = (int(given.producer_id), int(given.producer_epoch))

    def begin(self) -> None:
        """The first record registers the partition."""

    def send(
        self, partition: int, value: str, key: str | None = None, *, waits: bool
    ) -> int | None:
        """The offset; None: nobody has waited for it."""
        self._until_answered(lambda: self._coordinator.ask(self._partition_request(partition)))
        connection = Connection(self._leader(partition))
        request = self._produce_request(partition, value, key)
        self._sequence += 1
        if not waits:
            connection.send(request)
            self._unanswered.append(connection)
            return None
        answer = connection.ask(request)
        connection.close()
        [result] = answer.responses[0].partition_responses
        _check(result)
        return int(result.base_offset)

    def end(self, *, commits: bool) -> None:
        """Gives up what has no answer, and ends the transaction in the same epoch."""
        for connection in self._unanswered:
            connection.close()
        self._unanswered.clear()
        pid, epoch = self._producer
        request = kind_of("end_txn", 0, "EndTxnRequest")(
            transactional_id=self._id,
            producer_id=ProducerId(pid),
            producer_epoch=i16(epoch),
            committed=commits,
        )
        self._until_answered(lambda: self._coordinator.ask(request))

    def _find(self) -> Any:
        host, _, port = self._bootstrap.split(",")[0].rpartition(":")
        return ask_for_coordinator((host, int(port)), str(self._id), "transaction")

    def _leader(self, partition: int) -> tuple[str, int]:
        known = self._asks.list_topics(self._topic, timeout=_TIMEOUT_S)
        broker = known.brokers[known.topics[self._topic].partitions[partition].leader]
        return broker.host, broker.port

    def _partition_request(self, partition: int) -> Any:
        pid, epoch = self._producer
        topic = kind_of("add_partitions_to_txn", 0, "AddPartitionsToTxnTopic")
        return kind_of("add_partitions_to_txn", 0, "AddPartitionsToTxnRequest")(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=ProducerId(pid),
            v3_and_below_producer_epoch=i16(epoch),
            v3_and_below_topics=(topic(name=TopicName(self._topic), partitions=(i32(partition),)),),
        )

    def _produce_request(self, partition: int, value: str, key: str | None) -> Any:
        record = None if key is None else key.encode(), value.encode()
        batch = transactional_batch(record, *self._producer, self._sequence)
        kind = kind_of("produce", 3, "PartitionProduceData")
        data = kind(index=i32(partition), records=batch)
        topic = kind_of("produce", 3, "TopicProduceData")
        return kind_of("produce", 3, "ProduceRequest")(
            transactional_id=self._id,
            acks=i16(-1),
            timeout=_ms(10_000),
            topic_data=(topic(name=TopicName(self._topic), partition_data=(data,)),),
        )

    def _until_answered(self, ask: Callable[[], Any]) -> Any:
        """Asks again while the coordinator is not there. Raises RawError with what it says then."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = ask()
            name = _error(answer)
            if name == "none":
                return answer
            if not name.startswith(_AGAIN) or time.monotonic() > deadline:
                raise RawError(name.upper())
            time.sleep(_AGAIN_S)


def transactional_batch(
    record: tuple[bytes | None, bytes], producer_id: int, epoch: int, sequence: int
) -> bytes:
    """One record (key and value) of a transaction, in format v2."""
    batch = bytearray(record_batch([record], int(time.time() * 1000)))
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, _TRANSACTIONAL)
    struct.pack_into(">qhi", batch, _PRODUCER_AT, producer_id, epoch, sequence)
    struct.pack_into(">I", batch, _CHECKSUM_AT, crc32c(bytes(batch[_ATTRIBUTES_AT:])))
    return bytes(batch)


def _error(answer: Any) -> str:
    """Of an answer, or of the one partition that it is about, by kio's name."""
    found = getattr(answer, "error_code", None)
    if found is None:
        [topic] = answer.results_by_topic_v3_and_below
        [partition] = topic.results_by_partition
        found = partition.partition_error_code
    return str(found.name)


def _check(result: Any) -> None:
    if result.error_code.name != "none":
        raise RawError(str(result.error_code.name).upper())


def _ms(number: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=number))
