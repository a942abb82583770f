"""The records of groups of the consumer protocol (KIP-848) in `__consumer_offsets`: keys 3 to 8.

Keys are plain, values flexible: as Kafka's ConsumerGroupMetadataValue.json,
ConsumerGroupPartitionMetadataValue.json, ConsumerGroupMemberMetadataValue.json,
ConsumerGroupTargetAssignmentMetadataValue.json, ConsumerGroupTargetAssignmentMemberValue.json and
ConsumerGroupCurrentMemberAssignmentValue.json, version 0 of each.

No `from __future__ import annotations` here: kio reads the types of the fields.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32

from neaptide.clusters.broker.replication.group.assignors import Partitions, TopicIdPartition
from neaptide.clusters.broker.replication.group.consumer_group import (
    ClassicProtocol,
    ConsumerGroupMember,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    GroupTopicsRecord,
    MemberMetadataRecord,
    MemberState,
    SubscribedTopic,
    TargetEpochRecord,
    TargetRecord,
)
from neaptide.clusters.broker.storage.internal_topics import read_text, text
from neaptide.clusters.broker.storage.record_writer import KeyAndValue
from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity
from neaptide.clusters.broker.wire.topic_ids import text_of, uuid_of

_VERSION: Final = struct.pack(">h", 0)


# Kafka ends the metadata of a member that is not classic with a tagged field that says null, which
# kio neither reads nor writes.
_NO_TAGS: Final = b"\x00"
_TAG_OF_NONE: Final = b"\x01\x00\x01\x00"


class _Flexible:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True


# What kio reads and writes a field as.
_INT8: Final = {"kafka_type": "int8"}
_INT32: Final = {"kafka_type": "int32"}
_STRING: Final = {"kafka_type": "string"}
_UUID: Final = {"kafka_type": "uuid"}
_BYTES: Final = {"kafka_type": "bytes"}


@dataclass(frozen=True, kw_only=True)
class _Epoch(_Flexible):
    epoch: i32 = field(metadata=_INT32)


@dataclass(frozen=True, kw_only=True)
class _Racks(_Flexible):
    partition: i32 = field(metadata=_INT32)
    racks: tuple[str, ...] = field(metadata=_STRING)


@dataclass(frozen=True, kw_only=True)
class _Topic(_Flexible):
    topic_id: UUID | None = field(metadata=_UUID)
    topic_name: str = field(metadata=_STRING)
    num_partitions: i32 = field(metadata=_INT32)
    partition_metadata: tuple[_Racks, ...]


@dataclass(frozen=True, kw_only=True)
class _Topics(_Flexible):
    topics: tuple[_Topic, ...]


@dataclass(frozen=True, kw_only=True)
class _ClassicProtocol(_Flexible):
    name: str = field(metadata=_STRING)
    metadata: bytes = field(metadata=_BYTES)


@dataclass(frozen=True, kw_only=True)
class _Classic(_Flexible):
    """Kafka says in a byte of its own whether there is one."""

    is_there: i8 = field(metadata=_INT8)
    session_timeout_ms: i32 = field(metadata=_INT32)
    supported_protocols: tuple[_ClassicProtocol, ...]


_NOT_CLASSIC: Final = _Classic(is_there=i8(0), session_timeout_ms=i32(0), supported_protocols=())


@dataclass(frozen=True, kw_only=True)
class _Member(_Flexible):
    instance_id: str | None = field(metadata=_STRING)
    rack_id: str | None = field(metadata=_STRING)
    client_id: str = field(metadata=_STRING)
    client_host: str = field(metadata=_STRING)
    subscribed_topic_names: tuple[str, ...] = field(metadata=_STRING)
    subscribed_topic_regex: str | None = field(metadata=_STRING)
    rebalance_timeout_ms: i32 = field(metadata=_INT32)
    server_assignor: str | None = field(metadata=_STRING)
    classic_member_metadata: _Classic = field(metadata={"tag": 0}, default=_NOT_CLASSIC)


@dataclass(frozen=True, kw_only=True)
class _Partitions(_Flexible):
    topic_id: UUID | None = field(metadata=_UUID)
    partitions: tuple[i32, ...] = field(metadata=_INT32)


@dataclass(frozen=True, kw_only=True)
class _Target(_Flexible):
    topic_partitions: tuple[_Partitions, ...]


@dataclass(frozen=True, kw_only=True)
class _Current(_Flexible):
    member_epoch: i32 = field(metadata=_INT32)
    previous_member_epoch: i32 = field(metadata=_INT32)
    state: i8 = field(metadata=_INT8)
    assigned_partitions: tuple[_Partitions, ...]
    partitions_pending_revocation: tuple[_Partitions, ...]


# --- the value of each record, there and back -----------------------------------------------------


def _partitions(given: Partitions) -> tuple[_Partitions, ...]:
    return tuple(
        _Partitions(
            topic_id=uuid_of(topic_id), partitions=tuple(i32(one.partition) for one in each)
        )
        for topic_id, each in groupby(sorted(given), key=lambda one: one.topic_id)
    )


def _read_partitions(read: tuple[_Partitions, ...]) -> Partitions:
    return frozenset(
        TopicIdPartition(text_of(one.topic_id) or "", int(number))
        for one in read
        for number in one.partitions
    )


def _epoch(epoch: int) -> _Epoch:
    return _Epoch(epoch=i32(epoch))


def _topics(topics: tuple[SubscribedTopic, ...]) -> _Topics:
    return _Topics(
        topics=tuple(
            _Topic(
                topic_id=uuid_of(one.topic_id),
                topic_name=one.name,
                num_partitions=i32(one.partitions),
                partition_metadata=(),
            )
            for one in topics
        )
    )


def _read_topics(read: _Topics) -> tuple[SubscribedTopic, ...]:
    return tuple(
        SubscribedTopic(str(one.topic_name), text_of(one.topic_id) or "", int(one.num_partitions))
        for one in read.topics
    )


def _member(member: ConsumerGroupMember) -> _Member:
    return _Member(
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=i32(member.rebalance_timeout_ms),
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic(member.classic) if member.classic else _NOT_CLASSIC,
    )


def _classic(classic: ClassicProtocol) -> _Classic:
    return _Classic(
        is_there=i8(1),
        session_timeout_ms=i32(classic.session_timeout_ms),
        supported_protocols=tuple(
            _ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols
        ),
    )


def _read_member(read: _Member, member_id: str) -> ConsumerGroupMember:
    classic = read.classic_member_metadata
    return ConsumerGroupMember(
        member_id,
        read.instance_id,
        read.rack_id,
        read.client_id,
        read.client_host,
        int(read.rebalance_timeout_ms),
        tuple(map(str, read.subscribed_topic_names)),
        read.subscribed_topic_regex,
        read.server_assignor,
        classic=ClassicProtocol(
            int(classic.session_timeout_ms),
            tuple((one.name, one.metadata) for one in classic.supported_protocols),
        )
        if classic.is_there
        else None,
    )


def _target(target: Partitions) -> _Target:
    return _Target(topic_partitions=_partitions(target))


def _current(member: ConsumerGroupMember) -> _Current:
    return _Current(
        member_epoch=i32(member.member_epoch),
        previous_member_epoch=i32(member.previous_member_epoch),
        state=i8(member.state),
        assigned_partitions=_partitions(member.assigned),
        partitions_pending_revocation=_partitions(member.revoking),
    )


class _Kind(NamedTuple):
    """`read`: the value of the record, of its entity and the id of the member that it is about."""

    record: Any
    entity: type[_Flexible]
    write: Callable[[Any], _Flexible]
    read: Callable[[Any, str], Any]
    of_member: bool = False


_KINDS: Final[Mapping[int, _Kind]] = {
    3: _Kind(GroupEpochRecord, _Epoch, _epoch, lambda read, _: int(read.epoch)),
    4: _Kind(GroupTopicsRecord, _Topics, _topics, lambda read, _: _read_topics(read)),
    5: _Kind(MemberMetadataRecord, _Member, _member, _read_member, of_member=True),
    6: _Kind(TargetEpochRecord, _Epoch, _epoch, lambda read, _: int(read.epoch)),
    7: _Kind(
        TargetRecord,
        _Target,
        _target,
        lambda read, _: _read_partitions(read.topic_partitions),
        of_member=True,
    ),
    8: _Kind(
        CurrentAssignmentRecord,
        _Current,
        _current,
        lambda read, member_id: ConsumerGroupMember(
            member_id,
            member_epoch=int(read.member_epoch),
            previous_member_epoch=int(read.previous_member_epoch),
            state=MemberState(int(read.state)),
            assigned=_read_partitions(read.assigned_partitions),
            revoking=_read_partitions(read.partitions_pending_revocation),
        ),
        of_member=True,
    ),
}
KEYS: Final = frozenset(_KINDS)
_KEYS_OF: Final = {kind.record: key for key, kind in _KINDS.items()}


def encode(record: ConsumerGroupRecord) -> KeyAndValue:
    version = _KEYS_OF[type(record)]
    kind = _KINDS[version]
    key = struct.pack(">h", version) + text(record.group)
    if isinstance(record, MemberMetadataRecord | TargetRecord | CurrentAssignmentRecord):
        key += text(record.member_id)
    if record.value is None:
        return key, None
    buffer = BytesIO()
    buffer.write(_VERSION)
    writer: Any = entity_writer(kind.entity)
    writer(buffer, kind.write(record.value))
    written = buffer.getvalue()
    is_classic = isinstance(record, MemberMetadataRecord) and record.value.classic is not None
    if kind.entity is _Member and not is_classic:
        return key, written.removesuffix(_NO_TAGS) + _TAG_OF_NONE
    return key, written


def decode(version: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """`version`: that of the key. Raises struct.error, UnicodeDecodeError, ValueError."""
    kind = _KINDS[version]
    group, at = read_text(key, 2)
    member_id = read_text(key, at)[0] if kind.of_member else ""
    found = None
    if value is not None:
        if value[:2] != _VERSION:
            raise struct.error(f"version {value[:2].hex()} of a record with key {version}")
        try:
            if kind.entity is _Member and value.endswith(_TAG_OF_NONE):
                value = value.removesuffix(_TAG_OF_NONE) + _NO_TAGS
            entity, _, _ = read_entity(kind.entity, value, len(_VERSION), None)
        except UnreadableError as error:
            raise struct.error(str(error)) from error
        found = kind.read(entity, member_id)
    record: ConsumerGroupRecord = (
        kind.record(group, member_id, found) if kind.of_member else kind.record(group, found)
    )
    return record
