"""Reads a Fetch response in whatever parts it comes, and passes over its records. Pure.

All versions, v0 to v18, as Kafka's FetchResponse.json has them. A reader never holds more than one
field: a response of many megabytes is read while it passes, and none of its records is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final
from uuid import UUID

from nemesis.gate import messages as m
from nemesis.gate.decode import is_flexible, known
from nemesis.gate.frames import HEAD_BYTES, MalformedStreamError

_PARTITION: Final = struct.Struct(">ihq")  # partition_index, error_code, high_watermark
_SESSION: Final = struct.Struct(">hi")  # error_code, session_id
# What is asked for next: so many bytes, or, below zero, that so many are passed over.
_Reading = Generator[int, bytes, m.FetchResponse]
_Part = Generator[int, bytes, int]


class FetchAnswer:
    """A response that comes in parts, from its length field to its last byte."""

    __slots__ = ("_kept", "_reading", "_response", "_wanted")

    def __init__(self, version: int) -> None:
        self._reading = _response(version)
        self._wanted = next(self._reading)
        self._kept = b""  # of a field that is not whole
        self._response: m.FetchResponse | None = None

    def feed(self, part: bytes) -> None:
        """Read on. MalformedStreamError: this is no response of this version."""
        offset, end = 0, len(part)
        while offset < end:
            if self._response is not None:
                raise MalformedStreamError("fetch response: bytes are left over")
            if self._wanted < 0:
                passed = min(-self._wanted, end - offset)
                offset += passed
                self._wanted += passed
                if self._wanted == 0:
                    self._go_on(b"")
                continue
            missing = self._wanted - len(self._kept)
            self._kept += part[offset : offset + missing]
            offset += missing
            if len(self._kept) == self._wanted:
                field, self._kept = self._kept, b""
                self._go_on(field)

    def end(self) -> m.FetchResponse:
        """The response. MalformedStreamError: it is not whole."""
        if self._response is None:
            raise MalformedStreamError("fetch response: the message ends too early")
        return self._response

    def _go_on(self, field: bytes) -> None:
        try:
            self._wanted = self._reading.send(field)
            while self._wanted == 0:
                self._wanted = self._reading.send(b"")
        except StopIteration as stop:
            self._response = stop.value


def fetch_response(frame: bytes, version: int) -> m.FetchResponse:
    """A response that is there as a whole, with its length field."""
    answer = FetchAnswer(version)
    answer.feed(frame)
    return answer.end()


def _response(version: int) -> _Reading:
    yield -HEAD_BYTES
    yield from _pass_tags(version)
    if version >= 1:
        yield -4  # throttle_time_ms
    error, session_id = _SESSION.unpack((yield _SESSION.size)) if version >= 7 else (0, 0)
    partitions: dict[m.TopicPartition, m.FetchedPartition] = {}
    for _ in range((yield from _count(version, 4))):
        if version >= 13:
            topic = str(UUID(bytes=(yield 16)))
        else:
            topic = _text((yield (yield from _count(version, 2))))
        for _ in range((yield from _count(version, 4))):
            index, partition_error, high_watermark = _PARTITION.unpack((yield _PARTITION.size))
            log_start_offset = None
            if version >= 4:
                yield -8  # last_stable_offset
            if version >= 5:
                log_start_offset = known(int.from_bytes((yield 8), "big", signed=True))
            if version >= 4:
                yield from _pass_aborted_transactions(version)
            if version >= 11:
                yield -4  # preferred_read_replica
            records_bytes = yield from _count(version, 4)
            yield -records_bytes
            yield from _pass_tags(version)
            partitions[topic, index] = m.FetchedPartition(
                partition_error, known(high_watermark), log_start_offset, records_bytes
            )
        yield from _pass_tags(version)
    yield from _pass_tags(version)
    return m.FetchResponse(error, session_id, partitions)


def _pass_aborted_transactions(version: int) -> Generator[int, bytes, None]:
    for _ in range((yield from _count(version, 4))):
        yield -16  # producer_id, first_offset
        yield from _pass_tags(version)


def _count(version: int, size: int) -> _Part:
    """How many elements or bytes follow, from a field of `size` bytes or a varint; null is none."""
    if is_flexible(m.FETCH, version):
        count = (yield from _varint()) - 1
    else:
        count = int.from_bytes((yield size), "big", signed=True)
    return max(count, 0)


def _pass_tags(version: int) -> Generator[int, bytes, None]:
    if not is_flexible(m.FETCH, version):
        return
    for _ in range((yield from _varint())):
        yield from _varint()  # the tag
        yield -(yield from _varint())


def _varint() -> _Part:
    """An unsigned varint of up to five bytes."""
    value = 0
    for shift in range(0, 35, 7):
        [byte] = yield 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise MalformedStreamError("fetch response: a varint of more than five bytes")


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedStreamError(f"fetch response: a topic is not UTF-8: {error}") from None
