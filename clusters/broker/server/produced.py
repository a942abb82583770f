"""What a client produced to a partition, validated before it gets near a log. Pure functions.

As Kafka validates it (ProduceRequest, LogValidator): whole batches of format v2 with their
checksum, one a partition, a compression that is known and that this version of Produce may bring,
counts, offsets and times that agree with the records. What is wrong is an error of its partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.events import ProducedBatch
from neaptide.clusters.broker.server.sequences import sequence_of
from neaptide.clusters.broker.storage.compression import UNCOMPRESSED_BYTES_MAX, ZSTD
from neaptide.clusters.broker.storage.errors import (
    BatchTooLargeError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordBatchError,
    UnsupportedCompressionError,
)
from neaptide.clusters.broker.storage.record_batch import (
    BatchHeader,
    parse_batches,
    validate_keys,
    validate_produced,
    walk_records,
    whole_batches,
    with_append_time,
    with_compression,
    with_max_timestamp,
)

_FIRST_VERSION_WITH_ZSTD: Final = 7  # KIP-110
# What is walked over at once, in about 10 ms; for more, others would have to wait.
RECORDS_AT_ONCE: Final = 10_000
UNCOMPRESSED_BYTES_AT_ONCE: Final = 1 << 20
COMPRESSED_BYTES_AT_ONCE: Final = 1 << 17  # where they are compressed otherwise

_ERRORS: Final = {
    "CORRUPT_MESSAGE": Error.CORRUPT_MESSAGE,
    "MESSAGE_TOO_LARGE": Error.RECORD_TOO_LARGE,
    "INVALID_RECORD": Error.INVALID_RECORD,
    "INVALID_TIMESTAMP": Error.INVALID_TIMESTAMP,
    "UNSUPPORTED_COMPRESSION_TYPE": Error.UNSUPPORTED_COMPRESSION_TYPE,
}


_NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a topic accepts, and when it is asked. Times in milliseconds.

    `is_append_time`: records get the time of their append (message.timestamp.type); otherwise they
    keep their own, which may be so far before or after the clock. `needs_keys`: it is compacted.
    `compression`: that of all its batches; None: each keeps its producer's.
    """

    now_ms: int
    is_append_time: bool = False
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 2**63 - 1
    needs_keys: bool = False
    compression: int | None = None


class TooMuchAtOnceError(Exception):
    """A batch that takes long to validate, so that others should not wait for it."""


def produced_batch(
    records: bytes,
    version: int,
    accepted: Accepted,
    *,
    names_invalid_records: bool,
    at_once: bool,
) -> ProducedBatch:
    """The one batch of a partition, its bytes as identity; with an error where it may not be.

    `at_once`: raises TooMuchAtOnceError where it would take long.
    """
    try:
        records = whole_batches(records)
        header = _only_header(records, version)
        latest = _walk(records, header, accepted, at_once=at_once)
    except RecordBatchError as error:
        found = _ERRORS[error.kafka_error]
        if found is Error.INVALID_RECORD and not names_invalid_records:
            found = Error.CORRUPT_MESSAGE
        return ProducedBatch(0, len(records), records, found)
    if accepted.is_append_time:
        records = with_append_time(records, header, accepted.now_ms)
    else:
        records = with_max_timestamp(records, header, latest)
    if accepted.compression is not None:
        records = with_compression(records, parse_batches(records)[0], accepted.compression)
    return ProducedBatch(
        header.offset_count,
        len(records),
        records,
        producer=sequence_of(header),
    )


def _only_header(records: bytes, version: int) -> BatchHeader:
    headers = parse_batches(records)
    if len(headers) != 1:
        raise InvalidRecordError(f"{len(headers)} batches for one partition")
    [header] = headers
    validate_produced(header)
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a batch of a transaction has no producer id")
    if header.compression == ZSTD and version < _FIRST_VERSION_WITH_ZSTD:
        raise UnsupportedCompressionError(f"zstd in Produce v{version}")
    return header


def _walk(records: bytes, header: BatchHeader, accepted: Accepted, *, at_once: bool) -> int:
    """The largest timestamp of the records."""
    limit = UNCOMPRESSED_BYTES_AT_ONCE if at_once else UNCOMPRESSED_BYTES_MAX
    if at_once and header.record_count > RECORDS_AT_ONCE:
        raise TooMuchAtOnceError
    is_changed = accepted.compression not in (None, header.compression)
    if at_once and is_changed and header.size > COMPRESSED_BYTES_AT_ONCE:
        raise TooMuchAtOnceError
    try:
        earliest, latest = walk_records(records, 0, header, limit)
        if accepted.needs_keys:
            validate_keys(records, header, limit)
    except BatchTooLargeError as error:
        if at_once:
            raise TooMuchAtOnceError from error
        raise
    if not accepted.is_append_time:
        _validate_times(earliest, latest, accepted)
    return latest


def _validate_times(earliest: int, latest: int, accepted: Accepted) -> None:
    """A record without a time is no record of long ago."""
    if earliest != _NO_TIMESTAMP and accepted.now_ms - earliest > accepted.before_max_ms:
        raise InvalidTimestampError("a record is older than message.timestamp.before.max.ms allows")
    if latest - accepted.now_ms > accepted.after_max_ms:
        raise InvalidTimestampError("a record is newer than message.timestamp.after.max.ms allows")
