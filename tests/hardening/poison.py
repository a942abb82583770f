"""Record batches that are wrong where a checksum does not help: their makers knew what they did."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Final

import cramjam
from crc32c import crc32c

from tests.storage.batches import COMPRESSIONS, NOW_MS, batch

HEADER: Final = struct.Struct(">hiqqqhii")  # what the checksum covers, before the records
COVERED_FROM: Final = 21
BODY_FROM: Final = 61
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def sealed(
    sound: bytes,
    *,
    attributes: int | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """A batch with other contents, and the checksum and the length that go with them."""
    had = HEADER.unpack_from(sound, COVERED_FROM)
    wanted = (attributes, last_offset_delta, base_timestamp, max_timestamp, None, None, None, count)
    fields = [old if new is None else new for old, new in zip(had, wanted, strict=True)]
    covered = HEADER.pack(*fields) + (sound[BODY_FROM:] if body is None else body)
    head = sound[:8] + struct.pack(">i", len(covered) + 9) + sound[12:17]
    return head + struct.pack(">I", crc32c(covered)) + covered


def _varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def record(
    offset_delta: int = 0, timestamp_delta: int = 0, value: bytes = b"v", rest: bytes = b"\0"
) -> bytes:
    fields = b"\0" + _varint(timestamp_delta) + _varint(offset_delta) + _varint(-1)
    fields += _varint(len(value)) + value + rest
    return _varint(len(fields)) + fields


def zeros(size: int) -> bytes:
    """So many zeros in a few bytes of zstd."""
    return bytes(cramjam.zstd.compress(bytes(size)))


SOUND: Final = batch(0, [b"a", b"b", b"c"])
ONE: Final = batch(0, [b"a"])
# Each with the error that a leader of 4.0 gives it.
POISONED: Final[Mapping[str, tuple[bytes, str]]] = {
    "two thousand million records": (
        sealed(ONE, last_offset_delta=INT32_MAX - 1, count=INT32_MAX),
        "invalid_record",
    ),
    "two such batches": (
        sealed(ONE, last_offset_delta=INT32_MAX - 1, count=INT32_MAX) * 2,
        "invalid_record",
    ),
    "more records than it has": (sealed(SOUND, last_offset_delta=4, count=5), "invalid_record"),
    "fewer records than it has": (sealed(SOUND, last_offset_delta=1, count=2), "invalid_record"),
    "fewer offsets than records": (sealed(SOUND, last_offset_delta=1), "invalid_record"),
    "no records": (sealed(SOUND, last_offset_delta=0, count=0, body=b""), "invalid_record"),
    "an empty body": (sealed(SOUND, body=b""), "invalid_record"),
    "a body of zeros": (sealed(SOUND, body=bytes(100)), "invalid_record"),
    "two batches": (SOUND + SOUND, "invalid_record"),
    "no batch": (b"", "invalid_record"),
    "an offset of its own": (batch(5, [b"a"]), "invalid_record"),
    "offsets that leave one out": (
        sealed(SOUND, body=record(0) + record(2) + record(3)),
        "invalid_record",
    ),
    "a header without a name": (
        sealed(ONE, body=record(rest=_varint(1) + _varint(-1) + _varint(-1))),
        "invalid_record",
    ),
    "a million headers": (sealed(ONE, body=record(rest=_varint(10**6))), "invalid_record"),
    "a varint without an end": (sealed(ONE, body=b"\x20" + b"\xff" * 16), "invalid_record"),
    "control records": (sealed(SOUND, attributes=0x20), "invalid_record"),
    "a time beyond 64 bits": (
        sealed(ONE, base_timestamp=INT64_MAX - 1, body=record(timestamp_delta=5)),
        "invalid_timestamp",
    ),
    "the time of an append": (sealed(SOUND, attributes=0x08), "invalid_timestamp"),
    **{
        f"compression {number}": (sealed(SOUND, attributes=number), "unsupported_compression_type")
        for number in (5, 6, 7)
    },
    **{
        f"records that are not {name}": (
            sealed(SOUND, attributes=COMPRESSIONS[name][0]),
            "corrupt_message",
        )
        for name in ("gzip", "snappy", "lz4", "zstd")
    },
    "half of its zstd": (
        sealed(
            batch(0, [b"a" * 1000], compression="zstd"),
            body=batch(0, [b"a" * 1000], compression="zstd")[BODY_FROM:-8],
        ),
        "corrupt_message",
    ),
}


def random_poison(chance: random.Random) -> bytes:
    """A batch with one thing wrong, or with nothing that anybody thought of."""
    name = chance.choice(tuple(COMPRESSIONS))
    values = [chance.randbytes(chance.randrange(30)) for _ in range(chance.randrange(1, 5))]
    timestamp = chance.choice((NOW_MS, NOW_MS + chance.randrange(2**40)))
    sound = batch(0, values, compression=name, timestamp=timestamp)
    make = chance.choice(_MAKERS)
    return make(chance, sound)


def _int32(chance: random.Random) -> int:
    return chance.choice((-1, 0, 1, 2, INT32_MAX, -INT32_MAX - 1, chance.randrange(100)))


def _int64(chance: random.Random) -> int:
    return chance.choice((-1, 0, INT64_MAX, -INT64_MAX - 1, chance.randrange(2**62)))


def _other_body(chance: random.Random, sound: bytes) -> bytes:
    body = bytearray(sound[BODY_FROM:])
    for _ in range(chance.randrange(1, 4)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return sealed(sound, body=bytes(body))


_MAKERS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    lambda chance, sound: sealed(sound, attributes=chance.randrange(64)),
    lambda chance, sound: sealed(sound, last_offset_delta=_int32(chance)),
    lambda chance, sound: sealed(sound, count=_int32(chance)),
    lambda chance, sound: sealed(
        sound, count=(number := _int32(chance)), last_offset_delta=max(0, number - 1)
    ),
    lambda chance, sound: sealed(sound, base_timestamp=_int64(chance)),
    lambda chance, sound: sealed(sound, max_timestamp=_int64(chance)),
    lambda chance, sound: sealed(sound, body=sound[BODY_FROM : -chance.randrange(1, 20)]),
    lambda chance, sound: sealed(sound, body=chance.randbytes(chance.randrange(200))),
    lambda chance, sound: sealed(
        sound, attributes=4, body=zeros(1 << chance.randrange(10, 25)), count=_int32(chance)
    ),
    _other_body,
    lambda chance, _: chance.choice(tuple(POISONED.values()))[0],
    lambda _, sound: sound,
)
