"""Cuts a stream of bytes into Kafka's frames: four bytes of length, then that many bytes.

Knows nothing of what is inside. A length that no broker would send means that the stream is not
Kafka's protocol (or out of step), and nothing after it can be trusted.
"""

from __future__ import annotations

from typing import Final

_CHUNK_BYTES: Final = 64  # what a chunk takes beside its bytes
FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
LENGTH_BYTES: Final = 4
HEAD_BYTES: Final = LENGTH_BYTES + 4  # with the correlation id that every response begins with


class MalformedStreamError(Exception):
    """The bytes are no frames, or a frame is not the message that it says it is."""


class FrameSplitter:
    """Takes chunks as they come, gives whole frames, each with its length before it."""

    __slots__ = ("_chunks", "_size", "_wanted")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []  # not joined before a frame is whole
        self._size = 0
        self._wanted = LENGTH_BYTES

    @property
    def partial_bytes(self) -> int:
        """How much of a frame is here that is not yet whole."""
        return self._size

    @property
    def kept_bytes(self) -> int:
        """How much memory that takes: whoever sends byte by byte has each of them kept apart."""
        return self._size + _CHUNK_BYTES * len(self._chunks)

    @property
    def missing_bytes(self) -> int:
        """How much of it is still to come, as far as its length is known."""
        return self._wanted - self._size

    @property
    def begun(self) -> bytes:
        """The first bytes of it, as many as came at once."""
        return self._chunks[0] if self._chunks else b""

    def let_go(self) -> bytes:
        """What is here of a frame that is not yet whole; the rest must not be fed."""
        begun = b"".join(self._chunks)
        self._chunks, self._size, self._wanted = [], 0, LENGTH_BYTES
        return begun

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk; return the frames that it completed, in order."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._wanted:
            return []
        whole = chunk if len(self._chunks) == 1 else b"".join(self._chunks)
        return self._split(whole)

    def _split(self, whole: bytes) -> list[bytes]:
        frames: list[bytes] = []
        start = 0
        while True:
            left = len(whole) - start
            self._wanted = LENGTH_BYTES
            if left >= LENGTH_BYTES:
                self._wanted += _length(whole, start)
            if left < self._wanted:
                break
            frames.append(whole[start : start + self._wanted])  # no copy if it is all
            start += self._wanted
        self._size = left
        self._chunks = [whole[start:]] if left else []
        return frames


def _length(buffer: bytes, start: int) -> int:
    length = int.from_bytes(buffer[start : start + LENGTH_BYTES], "big", signed=True)
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise MalformedStreamError(f"a frame of {length} bytes")
    return length
