"""Four clients of four makers, each producing and consuming in its own way."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

_TIMEOUT_S = 30.0
Produce = Callable[[str, str, Sequence[bytes], int, str], None]
Consume = Callable[[str, str, int], list[bytes]]


class Client(NamedTuple):
    """`produce(bootstrap, topic, values, acks, compression)`; `consume(bootstrap, topic, count)`
    reads partition 0 from its beginning on."""

    produce: Produce
    consume: Consume


# --- librdkafka ----------------------------------------------------------------------------------


def librdkafka_produce(
    bootstrap: str, topic: str, values: Sequence[bytes], acks: int, compression: str
) -> None:
    failed: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": bootstrap, "acks": acks, "compression.type": compression}
    producer = Producer({**settings, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(_TIMEOUT_S) == 0
    assert not failed


def librdkafka_consume(
    bootstrap: str, topic: str, count: int, *, drop_repeats: bool = False
) -> list[bytes]:
    """`drop_repeats`: for values that differ, of a producer that is not idempotent and may have
    sent some of them twice."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        value = message.value() or b""
        if not (drop_repeats and value in values):
            values.append(value)
    consumer.close()
    return values


# --- kafka-python --------------------------------------------------------------------------------


def _or_none(compression: str) -> str | None:
    return None if compression == "none" else compression


def kafka_python_produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    acks: int,
    compression: str,
    idempotent: bool = False,
) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks=acks,
        compression_type=_or_none(compression),
        enable_idempotence=idempotent,
        linger_ms=5,
    )
    sent = [producer.send(topic, value, partition=0) for value in values]
    for future in sent:
        future.get(_TIMEOUT_S)
    producer.close()


def kafka_python_consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=None)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[bytes] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        for records in consumer.poll(500).values():
            values += [record.value for record in records]
    consumer.close()
    return values


# --- aiokafka ------------------------------------------------------------------------------------


def aiokafka_produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    acks: int,
    compression: str,
    idempotent: bool = False,
) -> None:
    async def play() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all" if acks == -1 else acks,
            compression_type=_or_none(compression),
            enable_idempotence=idempotent,
            linger_ms=5,
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, value, partition=0) for value in values]
            await asyncio.wait_for(asyncio.gather(*sent), _TIMEOUT_S)
        finally:
            await producer.stop()

    asyncio.run(play())


def aiokafka_consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def play() -> list[bytes]:
        partition = AioTopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        await consumer.start()
        values: list[bytes] = []
        try:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            async with asyncio.timeout(_TIMEOUT_S):
                while len(values) < count:
                    values.append((await consumer.getone()).value or b"")
        finally:
            await consumer.stop()
        return values

    return asyncio.run(play())


# --- kcat ----------------------------------------------------------------------------------------


def _kcat(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", *arguments], input=given, capture_output=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def kcat_produce(
    bootstrap: str, topic: str, values: Sequence[bytes], acks: int, compression: str
) -> None:
    options = ("-z", compression, "-X", f"acks={acks}", "-X", "linger.ms=5")
    lines = b"".join(value + b"\n" for value in values)
    _kcat("-P", "-b", bootstrap, "-t", topic, "-p", "0", *options, given=lines)


def kcat_consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    read = ("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count))
    return _kcat(*read, "-q").splitlines()


LIBRARIES = {
    "confluent-kafka": Client(librdkafka_produce, librdkafka_consume),
    "kafka-python": Client(kafka_python_produce, kafka_python_consume),
    "aiokafka": Client(aiokafka_produce, aiokafka_consume),
}
KCAT = Client(kcat_produce, kcat_consume)
CLIENTS = {**LIBRARIES, "kcat": KCAT}
# Their names as parameters of tests.
NAMES = [*LIBRARIES, pytest.param("kcat", marks=pytest.mark.needs("kcat"))]
