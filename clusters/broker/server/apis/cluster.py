"""What clients ask of the cluster: ApiVersions, Metadata; to create, grow and delete topics."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import NO_LEADER, is_topic_name
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
)
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    code,
    in_response,
    milliseconds,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    CloseConnection,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.sasl import IllegalSaslStateError
from neaptide.clusters.broker.storage.config import SettingError, check_topic, log_config
from neaptide.clusters.broker.wire.apis import Api, Versions
from neaptide.clusters.broker.wire.codec import make, response_class
from neaptide.clusters.broker.wire.topic_ids import text_of, uuid_of

# Older librdkafkas compress only where Produce v0 is named, so Kafka 4.0 names it too although it
# answers none below v3 (KAFKA-18659). The other APIs are named as they are.
_ADVERTISED_LOWEST: Final[Mapping[Api, int]] = {Api.PRODUCE: 0}
_WITH_CONFIGS: Final = 5  # the first version of CreateTopics whose answers have settings
_OF_THE_TOPIC: Final = i8(1)  # Kafka's DYNAMIC_TOPIC_CONFIG
_KNOWS_DISABLED: Final = 3  # the first of DeleteTopics that has a name for that it is disabled
_DELETES_BY_IDS: Final = 6
_LOOKED_UP_BY_ID: Final = 12  # the first version of Metadata in which topics are

# --- ApiVersions ----------------------------------------------------------------------------------


def answer_api_versions(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    sasl = request.connection.sasl
    if sasl is not None and not sasl.is_complete:
        try:
            sasl.ask_versions()
        except IllegalSaslStateError as error:
            return CloseConnection(f"ApiVersions: {error}")
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
                max_version=versions.highest,
            )
            for api, versions in sorted(apis.items())
        ),
    )


# --- Metadata -------------------------------------------------------------------------------------


def answer_metadata(request: PendingRequest, entity: Any, context: ApiContext) -> Any:
    """Topics that it names may be created by that (auto.create.topics.enable), never those of which
    it has the id (v12 on). Where any is asked for by its id, no names are looked at, as in Kafka.
    """
    asked, version = entity.topics, request.header.version
    known = context.metadata()
    if asked is None or (version == 0 and not asked):
        found = [_found(version, known, topic) for topic in sorted(known.topics)]
    elif any(_is_malformed(version, topic) for topic in asked):
        found = [_failed(version, topic, Error.INVALID_REQUEST) for topic in asked]
    elif ids := dict.fromkeys(one for topic in asked if (one := _id_of(topic)) is not None):
        names = {one: context.topic_names.name_of(one) for one in ids}
        found = [
            _found(version, known, name)
            if name in known.topics
            else _described(version, Error.UNKNOWN_TOPIC_ID, None, one)
            for one, name in names.items()
        ]
    else:
        named = tuple(dict.fromkeys(str(topic.name) for topic in asked))
        if getattr(entity, "allow_auto_topic_creation", True):
            for name in named:
                context.topic_creation.want(name)
        found = [
            _found(version, known, name)
            if name in known.topics
            else _not_found(version, name, context.topic_creation.being_created)
            for name in named
        ]
    return _metadata(request, known, tuple(found), context.cluster_id())


def _id_of(topic: Any) -> UUID | None:
    """None: it is asked for by its name."""
    given = getattr(topic, "topic_id", None)
    return None if given is None or given.int == 0 else given


def _is_malformed(version: int, topic: Any) -> bool:
    """v10 and v11 have ids in requests, and Kafka refuses them there."""
    if version < _LOOKED_UP_BY_ID:
        return topic.name is None or _id_of(topic) is not None
    return topic.name is None and _id_of(topic) is None


def _metadata(
    request: PendingRequest,
    known: MetadataCache,
    topics: tuple[Any, ...],
    cluster_id: str | None,
) -> Any:
    version = request.header.version
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
        if endpoint.listener == request.connection.listener
    )
    return make(
        response_class(Api.METADATA, version),
        throttle_time=NO_THROTTLE,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=known.controller_id,
        topics=topics,
        error_code=code(Error.NONE),
    )


def _not_found(version: int, topic: str, being_created: Container[str]) -> Any:
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    if not is_topic_name(topic):
        error = Error.INVALID_TOPIC_EXCEPTION
    elif topic in being_created:
        error = Error.LEADER_NOT_AVAILABLE
    return _described(version, error, topic, None)


def _failed(version: int, topic: Any, error: Error) -> Any:
    """A topic in the answer to a request that is refused as a whole: as it was named there."""
    name = topic.name
    if name is None and version < _LOOKED_UP_BY_ID:
        name = ""  # there none may be null
    return _described(version, error, name, _id_of(topic))


def _found(version: int, known: MetadataCache, topic: str) -> Any:
    partition_class = in_response(Api.METADATA, version, "MetadataResponsePartition")
    partitions = []
    for number, one in sorted(known.topics[topic].items()):
        has_leader = one.state.leader != NO_LEADER and one.state.leader in known.brokers
        partitions.append(
            make(
                partition_class,
                error_code=code(Error.NONE if has_leader else Error.LEADER_NOT_AVAILABLE),
                partition_index=number,
                leader_id=one.state.leader if has_leader else NO_LEADER,
                leader_epoch=one.state.leader_epoch,
                replica_nodes=one.replicas,
                isr_nodes=one.state.isr,
                offline_replicas=tuple(
                    replica
                    for replica in one.replicas
                    if replica not in known.brokers or replica in one.offline
                ),
            )
        )
    topic_id = uuid_of(known.topic_ids.get(topic))
    return _described(version, Error.NONE, topic, topic_id, tuple(partitions))


def _described(
    version: int,
    error: Error,
    name: str | None,
    topic_id: UUID | None,
    partitions: tuple[Any, ...] = (),
) -> Any:
    return make(
        in_response(Api.METADATA, version, "MetadataResponseTopic"),
        error_code=code(error),
        name=None if name is None else TopicName(name),
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=partitions,
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
            check_topic({str(one.name): one.value for one in topic.configs})
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


def decode_create_partitions(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.CreatePartitionsRequested:
    def new(topic: Any) -> events.NewPartitions:
        given = topic.assignments
        if given is not None:
            given = tuple(tuple(int(b) for b in one.broker_ids) for one in given)
        return events.NewPartitions(str(topic.name), int(topic.count), given)

    return events.CreatePartitionsRequested(
        request.id,
        tuple(map(new, entity.topics)),
        milliseconds(entity.timeout),
        bool(entity.validate_only),
    )


def encode_create_partitions(
    request: PendingRequest, effect: effects.RespondCreatePartitions, context: ApiContext
) -> Response:
    version = request.header.version
    result = in_response(Api.CREATE_PARTITIONS, version, "CreatePartitionsTopicResult")
    return SendResponse(
        make(
            response_class(Api.CREATE_PARTITIONS, version),
            throttle_time=NO_THROTTLE,
            results=tuple(
                result(
                    name=TopicName(one.topic),
                    error_code=code(one.error),
                    error_message=one.message,
                )
                for one in effect.results
            ),
        )
    )


def create_partitions_error(
    event: events.CreatePartitionsRequested, error: Error
) -> effects.RespondCreatePartitions:
    failed = tuple(effects.TopicResult(new.topic, error) for new in event.topics)
    return effects.RespondCreatePartitions(event.request, failed)


# --- DeleteTopics ---------------------------------------------------------------------------------


def decode_delete_topics(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.DeleteTopicsRequested:
    """Names up to v5, then names or ids. What is named twice is deleted once."""
    if request.header.version < _DELETES_BY_IDS:
        named = [events.TopicToDelete(str(name)) for name in entity.topic_names]
    else:
        named = [
            events.TopicToDelete(None, text_of(one.topic_id))
            if one.name is None
            else events.TopicToDelete(str(one.name))
            for one in entity.topics
        ]
    topics = tuple(dict.fromkeys(named))
    return events.DeleteTopicsRequested(request.id, topics, milliseconds(entity.timeout))


def encode_delete_topics(
    request: PendingRequest, effect: effects.RespondDeleteTopics, context: ApiContext
) -> Response:
    version = request.header.version
    result = in_response(Api.DELETE_TOPICS, version, "DeletableTopicResult")

    def error(one: effects.TopicDeletionResult) -> Error:
        is_old = one.error is Error.TOPIC_DELETION_DISABLED and version < _KNOWS_DISABLED
        return Error.INVALID_REQUEST if is_old else one.error

    return SendResponse(
        make(
            response_class(Api.DELETE_TOPICS, version),
            throttle_time=NO_THROTTLE,
            responses=tuple(
                make(
                    result,
                    name=None if one.topic is None else TopicName(one.topic),
                    topic_id=uuid_of(one.topic_id),
                    error_code=code(error(one)),
                    error_message=None,
                )
                for one in effect.results
            ),
        )
    )


def delete_topics_error(
    event: events.DeleteTopicsRequested, error: Error
) -> effects.RespondDeleteTopics:
    failed = tuple(effects.TopicDeletionResult(*named, error) for named in event.topics)
    return effects.RespondDeleteTopics(event.request, failed)


def encode_create_topics(
    request: PendingRequest, effect: effects.RespondCreateTopics, context: ApiContext
) -> Response:
    version = request.header.version
    return SendResponse(
        make(
            response_class(Api.CREATE_TOPICS, version),
            throttle_time=NO_THROTTLE,
            topics=tuple(_topic_result(version, result) for result in effect.results),
        )
    )


def _topic_result(version: int, result: effects.TopicResult) -> Any:
    """From v5 on with what was created (KIP-525): of the settings those that are the topic's own;
    from v7 on with its id.
    """
    values: dict[str, Any] = {"configs": (), "topic_id": None}
    created = result.configuration
    if created is not None:
        values["num_partitions"] = i32(len(created.assignment))
        values["replication_factor"] = i16(len(created.assignment[0]))
        values["topic_id"] = uuid_of(created.topic_id)
        if version >= _WITH_CONFIGS:
            config_class = in_response(Api.CREATE_TOPICS, version, "CreatableTopicConfigs")
            values["configs"] = tuple(
                make(
                    config_class,
                    name=name,
                    value=value,
                    read_only=False,
                    config_source=_OF_THE_TOPIC,
                    is_sensitive=False,
                )
                for name, value in sorted(created.settings.items())
            )
    return make(
        in_response(Api.CREATE_TOPICS, version, "CreatableTopicResult"),
        name=TopicName(result.topic),
        error_code=code(result.error),
        error_message=result.message,
        **values,
    )


def create_topics_error(
    event: events.CreateTopicsRequested, error: Error
) -> effects.RespondCreateTopics:
    failed = tuple(effects.TopicResult(new.topic, error) for new in event.topics)
    return effects.RespondCreateTopics(event.request, failed)
