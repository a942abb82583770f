"""FindCoordinator, OffsetCommit and OffsetFetch."""

from __future__ import annotations

from dataclasses import replace
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

_SEVERAL_COORDINATORS: Final = 4  # from this version of FindCoordinator on (KIP-699)
_SEVERAL_GROUPS: Final = 8  # from this version of OffsetFetch on (KIP-709)
METADATA_MAX_BYTES: Final = 4_096  # offset.metadata.max.bytes

# --- FindCoordinator ------------------------------------------------------------------------------


def decode_find_coordinator(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.FindCoordinatorRequested:
    """From v4 on it may name several. Raises ValueError: it names none."""
    is_transaction = bool(getattr(entity, "key_type", 0))
    if request.header.version < _SEVERAL_COORDINATORS:
        return events.FindCoordinatorRequested(request.id, str(entity.key), is_transaction)
    request.names.extend(map(str, entity.coordinator_keys))
    name, *others = request.names
    return events.FindCoordinatorRequested(request.id, name, is_transaction, tuple(others))


def encode_find_coordinator(
    request: PendingRequest, effect: effects.RespondFindCoordinator, context: ApiContext
) -> Response:
    version = request.header.version
    whole = response_class(Api.FIND_COORDINATOR, version)
    if version < _SEVERAL_COORDINATORS:
        return SendResponse(
            make(whole, throttle_time=NO_THROTTLE, **_found(request, effect, context))
        )
    each = in_response(Api.FIND_COORDINATOR, version, "Coordinator")
    found = zip(request.names, (effect, *effect.others), strict=True)
    coordinators = tuple(each(key=key, **_found(request, one, context)) for key, one in found)
    return SendResponse(whole(throttle_time=NO_THROTTLE, coordinators=coordinators))


def _found(
    request: PendingRequest, effect: effects.RespondFindCoordinator, context: ApiContext
) -> dict[str, Any]:
    host, port = "", -1
    registration = context.metadata().brokers.get(effect.coordinator)
    for endpoint in registration.endpoints if registration else ():
        if endpoint.listener == request.connection.listener:
            host, port = endpoint.host, endpoint.port
    return {
        "error_code": code(effect.error),
        "error_message": None,
        "node_id": BrokerId(effect.coordinator),
        "host": host,
        "port": i32(port),
    }


def find_coordinator_error(
    event: events.FindCoordinatorRequested, error: Error
) -> effects.RespondFindCoordinator:
    each = [effects.RespondFindCoordinator(event.request, error, -1) for _ in event.others]
    return effects.RespondFindCoordinator(event.request, error, -1, tuple(each))


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
    """Raises ValueError: it names no group."""
    is_stable = bool(getattr(entity, "require_stable", False))
    if request.header.version < _SEVERAL_GROUPS:
        return _wanted(request, entity, is_stable=is_stable)
    request.names.extend(str(one.group_id) for one in entity.groups)
    first, *others = (_wanted(request, one, is_stable=is_stable) for one in entity.groups)
    return replace(first, others=tuple(others))


def _wanted(
    request: PendingRequest, entity: Any, *, is_stable: bool
) -> events.OffsetFetchRequested:
    """Of one group. Members of the consumer protocol say who they are from v9 on."""
    partitions = None
    if entity.topics is not None:
        named = (
            TopicPartition(str(topic.name), int(partition))
            for topic in entity.topics
            for partition in topic.partition_indexes
        )
        partitions = tuple(dict.fromkeys(named))
    return events.OffsetFetchRequested(
        request.id,
        str(entity.group_id),
        partitions,
        is_stable,
        str(getattr(entity, "member_id", None) or ""),
        int(getattr(entity, "member_epoch", -1)),
    )


def encode_offset_fetch(
    request: PendingRequest, effect: effects.RespondOffsetFetch, context: ApiContext
) -> Response:
    """Before v2 an error has its place in each partition alone."""
    version = request.header.version
    whole = response_class(Api.OFFSET_FETCH, version)
    if version < _SEVERAL_GROUPS:
        return SendResponse(
            make(whole, throttle_time=NO_THROTTLE, **_offsets(version, effect, ending=""))
        )
    group_class = in_response(Api.OFFSET_FETCH, version, "OffsetFetchResponseGroup")
    found = zip(request.names, (effect, *effect.others), strict=True)
    groups = tuple(
        group_class(group_id=name, **_offsets(version, one, ending="s")) for name, one in found
    )
    return SendResponse(whole(throttle_time=NO_THROTTLE, groups=groups))


def _offsets(version: int, effect: effects.RespondOffsetFetch, *, ending: str) -> dict[str, Any]:
    """`ending`: of the names of what is nested."""
    name_of_one = f"OffsetFetchResponsePartition{ending}"
    partition_class = in_response(Api.OFFSET_FETCH, version, name_of_one)
    topic_class = in_response(Api.OFFSET_FETCH, version, f"OffsetFetchResponseTopic{ending}")

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

    return {
        "error_code": code(effect.error),
        "topics": by_topic(
            effect.results,
            lambda name, partitions: topic_class(name=name, partitions=partitions),
            partition,
            lambda result: result[0],
        ),
    }


def offset_fetch_error(
    event: events.OffsetFetchRequested, error: Error
) -> effects.RespondOffsetFetch:
    asked = tuple((one, OffsetAndMetadata(-1)) for one in event.partitions or ())
    others = tuple(offset_fetch_error(one, error) for one in event.others)
    return effects.RespondOffsetFetch(event.request, error, asked, others=others)
