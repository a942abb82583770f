"""Looks at a frame's arrays before kio reads it: none is null that may not be, none is too long.

kio makes room for as many elements as an array claims (21 bytes can claim 17 GB), and takes a null
array for None where the protocol has none. Here only lengths are read: of four bytes, or, in
flexible versions (KIP-482), as varints of what is one more. Tagged fields are passed over: those
that are known here have no arrays.
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


def check_arrays(
    cls: Any, frame: bytes, position: int, elements_max: int | None = ELEMENTS_MAX
) -> None:
    """Raises ArrayError. `cls` is a kio entity that begins at `position`; None: any number."""
    plan = _plan(cls)
    if plan:
        budget = [len(frame) if elements_max is None else elements_max]
        _walk(plan, frame, position, budget)


def _walk(plan: _Plan, frame: bytes, at: int, budget: list[int]) -> int:
    """Where the entity ends. What ends early is for kio to find."""
    for step in plan:
        if type(step) is int:
            at += step
        elif type(step) is _Bytes:
            length, at = _length(frame, at, step.length_bytes)
            at += max(0, length)
        elif type(step) is _Array:
            at = _walk_array(step, frame, at, budget)
        else:
            at = _walk_tagged_fields(frame, at)
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


def _walk_tagged_fields(frame: bytes, at: int) -> int:
    count, at = _varint(frame, at)
    while count and at < len(frame):
        _, at = _varint(frame, at)
        size, at = _varint(frame, at)
        at += size
        count -= 1
    return at


def _walk_array(array: _Array, frame: bytes, at: int, budget: list[int]) -> int:
    count, first = _length(frame, at, array.length_bytes)
    if count < 0:
        if count == -1 and array.is_nullable:
            return first
        raise ArrayError(f"{array.name} has the length {count}")
    budget[0] -= count
    if count * array.smallest > max(0, len(frame) - first) or budget[0] < 0:
        raise ArrayError(f"{array.name} claims {count} elements")
    if array.is_fixed:
        return first + count * array.smallest
    for _ in range(count):
        first = _walk(array.element, frame, first, budget)
    return first


@cache
def _plan(cls: Any) -> _Plan:
    """Empty where there is nothing to look at."""
    plan = _whole_plan(cls)
    return plan if any(isinstance(step, _Array) for step in plan) else ()


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
    return (*steps, _TaggedFields()) if cls.__flexible__ else tuple(steps)


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
