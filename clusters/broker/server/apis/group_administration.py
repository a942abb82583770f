"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.assignors import Partitions
from neaptide.clusters.broker.replication.group.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
)
from neaptide.clusters.broker.replication.group.group_metadata import (
    Group,
    GroupState,
    Member,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
    by_topic,
    code,
    in_response,
    numbers_by_topic,
)
from neaptide.clusters.broker.server.apis.row import (
    ApiContext,
    PendingRequest,
    Response,
    SendResponse,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import make, response_class
from neaptide.clusters.broker.wire.topic_ids import uuid_of

_CLASSIC_MEMBER: Final = i8(0)
_CONSUMER_MEMBER: Final = i8(1)
_NOBODY_ASKED: Final = i32(-(2**31))  # what operations are allowed

# --- DescribeGroups -------------------------------------------------------------------------------


def decode_describe_groups(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.DescribeGroupsRequested:
    return events.DescribeGroupsRequested(request.id, tuple(map(str, entity.groups)))


def encode_describe_groups(
    request: PendingRequest, effect: effects.RespondDescribeGroups, context: ApiContext
) -> Response:
    version = request.header.version
    return SendResponse(
        make(
            response_class(Api.DESCRIBE_GROUPS, version),
            throttle_time=NO_THROTTLE,
            groups=tuple(_described(version, group, error) for group, error in effect.results),
        )
    )


def _described(version: int, group: Group, error: Error) -> Any:
    """What members want, and were given, is shown while that is settled."""
    is_stable = group.state is GroupState.STABLE
    return make(
        in_response(Api.DESCRIBE_GROUPS, version, "DescribedGroup"),
        error_code=code(error),
        group_id=group.group,
        group_state="" if error is not Error.NONE else group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(_member(version, group, one) for one in group.members.values()),
        authorized_operations=_NOBODY_ASKED,
    )


def _member(version: int, group: Group, member: Member) -> Any:
    is_stable = group.state is GroupState.STABLE
    return make(
        in_response(Api.DESCRIBE_GROUPS, version, "DescribedGroupMember"),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if is_stable else b"",
        member_assignment=member.assignment if is_stable else b"",
    )


def describe_groups_error(
    event: events.DescribeGroupsRequested, error: Error
) -> effects.RespondDescribeGroups:
    dead = ((Group(name, GroupState.DEAD), error) for name in event.groups)
    return effects.RespondDescribeGroups(event.request, tuple(dead))


# --- ConsumerGroupDescribe ------------------------------------------------------------------------


def decode_consumer_group_describe(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.ConsumerGroupDescribeRequested:
    return events.ConsumerGroupDescribeRequested(request.id, tuple(map(str, entity.group_ids)))


def encode_consumer_group_describe(
    request: PendingRequest, effect: effects.RespondConsumerGroupDescribe, context: ApiContext
) -> Response:
    version = request.header.version
    whole = response_class(Api.CONSUMER_GROUP_DESCRIBE, version)
    each = in_response(Api.CONSUMER_GROUP_DESCRIBE, version, "DescribedGroup")
    groups = tuple(
        each(
            error_code=code(error),
            group_id=group.group,
            group_state="" if error is not Error.NONE else group.state.value,
            group_epoch=i32(group.epoch),
            assignment_epoch=i32(group.target_epoch),
            assignor_name=group.assignor,
            members=tuple(
                _consumer_member(version, group, one, effect.topics)
                for one in group.members.values()
            ),
            authorized_operations=_NOBODY_ASKED,
        )
        for group, error in effect.results
    )
    return SendResponse(whole(throttle_time=NO_THROTTLE, groups=groups))


def _consumer_member(
    version: int, group: ConsumerGroup, member: ConsumerGroupMember, topics: Mapping[str, str]
) -> Any:
    def assignment(partitions: Partitions) -> Any:
        topic_partitions = tuple(
            of_topic(topic_id=uuid_of(topic_id), topic_name=TopicName(name), partitions=numbers)
            for topic_id, numbers in numbers_by_topic(partitions)
            if (name := topics.get(topic_id)) is not None
        )
        return of_member(topic_partitions=topic_partitions)

    of_topic, of_member, cls = (
        in_response(Api.CONSUMER_GROUP_DESCRIBE, version, name)
        for name in ("TopicPartitions", "Assignment", "Member")
    )
    return make(
        cls,
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topic_names)),
        subscribed_topic_regex=member.topic_regex,
        assignment=assignment(member.assigned),
        target_assignment=assignment(group.target(member.member_id)),
        member_type=_CLASSIC_MEMBER if member.classic else _CONSUMER_MEMBER,
    )


def consumer_group_describe_error(
    event: events.ConsumerGroupDescribeRequested, error: Error
) -> effects.RespondConsumerGroupDescribe:
    none = tuple((ConsumerGroup(name), error) for name in event.groups)
    return effects.RespondConsumerGroupDescribe(event.request, none, {})


# --- ListGroups -----------------------------------------------------------------------------------


def decode_list_groups(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.ListGroupsRequested:
    states, types = (
        tuple(str(one).lower() for one in getattr(entity, name, ()))
        for name in ("states_filter", "types_filter")
    )
    return events.ListGroupsRequested(request.id, states, types)


def encode_list_groups(
    request: PendingRequest, effect: effects.RespondListGroups, context: ApiContext
) -> Response:
    version = request.header.version
    group_class = in_response(Api.LIST_GROUPS, version, "ListedGroup")
    return SendResponse(
        make(
            response_class(Api.LIST_GROUPS, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            groups=tuple(
                make(
                    group_class,
                    group_id=one.group,
                    protocol_type=one.protocol_type,
                    group_state=one.state.value,
                    group_type=one.group_type,
                )
                for one in effect.groups
            ),
        )
    )


def list_groups_error(event: events.ListGroupsRequested, error: Error) -> effects.RespondListGroups:
    return effects.RespondListGroups(event.request, error)


# --- DeleteGroups ---------------------------------------------------------------------------------


def decode_delete_groups(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.DeleteGroupsRequested:
    names = dict.fromkeys(map(str, entity.groups_names))
    return events.DeleteGroupsRequested(request.id, tuple(names))


def encode_delete_groups(
    request: PendingRequest, effect: effects.RespondDeleteGroups, context: ApiContext
) -> Response:
    version = request.header.version
    result = in_response(Api.DELETE_GROUPS, version, "DeletableGroupResult")
    return SendResponse(
        make(
            response_class(Api.DELETE_GROUPS, version),
            throttle_time=NO_THROTTLE,
            results=tuple(
                result(group_id=name, error_code=code(error)) for name, error in effect.results
            ),
        )
    )


def delete_groups_error(
    event: events.DeleteGroupsRequested, error: Error
) -> effects.RespondDeleteGroups:
    failed = tuple((name, error) for name in event.groups)
    return effects.RespondDeleteGroups(event.request, failed)


# --- OffsetDelete ---------------------------------------------------------------------------------


def decode_offset_delete(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.OffsetDeleteRequested:
    named = (
        TopicPartition(str(topic.name), int(partition.partition_index))
        for topic in entity.topics
        for partition in topic.partitions
    )
    return events.OffsetDeleteRequested(
        request.id, str(entity.group_id), tuple(dict.fromkeys(named))
    )


def encode_offset_delete(
    request: PendingRequest, effect: effects.RespondOffsetDelete, context: ApiContext
) -> Response:
    version = request.header.version
    partition_class = in_response(Api.OFFSET_DELETE, version, "OffsetDeleteResponsePartition")
    topic_class = in_response(Api.OFFSET_DELETE, version, "OffsetDeleteResponseTopic")
    return SendResponse(
        make(
            response_class(Api.OFFSET_DELETE, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            topics=by_topic(
                effect.results,
                lambda name, partitions: topic_class(name=name, partitions=partitions),
                lambda result: partition_class(
                    partition_index=i32(result[0].partition), error_code=code(result[1])
                ),
                lambda result: result[0],
            ),
        )
    )


def offset_delete_error(
    event: events.OffsetDeleteRequested, error: Error
) -> effects.RespondOffsetDelete:
    return effects.RespondOffsetDelete(event.request, error)
