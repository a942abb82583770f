"""WriteTxnMarkers v0 as kio entities: that of Kafka 0.11 to 2.7, which kio has no more.

By the names of kio's later versions.
"""

from dataclasses import dataclass
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.parts import RequestPart, ResponsePart, kafka


class _RequestPart(RequestPart, api=Api.WRITE_TXN_MARKERS, version=0):
    __slots__ = ()


class _ResponsePart(ResponsePart, api=Api.WRITE_TXN_MARKERS, version=0):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopic(_RequestPart):
    name: TopicName = kafka("string")
    partition_indexes: tuple[i32, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarker(_RequestPart):
    producer_id: ProducerId = kafka("int64")
    producer_epoch: i16 = kafka("int16")
    transaction_result: bool = kafka("bool")  # whether it is a commit
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: i32 = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersRequest(_RequestPart):
    __type__: ClassVar = EntityType.request
    markers: tuple[WritableTxnMarker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult(_ResponsePart):
    partition_index: i32 = kafka("int32")
    error_code: ErrorCode = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult(_ResponsePart):
    name: TopicName = kafka("string")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult(_ResponsePart):
    producer_id: ProducerId = kafka("int64")
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse(_ResponsePart):
    __type__: ClassVar = EntityType.response
    markers: tuple[WritableTxnMarkerResult, ...]
