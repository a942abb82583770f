"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

import uuid
from typing import Any

from kio.static.primitive import i32

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.server.apis.entities import (
    NO_THROTTLE,
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

_KNOWS_ITS_ID = 4  # from this version of JoinGroup on (KIP-394)
_MAY_NAME_NO_PROTOCOL = 7  # from this version on the names in its response may be null
_SEVERAL_LEAVE = 3  # from this version of LeaveGroup on (KIP-345)


def _instance(entity: Any) -> str | None:
    return getattr(entity, "group_instance_id", None)


# --- JoinGroup ------------------------------------------------------------------------------------


def decode_join_group(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.JoinGroupRequested:
    """A new member's id is made here: the core knows no chance."""
    session_ms = milliseconds(entity.session_timeout)
    rebalance = getattr(entity, "rebalance_timeout", None)
    client_id = request.header.client_id or ""
    instance = _instance(entity)
    return events.JoinGroupRequested(
        request.id,
        str(entity.group_id),
        str(entity.member_id),
        f"{instance or client_id}-{uuid.uuid4()}",
        instance,
        client_id,
        f"/{request.connection.ip}",
        session_ms,
        session_ms if rebalance is None else milliseconds(rebalance),
        str(entity.protocol_type),
        tuple((str(one.name), bytes(one.metadata)) for one in entity.protocols),
        must_know_member_id=request.header.version >= _KNOWS_ITS_ID,
    )


def encode_join_group(
    request: PendingRequest, effect: effects.RespondJoinGroup, context: ApiContext
) -> Response:
    version = request.header.version
    member = in_response(Api.JOIN_GROUP, version, "JoinGroupResponseMember")
    no_name = None if version >= _MAY_NAME_NO_PROTOCOL else ""
    return SendResponse(
        make(
            response_class(Api.JOIN_GROUP, version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            generation_id=i32(effect.generation_id),
            protocol_type=effect.protocol_type,
            protocol_name=no_name if effect.protocol is None else effect.protocol,
            leader=effect.leader,
            skip_assignment=False,
            member_id=effect.member_id,
            members=tuple(
                make(
                    member,
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    metadata=one.metadata,
                )
                for one in effect.members
            ),
        )
    )


def join_group_error(event: events.JoinGroupRequested, error: Error) -> effects.RespondJoinGroup:
    return effects.RespondJoinGroup(event.request, error, event.member_id)


# --- SyncGroup ------------------------------------------------------------------------------------


def decode_sync_group(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.SyncGroupRequested:
    return events.SyncGroupRequested(
        request.id,
        str(entity.group_id),
        str(entity.member_id),
        _instance(entity),
        int(entity.generation_id),
        {str(one.member_id): bytes(one.assignment) for one in entity.assignments},
        getattr(entity, "protocol_type", None),
        getattr(entity, "protocol_name", None),
    )


def encode_sync_group(
    request: PendingRequest, effect: effects.RespondSyncGroup, context: ApiContext
) -> Response:
    return SendResponse(
        make(
            response_class(Api.SYNC_GROUP, request.header.version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
            protocol_type=effect.protocol_type,
            protocol_name=effect.protocol,
            assignment=effect.assignment,
        )
    )


def sync_group_error(event: events.SyncGroupRequested, error: Error) -> effects.RespondSyncGroup:
    return effects.RespondSyncGroup(event.request, error)


# --- Heartbeat ------------------------------------------------------------------------------------


def decode_heartbeat(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.HeartbeatRequested:
    return events.HeartbeatRequested(
        request.id,
        str(entity.group_id),
        str(entity.member_id),
        _instance(entity),
        int(entity.generation_id),
    )


def encode_heartbeat(
    request: PendingRequest, effect: effects.RespondHeartbeat, context: ApiContext
) -> Response:
    return SendResponse(
        make(
            response_class(Api.HEARTBEAT, request.header.version),
            throttle_time=NO_THROTTLE,
            error_code=code(effect.error),
        )
    )


def heartbeat_error(event: events.HeartbeatRequested, error: Error) -> effects.RespondHeartbeat:
    return effects.RespondHeartbeat(event.request, error)


# --- LeaveGroup -----------------------------------------------------------------------------------


def decode_leave_group(
    request: PendingRequest, entity: Any, context: ApiContext
) -> events.LeaveGroupRequested:
    leaving = getattr(entity, "members", None)
    members = tuple((str(one.member_id), one.group_instance_id) for one in leaving or ())
    if leaving is None:
        members = ((str(entity.member_id), None),)
    return events.LeaveGroupRequested(request.id, str(entity.group_id), members)


def encode_leave_group(
    request: PendingRequest, effect: effects.RespondLeaveGroup, context: ApiContext
) -> Response:
    """Before v3 one leaves, and what is wrong with it is what is wrong."""
    version = request.header.version
    error, members = effect.error, ()
    if version >= _SEVERAL_LEAVE:
        member = in_response(Api.LEAVE_GROUP, version, "MemberResponse")
        members = tuple(
            member(member_id=name, group_instance_id=instance, error_code=code(of))
            for name, instance, of in effect.members
        )
    elif error is Error.NONE and effect.members:
        error = effect.members[0][2]
    return SendResponse(
        make(
            response_class(Api.LEAVE_GROUP, version),
            throttle_time=NO_THROTTLE,
            error_code=code(error),
            members=members,
        )
    )


def leave_group_error(event: events.LeaveGroupRequested, error: Error) -> effects.RespondLeaveGroup:
    return effects.RespondLeaveGroup(event.request, error)
