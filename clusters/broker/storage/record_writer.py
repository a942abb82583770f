"""One record batch of format v2 from keys and values: what a broker itself writes into its logs.

Uncompressed, and not yet in any log: the base offset and the leader epoch are
written in by whoever appends it (`record_batch.assign`).
Source: KIP-98, "Record Batch" in Kafka's documentation of its message format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Final

from crc32c import crc32c
from kio.serial.writers import write_signed_varint

from neaptide.clusters.broker.storage.record_batch import CONTROL, MAGIC, TRANSACTIONAL

KeyAndValue = tuple[bytes | None, bytes | None]
_NOBODY: Final = (-1, -1, -1)  # no producer id, no epoch, no sequence
_COVERED: Final = struct.Struct(">hiqqqhii")
_HEAD: Final = struct.Struct(">qiibI")
_NOT_COVERED: Final = 9  # of what the length counts: leader epoch, magic, checksum


def record_batch(
    records: Sequence[KeyAndValue],
    timestamp_ms: int,
    producer: tuple[int, int, int] = _NOBODY,
    *,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """At least one record, all of the same time.

    `producer`: the id, the epoch and the first sequence of whoever it is written for.
    """
    attributes = TRANSACTIONAL * is_transactional | CONTROL * is_control
    body = b"".join(_record(index, *record) for index, record in enumerate(records))
    last = len(records) - 1
    times = timestamp_ms, timestamp_ms
    covered = _COVERED.pack(attributes, last, *times, *producer, len(records)) + body
    return _HEAD.pack(0, len(covered) + _NOT_COVERED, -1, MAGIC, crc32c(covered)) + covered


def _record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    fields = BytesIO()
    fields.write(b"\0")  # attributes: none are defined
    write_signed_varint(fields, 0)  # after the batch's time
    write_signed_varint(fields, offset_delta)
    for content in (key, value):
        write_signed_varint(fields, -1 if content is None else len(content))
        fields.write(content or b"")
    write_signed_varint(fields, 0)  # headers
    whole = BytesIO()
    write_signed_varint(whole, len(fields.getvalue()))
    whole.write(fields.getvalue())
    return whole.getvalue()
