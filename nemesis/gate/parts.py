"""What rules see of any message: its named fields, partition by partition. Pure.

kio's entities are walked as they are: a field that rules know by a name is taken where it stands,
and counts for all that is inside of it. So one walk reads every API that kio has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

from neaptide.nemesis.gate.messages import TopicPartition
from neaptide.nemesis.gate.rules import NO_PARTITION, PartitionFacts

Named = Mapping[str, int | str | None]
Partitioned = tuple[tuple[TopicPartition, Named], ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The named fields of a message: outside of all partitions, and of each that it is about. It
    may be about a partition twice: markers of two transactions go in one request."""

    outside: Named = field(default_factory=dict)
    about: Partitioned = ()


# Kafka's name of a field → the one that rules use.
_FIELDS: Final[Mapping[str, str]] = {
    "transactional_id": "transactional_id",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "group_id": "group",
    "member_id": "member",
    "generation_id": "generation",
    "generation_id_or_member_epoch": "generation",
    "member_epoch": "member_epoch",
    "error_code": "error",
    "committed_offset": "offset",
    "base_offset": "offset",
    "fetch_offset": "fetch_offset",
    "high_watermark": "high_watermark",
    "leader_epoch": "leader_epoch",
    "current_leader_epoch": "leader_epoch",
    "key": "key",
    "acks": "acks",
    "committed": "committed",
    "transaction_result": "committed",
}
_TOPIC_FIELDS: Final = ("topic", "name", "topic_id")
_PARTITION_FIELDS: Final = ("partition_index", "partition", "index")
_RECORDS: Final = "records"
# Of a record batch of format v2: its magic, and the producer's id, epoch and first sequence.
_MAGIC_AT: Final = 16
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


def parts_of(entity: Any) -> Parts:
    """The fields of a message as kio has it."""
    outside: dict[str, int | str | None] = {}
    about = tuple(_walk(entity, "", {}, outside))
    return Parts(outside, about)


def facts_of(
    parts: Parts, asked: Parts | None = None, names: Mapping[str, str] | None = None
) -> tuple[PartitionFacts, ...]:
    """As rules see them. `asked`: of the request that this answers; `names`: of topics by id."""
    asked, names = asked or Parts(), names or {}
    outside, before = {**asked.outside, **parts.outside}, dict(asked.about)
    return tuple(
        PartitionFacts(
            names.get(key[0], key[0]), key[1], {**outside, **before.get(key, {}), **named}
        )
        for key, named in parts.about or ((NO_PARTITION, {}),)
    )


def _walk(
    entity: Any, topic: str, around: Named, outside: dict[str, int | str | None]
) -> Iterator[tuple[TopicPartition, Named]]:
    """`around`: the fields that this stands in. `outside`: where those in no partition are put."""
    own = {entry.name: getattr(entity, entry.name) for entry in fields(entity)}
    topic = next((_text(own[name]) for name in _TOPIC_FIELDS if name in own), topic)
    number = next((own[name] for name in _PARTITION_FIELDS if name in own), None)
    named = {_FIELDS[name]: _plain(value) for name, value in own.items() if name in _FIELDS}
    if isinstance(number, int):
        records = own.get(_RECORDS)
        producer = producer_of(records if records else b"")
        yield (topic, int(number)), {**around, **named, **producer}
        return
    outside.update(named)
    named = {**around, **named}
    for value in own.values():
        for inner in value if isinstance(value, tuple) else ():
            if is_dataclass(inner):
                yield from _walk(inner, topic, named, outside)
            elif topic and isinstance(inner, int):  # a list of bare partition numbers
                yield (topic, int(inner)), named


def producer_of(records: bytes) -> Named:
    """Who a record batch of format v2 says that it is from; nobody says so in older ones."""
    if len(records) < _PRODUCER_AT + _PRODUCER.size or records[_MAGIC_AT] < 2:
        return {}
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return {"producer_id": producer_id, "producer_epoch": epoch, "sequence": sequence}


def _plain(value: Any) -> int | str | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return int(value)
    return None if value is None else str(value)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
