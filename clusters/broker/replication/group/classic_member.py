"""Members of the classic protocol, in groups of their own or beside those of the consumer protocol.

A group that has members of both (KIP-848) gives those of the classic protocol, by their own
requests, what the coordinator has assigned; their generation is their epoch. As Kafka's
GroupMetadataManager. Not groups of the classic protocol alone: see group_membership.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group import group_membership
from neaptide.clusters.broker.replication.group.assignors import Partitions, TopicIdPartition
from neaptide.clusters.broker.replication.group.consumer_group import (
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    MemberState,
)
from neaptide.clusters.broker.replication.group.consumer_group_change import (
    Change,
    RefusedError,
    advance,
    cancel_timers,
    commit,
    end_group,
    expect,
    expect_no_more,
    is_full,
    learn_topics,
    remove_member,
    replace_static,
    watch,
)
from neaptide.clusters.broker.replication.group.consumer_protocol import (
    PROTOCOL_TYPE,
    MalformedProtocolError,
    Subscription,
    read_subscription,
)
from neaptide.clusters.broker.replication.group.protocol_migration import assignment_of
from neaptide.clusters.broker.replication.interface.effects import (
    RespondHeartbeat,
    RespondJoinGroup,
    RespondLeaveGroup,
    RespondSyncGroup,
)
from neaptide.clusters.broker.replication.interface.events import (
    HeartbeatRequested,
    JoinGroupRequested,
    LeaveGroupRequested,
    SyncGroupRequested,
)
from neaptide.clusters.broker.replication.rule import rule

# --- join ----------------------------------------------------------------------------------------


def on_join_group(broker: Broker, event: JoinGroupRequested, now_ms: int) -> None:
    """A group of the consumer protocol that nobody is a member of gives way to a classic one.

    Raises TextTooLongError: who is a member must have room in the group's records.
    """
    group = broker.consumer_groups.get(event.group)
    if group is None:
        group_membership.on_join_group(broker, event, now_ms)
        return
    member_id = event.member_id or event.new_member_id
    try:
        if group.members:
            _join(broker, group, event, member_id, now_ms)
        elif (error := end_group(broker, event.group, now_ms)) is not Error.NONE:
            raise RefusedError(error)
        else:
            group_membership.on_join_group(broker, event, now_ms)
    except RefusedError as refused:
        asks_again = refused.error is Error.MEMBER_ID_REQUIRED
        named = member_id if asks_again else event.member_id
        broker.do(RespondJoinGroup(event.request, refused.error, named))


@rule
def _join(
    broker: Broker, group: ConsumerGroup, event: JoinGroupRequested, member_id: str, now_ms: int
) -> None:
    subscription = _checked(broker, group, event, member_id)
    change = Change(group)
    before = _joining_member(change, event, member_id)
    classic = ClassicProtocol(event.session_timeout_ms, event.protocols)
    after = replace(
        before,
        group_instance_id=event.group_instance_id or before.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex=None,
        classic=classic,
    )
    now = advance(broker, change, before, after, _by_id(broker, subscription))
    answer = RespondJoinGroup(
        event.request, Error.NONE, member_id, now.member_epoch, PROTOCOL_TYPE, classic.name
    )
    if commit(broker, change, answer, now_ms) and event.group in broker.consumer_groups:
        watch(broker, event.group, now)
        expect(broker, event.group, now, anew=True)


def _checked(
    broker: Broker, group: ConsumerGroup, event: JoinGroupRequested, member_id: str
) -> Subscription:
    error = group_membership.joining_error(broker, event)
    if error is not Error.NONE:
        raise RefusedError(error)
    if is_full(broker, group, member_id):
        raise RefusedError(Error.GROUP_MAX_SIZE_REACHED)
    if not group.supports(event.protocol_type, (name for name, _ in event.protocols)):
        raise RefusedError(Error.INCONSISTENT_GROUP_PROTOCOL)
    if event.must_know_member_id and not event.member_id and event.group_instance_id is None:
        raise RefusedError(Error.MEMBER_ID_REQUIRED)
    try:
        return read_subscription(event.protocols[0][1])  # the same in all
    except MalformedProtocolError:
        raise RefusedError(Error.UNKNOWN_SERVER_ERROR) from None


def _joining_member(
    change: Change, event: JoinGroupRequested, member_id: str
) -> ConsumerGroupMember:
    """As known before; a static member takes the place of the one that it was."""
    static = change.group.instance(event.group_instance_id)
    if event.group_instance_id is None:
        return change.group.members.get(member_id, ConsumerGroupMember(member_id))
    if event.member_id:
        return _member(change.group, event.member_id, event.group_instance_id)
    if static is None:
        return ConsumerGroupMember(member_id)
    return replace_static(change, static, member_id)


def _by_id(broker: Broker, subscription: Subscription) -> Partitions:
    ids = broker.metadata.topic_ids
    return frozenset(
        TopicIdPartition(ids[one.topic], one.partition)
        for one in subscription.owned
        if one.topic in ids
    )


# --- sync, heartbeat, leave -----------------------------------------------------------------------


def on_sync_group(broker: Broker, event: SyncGroupRequested, now_ms: int) -> None:
    group = broker.consumer_groups.get(event.group)
    if group is None:
        group_membership.on_sync_group(broker, event, now_ms)
        return
    try:
        _sync(broker, group, event, now_ms)
    except RefusedError as refused:
        broker.do(RespondSyncGroup(event.request, refused.error))


@rule
def _sync(broker: Broker, group: ConsumerGroup, event: SyncGroupRequested, now_ms: int) -> None:
    member = _member(group, event.member_id, event.group_instance_id)
    classic = _classic_of(member, event.generation_id)
    if event.protocol_type not in (None, PROTOCOL_TYPE) or event.protocol not in (
        None,
        classic.name,
    ):
        raise RefusedError(Error.INCONSISTENT_GROUP_PROTOCOL)
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
    if group.epoch > member.member_epoch and not is_revoking:
        expect(broker, event.group, member)
        raise RefusedError(Error.REBALANCE_IN_PROGRESS)
    topics = {topic_id: name for name, topic_id in broker.metadata.topic_ids.items()}
    assignment = assignment_of(classic, member.assigned, topics)
    answer = RespondSyncGroup(
        event.request, Error.NONE, assignment, event.protocol_type, event.protocol
    )
    if commit(broker, Change(group), answer, now_ms):
        watch(broker, event.group, member)
        expect_no_more(broker, event.group, member.member_id)


def on_heartbeat(broker: Broker, event: HeartbeatRequested, now_ms: int) -> None:
    group = broker.consumer_groups.get(event.group)
    if group is None:
        group_membership.on_heartbeat(broker, event, now_ms)
        return
    try:
        error = _heartbeat(broker, group, event)
    except RefusedError as refused:
        error = refused.error
    broker.do(RespondHeartbeat(event.request, error))


@rule
def _heartbeat(broker: Broker, group: ConsumerGroup, event: HeartbeatRequested) -> Error:
    """A member is to join again where the group is further, also while it has something to give up,
    and once all that it waits for is free."""
    member = _member(group, event.member_id, event.group_instance_id)
    _classic_of(member, event.generation_id)
    watch(broker, event.group, member)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS
    if member.member_epoch < group.epoch or (waits and not group.waits_for_others(member)):
        expect(broker, event.group, member)
        return Error.REBALANCE_IN_PROGRESS
    return Error.NONE


def on_leave_group(broker: Broker, event: LeaveGroupRequested, now_ms: int) -> None:
    group = broker.consumer_groups.get(event.group)
    if group is None:
        group_membership.on_leave_group(broker, event, now_ms)
        return
    change = Change(group)
    results = tuple(
        (member_id, instance_id, _leave(change, member_id, instance_id))
        for member_id, instance_id in event.members
    )
    answer = RespondLeaveGroup(event.request, Error.NONE, results)
    if change.records:
        learn_topics(broker, change, is_changed=True)
    if commit(broker, change, answer, now_ms):
        for member_id in group.members.keys() - change.group.members.keys():
            cancel_timers(broker, event.group, member_id)


@rule
def _leave(change: Change, member_id: str, group_instance_id: str | None) -> Error:
    """An operator may name a static member by its instance alone."""
    try:
        static = change.group.instance(group_instance_id)
        if static is not None and not member_id:
            member = static
        else:
            member = _member(change.group, member_id, group_instance_id)
        if member.classic is None:
            return Error.UNKNOWN_MEMBER_ID
    except RefusedError as refused:
        return refused.error
    remove_member(change, member.member_id)
    return Error.NONE


# --- what all of them need ------------------------------------------------------------------------


def _member(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None
) -> ConsumerGroupMember:
    """Who has a static member's name, and not its id, was replaced by another (KIP-345)."""
    if group_instance_id is None:
        member = group.members.get(member_id)
    else:
        member = group.instance(group_instance_id)
    if member is None:
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    if member.member_id != member_id:
        raise RefusedError(Error.FENCED_INSTANCE_ID)
    return member


def _classic_of(member: ConsumerGroupMember, generation_id: int) -> ClassicProtocol:
    if member.classic is None:
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    if member.member_epoch != generation_id:
        raise RefusedError(Error.ILLEGAL_GENERATION)
    return member.classic
