"""librdkafka producers and consumers, set up so that what they report can be believed.

Retries and idempotence are off unless asked for, and one request is in flight, so that errors are
seen and order is kept. One retry librdkafka never gives up: after NOT_LEADER_FOR_PARTITION, which
a leader that steps down also answers to what it has appended; so without idempotence a record can
be there twice. Failures are noticed quickly, so that a run is not spent waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, Producer

from neaptide.clusters.producer import ProducerOptions

COMMON: Final = {
    "broker.address.family": "v4",
    "allow.auto.create.topics": False,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "socket.connection.setup.timeout.ms": 2_000,
    # A broker that is asleep takes requests and answers none. While librdkafka waits for metadata
    # from it, it asks nobody else, so this is well below a message's time; and above the time that
    # a leader may take over acks=all, which is request.timeout.ms.
    "socket.timeout.ms": 6_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}
MESSAGE_TIMEOUT_MS: Final = 10_000
RETRIES_MAX: Final = 2_147_483_647  # until MESSAGE_TIMEOUT_MS is over


def ignore(_: object) -> None:
    """Connection errors are expected here; what counts is what becomes of each operation."""


def settings_of(options: ProducerOptions) -> dict[str, str]:
    """What a run asks of its producers, by Kafka's names; an idempotent one tries on."""
    in_flight = {
        "max.in.flight.requests.per.connection": str(options.max_in_flight),
        "retry.backoff.ms": str(options.retry_backoff_ms),
    }
    if options.idempotence:
        return {
            **in_flight,
            "enable.idempotence": "true",
            "retries": str(RETRIES_MAX),
        }
    return {**in_flight, "retries": str(options.retries)}


def producer(bootstrap: str, acks: str, extra: Mapping[str, str]) -> Producer:
    settings: dict[str, object] = {
        **COMMON,
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "enable.idempotence": False,
        "retries": 0,
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 5,
        "request.timeout.ms": 5_000,
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "message.max.bytes": 10_000_000,  # how large a batch may be, the broker says
        "queue.buffering.max.messages": 100_000,
        "error_cb": ignore,
        **extra,
    }
    return Producer(settings)


def consumer(bootstrap: str, group: str, extra: Mapping[str, str]) -> Consumer:
    """For assigned partitions only: the group id is required by librdkafka, and never used."""
    settings: dict[str, object] = {
        **COMMON,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # behind the last record there may be markers
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
        "error_cb": ignore,
        **extra,
    }
    return Consumer(settings)
