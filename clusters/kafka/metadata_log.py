"""KRaft's metadata records, as far as an observer needs them, and the state that they add up to.

Pure: bytes in, values out. A record is a frame version, its type, its version, and its fields in
Kafka's flexible encoding. Types that are not in the table change nothing that is asked here.
Source: KIP-631 and the record schemas of Kafka 3.9 to 4.1 (KIP-858 added directories, KIP-966
eligible leader replicas).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from kio.serial import readers

NO_LEADER: Final = -1
_NO_LEADER_CHANGE: Final = -2
_FENCED: Final = 1

PartitionKey = tuple[UUID, int]  # topic id, partition


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker that has registered; `fenced`: the controllers do not believe it to be alive."""

    epoch: int
    fenced: bool


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()  # eligible leader replicas, KIP-966
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """What all records so far add up to. `features` are finalized levels."""

    brokers: Mapping[int, Registration] = field(default_factory=dict)
    topics: Mapping[UUID, str] = field(default_factory=dict)
    partitions: Mapping[PartitionKey, PartitionState] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)

    def apply(self, record: bytes) -> Image:
        """The state after one record."""
        fields = _Fields(record)
        fields.varint()  # frame version
        kind, version = fields.varint(), fields.varint()
        apply = _APPLY.get(kind)
        return self if apply is None else apply(self, fields, version)


class _Fields:
    """Reads the fields of a record one after the other."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._at = 0

    def _take(self, read: Callable[[bytes, int], tuple[Any, int]]) -> Any:
        value, size = read(self._record, self._at)
        self._at += size
        return value

    def varint(self) -> int:
        return int(self._take(readers.read_unsigned_varint))

    def int8(self) -> int:
        return int(self._take(readers.read_int8))

    def int16(self) -> int:
        return int(self._take(readers.read_int16))

    def int32(self) -> int:
        return int(self._take(readers.read_int32))

    def int64(self) -> int:
        return int(self._take(readers.read_int64))

    def boolean(self) -> bool:
        return bool(self._take(readers.read_boolean))

    def string(self) -> str:
        return str(self._take(readers.read_compact_string))

    def nullable_string(self) -> str | None:
        text = self._take(readers.read_compact_string_nullable)
        return None if text is None else str(text)

    def uuid(self) -> UUID:
        return self._take(readers.read_uuid) or UUID(int=0)

    def array(self, read: Callable[[], Any]) -> tuple[Any, ...]:
        """Null is empty: no array that is read here needs the difference, but by being there."""
        return tuple(read() for _ in range(self.varint() - 1))

    def tagged(self) -> dict[int, _Fields]:
        """What stands at the end of a record: fields that have numbers instead of places."""
        found = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            found[tag] = _Fields(self._record[self._at : self._at + size])
            self._at += size
        return found


def _int32s(fields: _Fields) -> tuple[int, ...]:
    return fields.array(fields.int32)


def _register_broker(image: Image, fields: _Fields, version: int) -> Image:
    broker = fields.int32()
    if version >= 2:
        fields.boolean()  # is migrating from ZooKeeper
    fields.uuid()  # incarnation
    epoch = fields.int64()
    fields.array(lambda: _endpoint(fields))
    fields.array(lambda: _feature_range(fields))
    fields.nullable_string()  # rack
    return _with_broker(image, broker, Registration(epoch, fields.boolean()))


def _endpoint(fields: _Fields) -> None:
    fields.string()  # name
    fields.string()  # host
    fields.int16()  # port
    fields.int16()  # security protocol
    fields.tagged()


def _feature_range(fields: _Fields) -> None:
    fields.string()
    fields.int16()
    fields.int16()
    fields.tagged()


def _with_broker(image: Image, broker: int, registration: Registration) -> Image:
    return replace(image, brokers={**image.brokers, broker: registration})


def _unregister_broker(image: Image, fields: _Fields, version: int) -> Image:
    broker = fields.int32()
    return replace(image, brokers={b: r for b, r in image.brokers.items() if b != broker})


def _change_broker(image: Image, fields: _Fields, version: int) -> Image:
    broker, epoch = fields.int32(), fields.int64()
    fenced = fields.tagged().get(0)
    change = 0 if fenced is None else fenced.int8()
    if change == 0:
        return image
    return _with_broker(image, broker, Registration(epoch, change == _FENCED))


def _fence_broker(image: Image, fields: _Fields, version: int) -> Image:
    return _with_broker(image, fields.int32(), Registration(fields.int64(), fenced=True))


def _unfence_broker(image: Image, fields: _Fields, version: int) -> Image:
    return _with_broker(image, fields.int32(), Registration(fields.int64(), fenced=False))


def _topic(image: Image, fields: _Fields, version: int) -> Image:
    name = fields.string()
    return replace(image, topics={**image.topics, fields.uuid(): name})


def _remove_topic(image: Image, fields: _Fields, version: int) -> Image:
    doomed = fields.uuid()
    return replace(
        image,
        topics={topic: name for topic, name in image.topics.items() if topic != doomed},
        partitions={key: state for key, state in image.partitions.items() if key[0] != doomed},
    )


def _partition(image: Image, fields: _Fields, version: int) -> Image:
    partition, topic = fields.int32(), fields.uuid()
    replicas = _int32s(fields)
    isr = _int32s(fields)
    _int32s(fields)  # being removed
    _int32s(fields)  # being added
    leader, leader_epoch = fields.int32(), fields.int32()
    fields.int32()  # partition epoch
    if version >= 1:
        fields.array(fields.uuid)  # directories
    elr = fields.tagged().get(1)
    eligible = () if elr is None else _int32s(elr)
    state = PartitionState(leader, leader_epoch, isr, eligible, replicas)
    return _with_partition(image, (topic, partition), state)


def _change_partition(image: Image, fields: _Fields, version: int) -> Image:
    partition, topic = fields.int32(), fields.uuid()
    tagged = fields.tagged()
    state = image.partitions[(topic, partition)]
    leader = tagged[1].int32() if 1 in tagged else _NO_LEADER_CHANGE
    if leader != _NO_LEADER_CHANGE:  # every election is an epoch, also of the same leader
        state = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
    if 0 in tagged:
        state = replace(state, isr=_int32s(tagged[0]))
    if 2 in tagged:
        state = replace(state, replicas=_int32s(tagged[2]))
    if 6 in tagged:
        state = replace(state, elr=_int32s(tagged[6]))
    return _with_partition(image, (topic, partition), state)


def _with_partition(image: Image, key: PartitionKey, state: PartitionState) -> Image:
    return replace(image, partitions={**image.partitions, key: state})


def _feature_level(image: Image, fields: _Fields, version: int) -> Image:
    name = fields.string()
    return replace(image, features={**image.features, name: fields.int16()})


_APPLY: Final[Mapping[int, Callable[[Image, _Fields, int], Image]]] = {
    0: _register_broker,
    1: _unregister_broker,
    2: _topic,
    3: _partition,
    5: _change_partition,
    7: _fence_broker,
    8: _unfence_broker,
    9: _remove_topic,
    12: _feature_level,
    17: _change_broker,
}
