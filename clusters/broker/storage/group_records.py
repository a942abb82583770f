"""The records of `__consumer_offsets`, in Kafka's own format: what groups commit, and who they are.

Keys of version 0 and 1 are about positions, those of version 2 about groups of the classic
protocol, 3 to 8 about those of the consumer protocol (consumer_group_records); others say nothing
here. A record without a value deletes what it is about. Source:
OffsetCommitKey.json, OffsetCommitValue.json (versions 1 and 3 are written, 0 to 3 read),
GroupMetadataKey.json and GroupMetadataValue.json (versions 1 to 3 are written, 0 to 3 read).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    Key,
    OffsetAndMetadata,
    OffsetCommitRecord,
    PendingOffsets,
    without,
)
from neaptide.clusters.broker.replication.group.consumer_group import (
    ConsumerGroup,
    ConsumerGroupRecord,
    applied,
)
from neaptide.clusters.broker.replication.group.group_metadata import (
    GroupMetadataRecord,
    MemberRecord,
)
from neaptide.clusters.broker.replication.model import EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.storage import consumer_group_records
from neaptide.clusters.broker.storage.internal_topics import (
    blob,
    internal_records,
    nullable,
    read_blob,
    read_nullable,
    read_text,
    text,
)
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import BatchHeader
from neaptide.clusters.broker.storage.record_writer import KeyAndValue

_KEY_VERSION: Final = 1
_KEYS_OF_POSITIONS: Final = (0, 1)
_KEY_OF_A_GROUP: Final = 2
_WITH_REBALANCE_TIMEOUT, _WITH_TIMESTAMP, _WITH_INSTANCES = 1, 2, 3
_WITH_EXPIRY, _WITH_EPOCH = 1, 3
_EXPIRES_AFTER_MS: Final = 24 * 3_600_000  # offsets.retention.minutes of before 2.0


GroupRecord = OffsetCommitRecord | GroupMetadataRecord | ConsumerGroupRecord


def encode(record: GroupRecord, now_ms: int, generation: Generation) -> KeyAndValue:
    """In the versions in which the Kafka of that generation writes them."""
    if isinstance(record, GroupMetadataRecord):
        return _encode_group(record, now_ms, generation)
    if not isinstance(record, OffsetCommitRecord):
        return consumer_group_records.encode(record)
    return _encode_position(record, now_ms, with_epoch=generation.fences_leader_epochs)


def _encode_group(record: GroupMetadataRecord, now_ms: int, generation: Generation) -> KeyAndValue:
    key = struct.pack(">h", _KEY_OF_A_GROUP) + text(record.group)
    if record.is_deleted:
        return key, None
    version = _WITH_REBALANCE_TIMEOUT
    if generation.fences_leader_epochs:
        version = _WITH_TIMESTAMP
    if generation.topic_ids:
        version = _WITH_INSTANCES
    value = struct.pack(">h", version) + text(record.protocol_type)
    value += struct.pack(">i", record.generation_id)
    value += nullable(record.protocol) + nullable(record.leader)
    if version >= _WITH_TIMESTAMP:
        value += struct.pack(">q", now_ms)
    value += struct.pack(">i", len(record.members))
    for one in record.members:
        value += text(one.member_id)
        if version >= _WITH_INSTANCES:
            value += nullable(one.group_instance_id)
        value += text(one.client_id) + text(one.client_host)
        value += struct.pack(">ii", one.rebalance_timeout_ms, one.session_timeout_ms)
        value += blob(one.subscription) + blob(one.assignment)
    return key, value


def _encode_position(
    committed: OffsetCommitRecord, now_ms: int, *, with_epoch: bool
) -> KeyAndValue:
    topic, number = committed.partition
    key = struct.pack(">h", _KEY_VERSION) + text(committed.group) + text(topic)
    key += struct.pack(">i", number)
    position = committed.offset_and_metadata
    if position is None:
        return key, None
    metadata = text(position.metadata)
    if with_epoch:
        head = struct.pack(">hqi", _WITH_EPOCH, position.offset, position.leader_epoch)
        return key, head + metadata + struct.pack(">q", now_ms)
    head = struct.pack(">hq", _WITH_EXPIRY, position.offset)
    return key, head + metadata + struct.pack(">qq", now_ms, now_ms + _EXPIRES_AFTER_MS)


def decode(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """None where the record is about none. Raises struct.error, UnicodeDecodeError, ValueError."""
    version = None if key is None else struct.unpack_from(">h", key)[0]
    if key is not None and version in consumer_group_records.KEYS:
        return consumer_group_records.decode(version, key, value)
    if key is None or version not in (*_KEYS_OF_POSITIONS, _KEY_OF_A_GROUP):
        return None
    group, at = read_text(key, 2)
    if version == _KEY_OF_A_GROUP:
        return _read_group(group, value)
    topic, at = read_text(key, at)
    [number] = struct.unpack_from(">i", key, at)
    position = None if value is None else _read_value(value)
    return OffsetCommitRecord(group, TopicPartition(topic, number), position)


def _read_group(group: str, value: bytes | None) -> GroupMetadataRecord:
    if value is None:
        return GroupMetadataRecord(group, is_deleted=True)
    [version] = struct.unpack_from(">h", value)
    if version > _WITH_INSTANCES:
        raise struct.error(f"version {version} of a group")
    protocol_type, at = read_text(value, 2)
    [generation_id] = struct.unpack_from(">i", value, at)
    protocol, at = read_nullable(value, at + 4)
    leader, at = read_nullable(value, at)
    at += 8 if version >= _WITH_TIMESTAMP else 0
    [count] = struct.unpack_from(">i", value, at)
    at += 4
    members = []
    for _ in range(count):
        member_id, at = read_text(value, at)
        instance: str | None = None
        if version >= _WITH_INSTANCES:
            instance, at = read_nullable(value, at)
        client_id, at = read_text(value, at)
        client_host, at = read_text(value, at)
        [session_ms] = struct.unpack_from(">i", value, at)
        rebalance_ms, at = session_ms, at + 4
        if version >= _WITH_REBALANCE_TIMEOUT:
            [session_ms] = struct.unpack_from(">i", value, at)
            at += 4
        subscription, at = read_blob(value, at)
        assignment, at = read_blob(value, at)
        clients = client_id, client_host
        times = rebalance_ms, session_ms
        members.append(
            MemberRecord(member_id, instance, *clients, *times, subscription, assignment)
        )
    return GroupMetadataRecord(
        group, protocol_type, generation_id, protocol, leader, tuple(members)
    )


def _read_value(value: bytes) -> OffsetAndMetadata:
    version, offset = struct.unpack_from(">hq", value)
    if version != _WITH_EPOCH:
        return OffsetAndMetadata(offset, metadata=read_text(value, 10)[0])
    [leader_epoch] = struct.unpack_from(">i", value, 10)
    return OffsetAndMetadata(offset, leader_epoch, read_text(value, 14)[0])


def groups_of(
    log: LogSnapshot,
) -> tuple[
    CommittedOffsets, tuple[GroupMetadataRecord, ...], tuple[ConsumerGroup, ...], PendingOffsets
]:
    """What a log says of groups, from its start to its end, as far as it can be read.

    What a transaction commits counts from its marker on. The last of what is returned is what is
    still open, by producer id.
    """
    committed: dict[Key, OffsetAndMetadata] = {}
    pending: PendingOffsets = {}
    groups: dict[str, GroupMetadataRecord] = {}
    consumer_groups: dict[str, ConsumerGroup] = {}
    found: Iterator[tuple[BatchHeader, GroupRecord | EndTransactionMarker]]
    found = internal_records(log, decode)
    for header, record in found:
        if isinstance(record, EndTransactionMarker):
            for one in pending.get(record.producer_id, ()) if record.is_commit else ():
                _commit(committed, one)
            pending = {one: of for one, of in pending.items() if one != record.producer_id}
        elif isinstance(record, GroupMetadataRecord):
            if record.is_deleted:
                groups.pop(record.group, None)
            else:
                groups[record.group] = record
        elif not isinstance(record, OffsetCommitRecord):
            after = applied(consumer_groups.pop(record.group, None), record)
            if after is not None:
                consumer_groups[record.group] = after
        else:
            pending = without(pending, (record,))
            if header.is_transactional:
                of_producer = (*pending.get(header.producer_id, ()), record)
                pending = {**pending, header.producer_id: of_producer}
            else:
                _commit(committed, record)
    return committed, tuple(groups.values()), tuple(consumer_groups.values()), pending


def _commit(committed: dict[Key, OffsetAndMetadata], record: OffsetCommitRecord) -> None:
    """In place: a log may have millions of them."""
    key = record.group, record.partition
    if record.offset_and_metadata is None:
        committed.pop(key, None)
    else:
        committed[key] = record.offset_and_metadata
