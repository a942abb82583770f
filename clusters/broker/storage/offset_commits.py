"""The records of `__consumer_offsets` that hold positions of groups, in Kafka's own format.

Keys of version 0 and 1 are about positions; others are about groups and say nothing here. A record
without a value deletes a position. Source: OffsetCommitKey.json and OffsetCommitValue.json of
Kafka (versions 1 and 3 of the value are written, 0 to 3 read).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Final

from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    OffsetAndMetadata,
    OffsetCommitRecord,
    with_committed,
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
_WITH_EXPIRY, _WITH_EPOCH = 1, 3
_EXPIRES_AFTER_MS: Final = 24 * 3_600_000  # offsets.retention.minutes of before 2.0
_UNCOMPRESSED_BYTES_MAX: Final = 1 << 24  # of one batch: what brokers write here is small


def encode(committed: OffsetCommitRecord, now_ms: int, *, with_epoch: bool) -> KeyAndValue:
    """`with_epoch`: as Kafka 2.1 and later write it."""
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


def decode(key: bytes | None, value: bytes | None) -> OffsetCommitRecord | None:
    """None where the record is not about a position. Raises CorruptBatchError."""
    try:
        if key is None or struct.unpack_from(">h", key)[0] not in _KEYS_OF_POSITIONS:
            return None
        group, at = _read_text(key, 2)
        topic, at = _read_text(key, at)
        [number] = struct.unpack_from(">i", key, at)
        position = None if value is None else _read_value(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"a record of __consumer_offsets: {error}") from error
    return OffsetCommitRecord(group, TopicPartition(topic, number), position)


def _read_value(value: bytes) -> OffsetAndMetadata:
    version, offset = struct.unpack_from(">hq", value)
    if version != _WITH_EPOCH:
        return OffsetAndMetadata(offset, metadata=_read_text(value, 10)[0])
    [leader_epoch] = struct.unpack_from(">i", value, 10)
    return OffsetAndMetadata(offset, leader_epoch, _read_text(value, 14)[0])


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    [size] = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise struct.error(f"a text of {size} bytes, {len(data) - at - 2} are left")
    return data[at + 2 : end].decode(), end


def committed_offsets_of(log: LogSnapshot) -> CommittedOffsets:
    """What a log says of groups, from its start to its end, as far as it can be read."""
    return with_committed({}, _committed_in(log))


def _committed_in(log: LogSnapshot) -> Iterator[OffsetCommitRecord]:
    """A record that nobody understands, or a batch that is damaged, costs itself alone."""
    offset = log.log_start_offset
    try:
        for header, data, at in log.batches():
            yield from _committed_by(log.topic_partition, data, at, header)
            offset = header.next_offset
    except RecordBatchError as error:
        _log.warning("%s cannot be read from %s on: %s", log.topic_partition, offset, error)


def _committed_by(
    log: TopicPartition, data: bytes, at: int, header: BatchHeader
) -> Iterator[OffsetCommitRecord]:
    if header.is_control:
        return
    try:
        validate_checksum(data, at, header)
        for record in records(data, at, header, _UNCOMPRESSED_BYTES_MAX):
            try:
                committed = decode(record.key, record.value)
            except CorruptBatchError as error:
                _log.warning("%s, offset %s is left out: %s", log, record.offset, error)
                continue
            if committed is not None:
                yield committed
    except RecordBatchError as error:
        _log.warning("%s, batch at offset %s is left out: %s", log, header.base_offset, error)
