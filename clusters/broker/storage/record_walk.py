"""Walks over the records of a batch as fast as Python can: every record of every producer comes by.

What is asked of each is what Kafka's DefaultRecord asks; keys and values are passed over. Records
that are laid out alike, as most of a batch are, are looked at together: where the fields of the
first are, all of them have theirs, so one slice has a byte of each. The others are walked over one
by one, with the varints of one and of two bytes, which most are, read in place.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_VARINT_BYTES_MAX: Final = 10
_FEW: Final = 16  # of which it is tried whether they are alike
_MANY: Final = (2048, 256, 64)  # how many then; the next where these are not all alike
_NO_SIZE: Final = 1 << 62  # of a record with headers, or of one that is wrong: none is alike
_APART: Final = 64  # how many one by one, before it is tried again
_PLAIN: Final = bytes(range(0, 0x80, 2))  # a varint of one byte that is not negative
_PLAIN_LOW: Final = bytes(range(0x80, 0x100, 2))  # the first of two such bytes
# The varints of offset deltas: of one byte up to 63, of two up to 8191 (low bits first).
_ONE_BYTE: Final = bytes(range(0, 128, 2))
_LOW: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(8192))
_HIGH: Final = bytes(2 * delta >> 7 for delta in range(8192))


class Walked(NamedTuple):
    """Where the records end, and the least and the largest timestamp delta among them."""

    at: int
    earliest: int
    latest: int


def walk(data: bytes, at: int, end: int, count: int) -> Walked:
    """So many records from `at` on, none beyond `end`, with offset deltas from 0 on.

    Raises ValueError, or IndexError where the bytes end.
    """
    if count < _FEW:
        return _walk_apart(data, at, end, 0, count)
    index = 0
    times: list[int] = []
    while index < count:
        walked, many = _walk_alike(data, at, end, index, count)
        if not many:
            many = min(count - index, _APART)
            walked = _walk_apart(data, at, end, index, many)
        index += many
        at = walked.at
        times += (walked.earliest, walked.latest)
    return Walked(at, min(times), max(times))


def _walk_apart(  # noqa: C901 (one loop, without a call in it)
    data: bytes, at: int, end: int, first: int, many: int
) -> Walked:
    times = []
    for offset_delta in range(first, first + many):
        raw = data[at]
        at += 1
        if raw > 0x7F:
            more = data[at]
            at += 1
            if more > 0x7F:
                raw, at = raw_varint(data, at - 2)
            else:
                raw = raw & 0x7F | more << 7
        record_end = at + (raw >> 1)
        if raw & 1 or record_end > end:
            raise ValueError(f"record {offset_delta} is longer than what is left")
        raw = data[at + 1]  # behind the attributes, of which none are defined
        at += 2
        if raw > 0x7F:
            more = data[at]
            at += 1
            if more > 0x7F:
                raw, at = raw_varint(data, at - 2)
            else:
                raw = raw & 0x7F | more << 7
        times.append((raw >> 1) ^ -(raw & 1))
        raw = data[at]
        at += 1
        if raw > 0x7F:
            more = data[at]
            at += 1
            if more > 0x7F:
                raw, at = raw_varint(data, at - 2)
            else:
                raw = raw & 0x7F | more << 7
        if raw != offset_delta << 1:
            raise ValueError(f"record {offset_delta} has another offset")
        raw = data[at]  # the key's length
        at += 1
        if raw > 0x7F:
            more = data[at]
            at += 1
            if more > 0x7F:
                raw, at = raw_varint(data, at - 2)
            else:
                raw = raw & 0x7F | more << 7
        if not raw & 1:
            at += raw >> 1
        raw = data[at]  # the value's length
        at += 1
        if raw > 0x7F:
            more = data[at]
            at += 1
            if more > 0x7F:
                raw, at = raw_varint(data, at - 2)
            else:
                raw = raw & 0x7F | more << 7
        if not raw & 1:
            at += raw >> 1
        if data[at]:
            at = _walk_headers(data, at, record_end)
        else:
            at += 1
        if at != record_end:
            raise ValueError(f"record {offset_delta} is not as long as it claims")
    return Walked(at, min(times, default=0), max(times, default=0))


def _walk_headers(data: bytes, at: int, end: int) -> int:
    raw, at = raw_varint(data, at)
    if raw & 1 or raw > end - at:  # each has two lengths
        raise ValueError("a record has a number of headers that cannot be")
    for _ in range(raw >> 1):
        raw, at = raw_varint(data, at)
        if raw & 1:
            raise ValueError("a header has no name")
        raw, at = raw_varint(data, at + (raw >> 1))
        if not raw & 1:
            at += raw >> 1
    return at


def raw_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint before its sign is taken out of it, and where it ends."""
    raw = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return raw, at
        shift += 7
    raise ValueError("a varint that does not end")


# --- many at once ---------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Where the fields of a record are, counted from its first byte."""

    timestamp: int
    offset: int
    key: int  # its length
    behind_key: int
    value: int  # its length
    behind_value: int
    size: int


def _walk_alike(data: bytes, at: int, end: int, index: int, count: int) -> tuple[Walked, int]:
    """As many records as are laid out as the first one; 0 where those are too few."""
    nothing = Walked(at, 0, 0), 0
    if count - index < _FEW or index >= len(_LOW):
        return nothing
    layout = _layout(data, at)
    # An offset delta takes one byte up to 63, and two up to 8191.
    most = (len(_ONE_BYTE) if index < len(_ONE_BYTE) else len(_LOW)) - index
    most = min(most, count - index, (end - at) // layout.size)
    if most < _FEW:
        return nothing
    few = _together(data, at, index, _FEW, layout)
    if few is None:
        return nothing
    for many in _MANY:
        walked = _together(data, at, index, min(many, most), layout)
        if walked is not None:
            return walked, min(many, most)
    return few, _FEW


def _layout(data: bytes, first: int) -> _Layout:
    """Of one record; what is wrong with it is found when it is walked over by itself."""
    raw, at = raw_varint(data, first)
    size = at - first + max(1, raw >> 1)
    timestamp = at + 1
    _, offset = raw_varint(data, timestamp)
    _, key = raw_varint(data, offset)
    raw, behind_key = raw_varint(data, key)
    value = behind_key + (0 if raw & 1 else raw >> 1)
    raw, behind_value = raw_varint(data, value)
    last = behind_value + (0 if raw & 1 else raw >> 1) - first
    is_sound = last + 1 == size and data[first + last] == 0
    return _Layout(
        timestamp - first,
        offset - first,
        key - first,
        behind_key - first,
        value - first,
        behind_value - first,
        size if is_sound else _NO_SIZE,
    )


def _together(data: bytes, at: int, index: int, many: int, layout: _Layout) -> Walked | None:
    """None where a record is laid out in another way, or is anything but plain."""
    size = layout.size
    behind = at + size * (many - 1) + 1

    def bytes_of_all(field: int) -> bytes:
        return data[at + field : behind + field : size]

    # The lengths of records, of keys and of values, and the number of headers, which is none.
    alike = (
        *range(layout.timestamp - 1),
        *range(layout.key, layout.behind_key),
        *range(layout.value, layout.behind_value),
        size - 1,
    )
    if any(bytes_of_all(field).count(data[at + field]) != many for field in alike):
        return None
    offsets = [bytes_of_all(field) for field in range(layout.offset, layout.key)]
    if index < len(_ONE_BYTE):
        expected = [_ONE_BYTE[index : index + many]]
    else:
        expected = [_LOW[index : index + many], _HIGH[index : index + many]]
    times = [bytes_of_all(field) for field in range(layout.timestamp, layout.offset)]
    extremes = _extremes(times)
    if offsets != expected or extremes is None:
        return None
    return Walked(at + size * many, *extremes)


def _extremes(times: list[bytes]) -> tuple[int, int] | None:
    """The least and the largest of varints of one byte, or of two, that are not negative."""
    if len(times) == 1:
        [low] = times
        return None if low.translate(None, _PLAIN) else (min(low) >> 1, max(low) >> 1)
    if len(times) > 2:
        return None
    low, high = times
    if low.translate(None, _PLAIN_LOW) or max(high) > 0x7F:
        return None
    both = bytearray(2 * len(low))
    both[::2], both[1::2] = low, high
    pairs = struct.unpack(f"<{len(low)}H", both)  # in the order of the varints
    return _of_pair(min(pairs)), _of_pair(max(pairs))


def _of_pair(pair: int) -> int:
    return (pair & 0x7F | pair >> 8 << 7) >> 1
