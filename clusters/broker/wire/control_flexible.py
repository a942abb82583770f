"""LeaderAndIsr v5, UpdateMetadata v7 and StopReplica v2 as kio entities: those of Kafka 2.8 (2.4).

They have the broker's epoch (KIP-380) and tagged fields (KIP-482), and but for StopReplica the id
of each topic (KIP-516).

One tagged field is this project's own: the epoch of each live broker's registration. A leader
compares with it who wants to join the ISR (KIP-903). In Kafka brokers learn it from the metadata
log, which a controller with ZooKeeper has not.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.parts import RequestPart, ResponsePart, kafka

BROKER_EPOCH_TAG: Final = 10_000  # far from those that Kafka gives


class _RequestPart(RequestPart, api=Api.UPDATE_METADATA, version=7, flexible=True):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartition(_RequestPart):
    partition: i32 = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    leader: BrokerId = kafka("int32")
    leader_epoch: i32 = kafka("int32")
    isr: tuple[BrokerId, ...] = kafka("int32")
    zk_version: i32 = kafka("int32")
    replicas: tuple[BrokerId, ...] = kafka("int32")
    offline_replicas: tuple[BrokerId, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopic(_RequestPart):
    topic: TopicName = kafka("string")
    topic_id: UUID | None = kafka("uuid")
    partitions: tuple[UpdateMetadataPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_RequestPart):
    port: i32 = kafka("int32")
    host: str = kafka("string")
    listener: str = kafka("string")
    security_protocol: i16 = kafka("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_RequestPart):
    broker_id: BrokerId = kafka("int32")
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = kafka("string")
    broker_epoch: i64 = field(
        metadata={"kafka_type": "int64", "tag": BROKER_EPOCH_TAG}, default=i64(-1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_RequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    broker_epoch: i64 = kafka("int64")
    topic_states: tuple[UpdateMetadataTopic, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(ResponsePart, api=Api.UPDATE_METADATA, version=7, flexible=True):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")


# --- LeaderAndIsr ---------------------------------------------------------------------------------

UNKNOWN_TYPE: Final = i8(0)  # whether it names all partitions: Kafka 2.8 does not say


class _LeaderAndIsrRequestPart(RequestPart, api=Api.LEADER_AND_ISR, version=5, flexible=True):
    __slots__ = ()


class _LeaderAndIsrResponsePart(ResponsePart, api=Api.LEADER_AND_ISR, version=5, flexible=True):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition(_LeaderAndIsrRequestPart):
    partition: i32 = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    leader: BrokerId = kafka("int32")
    leader_epoch: i32 = kafka("int32")
    isr: tuple[BrokerId, ...] = kafka("int32")
    zk_version: i32 = kafka("int32")
    replicas: tuple[BrokerId, ...] = kafka("int32")
    adding_replicas: tuple[BrokerId, ...] = kafka("int32")
    removing_replicas: tuple[BrokerId, ...] = kafka("int32")
    is_new: bool = kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopic(_LeaderAndIsrRequestPart):
    topic: TopicName = kafka("string")
    topic_id: UUID | None = kafka("uuid")
    partitions: tuple[LeaderAndIsrPartition, ...]


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
    broker_epoch: i64 = kafka("int64")
    type: i8 = kafka("int8")
    topic_states: tuple[LeaderAndIsrTopic, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionError(_LeaderAndIsrResponsePart):
    partition: i32 = kafka("int32")
    error_code: ErrorCode = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicErrors(_LeaderAndIsrResponsePart):
    topic_id: UUID | None = kafka("uuid")
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")
    topics: tuple[TopicErrors, ...]


# --- StopReplica ----------------------------------------------------------------------------------


class _StopReplicaRequestPart(RequestPart, api=Api.STOP_REPLICA, version=2, flexible=True):
    __slots__ = ()


class _StopReplicaResponsePart(ResponsePart, api=Api.STOP_REPLICA, version=2, flexible=True):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopic(_StopReplicaRequestPart):
    topic: TopicName = kafka("string")
    partitions: tuple[i32, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaRequestPart):
    __type__: ClassVar = EntityType.request
    controller_id: BrokerId = kafka("int32")
    controller_epoch: i32 = kafka("int32")
    broker_epoch: i64 = kafka("int64")
    delete_partitions: bool = kafka("bool")
    topics: tuple[StopReplicaTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaError(_StopReplicaResponsePart):
    topic: TopicName = kafka("string")
    partition: i32 = kafka("int32")
    error_code: ErrorCode = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaResponsePart):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = kafka("error_code")
    partitions: tuple[StopReplicaError, ...]
