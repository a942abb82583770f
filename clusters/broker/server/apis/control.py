"""LeaderAndIsr, StopReplica and UpdateMetadata: of the controller, to and from brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32, i64

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    SecurityProtocol,
    TopicPartition,
    is_topic_name,
)
from neaptide.clusters.broker.server.apis.entities import by_topic, code, error_of, in_request
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.wire import control, control_flexible
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    MalformedMessageError,
    make,
    request_class,
    response_class,
)
from neaptide.clusters.broker.wire.topic_ids import text_of, uuid_of

WITH_TOPIC_IDS: Final = 5  # LeaderAndIsr
UPDATE_METADATA_WITH_TOPIC_IDS: Final = 7
FLEXIBLE_STOP_REPLICA: Final = 2

# --- requests, from the controller ----------------------------------------------------------------


def decode_leader_and_isr(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.LeaderAndIsrRequested:
    """Without the topics' settings, which the request does not have."""
    if request.header.version >= WITH_TOPIC_IDS:
        request.topic_ids.update((str(one.topic), one.topic_id) for one in entity.topic_states)
    listener = context.config.inter_broker_listener
    return events.LeaderAndIsrRequested(
        request.id,
        int(entity.controller_id),
        int(entity.controller_epoch),
        _partition_states(entity),
        tuple(
            BrokerRegistration(
                int(live.broker_id), (Endpoint(listener, str(live.host), int(live.port)),)
            )
            for live in entity.live_leaders
        ),
        broker_epoch=_broker_epoch(entity),
    )


def decode_update_metadata(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.UpdateMetadataRequested:
    return events.UpdateMetadataRequested(
        request.id,
        int(entity.controller_id),
        int(entity.controller_epoch),
        _partition_states(entity),
        tuple(
            BrokerRegistration(
                int(live.broker_id),
                tuple(
                    Endpoint(
                        str(end.listener),
                        str(end.host),
                        int(end.port),
                        SecurityProtocol(int(end.security_protocol)),
                    )
                    for end in live.endpoints
                ),
                live.rack,
                epoch=int(getattr(live, "broker_epoch", -1)),
            )
            for live in entity.live_brokers
        ),
        broker_epoch=_broker_epoch(entity),
    )


def decode_stop_replica(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.StopReplicaRequested:
    return events.StopReplicaRequested(
        request.id,
        int(entity.controller_id),
        int(entity.controller_epoch),
        bool(entity.delete_partitions),
        tuple(
            _replica(topic, partition)
            for topic, partition in (
                ((one.topic, one.partition) for one in entity.partitions)
                if request.header.version < FLEXIBLE_STOP_REPLICA
                else ((one.topic, each) for one in entity.topics for each in one.partitions)
            )
        ),
        broker_epoch=_broker_epoch(entity),
    )


def _broker_epoch(entity: Any) -> int:
    """Of the broker that is asked (KIP-380); before that nobody names it."""
    return int(getattr(entity, "broker_epoch", UNKNOWN_BROKER_EPOCH))


def _replica(topic: Any, partition: Any) -> TopicPartition:
    """A replica has a directory of its name: what is no topic's name must not become one."""
    if not is_topic_name(str(topic)) or int(partition) < 0:
        raise MalformedMessageError(f"no partition is called {topic}-{partition}")
    return TopicPartition(str(topic), int(partition))


def _partition_states(entity: Any) -> tuple[events.PartitionState, ...]:
    """By topic only where topics have ids."""
    flat = getattr(entity, "partition_states", ())
    grouped = [(of, one) for of in getattr(entity, "topic_states", ()) for one in of.partitions]
    return tuple(
        events.PartitionState(
            _replica(topic.topic, partition.partition),
            LeaderAndIsr(
                int(partition.leader),
                int(partition.leader_epoch),
                tuple(int(b) for b in partition.isr),
                int(partition.controller_epoch),
                int(partition.zk_version),
            ),
            tuple(int(b) for b in partition.replicas),
            {},
            text_of(getattr(topic, "topic_id", None)),
            bool(getattr(partition, "is_new", False)),
            tuple(int(b) for b in getattr(partition, "offline_replicas", ())),
        )
        for topic, partition in (*((one, one) for one in flat), *grouped)
    )


def handle_leader_and_isr(context: ApiContext, event: events.LeaderAndIsrRequested) -> None:
    context.controller_requests.leader_and_isr(event)


def handle_update_metadata(context: ApiContext, event: events.UpdateMetadataRequested) -> None:
    context.controller_requests.update_metadata(event)


def handle_stop_replica(context: ApiContext, event: events.StopReplicaRequested) -> None:
    context.controller_requests.stop_replica(event)


# --- responses ------------------------------------------------------------------------------------


def encode_leader_and_isr(
    request: PendingRequest, effect: effects.RespondControl, context: ApiContext
) -> Response:
    if request.header.version >= WITH_TOPIC_IDS:
        topics = by_topic(
            effect.partitions,
            lambda name, partitions: control_flexible.TopicErrors(
                topic_id=request.topic_ids.get(name), partitions=partitions
            ),
            lambda one: control_flexible.PartitionError(
                partition=i32(one[0].partition), error_code=code(one[1])
            ),
            lambda one: one[0],
        )
        return SendResponse(
            control_flexible.LeaderAndIsrResponse(error_code=code(effect.error), topics=topics)
        )
    partitions = _partition_errors(effect, control.PartitionError)
    return SendResponse(
        control.LeaderAndIsrResponse(error_code=code(effect.error), partitions=partitions)
    )


def encode_stop_replica(
    request: PendingRequest, effect: effects.RespondControl, context: ApiContext
) -> Response:
    kind = response_class(Api.STOP_REPLICA, request.header.version)
    is_flexible = request.header.version >= FLEXIBLE_STOP_REPLICA
    each = control_flexible.StopReplicaError if is_flexible else control.PartitionError
    return SendResponse(
        kind(error_code=code(effect.error), partitions=_partition_errors(effect, each))
    )


def encode_update_metadata(
    request: PendingRequest, effect: effects.RespondControl, context: ApiContext
) -> Response:
    kind = response_class(Api.UPDATE_METADATA, request.header.version)
    return SendResponse(kind(error_code=code(effect.error)))


def _partition_errors(effect: effects.RespondControl, each: Any) -> tuple[Any, ...]:
    return tuple(
        each(
            topic=TopicName(partition.topic),
            partition=i32(partition.partition),
            error_code=code(error),
        )
        for partition, error in effect.partitions
    )


def control_error(event: effects.ControlRequest, error: Error) -> effects.RespondControl:
    return effects.RespondControl(event.request, error)


# --- requests, of this controller -----------------------------------------------------------------


def encode_leader_and_isr_request(
    message: events.LeaderAndIsrRequested, config: ServerConfig
) -> Any:
    has_ids = config.generation.topic_ids
    version = WITH_TOPIC_IDS if has_ids else 1
    live_class = in_request(Api.LEADER_AND_ISR, version, "LiveLeader")
    return make(
        request_class(Api.LEADER_AND_ISR, version),
        type=control_flexible.UNKNOWN_TYPE,
        controller_id=BrokerId(message.controller_id),
        controller_epoch=i32(message.controller_epoch),
        broker_epoch=i64(message.broker_epoch),
        **_states(Api.LEADER_AND_ISR, version, "LeaderAndIsr", message.partitions, has_ids),
        live_leaders=tuple(
            live_class(
                broker_id=BrokerId(live.broker_id), host=endpoint.host, port=i32(endpoint.port)
            )
            for live in message.live_leaders
            for endpoint in live.endpoints
            if endpoint.listener == config.inter_broker_listener
        ),
    )


def encode_update_metadata_request(
    message: events.UpdateMetadataRequested, config: ServerConfig
) -> Any:
    rules = config.generation
    version = UPDATE_METADATA_WITH_TOPIC_IDS if rules.topic_ids else 4
    broker_class, endpoint_class = (
        in_request(Api.UPDATE_METADATA, version, f"UpdateMetadata{part}")
        for part in ("Broker", "Endpoint")
    )
    return make(
        request_class(Api.UPDATE_METADATA, version),
        controller_id=BrokerId(message.controller_id),
        controller_epoch=i32(message.controller_epoch),
        broker_epoch=i64(message.broker_epoch),
        **_states(
            Api.UPDATE_METADATA, version, "UpdateMetadata", message.partitions, rules.topic_ids
        ),
        live_brokers=tuple(
            make(
                broker_class,
                broker_id=BrokerId(live.broker_id),
                broker_epoch=i64(live.epoch if rules.isr_names_broker_epochs else -1),
                endpoints=tuple(
                    endpoint_class(
                        port=i32(endpoint.port),
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=i16(int(endpoint.protocol)),
                    )
                    for endpoint in live.endpoints
                ),
                rack=live.rack,
            )
            for live in message.live_brokers
        ),
    )


def _states(
    api: Api,
    version: int,
    name: str,
    states: Iterable[events.PartitionState],
    has_topic_ids: bool,
) -> dict[str, Any]:
    """Where topics have ids, partitions are sent by topic."""
    partition_class = in_request(api, version, f"{name}Partition")

    def partition(state: events.PartitionState) -> Any:
        return make(
            partition_class,
            topic=TopicName(state.partition.topic),
            partition=state.partition.partition,
            controller_epoch=state.state.controller_epoch,
            leader=state.state.leader,
            leader_epoch=state.state.leader_epoch,
            isr=state.state.isr,
            zk_version=state.state.version,
            replicas=state.replicas,
            adding_replicas=(),
            removing_replicas=(),
            is_new=state.is_new,
            offline_replicas=state.offline,
        )

    if not has_topic_ids:
        return {"partition_states": tuple(map(partition, states))}
    ids = {one.partition.topic: uuid_of(one.topic_id) for one in states}
    topic_class = in_request(api, version, f"{name}Topic")
    topics = by_topic(
        states,
        lambda of, partitions: topic_class(topic=of, topic_id=ids[of], partitions=partitions),
        partition,
    )
    return {"topic_states": topics}


def encode_stop_replica_request(
    message: events.StopReplicaRequested, config: ServerConfig
) -> control.StopReplicaRequest | control_flexible.StopReplicaRequest:
    controller = BrokerId(message.controller_id)
    epoch = i32(message.controller_epoch)
    named = [(TopicName(one.topic), i32(one.partition)) for one in message.partitions]
    if config.generation.topic_ids:
        return control_flexible.StopReplicaRequest(
            controller_id=controller,
            controller_epoch=epoch,
            broker_epoch=i64(message.broker_epoch),
            delete_partitions=message.delete_partitions,
            topics=tuple(
                control_flexible.StopReplicaTopic(topic=topic, partitions=(partition,))
                for topic, partition in named
            ),
        )
    return control.StopReplicaRequest(
        controller_id=controller,
        controller_epoch=epoch,
        delete_partitions=message.delete_partitions,
        partitions=tuple(
            control.StopReplicaPartition(topic=topic, partition=partition)
            for topic, partition in named
        ),
    )


def control_responded(
    broker: int, message: effects.ControlRequest, response: Any
) -> events.ControlResponded:
    by_error = _by_error(message, response)
    done, lost = (tuple(by_error[one]) for one in (Error.NONE, Error.KAFKA_STORAGE_ERROR))
    error = error_of(response.error_code)
    said = events.ControlResponded(broker, message.controller_epoch, error)
    match message:
        case events.StopReplicaRequested(delete_partitions=True):
            return replace(said, deleted=done)
        case events.LeaderAndIsrRequested():
            return replace(said, offline=lost, online=done)
    return said


def _by_error(
    message: effects.ControlRequest, response: Any
) -> Mapping[Error, list[TopicPartition]]:
    """The partitions of an answer; from 2.8 on LeaderAndIsr's has their topics' ids alone."""
    found: dict[Error, list[TopicPartition]] = defaultdict(list)
    if isinstance(message, events.UpdateMetadataRequested):
        return found
    names = {
        uuid_of(one.topic_id): one.partition.topic
        for one in getattr(message, "partitions", ())
        if isinstance(one, events.PartitionState)
    }
    for topic in getattr(response, "topics", ()):
        for one in topic.partitions:
            place = TopicPartition(names[topic.topic_id], int(one.partition))
            found[error_of(one.error_code)].append(place)
    for one in getattr(response, "partitions", ()):
        place = TopicPartition(str(one.topic), int(one.partition))
        found[error_of(one.error_code)].append(place)
    return found
