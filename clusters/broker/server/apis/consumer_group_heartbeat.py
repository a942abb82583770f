"""ConsumerGroupHeartbeat (KIP-848)."""

from __future__ import annotations

import uuid
from typing import Any

from kio.static.primitive import i32

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.assignors import Partitions, TopicIdPartition
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    code,
    duration,
    in_response,
    milliseconds,
    numbers_by_topic,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import response_class
from neaptide.clusters.broker.wire.topic_ids import text_of, uuid_of


def decode_consumer_group_heartbeat(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.ConsumerGroupHeartbeatRequested:
    """A member without an id gets one here: the core knows no chance. From v1 on it brings one."""
    names = entity.subscribed_topic_names
    return events.ConsumerGroupHeartbeatRequested(
        request.id,
        str(entity.group_id),
        str(entity.member_id),
        int(entity.member_epoch),
        str(uuid.uuid4()),
        entity.instance_id,
        entity.rack_id,
        request.header.client_id or "",
        f"/{request.connection.ip}",
        milliseconds(entity.rebalance_timeout),
        None if names is None else tuple(map(str, names)),
        getattr(entity, "subscribed_topic_regex", None),
        entity.server_assignor,
        _owned(entity.topic_partitions),
    )


def _owned(topics: Any) -> Partitions | None:
    if topics is None:
        return None
    return frozenset(
        TopicIdPartition(text_of(topic.topic_id) or "", int(number))
        for topic in topics
        for number in topic.partitions
    )


def encode_consumer_group_heartbeat(
    request: PendingRequest, effect: effects.RespondConsumerGroupHeartbeat, context: ApiContext
) -> Response:
    version = request.header.version
    of_topic, of_member = (
        in_response(Api.CONSUMER_GROUP_HEARTBEAT, version, name)
        for name in ("TopicPartitions", "Assignment")
    )
    assignment = None
    if effect.assigned is not None:
        each = numbers_by_topic(effect.assigned)
        assignment = of_member(
            topic_partitions=tuple(
                of_topic(topic_id=uuid_of(topic_id), partitions=numbers)
                for topic_id, numbers in each
            )
        )
    return SendResponse(
        response_class(Api.CONSUMER_GROUP_HEARTBEAT, version)(
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            member_id=effect.member_id,
            member_epoch=i32(effect.member_epoch),
            heartbeat_interval=duration(effect.heartbeat_interval_ms),
            assignment=assignment,
        )
    )


def consumer_group_heartbeat_error(
    event: events.ConsumerGroupHeartbeatRequested, error: Error
) -> effects.RespondConsumerGroupHeartbeat:
    return effects.RespondConsumerGroupHeartbeat(event.request, error)
