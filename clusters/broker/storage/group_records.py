"""The records of `__consumer_offsets`, in Kafka's own format: what groups commit, and who they are.

Keys of version 0 and 1 are about positions, those of version 2 about groups of the classic
protocol; others say nothing here. A record without a value deletes what it is about. Source:
OffsetCommitKey.json, OffsetCommitValue.json (versions 1 and 3 are written, 0 to 3 read),
GroupMetadataKey.json and GroupMetadataValue.json (versions 1 to 3 are written, 0 to 3 read).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    OffsetAndMetadata,
    OffsetCommitRecord,
    with_committed,
)
from neaptide.clusters.broker.replication.group.group_metadata import (
    GroupMetadataRecord,
    MemberRecord,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.errors import CorruptBatchError, RecordBatchError
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import (
    BatchHeader,
    records,
    validate_checksum,
)
from neaptide.clusters.broker.storage.record_writer import KeyAndValue

_log = logging.getLogger("broker")
_KEY_VERSION: Final = 1
_KEYS_OF_POSITIONS: Final = (0, 1)
_KEY_OF_A_GROUP: Final = 2
_WITH_REBALANCE_TIMEOUT, _WITH_TIMESTAMP, _WITH_INSTANCES = 1, 2, 3
_WITH_EXPIRY, _WITH_EPOCH = 1, 3
_EXPIRES_AFTER_MS: Final = 24 * 3_600_000  # offsets.retention.minutes of before 2.0
_UNCOMPRESSED_BYTES_MAX: Final = 1 << 24  # of one batch: what brokers write here is small


GroupRecord = OffsetCommitRecord | GroupMetadataRecord


def encode(record: GroupRecord, now_ms: int, generation: Generation) -> KeyAndValue:
    """In the versions in which the Kafka of that generation writes them."""
    if isinstance(record, GroupMetadataRecord):
        return _encode_group(record, now_ms, generation)
    return _encode_position(record, now_ms, with_epoch=generation.fences_leader_epochs)


def _encode_group(record: GroupMetadataRecord, now_ms: int, generation: Generation) -> KeyAndValue:
    key = struct.pack(">h", _KEY_OF_A_GROUP) + _text(record.group)
    if record.is_deleted:
        return key, None
    version = _WITH_REBALANCE_TIMEOUT
    if generation.fences_leader_epochs:
        version = _WITH_TIMESTAMP
    if generation.topic_ids:
        version = _WITH_INSTANCES
    value = struct.pack(">h", version) + _text(record.protocol_type)
    value += struct.pack(">i", record.generation_id)
    value += _nullable(record.protocol) + _nullable(record.leader)
    if version >= _WITH_TIMESTAMP:
        value += struct.pack(">q", now_ms)
    value += struct.pack(">i", len(record.members))
    for one in record.members:
        value += _text(one.member_id)
        if version >= _WITH_INSTANCES:
            value += _nullable(one.group_instance_id)
        value += _text(one.client_id) + _text(one.client_host)
        value += struct.pack(">ii", one.rebalance_timeout_ms, one.session_timeout_ms)
        value += _blob(one.subscription) + _blob(one.assignment)
    return key, value


def _encode_position(
    committed: OffsetCommitRecord, now_ms: int, *, with_epoch: bool
) -> KeyAndValue:
    topic, number = committed.partition
    key = struct.pack(">h", _KEY_VERSION) + _text(committed.group) + _text(topic)
    key += struct.pack(">i", number)
    position = committed.offset_and_metadata
    if position is None:
        return key, None
    metadata = _text(position.metadata)
    if with_epoch:
        head = struct.pack(">hqi", _WITH_EPOCH, position.offset, position.leader_epoch)
        return key, head + metadata + struct.pack(">q", now_ms)
    head = struct.pack(">hq", _WITH_EXPIRY, position.offset)
    return key, head + metadata + struct.pack(">qq", now_ms, now_ms + _EXPIRES_AFTER_MS)


def decode(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """None where the record is about neither. Raises CorruptBatchError."""
    try:
        version = None if key is None else struct.unpack_from(">h", key)[0]
        if key is None or version not in (*_KEYS_OF_POSITIONS, _KEY_OF_A_GROUP):
            return None
        group, at = _read_text(key, 2)
        if version == _KEY_OF_A_GROUP:
            return _read_group(group, value)
        topic, at = _read_text(key, at)
        [number] = struct.unpack_from(">i", key, at)
        position = None if value is None else _read_value(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"a record of __consumer_offsets: {error}") from error
    return OffsetCommitRecord(group, TopicPartition(topic, number), position)


def _read_group(group: str, value: bytes | None) -> GroupMetadataRecord:
    if value is None:
        return GroupMetadataRecord(group, is_deleted=True)
    [version] = struct.unpack_from(">h", value)
    if version > _WITH_INSTANCES:
        raise struct.error(f"version {version} of a group")
    protocol_type, at = _read_text(value, 2)
    [generation_id] = struct.unpack_from(">i", value, at)
    protocol, at = _read_nullable(value, at + 4)
    leader, at = _read_nullable(value, at)
    at += 8 if version >= _WITH_TIMESTAMP else 0
    [count] = struct.unpack_from(">i", value, at)
    at += 4
    members = []
    for _ in range(count):
        member_id, at = _read_text(value, at)
        instance: str | None = None
        if version >= _WITH_INSTANCES:
            instance, at = _read_nullable(value, at)
        client_id, at = _read_text(value, at)
        client_host, at = _read_text(value, at)
        [session_ms] = struct.unpack_from(">i", value, at)
        rebalance_ms, at = session_ms, at + 4
        if version >= _WITH_REBALANCE_TIMEOUT:
            [session_ms] = struct.unpack_from(">i", value, at)
            at += 4
        subscription, at = _read_blob(value, at)
        assignment, at = _read_blob(value, at)
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
        return OffsetAndMetadata(offset, metadata=_read_text(value, 10)[0])
    [leader_epoch] = struct.unpack_from(">i", value, 10)
    return OffsetAndMetadata(offset, leader_epoch, _read_text(value, 14)[0])


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _nullable(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else _text(text)


def _blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _read_nullable(data: bytes, at: int) -> tuple[str | None, int]:
    [size] = struct.unpack_from(">h", data, at)
    return (None, at + 2) if size == -1 else _read_text(data, at)


def _read_blob(data: bytes, at: int) -> tuple[bytes, int]:
    [size] = struct.unpack_from(">i", data, at)
    end = at + 4 + size
    if size < 0 or end > len(data):
        raise struct.error(f"{size} bytes, {len(data) - at - 4} are left")
    return data[at + 4 : end], end


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    [size] = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise struct.error(f"a text of {size} bytes, {len(data) - at - 2} are left")
    return data[at + 2 : end].decode(), end


def groups_of(log: LogSnapshot) -> tuple[CommittedOffsets, tuple[GroupMetadataRecord, ...]]:
    """What a log says of groups, from its start to its end, as far as it can be read."""
    committed: list[OffsetCommitRecord] = []
    groups: dict[str, GroupMetadataRecord] = {}
    for record in _records_in(log):
        if isinstance(record, OffsetCommitRecord):
            committed.append(record)
        elif record.is_deleted:
            groups.pop(record.group, None)
        else:
            groups[record.group] = record
    return with_committed({}, committed), tuple(groups.values())


def _records_in(log: LogSnapshot) -> Iterator[GroupRecord]:
    """A record that nobody understands, or a batch that is damaged, costs itself alone."""
    offset = log.log_start_offset
    try:
        for header, data, at in log.batches():
            yield from _records_of(log.topic_partition, data, at, header)
            offset = header.next_offset
    except RecordBatchError as error:
        _log.warning("%s cannot be read from %s on: %s", log.topic_partition, offset, error)


def _records_of(
    log: TopicPartition, data: bytes, at: int, header: BatchHeader
) -> Iterator[GroupRecord]:
    if header.is_control:
        return
    try:
        validate_checksum(data, at, header)
        for record in records(data, at, header, _UNCOMPRESSED_BYTES_MAX):
            try:
                found = decode(record.key, record.value)
            except CorruptBatchError as error:
                _log.warning("%s, offset %s is left out: %s", log, record.offset, error)
                continue
            if found is not None:
                yield found
    except RecordBatchError as error:
        _log.warning("%s, batch at offset %s is left out: %s", log, header.base_offset, error)
