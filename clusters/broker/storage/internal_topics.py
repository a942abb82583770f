"""What the records of Kafka's internal topics share: how they are walked through, and their texts.

A record that nobody understands, or a batch that is damaged, costs itself alone. Markers, which end
transactions, are in any topic; here they come in their place.
Source: KIP-98 ("Control messages": EndTransactionMarker).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from neaptide.clusters.broker.replication.model import EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.storage.errors import CorruptBatchError, RecordBatchError
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import (
    BatchHeader,
    Bytes,
    records,
    validate_checksum,
)

_log = logging.getLogger("broker")
_UNCOMPRESSED_BYTES_MAX: Final = 1 << 24  # of one batch: what brokers write here is small
_ABORT, _COMMIT = 0, 1  # types of control records
T = TypeVar("T")


def internal_records(
    log: LogSnapshot, decode: Callable[[bytes | None, bytes | None], T | None]
) -> Iterator[tuple[BatchHeader, T | EndTransactionMarker]]:
    """Each record that `decode` understands, and each marker, with the header of its batch.

    `decode` returns None where a record says nothing here; raises struct.error, UnicodeDecodeError.
    """
    offset = log.log_start_offset
    try:
        for header, data, at in log.batches():
            yield from _records_of(log.topic_partition, data, at, header, decode)
            offset = header.next_offset
    except RecordBatchError as error:
        _log.warning("%s cannot be read from %s on: %s", log.topic_partition, offset, error)


def _records_of(
    log: TopicPartition,
    data: bytes,
    at: int,
    header: BatchHeader,
    decode: Callable[[bytes | None, bytes | None], T | None],
) -> Iterator[tuple[BatchHeader, T | EndTransactionMarker]]:
    try:
        validate_checksum(data, at, header)
        if header.is_control:
            marker = marker_of(data, at, header)
            if marker is not None:
                yield header, marker
            return
        for record in records(data, at, header, _UNCOMPRESSED_BYTES_MAX):
            try:
                found = decode(record.key, record.value)
            except (struct.error, UnicodeDecodeError, ValueError) as error:
                _log.warning("%s, offset %s is left out: %s", log, record.offset, error)
                continue
            if found is not None:
                yield header, found
    except RecordBatchError as error:
        _log.warning("%s, batch at offset %s is left out: %s", log, header.base_offset, error)


# --- markers --------------------------------------------------------------------------------------


def marker_of(data: Bytes, at: int, header: BatchHeader) -> EndTransactionMarker | None:
    """What a control batch says of a transaction; None: it is about something else.

    Raises CorruptBatchError.
    """
    for record in records(data, at, header, _UNCOMPRESSED_BYTES_MAX):
        try:
            _, kind = struct.unpack_from(">hh", record.key or b"")
            if kind not in (_ABORT, _COMMIT):
                return None
            _, coordinator_epoch = struct.unpack_from(">hi", record.value or b"")
        except struct.error as error:
            raise CorruptBatchError(f"a control record at {record.offset}: {error}") from error
        return EndTransactionMarker(
            header.producer_id, header.producer_epoch, coordinator_epoch, kind == _COMMIT
        )
    return None


def encode_marker(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    kind = _COMMIT if marker.is_commit else _ABORT
    return struct.pack(">hh", 0, kind), struct.pack(">hi", 0, marker.coordinator_epoch)


# --- texts and bytes, with their length first -----------------------------------------------------
# Reading raises struct.error and UnicodeDecodeError where there is less than the length says.


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def nullable(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else text(value)


def blob(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def read_nullable(data: bytes, at: int) -> tuple[str | None, int]:
    [size] = struct.unpack_from(">h", data, at)
    return (None, at + 2) if size == -1 else read_text(data, at)


def read_blob(data: bytes, at: int) -> tuple[bytes, int]:
    [size] = struct.unpack_from(">i", data, at)
    end = at + 4 + size
    if size < 0 or end > len(data):
        raise struct.error(f"{size} bytes, {len(data) - at - 4} are left")
    return data[at + 4 : end], end


def read_text(data: bytes, at: int) -> tuple[str, int]:
    [size] = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise struct.error(f"a text of {size} bytes, {len(data) - at - 2} are left")
    return data[at + 2 : end].decode(), end
