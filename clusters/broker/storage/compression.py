"""Kafka's compression types: gzip, snappy, lz4 and zstd by their numbers.

Batches pass through the broker as clients made them, unless `compression.type` says otherwise.
Snappy comes in two shapes: the Java clients' blocks with a header of their own (snappy-java), and
one bare block (librdkafka). Whoever reads says how large the records may be at most: a few
kilobytes of zstd can be gigabytes of zeros.
Source: "Compression" in Kafka's protocol guide; snappy-java's stream format.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import cramjam

from neaptide.clusters.broker.storage.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    UnsupportedCompressionError,
)

NONE: Final = 0
ZSTD: Final = 4
# What a batch's records may come to where nobody says less: socket.request.max.bytes as Kafka has
# it, so as large as the records could have been if their producer had not compressed them.
UNCOMPRESSED_BYTES_MAX: Final = 104_857_600

_SNAPPY_JAVA_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER_SIZE: Final = 16
_SNAPPY_BLOCK: Final = 1 << 15
_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's way to say that there is a gzip header
_FIRST_GUESS: Final = 1 << 16
_RATIO_GUESSED: Final = 8
_NO_ROOM: Final = "failed to write whole buffer"  # so cramjam says it, for lz4 and for zstd

Into = Callable[[memoryview, bytearray], int]


class _NoRoomError(Exception):
    """The records are larger than the room that was made for them."""


def _none(data: memoryview, limit: int) -> bytes:
    return bytes(data)


def _gzip(data: memoryview, limit: int) -> bytes:
    """All members: a producer writes one, gzip allows several."""
    parts: list[bytes] = []
    left = limit
    rest: bytes | memoryview = data
    while rest:
        member = zlib.decompressobj(_GZIP)
        parts.append(member.decompress(rest, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise _NoRoomError
        if not member.eof:
            raise CorruptBatchError("records of gzip end early")
        rest = member.unused_data
    return b"".join(parts)


def _snappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_SNAPPY_JAVA_MAGIC)]) != _SNAPPY_JAVA_MAGIC:
        return _snappy_block(data, limit)
    blocks: list[bytes] = []
    left = limit
    at = _SNAPPY_JAVA_HEADER_SIZE
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise CorruptBatchError(f"a snappy block of {length} bytes")
        blocks.append(_snappy_block(data[at : at + length], left))
        left -= len(blocks[-1])
        at += length
    return b"".join(blocks)


def _snappy_block(data: memoryview, limit: int) -> bytes:
    """A block begins with its size, which is believed only as far as it may be."""
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise _NoRoomError
    return bytes(cramjam.snappy.decompress_raw(data))


def _into(decompress_into: Into) -> Callable[[memoryview, int], bytes]:
    """A codec that writes into room of a given size: guessed first, then as large as it may be."""

    def codec(data: memoryview, limit: int) -> bytes:
        guess = min(limit, max(_FIRST_GUESS, len(data) * _RATIO_GUESSED))
        for size in (guess, limit):
            room = bytearray(size)
            try:
                written = decompress_into(data, room)
            except cramjam.DecompressionError as error:
                if str(error) != _NO_ROOM:
                    raise
                continue
            return bytes(memoryview(room)[:written])
        raise _NoRoomError

    return codec


_CODECS: Final[Mapping[int, Callable[[memoryview, int], bytes]]] = {
    NONE: _none,
    1: _gzip,
    2: _snappy,
    3: _into(cramjam.lz4.decompress_into),
    ZSTD: _into(cramjam.zstd.decompress_into),
}


# As `compression.type` names them.
NUMBERS: Final[Mapping[str, int]] = {
    "uncompressed": NONE,
    "gzip": 1,
    "snappy": 2,
    "lz4": 3,
    "zstd": ZSTD,
}


def _snappy_java(data: bytes) -> bytes:
    """As the Java clients write it: version, lowest version that can read it, then blocks."""
    blocks = [_SNAPPY_JAVA_MAGIC, struct.pack(">ii", 1, 1)]
    for at in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _SNAPPY_BLOCK]))
        blocks += [struct.pack(">i", len(block)), block]
    return b"".join(blocks)


def _lz4(data: bytes) -> bytes:
    """In blocks that do not depend on each other: the Java clients read no others."""
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


_COMPRESSORS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    NONE: bytes,
    1: partial(gzip.compress, mtime=0),  # as the Java clients: no time of this machine is in it
    2: _snappy_java,
    3: _lz4,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def compress(compression: int, data: bytes) -> bytes:
    """The records of a batch."""
    return _COMPRESSORS[compression](data)


def is_known(compression: int) -> bool:
    return compression in _CODECS


def decompress(compression: int, data: memoryview, limit: int = UNCOMPRESSED_BYTES_MAX) -> bytes:
    """The records of a batch. Raises RecordBatchError: BatchTooLargeError beyond `limit` bytes."""
    codec = _CODECS.get(compression)
    if codec is None:
        raise UnsupportedCompressionError(f"compression type {compression} is not known")
    try:
        return codec(data, limit)
    except _NoRoomError:
        raise BatchTooLargeError(f"records come to more than {limit} bytes") from None
    except (cramjam.DecompressionError, EOFError, OSError, struct.error, zlib.error) as error:
        raise CorruptBatchError(f"records cannot be decompressed: {error}") from error
