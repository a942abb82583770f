"""Produce.

The event of a Produce request names its records by identity: the bytes stay with the server.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.serial.readers import tz_aware_from_i64
from kio.static.primitive import i64

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
    CloseConnection,
    DecodeInThread,
    NoResponse,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.produced import TooMuchAtOnceError, produced_batch
from neaptide.clusters.broker.storage.log import wall_clock_ms
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class


def decode_produce(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.ProduceRequested | DecodeInThread:
    """To validate large batches takes long."""
    try:
        return _validated(request, entity, context, at_once=True)
    except TooMuchAtOnceError:
        return DecodeInThread(partial(_validated, request, entity, context, at_once=False))


def _validated(
    request: PendingRequest, entity: Any, context: ApiContext, *, at_once: bool
) -> events.ProduceRequested:
    """Raises TooMuchAtOnceError where it would take long, and that is not wanted.

    Of a partition that is named twice the last counts, as in Kafka's map.
    """
    now_ms = wall_clock_ms()

    def batch(topic_partition: TopicPartition, records: bytes) -> events.ProducedBatch:
        generation = context.config.generation
        accepted = context.reader.accepted(
            topic_partition, now_ms, generation.message_timestamp_after_max_ms
        )
        if accepted.is_append_time:
            request.append_times[topic_partition] = now_ms
        return produced_batch(
            records,
            request.header.version,
            accepted,
            names_invalid_records=generation.names_invalid_records,
            at_once=at_once,
        )

    partitions = {
        TopicPartition(str(topic.name), int(partition.index)): bytes(partition.records or b"")
        for topic in entity.topic_data
        for partition in topic.partition_data
    }
    return events.ProduceRequested(
        request.id,
        int(entity.acks),
        milliseconds(entity.timeout),
        tuple((one, (batch(one, records),)) for one, records in partitions.items()),
        None if entity.transactional_id is None else str(entity.transactional_id),
    )


def encode_produce(
    request: PendingRequest, effect: effects.RespondProduce, context: ApiContext
) -> Response:
    if effect.acks == 0:
        failed = [result for result in effect.results if result.error is not Error.NONE]
        if not failed:
            return NoResponse()
        return CloseConnection(f"acks=0: {failed[0].error.name} for {failed[0].partition}")
    version = request.header.version
    partition_class = in_response(Api.PRODUCE, version, "PartitionProduceResponse")
    topic_class = in_response(Api.PRODUCE, version, "TopicProduceResponse")

    def partition(result: effects.ProducedPartition) -> Any:
        appended_ms = request.append_times.get(result.partition)
        if result.error is not Error.NONE:
            appended_ms = None
        return make(
            partition_class,
            index=result.partition.partition,
            error_code=code(result.error),
            base_offset=result.base_offset,
            log_append_time=None if appended_ms is None else tz_aware_from_i64(i64(appended_ms)),
            log_start_offset=result.log_start_offset,
            record_errors=(),
            error_message=None,
        )

    return SendResponse(
        make(
            response_class(Api.PRODUCE, version),
            throttle_time=NO_THROTTLE,
            responses=by_topic(
                effect.results,
                lambda name, partitions: topic_class(name=name, partition_responses=partitions),
                partition,
            ),
        )
    )


def produce_error(event: events.ProduceRequested, error: Error) -> effects.RespondProduce:
    failed = tuple(effects.ProducedPartition(one, error, -1, -1) for one, _ in event.partitions)
    return effects.RespondProduce(event.request, event.acks, failed)
