"""Record batches of format v2: headers, checksum, offsets in place, and their records.

Not a codec for producers: batches are taken as clients made them and stay as they are. Only the
base offset and the partition leader epoch are ever written, which the checksum leaves out for that
reason; a time, what compaction leaves and another compression are covered by it: then it is made
anew. Records are
decoded to look into a log (a replica's log after a run, an offset for a timestamp), and walked over
before they get there.
kio's own record reader is not used because it cuts timestamps to seconds.
Source: KIP-98, "Record Batch" in Kafka's documentation of its message format; what is asked of a
producer's batch is what LogValidator and ProduceRequest of Kafka ask.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c
from kio.serial.errors import SerialError
from kio.serial.readers import read_signed_varint, read_signed_varlong

from neaptide.clusters.broker.storage.compression import (
    NONE,
    UNCOMPRESSED_BYTES_MAX,
    compress,
    decompress,
    is_known,
)
from neaptide.clusters.broker.storage.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    TruncatedBatchError,
    UnsupportedCompressionError,
)
from neaptide.clusters.broker.storage.record_walk import walk

Bytes = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_SIZE: Final = 61
NO_TIMESTAMP: Final = -1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qi4xb")  # base offset, length, magic: alike in all formats
_SIZE_OVERHEAD: Final = 12  # base offset and length are not counted by the length
_CHECKSUM_POSITION: Final = 17
_CHECKSUMMED_FROM: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35
_COMPRESSION_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_SMALLEST_RECORD: Final = 7  # bytes: its length, attributes, two deltas, and three times nothing
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)


class BatchHeader(NamedTuple):
    """The 61 bytes at the start of a batch, field by field, in their order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + _SIZE_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def offset_count(self) -> int:
        """Offsets that the batch takes; compaction may have left fewer records."""
        return self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def uses_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def parse_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Read one header and see that the whole batch is there; the checksum is not looked at."""
    available = len(buffer) - position
    if available < _PREFIX.size:
        raise TruncatedBatchError(f"{available} bytes are too few for a record batch")
    _, length, magic = _PREFIX.unpack_from(buffer, position)
    if magic != MAGIC:
        raise CorruptBatchError(f"magic is {magic}, expected {MAGIC}")
    size = length + _SIZE_OVERHEAD
    if size < HEADER_SIZE:
        raise CorruptBatchError(f"length {length} is too small for a record batch")
    if available < size:
        raise TruncatedBatchError(f"{available} of {size} bytes of a record batch are there")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatchError("a negative offset or count in the header of a record batch")
    return header


def read_header(buffer: Bytes, position: int) -> BatchHeader:
    """A header whose batch was found sound before; its body need not be in `buffer`."""
    if len(buffer) - position < HEADER_SIZE:
        raise TruncatedBatchError("the bytes end inside of a batch's header")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC or header.length + _SIZE_OVERHEAD < HEADER_SIZE:
        raise CorruptBatchError(f"no record batch where one was expected (magic {header.magic})")
    return header


def validate_checksum(buffer: Bytes, position: int, header: BatchHeader) -> None:
    covered = memoryview(buffer)[position + _CHECKSUMMED_FROM : position + header.size]
    if crc32c(covered) != header.checksum:
        raise CorruptBatchError(f"checksum mismatch in the batch at offset {header.base_offset}")


def parse_batches(buffer: Bytes, max_batch_size: int | None = None) -> list[BatchHeader]:
    """The headers of all batches in `buffer`, which must hold whole, sound batches only."""
    headers = []
    position = 0
    while position < len(buffer):
        header = parse_header(buffer, position)
        if max_batch_size is not None and header.size > max_batch_size:
            raise BatchTooLargeError(
                f"a record batch of {header.size} bytes, more than {max_batch_size}"
            )
        validate_checksum(buffer, position, header)
        headers.append(header)
        position += header.size
    return headers


def whole_batches(buffer: bytes) -> bytes:
    """Without a last batch that is cut short, which Kafka takes for the end of the records."""
    position = 0
    try:
        while position < len(buffer):
            position += parse_header(buffer, position).size
    except TruncatedBatchError:
        return buffer[:position]
    except CorruptBatchError:
        pass  # whoever looks closer says what is wrong
    return buffer


def validate_produced(header: BatchHeader) -> None:
    """What a leader asks of a client's batch beyond soundness: its count and its offsets agree."""
    if header.base_offset != 0:
        raise InvalidRecordError(f"a produced batch begins at offset {header.base_offset}")
    if header.record_count == 0 or header.offset_count != header.record_count:
        raise InvalidRecordError(
            f"a batch of {header.record_count} records takes {header.offset_count} offsets"
        )
    if header.record_count * _SMALLEST_RECORD > header.size and header.compression == NONE:
        raise InvalidRecordError(f"{header.size} bytes cannot be {header.record_count} records")
    if header.uses_log_append_time:
        raise InvalidTimestampError("a producer may not set the time of the append")
    if not is_known(header.compression):
        raise UnsupportedCompressionError(f"compression type {header.compression} is not known")
    if header.is_control:
        raise InvalidRecordError("a producer may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecordError("a batch with a producer id has no sequence number")


def walk_records(
    buffer: bytes, position: int, header: BatchHeader, limit: int = UNCOMPRESSED_BYTES_MAX
) -> tuple[int, int]:
    """See that a batch's records are what its header says; their least and largest timestamp.

    They are as many as it counts, with offsets that follow each other, each as long as it claims,
    and nothing lies behind the last one. Raises InvalidRecordError, InvalidTimestampError, what
    `decompress` raises, and BatchTooLargeError beyond `limit` bytes.
    """
    data, at, end = buffer, position + HEADER_SIZE, position + header.size
    if header.compression != NONE:
        data = decompress(header.compression, memoryview(buffer)[at:end], limit)
        at, end = 0, len(data)
    if header.record_count * _SMALLEST_RECORD > end - at:
        raise InvalidRecordError(f"{end - at} bytes cannot be {header.record_count} records")
    try:
        at, earliest, latest = walk(data, at, end, header.record_count)
    except (IndexError, ValueError) as error:
        raise InvalidRecordError(f"its records are not what they claim to be: {error}") from error
    if at != end:
        raise InvalidRecordError(f"{end - at} bytes lie behind the last record")
    base = header.base_timestamp
    if base + earliest < _INT64_MIN or base + latest > _INT64_MAX:
        raise InvalidTimestampError("a record has a time that no number of 64 bits can hold")
    return base + earliest, base + latest


def validate_keys(buffer: bytes, header: BatchHeader, limit: int = UNCOMPRESSED_BYTES_MAX) -> None:
    """See that every record has a key, as a compacted log needs it."""
    if any(record.key is None for record in records(buffer, 0, header, limit)):
        raise InvalidRecordError("a compacted topic takes no record without a key")


def with_max_timestamp(batch: bytes, header: BatchHeader, max_timestamp: int) -> bytes:
    """One batch with the largest timestamp of its records in its header, as Kafka puts it right."""
    if header.max_timestamp == max_timestamp:
        return batch
    buffer = bytearray(batch)
    struct.pack_into(">q", buffer, _MAX_TIMESTAMP_POSITION, max_timestamp)
    _renew_checksum(buffer, 0, header)
    return bytes(buffer)


def with_append_time(batch: bytes, header: BatchHeader, append_time_ms: int) -> bytes:
    """One batch whose records all have the time of their append."""
    buffer = bytearray(batch)
    attributes = header.attributes | _LOG_APPEND_TIME
    struct.pack_into(">h", buffer, _CHECKSUMMED_FROM, attributes)
    struct.pack_into(">q", buffer, _MAX_TIMESTAMP_POSITION, append_time_ms)
    _renew_checksum(buffer, 0, header)
    return bytes(buffer)


def with_compression(batch: bytes, header: BatchHeader, compression: int) -> bytes:
    """One batch whose records are compressed so (`compression.type`), whatever they were before.

    Raises RecordBatchError where they cannot be decompressed.
    """
    if header.compression == compression:
        return batch
    body = compress(
        compression, decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size])
    )
    changed = header._replace(
        length=HEADER_SIZE - _SIZE_OVERHEAD + len(body),
        attributes=header.attributes & ~_COMPRESSION_MASK | compression,
    )
    buffer = bytearray(_HEADER.pack(*changed) + body)
    _renew_checksum(buffer, 0, changed)
    return bytes(buffer)


def with_records(batch: bytes, header: BatchHeader, kept: Sequence[tuple[Record, bytes]]) -> bytes:
    """One batch with some of its records, or none, uncompressed: it takes the same offsets.

    A batch without records keeps its largest time. Records that had the time of their append keep
    it with the batch.
    """
    body = b"".join(raw for _, raw in kept)
    max_timestamp = header.max_timestamp
    if kept and not header.uses_log_append_time:
        max_timestamp = max(record.timestamp_ms for record, _ in kept)
    changed = header._replace(
        length=HEADER_SIZE - _SIZE_OVERHEAD + len(body),
        attributes=header.attributes & ~_COMPRESSION_MASK,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    buffer = bytearray(_HEADER.pack(*changed) + body)
    _renew_checksum(buffer, 0, changed)
    return bytes(buffer)


def assign(
    buffer: bytearray | memoryview, base_offset: int, leader_epoch: int
) -> list[BatchHeader]:
    """Give the batches consecutive offsets and an epoch, in place; their new headers."""
    headers = []
    position = 0
    while position < len(buffer):
        header = parse_header(buffer, position)
        struct.pack_into(">q", buffer, position, base_offset)
        struct.pack_into(">i", buffer, position + _SIZE_OVERHEAD, leader_epoch)
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
        headers.append(header)
        base_offset += header.offset_count
        position += header.size
    return headers


def _renew_checksum(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    covered = memoryview(buffer)[position + _CHECKSUMMED_FROM : position + header.size]
    struct.pack_into(">I", buffer, position + _CHECKSUM_POSITION, crc32c(covered))


def records(
    buffer: Bytes, position: int, header: BatchHeader, limit: int = UNCOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of one batch, decompressed where they must be, up to `limit` bytes."""
    return (record for record, _ in raw_records(buffer, position, header, limit))


def raw_records(
    buffer: Bytes, position: int, header: BatchHeader, limit: int = UNCOMPRESSED_BYTES_MAX
) -> Iterator[tuple[Record, bytes]]:
    """Likewise, each with its bytes in the batch."""
    body = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    data = decompress(header.compression, body, limit)
    at = 0
    try:
        for _ in range(header.record_count):
            begin = at
            record, at = _read_record(data, at, header)
            if not _INT64_MIN <= record.timestamp_ms <= _INT64_MAX or record.offset > _INT64_MAX:
                raise ValueError("a record has a time or an offset that no number can hold")
            yield record, data[begin:at]
    except (SerialError, ValueError, IndexError, OverflowError) as error:
        raise CorruptBatchError(
            f"the records of the batch at offset {header.base_offset} end early: {error}"
        ) from error


def first_at_or_after(
    buffer: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of a batch's first record from `start_offset` on that is not older."""
    for record in records(buffer, 0, header):
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return record.timestamp_ms, record.offset
    return None


def _read_record(data: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    length, size = read_signed_varint(data, at)
    at += size
    end = at + length
    if length < 0 or end > len(data):
        raise ValueError(f"a record of {length} bytes, {len(data) - at} are left")
    at += 1  # attributes: none are defined
    timestamp_delta, size = read_signed_varlong(data, at)
    at += size
    offset_delta, size = read_signed_varint(data, at)
    at += size
    key, at = _read_bytes(data, at, end)
    value, at = _read_bytes(data, at, end)
    header_count, size = read_signed_varint(data, at)
    at += size
    record_headers = []
    for _ in range(header_count):
        name, at = _read_bytes(data, at, end)
        content, at = _read_bytes(data, at, end)
        record_headers.append((name or b"", content))
    timestamp = header.base_timestamp + timestamp_delta
    if header.uses_log_append_time:
        timestamp = header.max_timestamp
    offset = header.base_offset + offset_delta
    return Record(offset, timestamp, key, value, tuple(record_headers)), end


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, size = read_signed_varint(data, at)
    at += size
    if length < 0:
        return None, at
    if at + length > end:
        raise ValueError(f"a field of {length} bytes, {end - at} are left")
    return data[at : at + length], at + length
