"""Looks at a stranger's message before kio reads it: no array is null that may not be, none is
longer than the bytes behind it can be, and no tagged field has another size than it says.

kio makes room for as many elements as an array claims (21 bytes can claim 17 GB, and where there is
no such room the process ends), takes a null array for None where the protocol has none, and reads a
tagged field without its size. Here only lengths are read: of four bytes, or, in flexible versions
(KIP-482), as varints of what is one more. Tagged fields that are not known are left out, for Kafka
ignores them and kio cannot. All of it costs time in proportion to the message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
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
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uint64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_NEVER_FLEXIBLE: Final = ("RequestHeader", "client_id")  # KIP-511: so that every broker reads it
_LENGTHS_OF_BYTES: Final = {"string": 2, "bytes": 4, "records": 4}


class BoundsError(Exception):
    """An array is null or claims too much, or a tagged field is not of its size."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A text or bytes behind a length of so many bytes; -1 is null, which kio judges."""

    length_bytes: int


@dataclass(frozen=True, slots=True)
class _TaggedFields:
    """At the end of each entity of a flexible version. `known`: by tag, what is in it."""

    known: Mapping[int, _Plan]


@dataclass(frozen=True, slots=True)
class _Array:
    name: str
    is_nullable: bool
    element: _Plan
    smallest: int  # size of an element, in bytes
    is_fixed: bool  # every element has that size
    length_bytes: int


@dataclass(frozen=True, slots=True)
class _Nullable:
    """An entity behind a byte that is negative where there is none (KIP-893)."""

    entity: _Plan


# A number: so many bytes of no interest.
_Step = int | _Bytes | _Array | _TaggedFields | _Nullable
_Plan = tuple[_Step, ...]
_Edit = tuple[int, int, bytes]  # from where, to where, and what is put there


@dataclass(slots=True)
class _Walk:
    """`elements_left`: so many may still be claimed. `edits`: in the order of their places."""

    frame: bytes
    elements_left: int
    edits: list[_Edit]


def checked(
    cls: Any, frame: bytes, position: int, elements_max: int | None = ELEMENTS_MAX
) -> tuple[bytes, int]:
    """The frame, without tagged fields that are not known, and where the entity ends in it.

    `cls` is a kio entity that begins at `position`; `elements_max` None: any number. Raises
    BoundsError.
    """
    walk = _Walk(frame, len(frame) if elements_max is None else elements_max, [])
    end = _walk(_plan(cls), position, walk)
    if end > len(frame):
        raise BoundsError(f"it ends early: {end - len(frame)} bytes are missing")
    if not walk.edits:
        return frame, end
    return _edited(frame, walk.edits), end + _growth(walk.edits)


def _edited(frame: bytes, edits: list[_Edit]) -> bytes:
    pieces: list[bytes] = []
    position = 0
    for start, end, replaced in edits:
        pieces += (frame[position:start], replaced)
        position = end
    return b"".join((*pieces, frame[position:]))


def _growth(edits: Iterable[_Edit]) -> int:
    return sum(len(put) - (behind - before) for before, behind, put in edits)


def _walk(plan: _Plan, at: int, walk: _Walk) -> int:
    """Where the entity ends; behind the frame's end, if it ends early."""
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
        elif type(step) is _Nullable:
            is_null = frame[at : at + 1] >= b"\x80"
            at = at + 1 if is_null else _walk(step.entity, at + 1, walk)
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
    return number, len(frame) + 1  # it ends early, or has too many bytes


def _walk_tagged_fields(tagged: _TaggedFields, at: int, walk: _Walk) -> int:
    frame, start = walk.frame, at
    count, at = _varint(frame, at)
    if not count:
        return at
    behind_count, edits = at, walk.edits
    first = len(edits)
    edits.append((start, behind_count, b""))
    unknown = 0
    for _ in range(count):
        if at >= len(frame):
            return at + 1  # it ends early
        field_start = at
        tag, at = _varint(frame, at)
        size_start = at
        size, at = _varint(frame, at)
        plan = tagged.known.get(tag)
        if plan is None:
            unknown += 1
            edits.append((field_start, at + size, b""))
        else:
            _walk_tagged_field(plan, (size_start, at, at + size), walk)
        at += size
    edits[first] = (start, behind_count, varint(count - unknown))
    if len(edits) == first + 1 and not unknown:
        edits.pop()
    return at


def _walk_tagged_field(plan: _Plan, places: tuple[int, int, int], walk: _Walk) -> None:
    """`places`: where its size begins, where it begins, and where it ends."""
    size_start, start, end = places
    edits = walk.edits
    first = len(edits)
    if _walk(plan, start, walk) != end:
        raise BoundsError(f"a tagged field does not have the {end - start} bytes that it claims")
    if len(edits) > first:
        size = end - start + _growth(edits[first:])
        edits.insert(first, (size_start, start, varint(size)))


def _walk_array(array: _Array, at: int, walk: _Walk) -> int:
    frame = walk.frame
    count, first = _length(frame, at, array.length_bytes)
    if count < 0:
        if count == -1 and array.is_nullable:
            return first
        raise BoundsError(f"{array.name} has the length {count}")
    walk.elements_left -= count
    if count * array.smallest > max(0, len(frame) - first) or walk.elements_left < 0:
        raise BoundsError(f"{array.name} claims {count} elements")
    if array.is_fixed:
        return first + count * array.smallest
    for _ in range(count):
        first = _walk(array.element, first, walk)
    return first


@cache
def _plan(cls: Any) -> _Plan:
    steps: list[_Step] = []
    known: dict[int, _Plan] = {}
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata:
            known[int(field.metadata["tag"])] = _steps(cls, field)
            continue
        for step in _steps(cls, field):
            if isinstance(step, int) and steps and isinstance(steps[-1], int):
                steps[-1] += step
            else:
                steps.append(step)
    if cls.__flexible__:
        steps.append(_TaggedFields(known))
    return tuple(steps)


def _steps(cls: Any, field: dataclasses.Field[Any]) -> _Plan:
    given: Any = field.type
    is_nullable = False
    if get_origin(given) is UnionType:
        is_nullable = True
        [given] = [one for one in get_args(given) if one is not NoneType]
    kind = field.metadata.get("kafka_type")
    is_flexible = cls.__flexible__ and (cls.__name__, field.name) != _NEVER_FLEXIBLE
    if get_origin(given) is not tuple:
        if kind is not None:
            return (_primitive(kind, is_flexible),)
        # A tag is there or not: what is in a tagged field is never null.
        in_line = is_nullable and "tag" not in field.metadata
        return (_Nullable(_plan(given)),) if in_line else _plan(given)
    element = (_primitive(kind, is_flexible),) if kind else _plan(get_args(given)[0])
    fixed = all(isinstance(step, int) for step in element)
    length_bytes = _VARINT if is_flexible else _LENGTH_BYTES
    smallest = sum(map(_smallest, element))
    return (_Array(field.name, is_nullable, element, smallest, fixed, length_bytes),)


def _primitive(kind: Any, is_flexible: bool) -> int | _Bytes:
    size = _FIXED_SIZES.get(kind)
    if size is not None:
        return size
    return _Bytes(_VARINT if is_flexible else _LENGTHS_OF_BYTES[kind])


def _smallest(step: _Step) -> int:
    if isinstance(step, int):
        return step
    return max(1, step.length_bytes) if isinstance(step, _Bytes | _Array) else 1


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
