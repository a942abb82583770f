"""ElectLeaders and reassignments of partitions: what operators ask of the controller."""

from __future__ import annotations

from typing import Any

from kio.schema.types import BrokerId
from kio.static.primitive import i32

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import administration, effects
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

# --- ElectLeaders (KIP-183, KIP-460) --------------------------------------------------------------


def decode_elect_leaders(
    request: PendingRequest, entity: Any, context: ApiContext
) -> administration.ElectLeadersRequested:
    """v0 has one type only."""
    kind = int(getattr(entity, "election_type", administration.ElectionType.PREFERRED))
    known = {int(one): one for one in administration.ElectionType}
    asked = entity.topic_partitions
    partitions = (
        None
        if asked is None
        else tuple(
            TopicPartition(str(topic.topic), int(partition))
            for topic in asked
            for partition in topic.partitions
        )
    )
    return administration.ElectLeadersRequested(
        request.id, known.get(kind), partitions, milliseconds(entity.timeout)
    )


def encode_elect_leaders(
    request: PendingRequest, effect: effects.RespondElectLeaders, context: ApiContext
) -> Response:
    version = request.header.version
    topic_class = in_response(Api.ELECT_LEADERS, version, "ReplicaElectionResult")
    partition_class = in_response(Api.ELECT_LEADERS, version, "PartitionResult")
    return SendResponse(
        make(
            response_class(Api.ELECT_LEADERS, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            replica_election_results=by_topic(
                effect.results,
                lambda name, partitions: topic_class(topic=name, partition_result=partitions),
                lambda one: partition_class(
                    partition_id=i32(one.partition.partition),
                    error_code=code(one.error),
                    error_message=one.message,
                ),
            ),
        )
    )


def elect_leaders_error(
    event: administration.ElectLeadersRequested, error: Error
) -> effects.RespondElectLeaders:
    failed = (administration.PartitionResult(tp, error) for tp in event.partitions or ())
    return effects.RespondElectLeaders(event.request, error, tuple(failed))


# --- AlterPartitionReassignments, ListPartitionReassignments (KIP-455) ----------------------------


def decode_alter_partition_reassignments(
    request: PendingRequest, entity: Any, context: ApiContext
) -> administration.AlterPartitionReassignmentsRequested:
    return administration.AlterPartitionReassignmentsRequested(
        request.id,
        tuple(
            administration.Reassigned(
                TopicPartition(str(topic.name), int(one.partition_index)),
                None if one.replicas is None else tuple(int(b) for b in one.replicas),
            )
            for topic in entity.topics
            for one in topic.partitions
        ),
        milliseconds(entity.timeout),
    )


def encode_alter_partition_reassignments(
    request: PendingRequest,
    effect: effects.RespondAlterPartitionReassignments,
    context: ApiContext,
) -> Response:
    api, version = Api.ALTER_PARTITION_REASSIGNMENTS, request.header.version
    topic_class = in_response(api, version, "ReassignableTopicResponse")
    partition_class = in_response(api, version, "ReassignablePartitionResponse")
    return SendResponse(
        make(
            response_class(api, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            error_message=None,
            responses=by_topic(
                effect.results,
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                lambda one: partition_class(
                    partition_index=i32(one.partition.partition),
                    error_code=code(one.error),
                    error_message=one.message,
                ),
            ),
        )
    )


def alter_partition_reassignments_error(
    event: administration.AlterPartitionReassignmentsRequested, error: Error
) -> effects.RespondAlterPartitionReassignments:
    return effects.RespondAlterPartitionReassignments(event.request, error)


def decode_list_partition_reassignments(
    request: PendingRequest, entity: Any, context: ApiContext
) -> administration.ListPartitionReassignmentsRequested:
    partitions = (
        None
        if entity.topics is None
        else tuple(
            TopicPartition(str(topic.name), int(partition))
            for topic in entity.topics
            for partition in topic.partition_indexes
        )
    )
    return administration.ListPartitionReassignmentsRequested(request.id, partitions)


def encode_list_partition_reassignments(
    request: PendingRequest,
    effect: effects.RespondListPartitionReassignments,
    context: ApiContext,
) -> Response:
    api, version = Api.LIST_PARTITION_REASSIGNMENTS, request.header.version
    topic_class = in_response(api, version, "OngoingTopicReassignment")
    partition_class = in_response(api, version, "OngoingPartitionReassignment")
    return SendResponse(
        make(
            response_class(api, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            error_message=None,
            topics=by_topic(
                effect.ongoing,
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                lambda one: partition_class(
                    partition_index=i32(one[0].partition),
                    replicas=_brokers(one[1].replicas),
                    adding_replicas=_brokers(one[1].adding),
                    removing_replicas=_brokers(one[1].removing),
                ),
                lambda one: one[0],
            ),
        )
    )


def _brokers(replicas: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(replica) for replica in replicas)


def list_partition_reassignments_error(
    event: administration.ListPartitionReassignmentsRequested, error: Error
) -> effects.RespondListPartitionReassignments:
    return effects.RespondListPartitionReassignments(event.request, error)
