"""Bytes of answers that the gate makes or changes: an error in place of what was answered, or
ApiVersions with a lower version of one API. Pure.

kio writes what it has; Produce v0 to v2, which it has not, is written here.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from neaptide.nemesis.gate import apis, decode
from neaptide.nemesis.gate.messages import TopicPartition

_OLD_PRODUCE: Final = range(0, 3)
_NO_OFFSET: Final = -1


def with_error(
    frame: bytes, api_key: int, version: int, partitions: Iterable[TopicPartition], error: int
) -> bytes | None:
    """A response that says this error wherever it can say one; None: the gate cannot write it."""
    if api_key == apis.PRODUCE and version in _OLD_PRODUCE:
        return refused_produce(decode.correlation_id(frame), version, partitions, error)
    entity = decode.response_entity(frame, api_key, version)
    if entity is None:
        return None
    return _response(decode.correlation_id(frame), api_key, version, _erring(entity, error))


def refused_produce(
    correlation_id: int, version: int, partitions: Iterable[TopicPartition], error: int
) -> bytes | None:
    """What a leader answers that refuses a Produce; None: the gate cannot write that version."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    if version in _OLD_PRODUCE:
        return _framed(_old_produce(correlation_id, version, by_topic, error))
    try:
        schema = import_module(f"kio.schema.produce.v{version}.response")
    except ModuleNotFoundError:
        return None
    topics = tuple(
        _new(
            schema.TopicProduceResponse,
            {
                **_topic(schema.TopicProduceResponse, topic),
                "partition_responses": tuple(
                    _new(
                        schema.PartitionProduceResponse,
                        {"index": n, "error_code": ErrorCode(error), "base_offset": _NO_OFFSET},
                    )
                    for n in numbers
                ),
            },
        )
        for topic, numbers in by_topic.items()
    )
    entity = _new(schema.ProduceResponse, {"responses": topics})
    return _response(correlation_id, apis.PRODUCE, version, entity)


def capped(frame: bytes, version: int, api_key: int, most: int) -> bytes | None:
    """An ApiVersions response in which an API has no version above `most`, or is not there.

    None: nothing had to be changed, or the gate cannot read it.
    """
    entity = decode.response_entity(frame, apis.API_VERSIONS, version)
    if entity is None:
        return None
    kept = tuple(
        replace(row, max_version=type(row.max_version)(min(int(row.max_version), most)))
        if int(row.api_key) == api_key
        else row
        for row in entity.api_keys
        if int(row.api_key) != api_key or int(row.min_version) <= most
    )
    if kept == entity.api_keys:
        return None
    changed = replace(entity, api_keys=kept)
    return _response(decode.correlation_id(frame), apis.API_VERSIONS, version, changed)


def _erring(entity: Any, error: int) -> Any:
    """The same, with every error in it replaced."""
    changes: dict[str, Any] = {}
    for entry in fields(entity):
        value = getattr(entity, entry.name)
        if entry.name == "error_code":
            changes[entry.name] = ErrorCode(error)
        elif isinstance(value, tuple) and any(is_dataclass(inner) for inner in value):
            changes[entry.name] = tuple(_erring(inner, error) for inner in value)
    return replace(entity, **changes)


def _new(kind: type, values: Mapping[str, Any]) -> Any:
    """An entity with these fields, of those that it has; what is a list is empty."""
    known = {entry.name: entry for entry in fields(kind)}
    given = {name: value for name, value in values.items() if name in known}
    for name, entry in known.items():
        if name not in given and entry.default is MISSING:
            given[name] = _nothing(str(entry.type))
    return kind(**given)


def _nothing(kind: str) -> Any:
    """What stands for nothing in a field that has no default."""
    if kind.startswith("tuple"):
        return ()
    if "Timedelta" in kind:
        return timedelta(0)
    return None if "None" in kind else 0


def _topic(kind: type, topic: str) -> dict[str, str | UUID]:
    """By its name, or where requests have ids of topics (Produce v13, KIP-516) by that."""
    has_id = any(entry.name == "topic_id" for entry in fields(kind))
    return {"topic_id": UUID(topic)} if has_id else {"name": topic}


def _response(correlation_id: int, api_key: int, version: int, entity: Any) -> bytes:
    tags = b"\x00" if apis.response_is_flexible(api_key, version) else b""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return _framed(struct.pack(">i", correlation_id) + tags + buffer.getvalue())


def _old_produce(
    correlation_id: int, version: int, by_topic: Mapping[str, list[int]], error: int
) -> bytes:
    body = struct.pack(">ii", correlation_id, len(by_topic))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        body += struct.pack(">h", len(name)) + name + struct.pack(">i", len(numbers))
        for number in numbers:
            body += struct.pack(">ihq", number, error, _NO_OFFSET)
            body += struct.pack(">q", -1) if version >= 2 else b""
    return body + (struct.pack(">i", 0) if version >= 1 else b"")


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
