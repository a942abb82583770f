"""ControlledShutdown v1 and v2 as kio entities: declared as the requests in control are.

v2 (Kafka 2.2, KIP-380) names the registration of the broker that stops. v0, of Kafka 0.8, is not
here: its header is one that no other request has.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64


def _kafka(kind: str) -> Any:
    return field(metadata={"kafka_type": kind})


class _Part:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequestV1(_Part):
    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    broker_id: BrokerId = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequestV2(_Part):
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(2)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    broker_id: BrokerId = _kafka("int32")
    broker_epoch: i64 = _kafka("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_Part):
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic: TopicName = _kafka("string")
    partition: i32 = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_Part):
    """The same in both."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = _kafka("error_code")
    partitions: tuple[RemainingPartition, ...]


REQUESTS: dict[int, type[Any]] = {
    1: ControlledShutdownRequestV1,
    2: ControlledShutdownRequestV2,
}
