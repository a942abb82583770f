"""Kafka's compression types, for reading: gzip, snappy, lz4 and zstd by their numbers.

Nothing is ever compressed here: batches pass through the broker as clients made them. Snappy comes
in two shapes: the Java clients' blocks with a header of their own (snappy-java), and one bare
block (librdkafka).
Source: "Compression" in Kafka's protocol guide; snappy-java's stream format.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import cramjam

from neaptide.clusters.broker.storage.errors import CorruptBatchError, UnsupportedCompressionError

NONE: Final = 0
_SNAPPY_JAVA_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER_SIZE: Final = 16


def _none(data: memoryview) -> bytes:
    return bytes(data)


def _gzip(data: memoryview) -> bytes:
    return gzip.decompress(data)


def _snappy(data: memoryview) -> bytes:
    if bytes(data[: len(_SNAPPY_JAVA_MAGIC)]) != _SNAPPY_JAVA_MAGIC:
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks = []
    at = _SNAPPY_JAVA_HEADER_SIZE
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[at : at + length])))
        at += length
    return b"".join(blocks)


def _lz4(data: memoryview) -> bytes:
    return bytes(cramjam.lz4.decompress(data))


def _zstd(data: memoryview) -> bytes:
    return bytes(cramjam.zstd.decompress(data))


_CODECS: Final[Mapping[int, Callable[[memoryview], bytes]]] = {
    NONE: _none,
    1: _gzip,
    2: _snappy,
    3: _lz4,
    4: _zstd,
}


def decompress(compression: int, data: memoryview) -> bytes:
    codec = _CODECS.get(compression)
    if codec is None:
        raise UnsupportedCompressionError(f"compression type {compression} is not known")
    try:
        return codec(data)
    except (cramjam.DecompressionError, EOFError, OSError, struct.error, zlib.error) as error:
        raise CorruptBatchError(f"records cannot be decompressed: {error}") from error
