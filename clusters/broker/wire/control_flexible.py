"""LeaderAndIsr v5, UpdateMetadata v7 and StopReplica v2 as kio entities: those of Kafka 2.8 (2.4).

They have the broker's epoch (KIP-380) and tagged fields (KIP-482), and but for StopReplica the id
of each topic (KIP-516).

One tagged field is this project's own: the epoch of each live broker's registration. A leader
compares with it who wants to join the ISR (KIP-903). In Kafka brokers learn it from the metadata
log, which a controller with ZooKeeper has not.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

BROKER_EPOCH_TAG: Final = 10_000  # far from those that Kafka gives


def _kafka(kind: str) -> Any:
    return field(metadata={"kafka_type": kind})


class _RequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(7)
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
    topic_id: UUID | None = _kafka("uuid")
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
    __version__: ClassVar[i16] = i16(7)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(6)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = _kafka("error_code")


# --- LeaderAndIsr ---------------------------------------------------------------------------------

UNKNOWN_TYPE: Final = i8(0)  # whether it names all partitions: Kafka 2.8 does not say


class _LeaderAndIsrRequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(5)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(4)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _LeaderAndIsrResponsePart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(5)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(4)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition(_LeaderAndIsrRequestPart):
    partition: i32 = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    leader: BrokerId = _kafka("int32")
    leader_epoch: i32 = _kafka("int32")
    isr: tuple[BrokerId, ...] = _kafka("int32")
    zk_version: i32 = _kafka("int32")
    replicas: tuple[BrokerId, ...] = _kafka("int32")
    adding_replicas: tuple[BrokerId, ...] = _kafka("int32")
    removing_replicas: tuple[BrokerId, ...] = _kafka("int32")
    is_new: bool = _kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopic(_LeaderAndIsrRequestPart):
    topic: TopicName = _kafka("string")
    topic_id: UUID | None = _kafka("uuid")
    partitions: tuple[LeaderAndIsrPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader(_LeaderAndIsrRequestPart):
    broker_id: BrokerId = _kafka("int32")
    host: str = _kafka("string")
    port: i32 = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_LeaderAndIsrRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    broker_epoch: i64 = _kafka("int64")
    type: i8 = _kafka("int8")
    topic_states: tuple[LeaderAndIsrTopic, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionError(_LeaderAndIsrResponsePart):
    partition: i32 = _kafka("int32")
    error_code: ErrorCode = _kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicErrors(_LeaderAndIsrResponsePart):
    topic_id: UUID | None = _kafka("uuid")
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = _kafka("error_code")
    topics: tuple[TopicErrors, ...]


# --- StopReplica ----------------------------------------------------------------------------------


class _StopReplicaRequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(5)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _StopReplicaResponsePart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(5)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopic(_StopReplicaRequestPart):
    topic: TopicName = _kafka("string")
    partitions: tuple[i32, ...] = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    broker_epoch: i64 = _kafka("int64")
    delete_partitions: bool = _kafka("bool")
    topics: tuple[StopReplicaTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaError(_StopReplicaResponsePart):
    topic: TopicName = _kafka("string")
    partition: i32 = _kafka("int32")
    error_code: ErrorCode = _kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = _kafka("error_code")
    partitions: tuple[StopReplicaError, ...]
