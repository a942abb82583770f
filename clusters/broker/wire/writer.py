"""Entities of kio to bytes, by a writer that is built once for each class.

kio writes every value with several calls and checks each length as a number of its own kind. Here
neighbours of a fixed size are one struct, and struct checks their range. What is written is the
same, byte for byte. Reading is kio's.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

Put = Callable[[bytes], object]  # takes the next bytes of a message
Write = Callable[[Any, Put], object]  # of one value

_FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "error_code": "h",
}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SMALL_VARINTS: Final = tuple(bytes([value]) for value in range(0x80))


@cache
def writer(cls: Any) -> Write:
    """Writes an entity of a class, without a frame or a header around it."""
    steps: list[Write] = []
    fixed: list[dataclasses.Field[Any]] = []
    tagged: list[dataclasses.Field[Any]] = []
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata:
            tagged.append(field)
        elif _is_fixed(field):
            fixed.append(field)
        else:
            steps += _neighbours(fixed)
            fixed = []
            steps.append(_of_field(field, _value(cls, field)))
    steps += _neighbours(fixed)
    if cls.__flexible__:
        steps.append(_tags(cls, tagged))
    if len(steps) == 1:
        return steps[0]
    all_steps = tuple(steps)

    def write(entity: Any, put: Put) -> None:
        for step in all_steps:
            step(entity, put)

    return write


def _is_fixed(field: dataclasses.Field[Any]) -> bool:
    return field.metadata.get("kafka_type") in _FIXED and get_origin(_not_none(field)) is not tuple


def _not_none(field: dataclasses.Field[Any]) -> Any:
    given: Any = field.type
    if get_origin(given) is UnionType:
        [given] = [one for one in get_args(given) if one is not NoneType]
    return given


def _neighbours(fields: Sequence[dataclasses.Field[Any]]) -> list[Write]:
    """One step for all of them; none where there are none."""
    if not fields:
        return []
    kinds = [field.metadata["kafka_type"] for field in fields]
    pack = struct.Struct(">" + "".join(_FIXED[kind] for kind in kinds)).pack
    values: Callable[[Any], Any] = attrgetter(
        *(
            f"{field.name}.value" if kind == "error_code" else field.name
            for field, kind in zip(fields, kinds, strict=True)
        )
    )
    if len(fields) == 1:
        return [lambda entity, put: put(pack(values(entity)))]
    return [lambda entity, put: put(pack(*values(entity)))]


def _of_field(field: dataclasses.Field[Any], write: Write) -> Write:
    value: Callable[[Any], Any] = attrgetter(field.name)
    return lambda entity, put: write(value(entity), put)


def _value(cls: Any, field: dataclasses.Field[Any]) -> Write:
    """Writes what is in a field."""
    given = _not_none(field)
    kind = field.metadata.get("kafka_type")
    is_flexible: bool = cls.__flexible__
    if get_origin(given) is tuple:
        if kind == "int32":
            return _array_of_int32(is_flexible)
        inner: Any = get_args(given)[0]
        element = _primitive(kind, is_flexible) if kind else writer(inner)
        return _array(element, is_flexible)
    if kind is None:
        if given is not field.type:
            raise TypeError(f"{cls.__name__}.{field.name}: no entity that may be null is written")
        entity: Any = given
        return writer(entity)
    # The client's id was there before flexible versions, and stays as it was in their headers.
    is_old = cls.__name__ == "RequestHeader" and field.name == "client_id"
    return _primitive(kind, is_flexible and not is_old)


def _primitive(kind: str, is_flexible: bool) -> Write:
    if kind == "error_code":
        return lambda value, put: put(_INT16.pack(value.value))
    if kind in _FIXED:
        pack = struct.Struct(">" + _FIXED[kind]).pack
        return lambda value, put: put(pack(value))
    if kind in _OTHERS:
        return _OTHERS[kind]
    if kind == "string":
        return _compact_text if is_flexible else _text
    if kind in ("bytes", "records"):
        return _compact_bytes if is_flexible else _bytes
    raise TypeError(f"a value of the kind {kind!r} is not written")


# --- values ---------------------------------------------------------------------------------------


def _uuid(value: Any, put: Put) -> None:
    put(bytes(16) if value is None else value.bytes)


def _duration(pack: Callable[[int], bytes]) -> Write:
    return lambda value, put: put(pack(round(value.total_seconds() * 1000)))


def _moment(value: Any, put: Put) -> None:
    put(_INT64.pack(-1 if value is None else round(value.timestamp() * 1000)))


_OTHERS: Final[dict[str, Write]] = {
    "uuid": _uuid,
    "timedelta_i32": _duration(_INT32.pack),
    "timedelta_i64": _duration(_INT64.pack),
    "datetime_i64": _moment,
}


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    if value < 0x80:
        return _SMALL_VARINTS[value]
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _text(value: str | None, put: Put) -> None:
    if value is None:
        put(_INT16.pack(-1))
        return
    encoded = value.encode()
    put(_INT16.pack(len(encoded)) + encoded)


def _compact_text(value: str | None, put: Put) -> None:
    _compact_bytes(None if value is None else value.encode(), put)


def _bytes(value: bytes | None, put: Put) -> None:
    if value is None:
        put(_INT32.pack(-1))
        return
    put(_INT32.pack(len(value)))
    put(value)


def _compact_bytes(value: bytes | None, put: Put) -> None:
    """Of what is compact, the length is written and one; 0 is null."""
    if value is None:
        put(varint(0))
        return
    put(varint(len(value) + 1))
    put(value)


# --- arrays and tagged fields ---------------------------------------------------------------------


def _count(values: Sequence[Any] | None, is_flexible: bool) -> bytes:
    count = -1 if values is None else len(values)
    return varint(count + 1) if is_flexible else _INT32.pack(count)


def _array(element: Write, is_flexible: bool) -> Write:
    def write(values: Sequence[Any] | None, put: Put) -> None:
        put(_count(values, is_flexible))
        for value in values or ():
            element(value, put)

    return write


def _array_of_int32(is_flexible: bool) -> Write:
    def write(values: Sequence[int] | None, put: Put) -> None:
        put(_count(values, is_flexible))
        if values:
            put(struct.pack(f">{len(values)}i", *values))

    return write


def _tags(cls: Any, fields: Sequence[dataclasses.Field[Any]]) -> Write:
    """The end of an entity of a flexible version: which optional fields it has (KIP-482)."""
    none = varint(0)
    if not fields:
        return lambda _, put: put(none)
    if any(field.default is dataclasses.MISSING for field in fields):
        raise TypeError(f"{cls.__name__}: a tagged field without a default is not written")
    ordered = sorted(fields, key=lambda field: int(field.metadata["tag"]))
    writers = tuple((field, varint(field.metadata["tag"]), _value(cls, field)) for field in ordered)

    def write(entity: Any, put: Put) -> None:
        count, written = 0, list[bytes]()
        for field, tag, write_value in writers:
            value = getattr(entity, field.name)
            if value is field.default or value == field.default:
                continue
            parts: list[bytes] = []
            write_value(value, parts.append)
            count += 1
            written += (tag, varint(sum(map(len, parts))), *parts)
        put(varint(count))
        for part in written:
            put(part)

    return write
