"""ControlledShutdown: of a broker that stops, to the controller."""

from __future__ import annotations

from typing import Any

from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.interface import administration, effects
from neaptide.clusters.broker.replication.model import UNKNOWN_BROKER_EPOCH, TopicPartition
from neaptide.clusters.broker.server.apis.entities import code, error_of
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.wire import control_shutdown
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, request_class


def version_of(generation: Generation) -> int:
    """v1 from Kafka 0.9 on, v2 from 2.2 on (KIP-380)."""
    return 2 if generation.checks_broker_epochs else 1


def decode_controlled_shutdown(
    request: PendingRequest, entity: Any, context: ApiContext
) -> administration.ControlledShutdownRequested:
    epoch = int(getattr(entity, "broker_epoch", UNKNOWN_BROKER_EPOCH))
    return administration.ControlledShutdownRequested(request.id, int(entity.broker_id), epoch)


def encode_controlled_shutdown(
    request: PendingRequest, effect: effects.RespondControlledShutdown, context: ApiContext
) -> Response:
    return SendResponse(
        control_shutdown.ControlledShutdownResponse(
            error_code=code(effect.error),
            partitions=tuple(
                control_shutdown.RemainingPartition(
                    topic=TopicName(tp.topic), partition=i32(tp.partition)
                )
                for tp in effect.remaining
            ),
        )
    )


def controlled_shutdown_error(
    event: administration.ControlledShutdownRequested, error: Error
) -> effects.RespondControlledShutdown:
    return effects.RespondControlledShutdown(event.request, error)


# --- of a broker that stops -----------------------------------------------------------------------


def encode_controlled_shutdown_request(
    effect: effects.SendControlledShutdown, config: ServerConfig
) -> Any:
    return make(
        request_class(Api.CONTROLLED_SHUTDOWN, version_of(config.generation)),
        broker_id=BrokerId(config.broker_id),
        broker_epoch=i64(effect.broker_epoch),
    )


def decode_controlled_shutdown_response(
    effect: effects.SendControlledShutdown, response: Any
) -> administration.ControlledShutdownResponded:
    remaining = tuple(
        TopicPartition(str(one.topic), int(one.partition)) for one in response.partitions
    )
    return administration.ControlledShutdownResponded(
        effect.sequence, error_of(response.error_code), remaining
    )
