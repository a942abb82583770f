"""A log of any record format (v0, v1, v2) as entries, for tools that read replicas of any broker.

The broker's own log knows v2 only. An entry is a record batch (v2) or a message with its wrapper
(v0, v1: one message, or a compressed set of them in the value of another).
Source: "Message sets" in Kafka's documentation up to 0.11; KIP-31 (relative inner offsets in v1),
KIP-32 (timestamps in v1).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.broker.storage import record_batch
from neaptide.clusters.broker.storage.compression import NONE, decompress
from neaptide.clusters.broker.storage.errors import CorruptBatchError, TruncatedBatchError
from neaptide.clusters.broker.storage.record_batch import NO_TIMESTAMP, BatchHeader, Record

_MAGIC_POSITION: Final = 16  # the same in all formats
_ENTRY: Final = struct.Struct(">qi")
_MESSAGE: Final = struct.Struct(">Ibb")  # checksum, magic, attributes
_CHECKSUMMED_FROM: Final = 16
_COMPRESSION_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08


@dataclass(frozen=True, slots=True)
class LogEntry:
    """`base_offset` is None for compressed v0 and v1: only its records show it."""

    size: int
    base_offset: int | None
    last_offset: int
    leader_epoch: int | None  # None: the format has none
    is_control: bool
    header: BatchHeader | None  # None: format v0 or v1


def parse_entry(buffer: bytes, position: int) -> LogEntry:
    """One entry, with its checksum verified."""
    if len(buffer) - position <= _MAGIC_POSITION:
        raise TruncatedBatchError(f"{len(buffer) - position} bytes are too few for a record batch")
    magic = buffer[position + _MAGIC_POSITION]
    if magic == record_batch.MAGIC:
        header = record_batch.parse_header(buffer, position)
        record_batch.validate_checksum(buffer, position, header)
        return LogEntry(
            size=header.size,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
            is_control=header.is_control,
            header=header,
        )
    if magic in (0, 1):
        return _parse_message(buffer, position)
    raise CorruptBatchError(f"magic is {magic}, expected 0, 1 or 2")


def entry_records(buffer: bytes, position: int, entry: LogEntry) -> Iterator[Record]:
    if entry.header is not None:
        return record_batch.records(buffer, position, entry.header)
    return _messages(buffer, position)


def _parse_message(buffer: bytes, position: int) -> LogEntry:
    offset, length = _ENTRY.unpack_from(buffer, position)
    size = length + _ENTRY.size
    if len(buffer) - position < size:
        raise TruncatedBatchError(f"{len(buffer) - position} of {size} bytes of a message")
    checksum, magic, attributes = _MESSAGE.unpack_from(buffer, position + _ENTRY.size)
    if size < 26 + 8 * magic or offset < 0:  # empty key and value
        raise CorruptBatchError(f"length {length} is too small for a message")
    if zlib.crc32(buffer[position + _CHECKSUMMED_FROM : position + size]) != checksum:
        raise CorruptBatchError(f"checksum mismatch in the message at offset {offset}")
    return LogEntry(
        size=size,
        base_offset=offset if attributes & _COMPRESSION_MASK == NONE else None,
        last_offset=offset,
        leader_epoch=None,
        is_control=False,
        header=None,
    )


def _messages(buffer: bytes, position: int) -> Iterator[Record]:
    outer, compression, append_time = _message(buffer, position)
    if compression == NONE:
        yield outer
        return
    inner_bytes = decompress(compression, memoryview(outer.value or b""))
    inner = []
    at = 0
    while at < len(inner_bytes):
        (_, length) = _ENTRY.unpack_from(inner_bytes, at)
        inner.append(_message(inner_bytes, at)[0])
        at += length + _ENTRY.size
    if not inner:
        raise CorruptBatchError(f"the compressed message at offset {outer.offset} is empty")
    # v1 counts inner offsets from 0 and gives the last one's absolute offset to the wrapper.
    is_v1 = buffer[position + _MAGIC_POSITION] == 1
    shift = outer.offset - inner[-1].offset if is_v1 else 0
    for record in inner:
        timestamp = outer.timestamp_ms if append_time else record.timestamp_ms
        yield record._replace(offset=record.offset + shift, timestamp_ms=timestamp)


def _message(buffer: bytes, position: int) -> tuple[Record, int, bool]:
    """(record, compression, whether the wrapper's timestamp holds for all)."""
    try:
        (offset, _) = _ENTRY.unpack_from(buffer, position)
        _, magic, attributes = _MESSAGE.unpack_from(buffer, position + _ENTRY.size)
        at = position + _ENTRY.size + _MESSAGE.size
        timestamp = NO_TIMESTAMP
        if magic == 1:
            (timestamp,) = struct.unpack_from(">q", buffer, at)
            at += 8
        key, at = _nullable_bytes(buffer, at)
        value, at = _nullable_bytes(buffer, at)
    except struct.error as error:
        raise CorruptBatchError(f"a message ends early: {error}") from error
    append_time = magic == 1 and bool(attributes & _LOG_APPEND_TIME)
    return Record(offset, timestamp, key, value), attributes & _COMPRESSION_MASK, append_time


def _nullable_bytes(buffer: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", buffer, at)
    at += 4
    if length < 0:
        return None, at
    if at + length > len(buffer):
        raise CorruptBatchError(f"a field of {length} bytes, {len(buffer) - at} are left")
    return buffer[at : at + length], at + length
