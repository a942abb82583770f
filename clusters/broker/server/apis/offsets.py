"""ListOffsets and OffsetForLeaderEpoch, as a leader answers them and as a follower sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.events import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    READ_UNCOMMITTED,
    by_topic,
    code,
    error_of,
    has_isolation_level,
    in_request,
    in_response,
    reads_committed,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Refused,
    Response,
    ResponseLater,
    SendResponse,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.server.log_reader import Found
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class, response_class

EPOCH_VERSION: Final = 2
# From this version of ListOffsets on, clients know OFFSET_NOT_AVAILABLE (KIP-207).
OFFSET_NOT_AVAILABLE_VERSION: Final = 5

# The least timestamp that stands for something in versions before 9.
_LEAST_TIMESTAMP: Final = {
    **dict.fromkeys(range(7), EARLIEST_TIMESTAMP),
    7: MAX_TIMESTAMP,
    8: EARLIEST_LOCAL_TIMESTAMP,
}

# --- ListOffsets ----------------------------------------------------------------------------------


def _timestamp(asked: int, least: int) -> int:
    """What no version knows where this version does not know it."""
    return asked if asked >= least else LATEST_TIERED_TIMESTAMP - 1


def decode_list_offsets(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.ListOffsetsRequested | Refused:
    least = _LEAST_TIMESTAMP.get(request.header.version, LATEST_TIERED_TIMESTAMP)
    event = events.ListOffsetsRequested(
        request.id,
        int(entity.replica_id),
        tuple(
            events.OffsetAsked(
                TopicPartition(str(topic.name), int(partition.partition_index)),
                _timestamp(int(partition.timestamp), least),
                int(getattr(partition, "current_leader_epoch", -1)),
            )
            for topic in entity.topics
            for partition in topic.partitions
        ),
        reads_committed(entity),
    )
    return event if has_isolation_level(entity) else Refused(event, Error.UNKNOWN_SERVER_ERROR)


def encode_list_offsets(
    request: PendingRequest, effect: effects.RespondListOffsets, context: ApiContext
) -> Response:
    """A look-up may have to open large batches, and there may be many: nobody waits for it."""
    wanted = [result for result in effect.results if result.look_up is not None]
    if not wanted:
        return SendResponse(_list_offsets(request.header.version, effect, {}))

    async def look_up() -> Any:
        found = await context.reader.look_up_all(wanted)
        return _list_offsets(request.header.version, effect, found)

    return ResponseLater(look_up())


def _list_offsets(
    version: int, effect: effects.RespondListOffsets, looked_up: Mapping[TopicPartition, Found]
) -> Any:
    """`looked_up`: by partition, for those that were asked for by time."""
    partition_class = in_response(Api.LIST_OFFSETS, version, "ListOffsetsPartitionResponse")
    topic_class = in_response(Api.LIST_OFFSETS, version, "ListOffsetsTopicResponse")

    def partition(result: effects.OffsetResult) -> Any:
        error, timestamp, offset, epoch = result.error, -1, result.offset, result.leader_epoch
        if result.look_up is not None:
            error, timestamp, offset, epoch = looked_up[result.partition]
        if error is Error.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_VERSION:
            error = Error.LEADER_NOT_AVAILABLE
        return make(
            partition_class,
            partition_index=i32(result.partition.partition),
            error_code=code(error),
            timestamp=i64(timestamp),
            offset=i64(offset),
            leader_epoch=i32(epoch),
        )

    return make(
        response_class(Api.LIST_OFFSETS, version),
        throttle_time=NO_THROTTLE,
        topics=by_topic(
            effect.results,
            lambda name, partitions: topic_class(name=name, partitions=partitions),
            partition,
        ),
    )


def list_offsets_error(
    event: events.ListOffsetsRequested, error: Error
) -> effects.RespondListOffsets:
    failed = (effects.OffsetResult(one.partition, error, -1) for one in event.partitions)
    return effects.RespondListOffsets(event.request, tuple(failed))


def encode_list_offsets_request(effect: effects.SendListOffsets, config: ServerConfig) -> Any:
    api, version = Api.LIST_OFFSETS, config.generation.list_offsets_version
    partition_class = in_request(api, version, "ListOffsetsPartition")
    topic_class = in_request(api, version, "ListOffsetsTopic")
    return make(
        request_class(api, version),
        replica_id=BrokerId(config.broker_id),
        isolation_level=READ_UNCOMMITTED,
        topics=by_topic(
            effect.partitions,
            lambda name, partitions: topic_class(name=name, partitions=partitions),
            lambda one: make(
                partition_class,
                partition_index=i32(one.partition.partition),
                current_leader_epoch=i32(one.current_leader_epoch),
                timestamp=i64(one.timestamp),
            ),
        ),
    )


def decode_list_offsets_response(
    effect: effects.SendListOffsets, response: Any
) -> events.ListOffsetsResponded:
    return events.ListOffsetsResponded(
        effect.fetcher,
        effect.sequence,
        tuple(
            events.ListedOffset(
                TopicPartition(str(topic.name), int(partition.partition_index)),
                error_of(partition.error_code),
                int(partition.offset),
            )
            for topic in response.topics
            for partition in topic.partitions
        ),
    )


# --- OffsetForLeaderEpoch -------------------------------------------------------------------------


def decode_offset_for_leader_epoch(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.OffsetForLeaderEpochRequested:
    return events.OffsetForLeaderEpochRequested(
        request.id,
        tuple(
            events.EpochAsked(
                TopicPartition(str(topic.topic), int(partition.partition)),
                int(partition.leader_epoch),
                int(partition.current_leader_epoch),
            )
            for topic in entity.topics
            for partition in topic.partitions
        ),
    )


def encode_offset_for_leader_epoch(
    request: PendingRequest, effect: effects.RespondOffsetForLeaderEpoch, context: ApiContext
) -> Response:
    api, version = Api.OFFSET_FOR_LEADER_EPOCH, request.header.version
    partition_class = in_response(api, version, "EpochEndOffset")
    topic_class = in_response(api, version, "OffsetForLeaderTopicResult")
    return SendResponse(
        make(
            response_class(api, version),
            throttle_time=NO_THROTTLE,
            topics=by_topic(
                effect.results,
                lambda name, partitions: topic_class(topic=name, partitions=partitions),
                lambda result: make(
                    partition_class,
                    error_code=code(result.error),
                    partition=i32(result.partition.partition),
                    leader_epoch=i32(result.leader_epoch),
                    end_offset=i64(result.end_offset),
                ),
            ),
        )
    )


def offset_for_leader_epoch_error(
    event: events.OffsetForLeaderEpochRequested, error: Error
) -> effects.RespondOffsetForLeaderEpoch:
    failed = (effects.EpochEndOffsetResult(one.partition, error, -1) for one in event.partitions)
    return effects.RespondOffsetForLeaderEpoch(event.request, tuple(failed))


def encode_offset_for_leader_epoch_request(
    effect: effects.SendOffsetForLeaderEpoch, config: ServerConfig
) -> Any:
    api = Api.OFFSET_FOR_LEADER_EPOCH
    partition_class = in_request(api, EPOCH_VERSION, "OffsetForLeaderPartition")
    topic_class = in_request(api, EPOCH_VERSION, "OffsetForLeaderTopic")
    return request_class(api, EPOCH_VERSION)(
        topics=by_topic(
            effect.partitions,
            lambda name, partitions: topic_class(topic=name, partitions=partitions),
            lambda one: partition_class(
                partition=i32(one.partition.partition),
                current_leader_epoch=i32(one.current_leader_epoch),
                leader_epoch=i32(one.leader_epoch),
            ),
        )
    )


def decode_offset_for_leader_epoch_response(
    effect: effects.SendOffsetForLeaderEpoch, response: Any
) -> events.OffsetForLeaderEpochResponded:
    return events.OffsetForLeaderEpochResponded(
        effect.fetcher,
        effect.sequence,
        tuple(
            events.EpochEndOffset(
                TopicPartition(str(topic.topic), int(partition.partition)),
                error_of(partition.error_code),
                int(partition.end_offset),
                int(partition.leader_epoch),
            )
            for topic in response.topics
            for partition in topic.partitions
        ),
    )
