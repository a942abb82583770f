"""What can go wrong with a log on disk, as types.

Two families that never mix: `RecordBatchError` is about bytes that somebody sent or that a disk
gave back; `StorageError` is about a log directory that cannot be used (full, broken, locked,
malformed). A broker answers the first with an error code and takes a directory offline for the
second.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class RecordBatchError(Exception):
    """These bytes are no acceptable record batch; `kafka_error` is what a client is answered."""

    kafka_error: ClassVar[str] = "CORRUPT_MESSAGE"


class CorruptBatchError(RecordBatchError):
    """A length, a magic byte or the checksum is wrong."""


class TruncatedBatchError(RecordBatchError):
    """The bytes end inside of a batch."""

    kafka_error = "INVALID_RECORD"  # to send the same again is of no use


class BatchTooLargeError(RecordBatchError):
    """A batch is larger than `max.message.bytes`."""

    kafka_error = "MESSAGE_TOO_LARGE"


class InvalidRecordError(RecordBatchError):
    """A sound batch that a producer may not send."""

    kafka_error = "INVALID_RECORD"


class InvalidTimestampError(RecordBatchError):
    """A sound batch with a time that a producer may not set, or that no number can hold."""

    kafka_error = "INVALID_TIMESTAMP"


class UnsupportedCompressionError(RecordBatchError):
    """The compression type is unknown."""

    kafka_error = "UNSUPPORTED_COMPRESSION_TYPE"


class OffsetOutOfRangeError(Exception):
    """An offset below the log start offset or above the log end offset was asked for."""


class UnexpectedAppendOffsetError(Exception):
    """An append would begin below the log end offset."""


class StorageError(Exception):
    """A log directory cannot be used. The message is one sentence that names it."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"Log directory {directory} cannot be used: {reason}.")
        self.directory = directory
        self.reason = reason


class LogDirectoryInUseError(StorageError):
    """It is another's: of a broker that runs, of another broker or cluster. No other directory
    makes up for that."""
