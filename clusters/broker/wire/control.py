"""LeaderAndIsr v1, StopReplica v0 and UpdateMetadata v4 as kio entities: those of Kafka 1.0 to 2.1.

Kafka 4.0 dropped these requests of ZooKeeper-mode controllers, and kio with it, so they are
declared here in kio's own manner and read and written by kio.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32


def _kafka(kind: str) -> Any:
    return field(metadata={"kafka_type": kind})


# What kio asks of every class of a message: its version, its API, and the header before it.


class _LeaderAndIsrRequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(4)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _LeaderAndIsrResponsePart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(4)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


class _StopReplicaRequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(5)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _StopReplicaResponsePart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(5)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


class _UpdateMetadataRequestPart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(4)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(6)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _UpdateMetadataResponsePart:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(4)
    __flexible__: ClassVar[bool] = False
    __api_key__: ClassVar[i16] = i16(6)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition(_LeaderAndIsrRequestPart):
    topic: TopicName = _kafka("string")
    partition: i32 = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    leader: BrokerId = _kafka("int32")
    leader_epoch: i32 = _kafka("int32")
    isr: tuple[BrokerId, ...] = _kafka("int32")
    zk_version: i32 = _kafka("int32")
    replicas: tuple[BrokerId, ...] = _kafka("int32")
    is_new: bool = _kafka("bool")


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
    partition_states: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionError(_LeaderAndIsrResponsePart):
    topic: TopicName = _kafka("string")
    partition: i32 = _kafka("int32")
    error_code: ErrorCode = _kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = _kafka("error_code")
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartition(_StopReplicaRequestPart):
    topic: TopicName = _kafka("string")
    partition: i32 = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    delete_partitions: bool = _kafka("bool")
    partitions: tuple[StopReplicaPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = _kafka("error_code")
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartition(_UpdateMetadataRequestPart):
    topic: TopicName = _kafka("string")
    partition: i32 = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    leader: BrokerId = _kafka("int32")
    leader_epoch: i32 = _kafka("int32")
    isr: tuple[BrokerId, ...] = _kafka("int32")
    zk_version: i32 = _kafka("int32")
    replicas: tuple[BrokerId, ...] = _kafka("int32")
    offline_replicas: tuple[BrokerId, ...] = _kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadataRequestPart):
    port: i32 = _kafka("int32")
    host: str = _kafka("string")
    listener: str = _kafka("string")
    security_protocol: i16 = _kafka("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadataRequestPart):
    broker_id: BrokerId = _kafka("int32")
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = _kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_UpdateMetadataRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = _kafka("int32")
    controller_epoch: i32 = _kafka("int32")
    partition_states: tuple[UpdateMetadataPartition, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_UpdateMetadataResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = _kafka("error_code")
