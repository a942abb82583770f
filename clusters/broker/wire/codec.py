"""Frames to messages and back: request and response bytes without their length prefix.

Entities are those of kio, which reads and writes them.

Whatever is wrong with the bytes of a peer comes out as MalformedMessageError; nothing else does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from types import ModuleType
from typing import Any, Final

from kio.index import load_payload_module
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.serial import entity_writer
from kio.static.constants import EntityType

from neaptide.clusters.broker.wire import control, control_flexible, control_shutdown, txn_markers
from neaptide.clusters.broker.wire.apis import Api, Versions
from neaptide.clusters.broker.wire.bounds import ELEMENTS_MAX
from neaptide.clusters.broker.wire.reading import UnreadableError, read_entity

LENGTH_BYTES: Final = 4
# Of ZooKeeper-mode controllers: Kafka 4.0 and so kio have them no more.
CONTROL_APIS: Final = frozenset({Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA})
_FLEXIBLE_CONTROL: Final = {Api.LEADER_AND_ISR: 5, Api.UPDATE_METADATA: 7, Api.STOP_REPLICA: 2}
# What no client asks: brokers speak of all partitions that there are.
BROKER_APIS: Final = CONTROL_APIS | {Api.ALTER_PARTITION, Api.CONTROLLED_SHUTDOWN}


class MalformedMessageError(Exception):
    """Bytes that are no message of Kafka's protocol, or of none that was agreed on."""


class UnsupportedVersionError(Exception):
    """A request in a version that this broker does not speak."""

    def __init__(self, header: Header) -> None:
        super().__init__(f"{header.api.name} v{header.version} is not spoken here")
        self.header = header


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a request."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None


@cache
def _module(api: Api, version: int, kind: EntityType) -> ModuleType:
    if api in CONTROL_APIS:
        return control_flexible if version >= _FLEXIBLE_CONTROL[api] else control
    if api is Api.WRITE_TXN_MARKERS and version == 0:
        return txn_markers
    return load_payload_module(int(api), version, kind)  # type: ignore[arg-type]


@cache
def entity_class(api: Api, version: int, kind: EntityType, name: str) -> type[Any]:
    """A nested class of a message, by the name that kio gives it in this version."""
    found: type[Any] = getattr(_module(api, version, kind), name)
    return found


@cache
def request_class(api: Api, version: int) -> type[Any]:
    if api is Api.CONTROLLED_SHUTDOWN:
        return control_shutdown.REQUESTS[version]
    return entity_class(api, version, EntityType.request, f"{api.message_name}Request")


@cache
def response_class(api: Api, version: int) -> type[Any]:
    if api is Api.CONTROLLED_SHUTDOWN:
        return control_shutdown.ControlledShutdownResponse
    return entity_class(api, version, EntityType.response, f"{api.message_name}Response")


@cache
def _writer(cls: Any) -> Any:
    return entity_writer(cls)


@cache
def _field_names(cls: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(cls))


def make(cls: Any, **values: Any) -> Any:
    """An entity of this version: values for fields that it does not have are left out."""
    names = _field_names(cls)
    if names.issuperset(values):
        return cls(**values)
    return cls(**{name: value for name, value in values.items() if name in names})


def decode_request(frame: bytes, apis: Mapping[Api, Versions]) -> tuple[Header, Any]:
    """Raises MalformedMessageError, or UnsupportedVersionError where only the version is wrong."""
    try:
        # The flexible header only adds tagged fields behind the same beginning.
        plain, _, size = read_entity(RequestHeaderV1, frame)
        api = Api(int(plain.request_api_key))
    except (UnreadableError, ValueError) as error:
        raise MalformedMessageError(f"no request header: {error}") from error
    version = int(plain.request_api_version)
    header = Header(api, version, int(plain.correlation_id), plain.client_id)
    if api not in apis:
        raise MalformedMessageError(f"{api.name} is not answered on this listener")
    if version not in apis[api]:
        raise UnsupportedVersionError(header)
    cls: Any = request_class(api, version)
    try:
        if cls.__header_schema__ is not RequestHeaderV1:
            _, frame, size = read_entity(cls.__header_schema__, frame)
        elements_max = None if api in BROKER_APIS else ELEMENTS_MAX
        entity, frame, end = read_entity(cls, frame, size, elements_max)
    except UnreadableError as error:
        raise MalformedMessageError(f"{api.name} v{version}: {error}") from error
    # Kafka ignores what is left. librdkafka leaves a byte: it writes "all topics" of Metadata v9 in
    # four bytes, of which all but one are taken for what comes next.
    if end != len(frame) and not cls.__flexible__:
        raise MalformedMessageError(f"{api.name} v{version}: bytes left over")
    return header, entity


def encode_request(entity: Any, *, correlation_id: int, client_id: str) -> bytes:
    """A frame with its length prefix."""
    cls = type(entity)
    header = cls.__header_schema__(
        request_api_key=cls.__api_key__,
        request_api_version=cls.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _frame(header, entity)


def encode_response(entity: Any, correlation_id: int) -> bytes:
    """A frame with its length prefix."""
    header_class: Any = getattr(type(entity), "__header_schema__", ResponseHeaderV0)
    return _frame(header_class(correlation_id=correlation_id), entity)


def decode_response(frame: bytes, api: Api, version: int) -> tuple[int, Any]:
    """The correlation id and the message."""
    cls: Any = response_class(api, version)
    try:
        header, frame, size = read_entity(cls.__header_schema__, frame)
        entity, _, _ = read_entity(cls, frame, size, None)
    except UnreadableError as error:
        raise MalformedMessageError(f"response to {api.name} v{version}: {error}") from error
    return int(header.correlation_id), entity


def _frame(*entities: Any) -> bytes:
    buffer = BytesIO(bytes(LENGTH_BYTES))
    buffer.seek(LENGTH_BYTES)
    for entity in entities:
        cls: Any = type(entity)
        _writer(cls)(buffer, entity)
    buffer.seek(0)
    buffer.write((len(buffer.getbuffer()) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big"))
    return buffer.getvalue()
