"""Cuts a stream of bytes into Kafka's frames: four bytes of length, then that many bytes.

Knows nothing of what is inside. A length that no broker would send means that the stream is not
Kafka's protocol (or out of step), and nothing after it can be trusted.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
_LENGTH_BYTES: Final = 4


class MalformedStreamError(Exception):
    """The bytes are no frames, or a frame is not the message that it says it is."""


class FrameSplitter:
    """Takes chunks as they come, gives whole frames, each with its length before it."""

    __slots__ = ("_buffer", "_wanted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = _LENGTH_BYTES

    @property
    def partial_bytes(self) -> int:
        """How much of a frame is here that is not yet whole."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk; return the frames that it completed, in order."""
        if not self._buffer and _is_one_frame(chunk):  # the common case needs no copy
            return [chunk]
        self._buffer += chunk
        if len(self._buffer) < self._wanted:
            return []
        return self._split()

    def _split(self) -> list[bytes]:
        frames: list[bytes] = []
        start = 0
        while True:
            left = len(self._buffer) - start
            self._wanted = _LENGTH_BYTES
            if left >= _LENGTH_BYTES:
                self._wanted += _length(self._buffer, start)
            if left < self._wanted:
                break
            frames.append(bytes(memoryview(self._buffer)[start : start + self._wanted]))
            start += self._wanted
        del self._buffer[:start]
        return frames


def _is_one_frame(chunk: bytes) -> bool:
    return len(chunk) > _LENGTH_BYTES and len(chunk) == _LENGTH_BYTES + _length(chunk, 0)


def _length(buffer: bytes | bytearray, start: int) -> int:
    length = int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big", signed=True)
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise MalformedStreamError(f"a frame of {length} bytes")
    return length
