"""What clients ask of the cluster: ApiVersions, Metadata, CreateTopics."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final

from kio.schema.types import TopicName

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import NO_LEADER, is_topic_name
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    code,
    in_response,
    milliseconds,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.storage.config import SettingError, log_config
from neaptide.clusters.broker.wire.apis import Api, Versions
from neaptide.clusters.broker.wire.codec import make, response_class
from neaptide.clusters.broker.wire.topic_ids import FETCH_WITH_TOPIC_IDS

_ANY: Final = (1 << 15) - 1
# Older librdkafkas compress only where Produce v0 is named, so Kafka 4.0 names it too although it
# answers none below v3 (KAFKA-18659). The other APIs are named as they are.
_ADVERTISED_LOWEST: Final[Mapping[Api, int]] = {Api.PRODUCE: 0}
# From there on Fetch names topics by ids, as brokers do here to each other: clients are not given
# any, also where they share the brokers' listener.
_ADVERTISED_HIGHEST: Final[Mapping[Api, int]] = {Api.FETCH: FETCH_WITH_TOPIC_IDS - 1}

# --- ApiVersions ----------------------------------------------------------------------------------


def answer_api_versions(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    apis = context.apis_on(request.connection.listener)
    return encode_api_versions(request.header.version, apis, Error.NONE)


def encode_api_versions(version: int, apis: Mapping[Api, Versions], error: Error) -> Any:
    """What is answered on this listener; v0 with the error where the asked version is unknown."""
    api_class = in_response(Api.API_VERSIONS, version, "ApiVersion")
    return make(
        response_class(Api.API_VERSIONS, version),
        error_code=code(error),
        throttle_time=NO_THROTTLE,
        api_keys=tuple(
            make(
                api_class,
                api_key=api,
                min_version=_ADVERTISED_LOWEST.get(api, versions.lowest),
                max_version=min(versions.highest, _ADVERTISED_HIGHEST.get(api, _ANY)),
            )
            for api, versions in sorted(apis.items())
        ),
    )


# --- Metadata -------------------------------------------------------------------------------------


def answer_metadata(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    """Topics that it names may be created by that (auto.create.topics.enable)."""
    asked = entity.topics
    every = asked is None or (request.header.version == 0 and not asked)
    topics = None if every else tuple(str(topic.name) for topic in asked)
    if topics is not None and getattr(entity, "allow_auto_topic_creation", True):
        for topic in topics:
            context.topic_creation.want(topic)
    return _metadata(
        request.header.version,
        context.metadata(),
        topics,
        listener=request.connection.listener,
        cluster_id=context.cluster_id(),
        being_created=context.topic_creation.being_created,
    )


def _metadata(
    version: int,
    known: MetadataCache,
    topics: tuple[str, ...] | None,
    *,
    listener: str,
    cluster_id: str | None,
    being_created: Container[str],
) -> Any:
    """`topics` None: all of them."""
    broker_class = in_response(Api.METADATA, version, "MetadataResponseBroker")
    brokers = tuple(
        make(
            broker_class,
            node_id=broker_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=registration.rack,
        )
        for broker_id, registration in sorted(known.brokers.items())
        for endpoint in registration.endpoints
        if endpoint.listener == listener
    )
    wanted = tuple(sorted(known.topics)) if topics is None else topics
    return make(
        response_class(Api.METADATA, version),
        throttle_time=NO_THROTTLE,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=known.controller_id,
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
    partition_class = in_response(Api.METADATA, version, "MetadataResponsePartition")
    described = []
    for number, one in sorted((partitions or {}).items()):
        has_leader = one.state.leader != NO_LEADER and one.state.leader in known.brokers
        described.append(
            make(
                partition_class,
                error_code=code(Error.NONE if has_leader else Error.LEADER_NOT_AVAILABLE),
                partition_index=number,
                leader_id=one.state.leader if has_leader else NO_LEADER,
                leader_epoch=one.state.leader_epoch,
                replica_nodes=one.replicas,
                isr_nodes=one.state.isr,
                offline_replicas=tuple(
                    replica for replica in one.replicas if replica not in known.brokers
                ),
            )
        )
    return make(
        in_response(Api.METADATA, version, "MetadataResponseTopic"),
        error_code=code(error),
        name=TopicName(topic),
        is_internal=topic == OFFSETS_TOPIC,
        partitions=tuple(described),
    )


# --- CreateTopics ---------------------------------------------------------------------------------


def decode_create_topics(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.CreateTopicsRequested:
    """A topic is refused alone for a setting that its log could not be opened with."""

    def new_topic(topic: Any) -> events.NewTopic:
        new = events.NewTopic(
            str(topic.name),
            int(topic.num_partitions),
            int(topic.replication_factor),
            {
                int(given.partition_index): tuple(int(b) for b in given.broker_ids)
                for given in topic.assignments
            },
            {str(given.name): str(given.value or "") for given in topic.configs},
        )
        try:
            log_config(context.config.settings, new.settings)
        except SettingError as error:
            return replace(new, refused=str(error))
        return new

    return events.CreateTopicsRequested(
        request.id,
        tuple(new_topic(topic) for topic in entity.topics),
        milliseconds(entity.timeout),
        bool(entity.validate_only),
    )


def encode_create_topics(
    request: PendingRequest, effect: effects.RespondCreateTopics, context: ApiContext
) -> Response:
    version = request.header.version
    topic_class = in_response(Api.CREATE_TOPICS, version, "CreatableTopicResult")
    return SendResponse(
        make(
            response_class(Api.CREATE_TOPICS, version),
            throttle_time=NO_THROTTLE,
            topics=tuple(
                make(
                    topic_class,
                    name=TopicName(result.topic),
                    error_code=code(result.error),
                    error_message=result.message,
                )
                for result in effect.results
            ),
        )
    )


def create_topics_error(
    event: events.CreateTopicsRequested, error: Error
) -> effects.RespondCreateTopics:
    failed = tuple(effects.TopicResult(new.topic, error) for new in event.topics)
    return effects.RespondCreateTopics(event.request, failed)
