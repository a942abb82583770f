"""Effects of the core that answer a request, to Kafka's responses in the version asked. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.serial.readers import tz_aware_from_i64
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition, is_topic_name
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.wire import control
from neaptide.clusters.broker.wire.apis import ADVERTISED_LOWEST, Api, Versions
from neaptide.clusters.broker.wire.codec import entity_class, make, response_class

_NO_THROTTLE = i32Timedelta.parse(timedelta(0))


def _code(error: Error) -> ErrorCode:
    return ErrorCode(int(error))


def _nested(api: Api, version: int, name: str) -> type[Any]:
    return entity_class(api, version, EntityType.response, name)


def _by_topic(results: Iterable[Any]) -> dict[str, list[Any]]:
    """Results by topic, in order; each has a `partition`."""
    topics: dict[str, list[Any]] = {}
    for result in results:
        topics.setdefault(result.partition.topic, []).append(result)
    return topics


def produce(
    version: int, effect: effects.RespondProduce, append_times: Mapping[TopicPartition, int]
) -> Any:
    """`append_times`: of the partitions whose records have the time of their append, in ms."""

    def append_time(result: effects.ProducedPartition) -> Any:
        appended_ms = append_times.get(result.partition)
        if appended_ms is None or result.error is not Error.NONE:
            return None
        return tz_aware_from_i64(i64(appended_ms))

    partition_class = _nested(Api.PRODUCE, version, "PartitionProduceResponse")
    topic_class = _nested(Api.PRODUCE, version, "TopicProduceResponse")
    return make(
        response_class(Api.PRODUCE, version),
        throttle_time=_NO_THROTTLE,
        responses=tuple(
            topic_class(
                name=TopicName(topic),
                partition_responses=tuple(
                    make(
                        partition_class,
                        index=i32(result.partition.partition),
                        error_code=_code(result.error),
                        base_offset=i64(result.base_offset),
                        log_append_time=append_time(result),
                        log_start_offset=i64(result.log_start_offset),
                    )
                    for result in results
                ),
            )
            for topic, results in _by_topic(effect.results).items()
        ),
    )


def init_producer_id(version: int, effect: effects.RespondInitProducerId) -> Any:
    return make(
        response_class(Api.INIT_PRODUCER_ID, version),
        throttle_time=_NO_THROTTLE,
        error_code=_code(effect.error),
        producer_id=ProducerId(effect.producer_id),
        producer_epoch=i16(effect.producer_epoch),
    )


def find_coordinator(
    version: int, effect: effects.RespondFindCoordinator, known: MetadataCache, *, listener: str
) -> Any:
    host, port = "", -1
    registration = known.brokers.get(effect.coordinator)
    for endpoint in registration.endpoints if registration else ():
        if endpoint.listener == listener:
            host, port = endpoint.host, endpoint.port
    return make(
        response_class(Api.FIND_COORDINATOR, version),
        throttle_time=_NO_THROTTLE,
        error_code=_code(effect.error),
        error_message=None,
        node_id=BrokerId(effect.coordinator),
        host=host,
        port=i32(port),
    )


def offset_commit(version: int, effect: effects.RespondOffsetCommit) -> Any:
    partition_class = _nested(Api.OFFSET_COMMIT, version, "OffsetCommitResponsePartition")
    topic_class = _nested(Api.OFFSET_COMMIT, version, "OffsetCommitResponseTopic")
    topics: dict[str, list[Any]] = {}
    for (topic, number), error in effect.results:
        answer = partition_class(partition_index=i32(number), error_code=_code(error))
        topics.setdefault(topic, []).append(answer)
    return make(
        response_class(Api.OFFSET_COMMIT, version),
        throttle_time=_NO_THROTTLE,
        topics=tuple(
            topic_class(name=TopicName(topic), partitions=tuple(answers))
            for topic, answers in topics.items()
        ),
    )


def offset_fetch(version: int, effect: effects.RespondOffsetFetch) -> Any:
    """Before v2 an error has its place in each partition alone."""
    partition_class = _nested(Api.OFFSET_FETCH, version, "OffsetFetchResponsePartition")
    topic_class = _nested(Api.OFFSET_FETCH, version, "OffsetFetchResponseTopic")
    topics: dict[str, list[Any]] = {}
    for (topic, number), position in effect.results:
        answer = make(
            partition_class,
            partition_index=i32(number),
            committed_offset=i64(position.offset),
            committed_leader_epoch=i32(position.leader_epoch),
            metadata=position.metadata,
            error_code=_code(effect.error),
        )
        topics.setdefault(topic, []).append(answer)
    return make(
        response_class(Api.OFFSET_FETCH, version),
        throttle_time=_NO_THROTTLE,
        error_code=_code(effect.error),
        topics=tuple(
            topic_class(name=TopicName(topic), partitions=tuple(answers))
            for topic, answers in topics.items()
        ),
    )


def fetch(version: int, effect: effects.RespondFetch, read: Mapping[TopicPartition, bytes]) -> Any:
    """`read`: the records of each partition that has some."""
    partition_class = _nested(Api.FETCH, version, "PartitionData")
    topic_class = _nested(Api.FETCH, version, "FetchableTopicResponse")
    return make(
        response_class(Api.FETCH, version),
        throttle_time=_NO_THROTTLE,
        error_code=_code(Error.NONE),
        responses=tuple(
            topic_class(
                topic=TopicName(topic),
                partitions=tuple(
                    make(
                        partition_class,
                        partition_index=i32(result.partition.partition),
                        error_code=_code(result.error),
                        high_watermark=i64(result.high_watermark),
                        last_stable_offset=i64(result.high_watermark),
                        log_start_offset=i64(result.log_start_offset),
                        aborted_transactions=None,
                        records=read.get(result.partition, b""),
                    )
                    for result in results
                ),
            )
            for topic, results in _by_topic(effect.results).items()
        ),
    )


class Found(NamedTuple):
    """What a look-up by time came to: a record's timestamp and offset; -1: there is none."""

    error: Error = Error.NONE
    timestamp: int = -1
    offset: int = -1


def list_offsets(
    version: int,
    effect: effects.RespondListOffsets,
    looked_up: Mapping[TopicPartition, Found],
) -> Any:
    """`looked_up`: by partition, for those that were asked for by time."""
    partition_class = _nested(Api.LIST_OFFSETS, version, "ListOffsetsPartitionResponse")
    topic_class = _nested(Api.LIST_OFFSETS, version, "ListOffsetsTopicResponse")

    def answer(result: effects.OffsetResult) -> Any:
        error, timestamp, offset = result.error, -1, result.offset
        if result.look_up is not None:
            error, timestamp, offset = looked_up[result.partition]
        return make(
            partition_class,
            partition_index=i32(result.partition.partition),
            error_code=_code(error),
            timestamp=i64(timestamp),
            offset=i64(offset),
            leader_epoch=i32(result.leader_epoch),
        )

    return make(
        response_class(Api.LIST_OFFSETS, version),
        throttle_time=_NO_THROTTLE,
        topics=tuple(
            topic_class(
                name=TopicName(topic), partitions=tuple(answer(result) for result in results)
            )
            for topic, results in _by_topic(effect.results).items()
        ),
    )


def offset_for_leader_epoch(version: int, effect: effects.RespondOffsetForLeaderEpoch) -> Any:
    api = Api.OFFSET_FOR_LEADER_EPOCH
    end_class = _nested(api, version, "EpochEndOffset")
    topic_class = _nested(api, version, "OffsetForLeaderTopicResult")
    return make(
        response_class(api, version),
        throttle_time=_NO_THROTTLE,
        topics=tuple(
            topic_class(
                topic=TopicName(topic),
                partitions=tuple(
                    make(
                        end_class,
                        error_code=_code(result.error),
                        partition=i32(result.partition.partition),
                        leader_epoch=i32(result.leader_epoch),
                        end_offset=i64(result.end_offset),
                    )
                    for result in results
                ),
            )
            for topic, results in _by_topic(effect.results).items()
        ),
    )


def control_response(api: Api, effect: effects.RespondControl) -> Any:
    error_code = _code(effect.error)
    partitions = tuple(
        control.PartitionError(
            topic=TopicName(partition.topic),
            partition=i32(partition.partition),
            error_code=_code(error),
        )
        for partition, error in effect.partitions
    )
    if api is Api.LEADER_AND_ISR:
        return control.LeaderAndIsrResponse(error_code=error_code, partitions=partitions)
    if api is Api.STOP_REPLICA:
        return control.StopReplicaResponse(error_code=error_code, partitions=partitions)
    return control.UpdateMetadataResponse(error_code=error_code)


def create_topics(version: int, effect: effects.RespondCreateTopics) -> Any:
    topic_class = _nested(Api.CREATE_TOPICS, version, "CreatableTopicResult")
    return make(
        response_class(Api.CREATE_TOPICS, version),
        throttle_time=_NO_THROTTLE,
        topics=tuple(
            make(
                topic_class,
                name=TopicName(result.topic),
                error_code=_code(result.error),
                error_message=result.message,
            )
            for result in effect.results
        ),
    )


def api_versions(version: int, apis: Mapping[Api, Versions], error: Error) -> Any:
    """What is answered on this listener; v0 with the error where the asked version is unknown."""
    api_class = _nested(Api.API_VERSIONS, version, "ApiVersion")
    return make(
        response_class(Api.API_VERSIONS, version),
        error_code=_code(error),
        throttle_time=_NO_THROTTLE,
        api_keys=tuple(
            make(
                api_class,
                api_key=i16(api),
                min_version=i16(ADVERTISED_LOWEST.get(api, versions.lowest)),
                max_version=i16(versions.highest),
            )
            for api, versions in sorted(apis.items())
        ),
    )


def metadata(
    version: int,
    known: MetadataCache,
    topics: tuple[str, ...] | None,
    *,
    listener: str,
    cluster_id: str | None,
    being_created: Container[str],
) -> Any:
    """`topics` None: all of them."""
    broker_class = _nested(Api.METADATA, version, "MetadataResponseBroker")
    brokers = []
    for broker_id, registration in sorted(known.brokers.items()):
        for endpoint in registration.endpoints:
            if endpoint.listener == listener:
                brokers.append(
                    make(
                        broker_class,
                        node_id=BrokerId(broker_id),
                        host=endpoint.host,
                        port=i32(endpoint.port),
                        rack=registration.rack,
                    )
                )
    wanted = tuple(sorted(known.topics)) if topics is None else topics
    return make(
        response_class(Api.METADATA, version),
        throttle_time=_NO_THROTTLE,
        brokers=tuple(brokers),
        cluster_id=cluster_id,
        controller_id=BrokerId(known.controller_id),
        topics=tuple(_topic(version, known, topic, being_created) for topic in wanted),
    )


def _topic(version: int, known: MetadataCache, topic: str, being_created: Container[str]) -> Any:
    partitions = known.topics.get(topic)
    error = Error.NONE
    if partitions is None:
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
        if not is_topic_name(topic):
            error = Error.INVALID_TOPIC_EXCEPTION
        elif topic in being_created:
            error = Error.LEADER_NOT_AVAILABLE
    partition_class = _nested(Api.METADATA, version, "MetadataResponsePartition")
    described = []
    for number, told in sorted((partitions or {}).items()):
        has_leader = told.state.leader != NO_LEADER and told.state.leader in known.brokers
        described.append(
            make(
                partition_class,
                error_code=_code(Error.NONE if has_leader else Error.LEADER_NOT_AVAILABLE),
                partition_index=i32(number),
                leader_id=BrokerId(told.state.leader if has_leader else NO_LEADER),
                leader_epoch=i32(told.state.leader_epoch),
                replica_nodes=tuple(BrokerId(replica) for replica in told.replicas),
                isr_nodes=tuple(BrokerId(replica) for replica in told.state.isr),
                offline_replicas=tuple(
                    BrokerId(replica) for replica in told.replicas if replica not in known.brokers
                ),
            )
        )
    return make(
        _nested(Api.METADATA, version, "MetadataResponseTopic"),
        error_code=_code(error),
        name=TopicName(topic),
        is_internal=topic == OFFSETS_TOPIC,
        partitions=tuple(described),
    )
