"""LeaderAndIsr v1, StopReplica v0 and UpdateMetadata v4 as kio entities: those of Kafka 1.0 to 2.1.

Kafka 4.0 dropped these requests of ZooKeeper-mode controllers, and kio with it, so they are
declared here in kio's own manner and read and written by kio.
"""

from dataclasses import dataclass
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.parts import RequestPart, ResponsePart, kafka


class _LeaderAndIsrRequestPart(RequestPart, api=Api.LEADER_AND_ISR, version=1):
    __slots__ = ()


class _LeaderAndIsrResponsePart(ResponsePart, api=Api.LEADER_AND_ISR, version=1):
    __slots__ = ()


class _StopReplicaRequestPart(RequestPart, api=Api.STOP_REPLICA, version=0):
    __slots__ = ()


class _StopReplicaResponsePart(ResponsePart, api=Api.STOP_REPLICA, version=0):
    __slots__ = ()


class _UpdateMetadataRequestPart(RequestPart, api=Api.UPDATE_METADATA, version=4):
    __slots__ = ()


class _UpdateMetadataResponsePart(ResponsePart, api=Api.UPDATE_METADATA, version=4):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition(_LeaderAndIsrRequestPart):
    topic: TopicName = kafka("string")
    partition: i32 = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    leader: BrokerId = kafka("int32")
    leader_epoch: i32 = kafka("int32")
    isr: tuple[BrokerId, ...] = kafka("int32")
    zk_version: i32 = kafka("int32")
    replicas: tuple[BrokerId, ...] = kafka("int32")
    is_new: bool = kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader(_LeaderAndIsrRequestPart):
    broker_id: BrokerId = kafka("int32")
    host: str = kafka("string")
    port: i32 = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_LeaderAndIsrRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    partition_states: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionError(_LeaderAndIsrResponsePart):
    topic: TopicName = kafka("string")
    partition: i32 = kafka("int32")
    error_code: ErrorCode = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartition(_StopReplicaRequestPart):
    topic: TopicName = kafka("string")
    partition: i32 = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    delete_partitions: bool = kafka("bool")
    partitions: tuple[StopReplicaPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartition(_UpdateMetadataRequestPart):
    topic: TopicName = kafka("string")
    partition: i32 = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    leader: BrokerId = kafka("int32")
    leader_epoch: i32 = kafka("int32")
    isr: tuple[BrokerId, ...] = kafka("int32")
    zk_version: i32 = kafka("int32")
    replicas: tuple[BrokerId, ...] = kafka("int32")
    offline_replicas: tuple[BrokerId, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadataRequestPart):
    port: i32 = kafka("int32")
    host: str = kafka("string")
    listener: str = kafka("string")
    security_protocol: i16 = kafka("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadataRequestPart):
    broker_id: BrokerId = kafka("int32")
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_UpdateMetadataRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    partition_states: tuple[UpdateMetadataPartition, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_UpdateMetadataResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")
