"""Looks at a frame's arrays before kio reads it: none is null that may not be, none is too long.

kio makes room for as many elements as an array claims (21 bytes can claim 17 GB), and takes a null
array for None where the protocol has none. Here only lengths are read: of four bytes, or, in
flexible versions (KIP-482), as varints of what is one more. Tagged fields are passed over, since
those that are known here have no arrays; those that are not known are ignored, as by Kafka, while
kio knows only what it knows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

# Kafka sets no such limit. No client names so many partitions in a request, and each of them costs
# the broker some hundred bytes while it answers.
ELEMENTS_MAX: Final = 100_000
_LENGTH_BYTES: Final = 4
_VARINT: Final = 0  # a length of that many bytes: a varint has from one to five
_VARINT_BYTES_MAX: Final = 5

_FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_LENGTHS_OF_BYTES: Final = {"string": 2, "bytes": 4, "records": 4}


class ArrayError(Exception):
    """An array is null, or longer than the bytes behind it can be."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A text or bytes behind a length of so many bytes; -1 is null, which kio judges."""

    length_bytes: int


@dataclass(frozen=True, slots=True)
class _TaggedFields:
    """At the end of each entity of a flexible version."""

    known: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    is_nullable: bool
    element: _Plan
    smallest: int  # size of an element, in bytes
    is_fixed: bool  # every element has that size
    length_bytes: int


_Step = int | _Bytes | _Array | _TaggedFields  # a number: so many bytes of no interest
_Plan = tuple[_Step, ...]


@dataclass(slots=True)
class _Walk:
    """`elements_left`: so many may still be claimed. `edits`: (start, end, what is put there)."""

    frame: bytes
    elements_left: int
    edits: list[tuple[int, int, bytes]]


def checked(
    cls: Any, frame: bytes, position: int, elements_max: int | None = ELEMENTS_MAX
) -> bytes:
    """The frame, without tagged fields that are not known. Raises ArrayError.

    `cls` is a kio entity that begins at `position`; `elements_max` None: any number.
    """
    plan = _plan(cls)
    if not plan:
        return frame
    walk = _Walk(frame, len(frame) if elements_max is None else elements_max, [])
    _walk(plan, position, walk)
    for start, end, replaced in reversed(walk.edits):
        frame = frame[:start] + replaced + frame[end:]
    return frame


def _walk(plan: _Plan, at: int, walk: _Walk) -> int:
    """Where the entity ends. What ends early is for kio to find."""
    frame = walk.frame
    for step in plan:
        if type(step) is int:
            at += step
        elif type(step) is _Bytes:
            length, at = _length(frame, at, step.length_bytes)
            at += max(0, length)
        elif type(step) is _Array:
            at = _walk_array(step, at, walk)
        elif type(step) is _TaggedFields:
            at = _walk_tagged_fields(step, at, walk)
    return at


def _length(frame: bytes, at: int, length_bytes: int) -> tuple[int, int]:
    """A length, -1 for null, and where it ends."""
    if length_bytes != _VARINT:
        behind = at + length_bytes
        return int.from_bytes(frame[at:behind], "big", signed=True), behind
    number, behind = _varint(frame, at)
    return number - 1, behind


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(frame[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    return number, len(frame)  # it ends early, or has too many bytes: kio finds that


def _walk_tagged_fields(tagged: _TaggedFields, at: int, walk: _Walk) -> int:
    frame, start = walk.frame, at
    count, at = _varint(frame, at)
    kept: list[bytes] = []
    for _ in range(count):
        if at >= len(frame):
            return at
        field_start = at
        tag, at = _varint(frame, at)
        size, at = _varint(frame, at)
        at += size
        if tag in tagged.known:
            kept.append(frame[field_start:at])
    if len(kept) < count:
        walk.edits.append((start, at, varint(len(kept)) + b"".join(kept)))
    return at


def _walk_array(array: _Array, at: int, walk: _Walk) -> int:
    frame = walk.frame
    count, first = _length(frame, at, array.length_bytes)
    if count < 0:
        if count == -1 and array.is_nullable:
            return first
        raise ArrayError(f"{array.name} has the length {count}")
    walk.elements_left -= count
    if count * array.smallest > max(0, len(frame) - first) or walk.elements_left < 0:
        raise ArrayError(f"{array.name} claims {count} elements")
    if array.is_fixed:
        return first + count * array.smallest
    for _ in range(count):
        first = _walk(array.element, first, walk)
    return first


@cache
def _plan(cls: Any) -> _Plan:
    """Empty where there is nothing to look at."""
    plan = _whole_plan(cls)
    return plan if any(isinstance(step, _Array | _TaggedFields) for step in plan) else ()


@cache
def _whole_plan(cls: Any) -> _Plan:
    steps: list[_Step] = []
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata:
            continue
        step = _step(field, cls.__flexible__)
        if isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    if cls.__flexible__:
        tags = (field.metadata.get("tag") for field in dataclasses.fields(cls))
        steps.append(_TaggedFields(frozenset(tag for tag in tags if tag is not None)))
    return tuple(steps)


def _step(field: dataclasses.Field[Any], is_flexible: bool) -> _Step:
    given: Any = field.type
    is_nullable = False
    if get_origin(given) is UnionType:
        is_nullable = True
        [given] = [one for one in get_args(given) if one is not NoneType]
    kind = field.metadata.get("kafka_type")
    if get_origin(given) is not tuple:
        return _primitive(kind, is_flexible)
    element = (_primitive(kind, is_flexible),) if kind else _whole_plan(get_args(given)[0])
    fixed = all(isinstance(step, int) for step in element)
    length_bytes = _VARINT if is_flexible else _LENGTH_BYTES
    smallest = sum(map(_smallest, element))
    return _Array(field.name, is_nullable, element, smallest, fixed, length_bytes)


def _primitive(kind: Any, is_flexible: bool) -> int | _Bytes:
    size = _FIXED_SIZES.get(kind)
    if size is not None:
        return size
    return _Bytes(_VARINT if is_flexible else _LENGTHS_OF_BYTES[kind])


def _smallest(step: _Step) -> int:
    if isinstance(step, int):
        return step
    return 1 if isinstance(step, _TaggedFields) else max(1, step.length_bytes)


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
