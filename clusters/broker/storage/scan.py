"""Walking through a log file, batch by batch: all of its bytes in large reads, or headers alone.

What a batch is, is the caller's `parse`: format v2 for the broker's own recovery, any format for a
replica's log. It raises RecordBatchError at the first bytes that are no sound batch; where to cut
and whether that matters is the caller's to say.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol, TypeVar

from neaptide.clusters.broker.storage.errors import CorruptBatchError
from neaptide.clusters.broker.storage.record_batch import HEADER_SIZE, BatchHeader, read_header

_LENGTH: Final = struct.Struct(">8xi")
_SIZE_OVERHEAD: Final = 12
_CHUNK_BYTES: Final = 1 << 20
_WALK_BYTES: Final = 8192


class Sized(Protocol):
    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=Sized)


def scan(
    descriptor: int, end: int, parse: Callable[[bytes, int], T], position: int = 0
) -> Iterator[tuple[int, T, bytes, int]]:
    """Yield (position in the file, parsed, buffer, position in the buffer) for each batch."""
    buffer = b""
    start = position
    while position < end:
        at = position - start
        if not _holds_batch(buffer, at):
            start, at = position, 0
            buffer = _fill(descriptor, position, end)
        parsed = parse(buffer, at)
        yield position, parsed, buffer, at
        position += parsed.size


def headers_from(
    descriptor: Callable[[], int], path: Path, position: int, end: int
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from a batch boundary on; little more is read."""
    chunk = b""
    start = position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            start, at = position, 0
            chunk = os.pread(descriptor(), _WALK_BYTES, position)
        header = read_header(chunk, at)
        if position + header.size > end:
            raise CorruptBatchError(f"{path} ends inside of a batch")
        yield position, header
        position += header.size


def _holds_batch(buffer: bytes, at: int) -> bool:
    if len(buffer) - at < _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(buffer, at)
    return bool(len(buffer) - at >= length + _SIZE_OVERHEAD)


def _fill(descriptor: int, position: int, end: int) -> bytes:
    """At least one whole batch, where the file has it."""
    left = end - position
    buffer = os.pread(descriptor, min(_CHUNK_BYTES, left), position)
    if _holds_batch(buffer, 0) or len(buffer) < _LENGTH.size:
        return buffer
    (length,) = _LENGTH.unpack_from(buffer, 0)
    return os.pread(descriptor, min(length + _SIZE_OVERHEAD, left), position)
