"""AlterPartition: a leader's ISR changes to the controller (KIP-497), v3 (KIP-903)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    by_topic,
    code,
    error_of,
    in_request,
    in_response,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class, response_class
from neaptide.clusters.broker.wire.topic_ids import is_unknown_topic, text_of, uuid_of

VERSION: Final = 3

# --- of a controller ------------------------------------------------------------------------------


def decode_alter_partition(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.AlterPartitionRequested:
    named = [(topic, context.topic_names.name_of(topic.topic_id)) for topic in entity.topics]
    request.topic_ids.update((name, topic.topic_id) for topic, name in named)
    return events.AlterPartitionRequested(
        request.id,
        int(entity.broker_id),
        int(entity.broker_epoch),
        tuple(
            events.AlteredPartition(
                TopicPartition(name, int(partition.partition_index)),
                int(partition.leader_epoch),
                int(partition.partition_epoch),
                tuple(
                    events.IsrMember(int(member.broker_id), int(member.broker_epoch))
                    for member in partition.new_isr_with_epochs
                ),
                text_of(topic.topic_id),
            )
            for topic, name in named
            for partition in topic.partitions
        ),
    )


def encode_alter_partition(
    request: PendingRequest, effect: effects.RespondAlterPartition, context: ApiContext
) -> Response:
    """Of a topic that the controller does not know the answer has the id that was asked for."""
    topic_class = in_response(Api.ALTER_PARTITION, VERSION, "TopicData")
    return SendResponse(
        make(
            response_class(Api.ALTER_PARTITION, VERSION),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            topics=by_topic(
                effect.results,
                lambda name, partitions: topic_class(
                    topic_id=request.topic_ids.get(name), partitions=partitions
                ),
                _encode_result,
            ),
        )
    )


def _encode_result(result: events.AlteredResult) -> Any:
    state = result.state or LeaderAndIsr(-1, -1, (), -1)
    error = result.error
    if error is Error.UNKNOWN_TOPIC_OR_PARTITION and is_unknown_topic(result.partition.topic):
        error = Error.UNKNOWN_TOPIC_ID
    return make(
        in_response(Api.ALTER_PARTITION, VERSION, "PartitionData"),
        partition_index=i32(result.partition.partition),
        error_code=code(error),
        leader_id=BrokerId(state.leader),
        leader_epoch=i32(state.leader_epoch),
        isr=tuple(BrokerId(member) for member in state.isr),
        partition_epoch=i32(state.version),
    )


def alter_partition_error(
    event: events.AlterPartitionRequested, error: Error
) -> effects.RespondAlterPartition:
    return effects.RespondAlterPartition(event.request, error)


# --- of a leader ----------------------------------------------------------------------------------


def encode_alter_partition_request(effect: effects.SendAlterPartition, config: ServerConfig) -> Any:
    partition_class = in_request(Api.ALTER_PARTITION, VERSION, "PartitionData")
    member_class = in_request(Api.ALTER_PARTITION, VERSION, "BrokerState")
    topic_class = in_request(Api.ALTER_PARTITION, VERSION, "TopicData")
    ids = {asked.partition.topic: uuid_of(asked.topic_id) for asked in effect.partitions}
    return make(
        request_class(Api.ALTER_PARTITION, VERSION),
        broker_id=BrokerId(config.broker_id),
        broker_epoch=i64(effect.broker_epoch),
        topics=by_topic(
            effect.partitions,
            lambda name, partitions: topic_class(topic_id=ids[name], partitions=partitions),
            lambda asked: make(
                partition_class,
                partition_index=i32(asked.partition.partition),
                leader_epoch=i32(asked.leader_epoch),
                new_isr_with_epochs=tuple(
                    member_class(
                        broker_id=BrokerId(member.broker_id), broker_epoch=i64(member.broker_epoch)
                    )
                    for member in asked.isr
                ),
                partition_epoch=i32(asked.partition_epoch),
            ),
        ),
    )


def decode_alter_partition_response(
    effect: effects.SendAlterPartition, response: Any
) -> events.AlterPartitionResponded:
    names = {uuid_of(asked.topic_id): asked.partition.topic for asked in effect.partitions}
    results = (
        _decode_result(TopicPartition(names[topic.topic_id], int(found.partition_index)), found)
        for topic in response.topics
        if topic.topic_id in names
        for found in topic.partitions
    )
    return events.AlterPartitionResponded(
        effect.sequence, error_of(response.error_code), tuple(results)
    )


def _decode_result(topic_partition: TopicPartition, found: Any) -> events.AlteredResult:
    """Who controls is not said, nor needed: that is of the state in the coordination service."""
    error = error_of(found.error_code)
    if error is not Error.NONE:
        return events.AlteredResult(topic_partition, error)
    isr: Iterable[int] = (int(member) for member in found.isr)
    state = LeaderAndIsr(
        int(found.leader_id), int(found.leader_epoch), tuple(isr), -1, int(found.partition_epoch)
    )
    return events.AlteredResult(topic_partition, error, state)
