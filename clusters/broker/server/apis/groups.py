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
    Refused,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class

_OF_A_GROUP, _OF_A_TRANSACTION = 0, 1  # types of coordinators
_SEVERAL_COORDINATORS: Final = 4  # from this version of FindCoordinator on (KIP-699)
_SEVERAL_GROUPS: Final = 8  # from this version of OffsetFetch on (KIP-709)
METADATA_MAX_BYTES: Final = 4_096  # offset.metadata.max.bytes

# --- FindCoordinator ------------------------------------------------------------------------------


def decode_find_coordinator(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.FindCoordinatorRequested | Refused:
    """Of groups and transactional ids: there are no share groups here (KIP-932)."""
    kind = int(getattr(entity, "key_type", _OF_A_GROUP))
    has_several = request.header.version >= _SEVERAL_COORDINATORS
    names = entity.coordinator_keys if has_several else (entity.key,)
    named = tuple(map(str, names))
    event = events.FindCoordinatorRequested(request.id, named, kind == _OF_A_TRANSACTION)
    is_known = kind in (_OF_A_GROUP, _OF_A_TRANSACTION)
    return event if is_known else Refused(event, Error.INVALID_REQUEST)


def encode_find_coordinator(
    request: PendingRequest, effect: effects.RespondFindCoordinator, context: ApiContext
) -> Response:
    version = request.header.version
    whole = response_class(Api.FIND_COORDINATOR, version)
    if version < _SEVERAL_COORDINATORS:
        [one] = effect.found
        found = make(whole, throttle_time=NO_THROTTLE, **_found(request, one, context))
        return SendResponse(found)
    each = in_response(Api.FIND_COORDINATOR, version, "Coordinator")
    coordinators = tuple(
        each(key=one.name, **_found(request, one, context)) for one in effect.found
    )
    return SendResponse(whole(throttle_time=NO_THROTTLE, coordinators=coordinators))


def _found(
    request: PendingRequest, one: effects.FoundCoordinator, context: ApiContext
) -> dict[str, Any]:
    host, port = "", -1
    registration = context.metadata().brokers.get(one.coordinator)
    for endpoint in registration.endpoints if registration else ():
        if endpoint.listener == request.connection.listener:
            host, port = endpoint.host, endpoint.port
    return {
        "error_code": code(one.error),
        "error_message": None,
        "node_id": BrokerId(one.coordinator),
        "host": host,
        "port": i32(port),
    }


def find_coordinator_error(
    event: events.FindCoordinatorRequested, error: Error
) -> effects.RespondFindCoordinator:
    failed = tuple(effects.FoundCoordinator(name, error, -1) for name in event.names)
    return effects.RespondFindCoordinator(event.request, failed)


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
    has_several = request.header.version >= _SEVERAL_GROUPS
    groups = entity.groups if has_several else (entity,)
    is_stable = bool(getattr(entity, "require_stable", False))
    return events.OffsetFetchRequested(request.id, tuple(map(_wanted, groups)), is_stable)


def _wanted(entity: Any) -> events.WantedOffsets:
    """Of one group. Members of the consumer protocol say who they are from v9 on."""
    partitions = None
    if entity.topics is not None:
        named = (
            TopicPartition(str(topic.name), int(partition))
            for topic in entity.topics
            for partition in topic.partition_indexes
        )
        partitions = tuple(dict.fromkeys(named))
    return events.WantedOffsets(
        str(entity.group_id),
        partitions,
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
        [one] = effect.groups
        offsets = _offsets(version, one, ending="")
        return SendResponse(make(whole, throttle_time=NO_THROTTLE, **offsets))
    each = in_response(Api.OFFSET_FETCH, version, "OffsetFetchResponseGroup")
    groups = tuple(
        each(group_id=one.group, **_offsets(version, one, ending="s")) for one in effect.groups
    )
    return SendResponse(whole(throttle_time=NO_THROTTLE, groups=groups))


def _offsets(version: int, group: effects.FetchedOffsets, *, ending: str) -> dict[str, Any]:
    """`ending`: of the names of what is nested."""
    name_of_one = f"OffsetFetchResponsePartition{ending}"
    partition_class = in_response(Api.OFFSET_FETCH, version, name_of_one)
    topic_class = in_response(Api.OFFSET_FETCH, version, f"OffsetFetchResponseTopic{ending}")

    def partition(result: tuple[TopicPartition, OffsetAndMetadata]) -> Any:
        place, known = result
        is_unstable = place in group.unstable
        if is_unstable:
            known = OffsetAndMetadata(-1)
        return make(
            partition_class,
            partition_index=i32(place.partition),
            committed_offset=i64(known.offset),
            committed_leader_epoch=i32(known.leader_epoch),
            metadata=known.metadata,
            error_code=code(Error.UNSTABLE_OFFSET_COMMIT if is_unstable else group.error),
        )

    return {
        "error_code": code(group.error),
        "topics": by_topic(
            group.results,
            lambda name, partitions: topic_class(name=name, partitions=partitions),
            partition,
            lambda result: result[0],
        ),
    }


def offset_fetch_error(
    event: events.OffsetFetchRequested, error: Error
) -> effects.RespondOffsetFetch:
    failed = []
    for group, partitions, *_ in event.groups:
        asked = tuple((one, OffsetAndMetadata(-1)) for one in partitions or ())
        failed.append(effects.FetchedOffsets(group, error, asked))
    return effects.RespondOffsetFetch(event.request, tuple(failed))
