"""What members of a group have, which read the topic `t`: librdkafka's, by either protocol."""

from __future__ import annotations

from confluent_kafka import Consumer


def owned(consumer: Consumer) -> set[int]:
    """Its partitions."""
    return {one.partition for one in consumer.assignment() if one.topic == "t"}


def polled(*consumers: Consumer) -> list[list[int]]:
    """What each was handed in one poll."""
    return [
        [int(m.value() or b"") for m in consumer.consume(100, 0.1) if m.error() is None]
        for consumer in consumers
    ]
