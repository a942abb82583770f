"""Requests that this broker sends, as effects say them, to Kafka's requests; and their answers
back to events. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, cast

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i32, i32Timedelta, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.server.sequences import sequence_of
from neaptide.clusters.broker.storage.errors import RecordBatchError
from neaptide.clusters.broker.storage.record_batch import parse_batches
from neaptide.clusters.broker.wire import control
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import entity_class, make, request_class

READ_UNCOMMITTED = i8(0)
EPOCH_VERSION = 2


def _error(code: ErrorCode) -> Error:
    """A code that the core does not know is an error all the same."""
    known = Error._value2member_map_.get(int(code.value), Error.UNKNOWN_SERVER_ERROR)
    return cast(Error, known)


def _nested(api: Api, version: int, name: str) -> type[Any]:
    return entity_class(api, version, EntityType.request, name)


def _grouped(asked: Iterable[Any]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for one in asked:
        topics.setdefault(one.partition.topic, []).append(one)
    return topics


def fetch(broker_id: int, version: int, effect: effects.SendFetch) -> Any:
    partition_class = _nested(Api.FETCH, version, "FetchPartition")
    topic_class = _nested(Api.FETCH, version, "FetchTopic")
    return make(
        request_class(Api.FETCH, version),
        replica_id=BrokerId(broker_id),
        max_wait=i32Timedelta.parse(timedelta(milliseconds=effect.max_wait_ms)),
        min_bytes=i32(effect.min_bytes),
        max_bytes=i32(effect.max_bytes),
        isolation_level=READ_UNCOMMITTED,
        topics=tuple(
            topic_class(
                topic=TopicName(topic),
                partitions=tuple(
                    make(
                        partition_class,
                        partition=i32(one.partition.partition),
                        current_leader_epoch=i32(one.current_leader_epoch),
                        fetch_offset=i64(one.fetch_offset),
                        log_start_offset=i64(one.log_start_offset),
                        partition_max_bytes=i32(one.max_bytes),
                    )
                    for one in asked
                ),
            )
            for topic, asked in _grouped(effect.partitions).items()
        ),
        forgotten_topics_data=(),
    )


def fetch_responded(effect: effects.SendFetch, response: Any) -> events.FetchResponded:
    """Batches have their own bytes as identity. A corrupt batch is an error of its partition."""
    results = []
    for topic in response.responses:
        for partition in topic.partitions:
            error = _error(partition.error_code)
            batches: tuple[Batch, ...] = ()
            try:
                batches = _batches(bytes(partition.records or b""))
            except RecordBatchError:
                error = Error.CORRUPT_MESSAGE
            results.append(
                events.FetchResult(
                    TopicPartition(str(topic.topic), int(partition.partition_index)),
                    error,
                    int(partition.high_watermark),
                    int(getattr(partition, "log_start_offset", -1)),
                    batches,
                )
            )
    return events.FetchResponded(effect.fetcher, effect.sequence, tuple(results))


def _batches(records: bytes) -> tuple[Batch, ...]:
    batches, position = [], 0
    for header in parse_batches(records):
        batches.append(
            Batch(
                header.base_offset,
                header.offset_count,
                header.leader_epoch,
                header.size,
                records[position : position + header.size],
                sequence_of(header),
            )
        )
        position += header.size
    return tuple(batches)


def offset_for_leader_epoch(effect: effects.SendOffsetForLeaderEpoch) -> Any:
    api = Api.OFFSET_FOR_LEADER_EPOCH
    partition_class = _nested(api, EPOCH_VERSION, "OffsetForLeaderPartition")
    topic_class = _nested(api, EPOCH_VERSION, "OffsetForLeaderTopic")
    return request_class(api, EPOCH_VERSION)(
        topics=tuple(
            topic_class(
                topic=TopicName(topic),
                partitions=tuple(
                    partition_class(
                        partition=i32(one.partition.partition),
                        current_leader_epoch=i32(one.current_leader_epoch),
                        leader_epoch=i32(one.leader_epoch),
                    )
                    for one in asked
                ),
            )
            for topic, asked in _grouped(effect.partitions).items()
        )
    )


def epochs_responded(
    effect: effects.SendOffsetForLeaderEpoch, response: Any
) -> events.OffsetForLeaderEpochResponded:
    return events.OffsetForLeaderEpochResponded(
        effect.fetcher,
        effect.sequence,
        tuple(
            events.EpochEndOffset(
                TopicPartition(str(topic.topic), int(partition.partition)),
                _error(partition.error_code),
                int(partition.end_offset),
                int(partition.leader_epoch),
            )
            for topic in response.topics
            for partition in topic.partitions
        ),
    )


def list_offsets(broker_id: int, version: int, effect: effects.SendListOffsets) -> Any:
    api = Api.LIST_OFFSETS
    partition_class = _nested(api, version, "ListOffsetsPartition")
    topic_class = _nested(api, version, "ListOffsetsTopic")
    return make(
        request_class(api, version),
        replica_id=BrokerId(broker_id),
        isolation_level=READ_UNCOMMITTED,
        topics=tuple(
            topic_class(
                name=TopicName(topic),
                partitions=tuple(
                    make(
                        partition_class,
                        partition_index=i32(one.partition.partition),
                        current_leader_epoch=i32(one.current_leader_epoch),
                        timestamp=i64(one.timestamp),
                    )
                    for one in asked
                ),
            )
            for topic, asked in _grouped(effect.partitions).items()
        ),
    )


def offsets_responded(
    effect: effects.SendListOffsets, response: Any
) -> events.ListOffsetsResponded:
    return events.ListOffsetsResponded(
        effect.fetcher,
        effect.sequence,
        tuple(
            events.ListedOffset(
                TopicPartition(str(topic.name), int(partition.partition_index)),
                _error(partition.error_code),
                int(partition.offset),
            )
            for topic in response.topics
            for partition in topic.partitions
        ),
    )


# --- of the controller ---------------------------------------------------------------------------


def control_request(message: effects.ControlRequest, listener: str) -> Any:
    match message:
        case events.LeaderAndIsrRequested():
            return _leader_and_isr(message, listener)
        case events.UpdateMetadataRequested():
            return _update_metadata(message)
        case events.StopReplicaRequested():
            return control.StopReplicaRequest(
                controller_id=BrokerId(message.controller_id),
                controller_epoch=i32(message.controller_epoch),
                broker_epoch=i64(message.broker_epoch),
                delete_partitions=message.delete_partitions,
                topics=tuple(
                    control.StopReplicaTopic(
                        topic=TopicName(tp.topic), partitions=(i32(tp.partition),)
                    )
                    for tp in message.partitions
                ),
            )


def _topic_states(
    message: events.LeaderAndIsrRequested | events.UpdateMetadataRequested,
    topic_class: type[Any],
    partition: Callable[[events.PartitionState], Any],
) -> tuple[Any, ...]:
    return tuple(
        topic_class(topic=TopicName(topic), partitions=tuple(partition(state) for state in states))
        for topic, states in _grouped(message.partitions).items()
    )


def _common(state: events.PartitionState) -> dict[str, Any]:
    return {
        "partition": i32(state.partition.partition),
        "controller_epoch": i32(state.state.controller_epoch),
        "leader": BrokerId(state.state.leader),
        "leader_epoch": i32(state.state.leader_epoch),
        "isr": tuple(BrokerId(b) for b in state.state.isr),
        "zk_version": i32(state.state.version),
        "replicas": tuple(BrokerId(b) for b in state.replicas),
    }


def _leader_and_isr(message: events.LeaderAndIsrRequested, listener: str) -> Any:
    leaders = []
    for live in message.live_leaders:
        for endpoint in live.endpoints:
            if endpoint.listener == listener:
                leaders.append(
                    control.LiveLeader(
                        broker_id=BrokerId(live.broker_id),
                        host=endpoint.host,
                        port=i32(endpoint.port),
                    )
                )
    return control.LeaderAndIsrRequest(
        controller_id=BrokerId(message.controller_id),
        controller_epoch=i32(message.controller_epoch),
        broker_epoch=i64(message.broker_epoch),
        topic_states=_topic_states(
            message,
            control.LeaderAndIsrTopic,
            lambda state: control.LeaderAndIsrPartition(**_common(state), is_new=False),
        ),
        live_leaders=tuple(leaders),
    )


def _update_metadata(message: events.UpdateMetadataRequested) -> Any:
    return control.UpdateMetadataRequest(
        controller_id=BrokerId(message.controller_id),
        controller_epoch=i32(message.controller_epoch),
        broker_epoch=i64(message.broker_epoch),
        topic_states=_topic_states(
            message,
            control.UpdateMetadataTopic,
            lambda state: control.UpdateMetadataPartition(**_common(state), offline_replicas=()),
        ),
        live_brokers=tuple(
            control.UpdateMetadataBroker(
                broker_id=BrokerId(live.broker_id),
                endpoints=tuple(
                    control.UpdateMetadataEndpoint(
                        port=i32(endpoint.port),
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=control.SECURITY_PROTOCOL_PLAINTEXT,
                    )
                    for endpoint in live.endpoints
                ),
                rack=live.rack,
            )
            for live in message.live_brokers
        ),
    )


def control_responded(broker: int, controller_epoch: int, response: Any) -> events.ControlResponded:
    error = _error(response.error_code)
    return events.ControlResponded(broker, controller_epoch, error)
