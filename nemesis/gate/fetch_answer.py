"""Reads a Fetch response in whatever parts it comes, and passes over its records. Pure.

All versions, v0 to v18, as Kafka's FetchResponse.json has them. What is between the records of two
partitions is read at once, when all of it is there, and no more than that is ever kept: a response
of many megabytes is read while it passes, and none of its records is copied.
"""

from __future__ import annotations

import struct
from typing import Final

from neaptide.nemesis.gate import messages as m
from neaptide.nemesis.gate.decode import is_flexible, known, topic_of_id
from neaptide.nemesis.gate.frames import HEAD_BYTES, MalformedStreamError

KEPT_BYTES_MAX: Final = 1024 * 1024
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_SESSION: Final = struct.Struct(">hi")  # error_code, session_id
_PARTITION: Final = struct.Struct(">ihq")  # partition_index, error_code, high_watermark
_PARTITION_5: Final = struct.Struct(">ihq8xq")  # and last_stable_offset, log_start_offset
_NOT_ALL_THERE: Final = (IndexError, struct.error)


class FetchAnswer:
    """A response that comes in parts, from its length field to its last byte."""

    __slots__ = (
        "_kept",
        "_left",
        "_partitions",
        "_records_left",
        "_response",
        "_session",
        "_version",
    )

    def __init__(self, version: int) -> None:
        self._version = version
        self._kept = b""  # what has come since the last records, if not all is there
        self._records_left = 0  # bytes that are still to be passed over
        # topics and partitions of this topic that are still to come, and the topic's name
        self._left: tuple[int, int, str | None] | None = None
        self._session: tuple[int, ...] = (0, 0)
        self._partitions: dict[m.TopicPartition, m.FetchedPartition] = {}
        self._response: m.FetchResponse | None = None

    def feed(self, part: bytes | memoryview) -> None:
        """Read on. MalformedStreamError: this is no response of this version."""
        offset = 0
        while self._response is None:
            passed = min(self._records_left, len(part) - offset)
            offset += passed
            self._records_left -= passed
            if self._records_left:
                return
            if self._kept:
                part, offset, self._kept = self._kept + part[offset:], 0, b""
            fields = _Fields(part, offset, self._version)
            try:
                self._records_left = self._read(fields)
            except _NOT_ALL_THERE:
                self._kept = bytes(part[offset:])
                if len(self._kept) > KEPT_BYTES_MAX:
                    raise MalformedStreamError("fetch response: fields without an end") from None
                return
            offset = fields.offset
        if offset < len(part):
            raise MalformedStreamError("fetch response: bytes are left over")

    def end(self) -> m.FetchResponse:
        """The response. MalformedStreamError: it is not whole."""
        if self._response is None:
            raise MalformedStreamError("fetch response: the message ends too early")
        return self._response

    def _read(self, fields: _Fields) -> int:
        """Read up to the next records; how many bytes they have. Can be tried again."""
        if self._left is None:
            topics, partitions, topic = self._read_head(fields), 0, None
        else:
            topics, partitions, topic = self._left
            fields.pass_tags()  # of the partition whose records they were
        while not partitions:
            if topic is not None:
                fields.pass_tags()
            if not topics:
                fields.pass_tags()
                error, session_id = self._session
                self._response = m.FetchResponse(error, session_id, self._partitions)
                return 0
            topic = fields.topic()
            topics, partitions = topics - 1, fields.count()
        assert topic is not None
        index, answer = _read_partition(fields, self._version)
        self._partitions[topic, index] = answer
        self._left = topics, partitions - 1, topic
        return answer.records_bytes

    def _read_head(self, fields: _Fields) -> int:
        """How many topics follow."""
        fields.offset += HEAD_BYTES
        fields.pass_tags()
        if self._version >= 1:
            fields.offset += 4  # throttle_time_ms
        if self._version >= 7:
            self._session = fields.unpack(_SESSION)
        return fields.count()


def fetch_response(frame: bytes, version: int) -> m.FetchResponse:
    """A response that is there as a whole, with its length field."""
    answer = FetchAnswer(version)
    answer.feed(frame)
    return answer.end()


def _read_partition(fields: _Fields, version: int) -> tuple[int, m.FetchedPartition]:
    """A partition's index, and all of it but the records."""
    log_start_offset = None
    if version >= 5:
        index, error, high_watermark, log_start_offset = fields.unpack(_PARTITION_5)
    else:
        index, error, high_watermark = fields.unpack(_PARTITION)
        if version == 4:
            fields.offset += 8  # last_stable_offset
    if version >= 4:
        for _ in range(fields.count()):  # aborted_transactions
            fields.take(16)  # producer_id, first_offset
            fields.pass_tags()
    if version >= 11:
        fields.offset += 4  # preferred_read_replica
    records_bytes = fields.count()
    log_start_offset = None if log_start_offset is None else known(log_start_offset)
    answer = m.FetchedPartition(error, known(high_watermark), log_start_offset, records_bytes)
    return index, answer


class _Fields:
    """A position in some bytes. Reading past their end is an IndexError or a struct.error."""

    __slots__ = ("_buffer", "_flexible", "_version", "offset")

    def __init__(self, buffer: bytes | memoryview, offset: int, version: int) -> None:
        self._buffer = buffer
        self._version = version
        self._flexible = is_flexible(m.FETCH, version)
        self.offset = offset

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        numbers = form.unpack_from(self._buffer, self.offset)
        self.offset += form.size
        return numbers

    def count(self) -> int:
        """How many elements or bytes follow; null is none."""
        count = self._varint() - 1 if self._flexible else self.unpack(_INT32)[0]
        return max(count, 0)

    def topic(self) -> str:
        if self._version >= 13:
            return topic_of_id(self.take(16))
        size = self.count() if self._flexible else max(self.unpack(_INT16)[0], 0)
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedStreamError(f"fetch response: a topic is not UTF-8: {error}") from None

    def pass_tags(self) -> None:
        """Pass over the tagged fields that a flexible version may have here."""
        for _ in range(self._varint() if self._flexible else 0):
            self._varint()  # the tag
            self.take(self._varint())

    def take(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self._buffer):
            raise IndexError
        return bytes(self._buffer[start : self.offset])

    def _varint(self) -> int:
        """An unsigned varint of up to five bytes."""
        value = self._buffer[self.offset]
        self.offset += 1
        if value < 0x80:  # as nearly all are
            return value
        value &= 0x7F
        for shift in range(7, 35, 7):
            byte = self._buffer[self.offset]
            self.offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedStreamError("fetch response: a varint of more than five bytes")
