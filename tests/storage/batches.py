"""Record batches for tests, encoded by kio's record writer and not by the code under test."""

from __future__ import annotations

import datetime
import gzip
import io
import struct
import zlib
from collections.abc import Sequence

import cramjam
from crc32c import crc32c
from kio.records.schema import Record
from kio.records.writers import write_record

from neaptide.clusters.broker.storage.record_batch import BatchHeader, parse_batches

NOW_MS = 1_700_000_000_000


def _snappy_java(data: bytes) -> bytes:
    half = len(data) // 2
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (data[:half], data[half:])]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def _lz4(data: bytes) -> bytes:
    """Kafka wants blocks that do not depend on each other."""
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


COMPRESSIONS = {
    "none": (0, lambda data: data),
    "gzip": (1, gzip.compress),
    "snappy-java": (2, _snappy_java),
    "snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (3, _lz4),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


def batch(
    base_offset: int,
    values: Sequence[bytes | None],
    *,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    compression: str = "none",
    attributes: int = 0,
    key: bytes | None = b"k",
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One batch; the record with index i has the timestamp + i milliseconds.

    `producer`: its id, its epoch and the first sequence.
    """
    number, compress = COMPRESSIONS[compression]
    body = io.BytesIO()
    for index, value in enumerate(values):
        # Half a millisecond more, because kio goes by way of a float and cuts.
        micros = datetime.timedelta(microseconds=(timestamp + index) * 1000 + 500)
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + micros
        record = Record(
            attributes=0,
            timestamp=moment,
            offset=base_offset + index,
            key=key,
            value=value,
            headers=(),
        )
        write_record(body, record, timestamp, base_offset)
    last = len(values) - 1
    covered = struct.pack(
        ">hiqqqhii",
        attributes | number,
        last,
        timestamp,
        timestamp + last,
        *producer,
        len(values),
    ) + compress(body.getvalue())
    head = struct.pack(">qiibI", base_offset, len(covered) + 9, epoch, 2, crc32c(covered))
    return head + covered


def with_headers(*batches: bytes) -> tuple[bytes, list[BatchHeader]]:
    data = b"".join(batches)
    return data, parse_batches(data)


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int,
    key: bytes | None = None,
    timestamp: int = NOW_MS,
    attributes: int = 0,
) -> bytes:
    """One message of format v0 or v1."""

    def nullable(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    content = struct.pack(">bb", magic, attributes)
    if magic == 1:
        content += struct.pack(">q", timestamp)
    content += nullable(key) + nullable(value)
    return struct.pack(">qiI", offset, len(content) + 4, zlib.crc32(content)) + content
