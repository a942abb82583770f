"""Walks over the records of a batch as fast as Python can: every record of every producer comes by.

What is asked of each is what Kafka's DefaultRecord asks; keys and values are passed over. Records
that are laid out alike, as most of a batch are, are looked at together: where the fields of the
first are, all of them have theirs, so one slice has a byte of each. How many begin with the same
byte is how many are alike. The others are walked over one by one, with the varints of one and of
two bytes, which most are, read in place.
"""

from __future__ import annotations

from itertools import compress
from typing import Final, NamedTuple

_VARINT_BYTES_MAX: Final = 10
_FEW: Final = 16  # fewer that are alike are walked over one by one
_MANY: Final = 4096  # are looked at together, at most
_APART_MAX: Final = 256  # how many one by one before it is tried again: 16, then twice as many
_NO_SIZE: Final = 1 << 62  # of a record with headers, or of one that is wrong: none is alike
_PLAIN: Final = bytes(range(0, 0x80, 2))  # a varint of one byte that is not negative
_PLAIN_LOW: Final = bytes(range(0x80, 0x100, 2))  # the first of two such bytes
_LAST: Final = bytes(range(0x80))  # the last byte of a varint
# The bytes of the varints of offset deltas, low bits first: of one byte up to 63, of two up to
# 8191, and of three as far as they are listed.
_LOW: Final = _PLAIN_LOW * 1024
_SEVEN_BITS: Final = b"".join(bytes([high]) * 64 for high in range(0x80))
_MIDDLE: Final = b"".join(bytes([0x80 | high]) * 64 for high in range(0x80)) * 8
_HIGH: Final = b"".join(bytes([high]) * 8192 for high in range(8))
_OFFSETS: Final = ((64, (_PLAIN,)), (8192, (_LOW, _SEVEN_BITS)), (65536, (_LOW, _MIDDLE, _HIGH)))
_BELOW: Final = tuple(bytes(range(value)) for value in range(0x100))
_INVERTED: Final = bytes(range(0xFF, -1, -1))


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
    index, apart = 0, _FEW
    times: list[int] = []
    while index < count:
        walked, many = _walk_alike(data, at, end, index, count)
        if many:
            apart = _FEW
        else:
            many = min(count - index, apart)
            walked = _walk_apart(data, at, end, index, many)
            apart = min(2 * apart, _APART_MAX)
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
    expected = next((one for one in _OFFSETS if index < one[0]), None)
    if expected is None or count - index < _FEW:
        return nothing
    behind, offsets = expected
    layout = _layout(data, at)
    many = min(behind - index, count - index, (end - at) // layout.size, _MANY)
    if many < _FEW or layout.key - layout.offset != len(offsets):
        return nothing
    many, times = _count_alike(data, at, many, layout)
    if many < _FEW:
        return nothing
    for place, bytes_of_deltas in enumerate(offsets, layout.offset):
        if _column(data, at + place, many, layout.size) != bytes_of_deltas[index : index + many]:
            return nothing
    return Walked(at + layout.size * many, *_extremes([column[:many] for column in times])), many


def _layout(data: bytes, first: int) -> _Layout:
    """Of one record; what is wrong with it is found when it is walked over by itself."""
    length, at = raw_varint(data, first)
    size = at - first + max(1, length >> 1)
    timestamp = at + 1
    _, offset = raw_varint(data, timestamp)
    _, key = raw_varint(data, offset)
    raw, behind_key = raw_varint(data, key)
    value = behind_key + (0 if raw & 1 else raw >> 1)
    raw, behind_value = raw_varint(data, value)
    last = behind_value + (0 if raw & 1 else raw >> 1) - first
    is_sound = not length & 1 and last + 1 == size and data[first + last] == 0
    return _Layout(
        timestamp - first,
        offset - first,
        key - first,
        behind_key - first,
        value - first,
        behind_value - first,
        size if is_sound else _NO_SIZE,
    )


def _column(data: bytes, first: int, many: int, size: int) -> bytes:
    """The same byte of each of so many records."""
    return data[first : first + size * (many - 1) + 1 : size]


def _count_alike(data: bytes, at: int, many: int, layout: _Layout) -> tuple[int, list[bytes]]:
    """How many of the first records are laid out as the first, with times of as many bytes that are
    not negative; and the bytes of these times. Less than _FEW: too few."""
    # The lengths of records, of keys and of values, and the number of headers, which is none.
    alike = (
        *range(layout.timestamp - 1),
        *range(layout.key, layout.behind_key),
        *range(layout.value, layout.behind_value),
        layout.size - 1,
    )
    for field in alike:
        column = _column(data, at + field, many, layout.size)
        many -= len(column.lstrip(column[:1]))
        if many < _FEW:
            return 0, []
    width = layout.offset - layout.timestamp
    if width > 2:
        return 0, []
    times = []
    for place, may_be in enumerate(((_PLAIN,), (_PLAIN_LOW, _LAST))[width - 1], layout.timestamp):
        column = _column(data, at + place, many, layout.size)
        many -= len(column.lstrip(may_be))
        times.append(column)
        if many < _FEW:
            return 0, []
    return many, times


def _extremes(times: list[bytes]) -> tuple[int, int]:
    """The least and the largest of varints of one byte, or of two, that are not negative."""
    if len(times) == 1:
        [low] = times
        return _least(low) >> 1, _most(low) >> 1
    low, high = times
    least, most = _least(high), _most(high)
    least_low, most_low = _least(_where(high, least, low)), _most(_where(high, most, low))
    return (least << 7 | least_low & 0x7F) >> 1, (most << 7 | most_low & 0x7F) >> 1


def _where(column: bytes, value: int, other: bytes) -> bytes:
    """The bytes of `other` where the column has the value, which is there."""
    first, behind = column.index(value), column.rindex(value) + 1
    if column.count(value) == behind - first:  # times rise, mostly
        return other[first:behind]
    return bytes(compress(other, [one == value for one in column]))


def _most(column: bytes) -> int:
    """Its largest byte, a bit at a time: max() makes a number of every byte."""
    if column.count(column[0]) == len(column):
        return column[0]
    most = 0
    for bit in (128, 64, 32, 16, 8, 4, 2, 1):
        kept = column.translate(None, _BELOW[most + bit])
        if kept:
            column = kept
            most += bit
    return most


def _least(column: bytes) -> int:
    return 0xFF - _most(column.translate(_INVERTED))
