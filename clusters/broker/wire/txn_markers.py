"""WriteTxnMarkers v0 as kio entities: that of Kafka 0.11 to 2.7, which kio has no more.

By the names of kio's later versions.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32


def _kafka(kind: str) -> Any:
    return field(metadata={"kafka_type": kind})


class _RequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(27)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _ResponsePart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(27)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopic(_RequestPart):
    name: TopicName = _kafka("string")
    partition_indexes: tuple[i32, ...] = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarker(_RequestPart):
    producer_id: ProducerId = _kafka("int64")
    producer_epoch: i16 = _kafka("int16")
    transaction_result: bool = _kafka("bool")  # whether it is a commit
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: i32 = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersRequest(_RequestPart):
    __type__: ClassVar = EntityType.request
    markers: tuple[WritableTxnMarker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult(_ResponsePart):
    partition_index: i32 = _kafka("int32")
    error_code: ErrorCode = _kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult(_ResponsePart):
    name: TopicName = _kafka("string")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult(_ResponsePart):
    producer_id: ProducerId = _kafka("int64")
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse(_ResponsePart):
    __type__: ClassVar = EntityType.response
    markers: tuple[WritableTxnMarkerResult, ...]
