"""FindCoordinator, OffsetCommit and OffsetFetch."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.apis.entities import NO_THROTTLE, by_topic, code, in_response
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class

METADATA_MAX_BYTES: Final = 4_096  # offset.metadata.max.bytes

# --- FindCoordinator ------------------------------------------------------------------------------


def decode_find_coordinator(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.FindCoordinatorRequested:
    is_transaction = bool(getattr(entity, "key_type", 0))
    return events.FindCoordinatorRequested(
        request.id, str(entity.key), is_transaction=is_transaction
    )


def encode_find_coordinator(
    request: PendingRequest, effect: effects.RespondFindCoordinator, context: ApiContext
) -> Response:
    host, port = "", -1
    registration = context.metadata().brokers.get(effect.coordinator)
    for endpoint in registration.endpoints if registration else ():
        if endpoint.listener == request.connection.listener:
            host, port = endpoint.host, endpoint.port
    return SendResponse(
        make(
            response_class(Api.FIND_COORDINATOR, request.header.version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            error_message=None,
            node_id=BrokerId(effect.coordinator),
            host=host,
            port=i32(port),
        )
    )


def find_coordinator_error(
    event: events.FindCoordinatorRequested, error: Error
) -> effects.RespondFindCoordinator:
    return effects.RespondFindCoordinator(event.request, error, -1)


# --- OffsetCommit ---------------------------------------------------------------------------------


def decode_offset_commit(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.OffsetCommitRequested:
    return events.OffsetCommitRequested(
        request.id,
        str(entity.group_id),
        int(entity.generation_id_or_member_epoch),
        committed_offsets(request, entity, context),
        str(getattr(entity, "member_id", "")),
        getattr(entity, "group_instance_id", None),
    )


def committed_offsets(
    request: PendingRequest, entity: Any, context: ApiContext
) -> tuple[OffsetCommitRecord, ...]:
    """Of a partition that is named twice the last counts, as in Kafka's map. What has too much
    metadata is refused by itself."""
    each = (
        OffsetCommitRecord(
            str(entity.group_id),
            TopicPartition(str(topic.name), int(partition.partition_index)),
            OffsetAndMetadata(
                int(partition.committed_offset),
                int(getattr(partition, "committed_leader_epoch", -1)),
                str(partition.committed_metadata or ""),
            ),
        )
        for topic in entity.topics
        for partition in topic.partitions
    )
    most = int(context.config.settings.get("offset.metadata.max.bytes", METADATA_MAX_BYTES))
    asked = {one.partition: one for one in each}
    for partition, one in asked.items():
        if _metadata_bytes(one) > most:
            request.refused[partition] = Error.OFFSET_METADATA_TOO_LARGE
    return tuple(one for tp, one in asked.items() if tp not in request.refused)


def _metadata_bytes(one: OffsetCommitRecord) -> int:
    committed = one.offset_and_metadata
    return 0 if committed is None else len(committed.metadata.encode())


def encode_offset_commit(
    request: PendingRequest,
    effect: effects.RespondOffsetCommit | effects.RespondTxnOffsetCommit,
    context: ApiContext,
) -> Response:
    """TxnOffsetCommit, too: their responses differ in nothing but their names."""
    api, version = request.header.api, request.header.version
    topic_class, partition_class = (
        in_response(api, version, f"{api.message_name}Response{part}")
        for part in ("Topic", "Partition")
    )
    return SendResponse(
        make(
            response_class(api, version),
            throttle_time=NO_THROTTLE,
            topics=by_topic(
                (*effect.results, *request.refused.items()),
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                lambda result: partition_class(
                    partition_index=i32(result[0].partition), error_code=code(result[1])
                ),
                lambda result: result[0],
            ),
        )
    )


def offset_commit_error(
    event: events.OffsetCommitRequested, error: Error
) -> effects.RespondOffsetCommit:
    failed = tuple((one.partition, error) for one in event.committed)
    return effects.RespondOffsetCommit(event.request, failed)


# --- OffsetFetch ----------------------------------------------------------------------------------


def decode_offset_fetch(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.OffsetFetchRequested:
    partitions = None
    if entity.topics is not None:
        named = (
            TopicPartition(str(topic.name), int(partition))
            for topic in entity.topics
            for partition in topic.partition_indexes
        )
        partitions = tuple(dict.fromkeys(named))
    is_stable = bool(getattr(entity, "require_stable", False))
    return events.OffsetFetchRequested(request.id, str(entity.group_id), partitions, is_stable)


def encode_offset_fetch(
    request: PendingRequest, effect: effects.RespondOffsetFetch, context: ApiContext
) -> Response:
    """Before v2 an error has its place in each partition alone."""
    version = request.header.version
    partition_class = in_response(Api.OFFSET_FETCH, version, "OffsetFetchResponsePartition")
    topic_class = in_response(Api.OFFSET_FETCH, version, "OffsetFetchResponseTopic")

    def partition(result: tuple[TopicPartition, OffsetAndMetadata]) -> Any:
        place, known = result
        is_unstable = place in effect.unstable
        if is_unstable:
            known = OffsetAndMetadata(-1)
        return make(
            partition_class,
            partition_index=i32(place.partition),
            committed_offset=i64(known.offset),
            committed_leader_epoch=i32(known.leader_epoch),
            metadata=known.metadata,
            error_code=code(Error.UNSTABLE_OFFSET_COMMIT if is_unstable else effect.error),
        )

    return SendResponse(
        make(
            response_class(Api.OFFSET_FETCH, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            topics=by_topic(
                effect.results,
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                partition,
                lambda result: result[0],
            ),
        )
    )


def offset_fetch_error(
    event: events.OffsetFetchRequested, error: Error
) -> effects.RespondOffsetFetch:
    asked = tuple((one, OffsetAndMetadata(-1)) for one in event.partitions or ())
    return effects.RespondOffsetFetch(event.request, error, asked)
