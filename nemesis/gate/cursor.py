"""Reads the primitive types of Kafka's protocol from a buffer, one after the other.

For the message versions that kio does not have. Big endian. The compact forms are those of flexible
versions (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from neaptide.clusters.broker.wire.bounds import ELEMENTS_MAX
from neaptide.nemesis.gate.frames import MalformedStreamError

_T = TypeVar("_T")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UVARINT_BITS = 28


class Cursor:
    """A position in a buffer, which every read moves on."""

    __slots__ = ("_elements_left", "buffer", "offset")

    def __init__(self, buffer: bytes, offset: int = 0) -> None:
        self.buffer = buffer
        self.offset = offset
        self._elements_left = ELEMENTS_MAX

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        return self.nullable_string() or ""

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedStreamError(f"a string is not UTF-8: {error}") from None

    def skipped_bytes(self) -> int:
        """How many bytes a field of bytes has; moves past them."""
        size = max(self.int32(), 0)
        self._take(size)
        return size

    def array(self, read: Callable[[Cursor], _T]) -> tuple[_T, ...]:
        return self._elements(self.int32(), read)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _UVARINT_BITS:
                raise MalformedStreamError("a number of more than 32 bits")

    def compact_string(self) -> str:
        try:
            return self._take(max(self.uvarint() - 1, 0)).decode()
        except UnicodeDecodeError as error:
            raise MalformedStreamError(f"a string is not UTF-8: {error}") from None

    def compact_array(self, read: Callable[[Cursor], _T]) -> tuple[_T, ...]:
        return self._elements(self.uvarint() - 1, read)

    def _elements(self, count: int, read: Callable[[Cursor], _T]) -> tuple[_T, ...]:
        """Null is none of them. An element takes a byte at least."""
        self._elements_left -= max(count, 0)
        if count > len(self.buffer) - self.offset or self._elements_left < 0:
            raise MalformedStreamError(f"an array of {count} elements in {len(self.buffer)} bytes")
        return tuple(read(self) for _ in range(count))

    def skip(self, size: int) -> None:
        self._take(size)

    def skip_tags(self) -> None:
        """Tagged fields: nobody looks at them."""
        for _ in range(self.uvarint()):
            self.uvarint()  # the tag
            self.skip(self.uvarint())

    def _number(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self.buffer, self.offset)
        except struct.error:
            raise MalformedStreamError("the message ends too early") from None
        self.offset += form.size
        return int(value)

    def _take(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self.buffer):
            raise MalformedStreamError("the message ends too early")
        return self.buffer[start : self.offset]
