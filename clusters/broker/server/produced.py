"""What a client produced to a partition, validated before it gets near a log. Pure functions.

As Kafka validates it (ProduceRequest, LogValidator): whole batches of format v2 with their
checksum, one a partition, a compression that is known and that this version of Produce may bring,
counts, offsets and times that agree with the records. What is wrong is an error of its partition.
"""

from __future__ import annotations

from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.events import ProducedBatch
from neaptide.clusters.broker.server.sequences import sequence_of
from neaptide.clusters.broker.storage.compression import UNCOMPRESSED_BYTES_MAX, ZSTD
from neaptide.clusters.broker.storage.errors import (
    BatchTooLargeError,
    InvalidRecordError,
    RecordBatchError,
    UnsupportedCompressionError,
)
from neaptide.clusters.broker.storage.record_batch import (
    BatchHeader,
    parse_batches,
    validate_produced,
    walk_records,
    with_append_time,
    with_max_timestamp,
)

_FIRST_VERSION_WITH_ZSTD: Final = 7  # KIP-110
# What is walked over at once, in about 10 ms; for more, others would have to wait.
RECORDS_AT_ONCE: Final = 10_000
UNCOMPRESSED_BYTES_AT_ONCE: Final = 1 << 20

_ERRORS: Final = {
    "CORRUPT_MESSAGE": Error.CORRUPT_MESSAGE,
    "MESSAGE_TOO_LARGE": Error.RECORD_TOO_LARGE,
    "INVALID_RECORD": Error.INVALID_RECORD,
    "INVALID_TIMESTAMP": Error.INVALID_TIMESTAMP,
    "UNSUPPORTED_COMPRESSION_TYPE": Error.UNSUPPORTED_COMPRESSION_TYPE,
}


class TooMuchAtOnceError(Exception):
    """A batch that takes long to validate, so that others should not wait for it."""


def produced_batch(
    records: bytes,
    version: int,
    append_time_ms: int | None,
    *,
    names_invalid_records: bool,
    at_once: bool,
) -> ProducedBatch:
    """The one batch of a partition, its bytes as identity; with an error where it may not be.

    `append_time_ms`: what its records get for their times (message.timestamp.type=LogAppendTime);
    None: they keep their own. `at_once`: raises TooMuchAtOnceError where it would take long.
    """
    try:
        header = _only_header(records, version)
        latest = _walk(records, header, at_once=at_once)
    except RecordBatchError as error:
        told = _ERRORS[error.kafka_error]
        if told is Error.INVALID_RECORD and not names_invalid_records:
            told = Error.CORRUPT_MESSAGE
        return ProducedBatch(0, len(records), records, told)
    if append_time_ms is None:
        records = with_max_timestamp(records, header, latest)
    else:
        records = with_append_time(records, header, append_time_ms)
    return ProducedBatch(
        header.offset_count,
        header.size,
        records,
        producer=sequence_of(header),
    )


def _only_header(records: bytes, version: int) -> BatchHeader:
    headers = parse_batches(records)
    if len(headers) != 1:
        raise InvalidRecordError(f"{len(headers)} batches for one partition")
    [header] = headers
    validate_produced(header)
    if header.compression == ZSTD and version < _FIRST_VERSION_WITH_ZSTD:
        raise UnsupportedCompressionError(f"zstd in Produce v{version}")
    return header


def _walk(records: bytes, header: BatchHeader, *, at_once: bool) -> int:
    if not at_once:
        return walk_records(records, 0, header, UNCOMPRESSED_BYTES_MAX)
    if header.record_count > RECORDS_AT_ONCE:
        raise TooMuchAtOnceError
    try:
        return walk_records(records, 0, header, UNCOMPRESSED_BYTES_AT_ONCE)
    except BatchTooLargeError as error:
        raise TooMuchAtOnceError from error
