"""G6: subscriptions and assignments, as consumers of the classic protocol write them.

What kio writes by Kafka's own schemas is read, and it reads what we write.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema import consumer_protocol_assignment, consumer_protocol_subscription
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from neaptide.clusters.broker.replication.group.consumer_protocol import (
    MalformedProtocolError,
    Subscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.wire.reading import read_entity

VERSIONS = range(4)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9)
PARTITIONS = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)))


def _written(version: int, entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return struct.pack(">h", version) + buffer.getvalue()


def _by_topic(partitions: frozenset[TopicPartition]) -> dict[str, tuple[i32, ...]]:
    topics = sorted({one.topic for one in partitions})
    return {
        topic: tuple(i32(one.partition) for one in sorted(partitions) if one.topic == topic)
        for topic in topics
    }


def _classes(schema: Any, version: int) -> Any:
    return vars(import_module(f"{schema.__name__}.v{version}.data"))


@pytest.mark.parametrize("version", VERSIONS)
@given(NAMES, PARTITIONS, st.binary() | st.none(), NAMES | st.none(), st.integers(-1, 9))
def test_g6_what_a_member_subscribes_to_is_read(
    version: int,
    topic: str,
    owned: frozenset[TopicPartition],
    user_data: bytes | None,
    rack: str | None,
    generation: int,
) -> None:
    classes = _classes(consumer_protocol_subscription, version)
    more: dict[str, Any] = {}
    if version >= 1:
        of_topic = classes["TopicPartition"]
        more["owned_partitions"] = tuple(
            of_topic(topic=TopicName(name), partitions=numbers)
            for name, numbers in _by_topic(owned).items()
        )
    if version >= 2:
        more["generation_id"] = i32(generation)
    if version >= 3:
        more["rack_id"] = rack
    entity = classes["ConsumerProtocolSubscription"](
        topics=(TopicName(topic), TopicName("u")), user_data=user_data, **more
    )
    assert read_subscription(_written(version, entity)) == Subscription(
        version,
        (topic, "u"),
        owned if version >= 1 else frozenset(),
        rack if version >= 3 else None,
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(PARTITIONS)
def test_g6_what_a_member_is_assigned_is_what_its_library_reads(
    version: int, partitions: frozenset[TopicPartition]
) -> None:
    data = assignment_bytes(version, partitions)
    assert read_assignment(data) == partitions
    cls = _classes(consumer_protocol_assignment, version)["ConsumerProtocolAssignment"]
    assert data[:2] == struct.pack(">h", version)
    entity, _, end = read_entity(cls, data, 2, None)
    assert end == len(data)
    found = {
        TopicPartition(str(one.topic), int(number))
        for one in entity.assigned_partitions
        for number in one.partitions
    }
    assert found == partitions
    assert entity.user_data is None


def test_g6_a_newer_version_is_read_as_the_newest_that_is_known() -> None:
    data = b"\0\4" + struct.pack(">ih1sii", 1, 1, b"t", -1, 0) + struct.pack(">ih", -1, -1) + b"new"
    assert read_subscription(data) == Subscription(4, ("t",))
    assert assignment_bytes(4, ())[:2] == b"\0\3"


def test_g6_who_is_assigned_nothing_yet_has_nothing() -> None:
    assert read_assignment(b"") == frozenset()


@given(st.binary())
def test_g6_whatever_bytes_come_is_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with suppress(MalformedProtocolError):
            read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        struct.pack(">hi", 0, -1),  # no list
        struct.pack(">hi", 0, 2**31 - 1),  # more topics than bytes
        struct.pack(">hih", 0, 1, -1),  # a topic without a name
        struct.pack(">hih", 0, 1, 5) + b"t",  # a name that is cut short
        struct.pack(">hih1s", 0, 1, 1, b"\xff"),
        struct.pack(">hi", 0, 0),  # and nothing after its topics
    ],
)
def test_g6_a_subscription_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedProtocolError):
        read_subscription(data)
