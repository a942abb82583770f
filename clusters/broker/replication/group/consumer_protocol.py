"""What consumers of the classic protocol say in bytes: what they read, and what each is assigned.

A coordinator reads these only to have members of both protocols in one group (KIP-848). As Kafka's
ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, versions 0 to 3; of a newer
version what 3 has is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.model import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
_NEWEST: Final = 3


class MalformedProtocolError(ValueError):
    """Bytes that are neither a subscription nor an assignment of consumers."""


class Subscription(NamedTuple):
    """`owned`: what the member reads as it joins, from version 1 on."""

    version: int
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """Raises MalformedProtocolError."""
    reader = _Reader(data)
    version = reader.number(">h")
    topics = tuple(reader.text() for _ in range(reader.count()))
    reader.skip_bytes()
    owned = reader.partitions() if version >= 1 else frozenset()
    if version >= 2:
        reader.number(">i")  # the generation in which it had them
    rack_id = reader.optional_text() if version >= _NEWEST else None
    return Subscription(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Nothing, where a member has been assigned nothing yet. Raises MalformedProtocolError, also
    where an assignor has added data of its own, which no other could keep for it."""
    if not data:
        return frozenset()
    reader = _Reader(data)
    reader.number(">h")
    found = reader.partitions()
    if reader.number(">i") > 0:
        raise MalformedProtocolError("an assignor has added data of its own")
    return found


def assignment_bytes(version: int, partitions: Iterable[TopicPartition]) -> bytes:
    """`version`: that of the member's subscription."""
    by_topic = [
        (topic.encode(), [one.partition for one in each])
        for topic, each in groupby(sorted(partitions), key=lambda one: one.topic)
    ]
    parts = [struct.pack(">hi", max(0, min(version, _NEWEST)), len(by_topic))]
    for name, numbers in by_topic:
        parts.append(struct.pack(f">h{len(name)}s", len(name), name))
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(struct.pack(">i", -1))  # no data of the application
    return b"".join(parts)


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def number(self, kind: str) -> int:
        try:
            (found,) = struct.unpack_from(kind, self.data, self.at)
        except struct.error as error:
            raise MalformedProtocolError(str(error)) from None
        self.at += struct.calcsize(kind)
        return int(found)

    def count(self) -> int:
        """Of what follows; each has a byte at least."""
        found = self.number(">i")
        if not 0 <= found <= len(self.data) - self.at:
            raise MalformedProtocolError(f"{found} parts in {len(self.data)} bytes")
        return found

    def text(self) -> str:
        found = self.optional_text()
        if found is None:
            raise MalformedProtocolError("a name is missing")
        return found

    def optional_text(self) -> str | None:
        size = self.number(">h")
        if size < 0:
            return None
        data, self.at = self.data[self.at : self.at + size], self.at + size
        try:
            found = data.decode()
        except UnicodeDecodeError as error:
            raise MalformedProtocolError(str(error)) from None
        if len(data) < size:
            raise MalformedProtocolError(f"{size} bytes, of which {len(data)} are there")
        return found

    def skip_bytes(self) -> None:
        size = self.number(">i")
        self.at += max(0, size)

    def partitions(self) -> frozenset[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.text()
            found += [TopicPartition(topic, self.number(">i")) for _ in range(self.count())]
        return frozenset(found)
