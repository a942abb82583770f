"""DeleteRecords."""

from __future__ import annotations

from typing import Any

from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    by_topic,
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
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class


def decode_delete_records(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.DeleteRecordsRequested:
    """Of a partition that is named twice the last counts, as in Kafka's map."""
    asked = {
        TopicPartition(str(topic.name), int(partition.partition_index)): int(partition.offset)
        for topic in entity.topics
        for partition in topic.partitions
    }
    timeout_ms = milliseconds(entity.timeout)
    return events.DeleteRecordsRequested(request.id, timeout_ms, tuple(asked.items()))


def encode_delete_records(
    request: PendingRequest, effect: effects.RespondDeleteRecords, context: ApiContext
) -> Response:
    version = request.header.version
    partition_class = in_response(Api.DELETE_RECORDS, version, "DeleteRecordsPartitionResult")
    topic_class = in_response(Api.DELETE_RECORDS, version, "DeleteRecordsTopicResult")
    return SendResponse(
        make(
            response_class(Api.DELETE_RECORDS, version),
            throttle_time=NO_THROTTLE,
            topics=by_topic(
                effect.results,
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                lambda result: partition_class(
                    partition_index=i32(result.partition.partition),
                    low_watermark=i64(result.low_watermark),
                    error_code=code(result.error),
                ),
            ),
        )
    )


def delete_records_error(
    event: events.DeleteRecordsRequested, error: Error
) -> effects.RespondDeleteRecords:
    failed = (effects.DeletedRecords(place, error, -1) for place, _ in event.partitions)
    return effects.RespondDeleteRecords(event.request, tuple(failed))
