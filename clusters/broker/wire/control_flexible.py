"""UpdateMetadata v6 as kio entities: the one of Kafka 2.4, with tagged fields (KIP-482).

One tagged field is this project's own: the epoch of each live broker's registration. A leader
compares with it who wants to join the ISR (KIP-903). In Kafka brokers learn it from the metadata
log, which a controller with ZooKeeper has not.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

BROKER_EPOCH_TAG: Final = 10_000  # far from those that Kafka gives


def _kafka(kind: str) -> Any:
    return field(metadata={"kafka_type": kind})


class _RequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(6)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(6)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartition(_RequestPart):
    partition: i32 = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    leader: BrokerId = _kafka("int32")
    leader_epoch: i32 = _kafka("int32")
    isr: tuple[BrokerId, ...] = _kafka("int32")
    zk_version: i32 = _kafka("int32")
    replicas: tuple[BrokerId, ...] = _kafka("int32")
    offline_replicas: tuple[BrokerId, ...] = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopic(_RequestPart):
    topic: TopicName = _kafka("string")
    partitions: tuple[UpdateMetadataPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_RequestPart):
    port: i32 = _kafka("int32")
    host: str = _kafka("string")
    listener: str = _kafka("string")
    security_protocol: i16 = _kafka("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_RequestPart):
    broker_id: BrokerId = _kafka("int32")
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = _kafka("string")
    broker_epoch: i64 = field(
        metadata={"kafka_type": "int64", "tag": BROKER_EPOCH_TAG}, default=i64(-1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_RequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    broker_epoch: i64 = _kafka("int64")
    topic_states: tuple[UpdateMetadataTopic, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(6)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(6)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = _kafka("error_code")
