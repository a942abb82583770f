"""ConsumerGroupHeartbeat: all that members of the consumer protocol request (KIP-848).

Not what becomes of it: see consumer_group_change. Not the rules of a group by itself: see
consumer_group. As Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.assignors import ASSIGNORS, Partitions
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    partition_for,
)
from neaptide.clusters.broker.replication.group.consumer_group import (
    JOINING_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    InvalidPatternError,
    MemberState,
    compiled,
)
from neaptide.clusters.broker.replication.group.consumer_group_change import (
    Change,
    RefusedError,
    advance,
    cancel_timers,
    commit,
    end_membership,
    heartbeat_interval_ms,
    is_full,
    replace_static,
    watch,
)
from neaptide.clusters.broker.replication.group.consumer_protocol import (
    PROTOCOL_TYPE,
    MalformedProtocolError,
)
from neaptide.clusters.broker.replication.group.group_metadata import Group
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    coordinated,
    known_group,
)
from neaptide.clusters.broker.replication.group.protocol_migration import upgrading_records
from neaptide.clusters.broker.replication.interface.effects import RespondConsumerGroupHeartbeat
from neaptide.clusters.broker.replication.interface.events import (
    ClassicMemberExpiration,
    CommittedOffsetsRead,
    ConsumerGroupHeartbeatRequested,
    MemberExpiration,
    RevocationExpiration,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule

# --- heartbeats -----------------------------------------------------------------------------------


def on_consumer_group_heartbeat(
    broker: Broker, event: ConsumerGroupHeartbeatRequested, now_ms: int
) -> None:
    """Raises TextTooLongError: who is a member must have room in the group's records."""
    _, error = coordinated(broker, event.group)
    try:
        if error is not Error.NONE:
            raise RefusedError(error)
        _validate(event)
        if event.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            _leave(broker, event, now_ms)
        else:
            _take_heartbeat(broker, event, now_ms)
    except RefusedError as refused:
        broker.do(RespondConsumerGroupHeartbeat(event.request, refused.error))


def _validate(event: ConsumerGroupHeartbeatRequested) -> None:
    is_joining = event.member_epoch == JOINING_EPOCH
    texts = event.group, event.group_instance_id, event.rack_id
    needs_id = not is_joining and not event.member_id
    wants_nothing = not event.topic_names and not event.topic_regex
    if (
        "" in texts
        or event.member_epoch < LEAVE_STATIC_EPOCH
        or needs_id
        or (event.member_epoch == LEAVE_STATIC_EPOCH and event.group_instance_id is None)
        or (is_joining and (event.rebalance_timeout_ms == -1 or event.owned != NOTHING))
        or (is_joining and wants_nothing)
    ):
        raise RefusedError(Error.INVALID_REQUEST)
    if event.server_assignor is not None and event.server_assignor not in ASSIGNORS:
        raise RefusedError(Error.UNSUPPORTED_ASSIGNOR)
    if event.topic_regex:
        try:
            compiled(event.topic_regex)
        except InvalidPatternError:
            raise RefusedError(Error.INVALID_REGULAR_EXPRESSION) from None


@rule
def _take_heartbeat(broker: Broker, event: ConsumerGroupHeartbeatRequested, now_ms: int) -> None:
    is_joining = event.member_epoch == JOINING_EPOCH
    change = _change_of(broker, event.group, may_be_new=is_joining)
    if is_joining and is_full(broker, change.group, event.member_id):
        raise RefusedError(Error.GROUP_MAX_SIZE_REACHED)
    before = _member_of(change, event)
    after = _updated(before, event)
    now = advance(broker, change, before, after, event.owned)
    says_all = event.rebalance_timeout_ms != -1 and event.owned is not None
    says_all = says_all and (event.topic_names is not None or event.topic_regex is not None)
    shows = is_joining or says_all or now.assigned != before.assigned
    answer = RespondConsumerGroupHeartbeat(
        event.request,
        Error.NONE,
        now.member_id,
        now.member_epoch,
        heartbeat_interval_ms(broker, event.group),
        now.assigned if shows else None,
    )
    commit(broker, change, answer, now_ms)
    watch(broker, event.group, now)


def _change_of(broker: Broker, name: str, *, may_be_new: bool) -> Change:
    """Of the group, which may be new: then it takes the place of a classic one of its name, and
    goes on with the members of that (KIP-848's way from one protocol to the other)."""
    known = broker.consumer_groups.get(name)
    if known is not None:
        return Change(known)
    classic = known_group(broker, name)
    if not may_be_new:
        raise RefusedError(Error.GROUP_ID_NOT_FOUND)
    change = Change(ConsumerGroup(name), classic)
    if classic is not None and (classic.members or classic.pending):
        for record in _records_of_classic(broker, classic):
            change.add(record)
    return change


def _records_of_classic(broker: Broker, classic: Group) -> tuple[ConsumerGroupRecord, ...]:
    settings = broker.settings
    if (
        not settings.group_consumer_migration_policy.allows_upgrade
        or classic.protocol_type != PROTOCOL_TYPE
        or len(classic.members) > settings.group_consumer_max_size
    ):
        raise RefusedError(Error.GROUP_ID_NOT_FOUND)
    try:
        return upgrading_records(classic, broker.metadata.topic_ids)
    except MalformedProtocolError:
        raise RefusedError(Error.GROUP_ID_NOT_FOUND) from None


def _member_of(change: Change, event: ConsumerGroupHeartbeatRequested) -> ConsumerGroupMember:
    """Who has sent it, as known before; a static member takes the place of the one that it was."""
    group, is_joining = change.group, event.member_epoch == JOINING_EPOCH
    member_id = event.member_id or event.new_member_id
    static = group.instance(event.group_instance_id)
    if event.group_instance_id is None:
        known = group.members.get(member_id)
    elif is_joining and static is not None:
        if static.classic is None and static.member_epoch != LEAVE_STATIC_EPOCH:
            raise RefusedError(Error.UNRELEASED_INSTANCE_ID)
        return replace_static(change, static, member_id)
    elif static is not None and static.member_id != member_id:
        raise RefusedError(Error.FENCED_INSTANCE_ID)
    else:
        known = static
    if known is None and not is_joining:
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    if known is None:
        return ConsumerGroupMember(member_id)
    _check_epoch(known, event.member_epoch, event.owned)
    return known


def _check_epoch(member: ConsumerGroupMember, epoch: int, owned: Partitions | None) -> None:
    """The answer that named the epoch of now may be lost: then a member comes with the one before,
    and has nothing that it may not have. Who was fenced cannot come back before its session is
    over, as in Kafka up to the fix of KAFKA-19233."""
    is_retry = (
        epoch < member.member_epoch
        and epoch == member.previous_member_epoch
        and owned is not None
        and owned <= member.assigned
    )
    if epoch != member.member_epoch and not is_retry:
        raise RefusedError(Error.FENCED_MEMBER_EPOCH)


def _updated(
    member: ConsumerGroupMember, event: ConsumerGroupHeartbeatRequested
) -> ConsumerGroupMember:
    """What a member does not say has not changed since it last did."""
    names, regex = event.topic_names, event.topic_regex
    timeout_ms = event.rebalance_timeout_ms
    return replace(
        member,
        group_instance_id=event.group_instance_id or member.group_instance_id,
        rack_id=event.rack_id or member.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=member.topic_regex if regex is None else (regex or None),
        server_assignor=event.server_assignor or member.server_assignor,
        classic=None,
    )


# --- the end of a membership ----------------------------------------------------------------------


@rule
def _leave(broker: Broker, event: ConsumerGroupHeartbeatRequested, now_ms: int) -> None:
    group = broker.consumer_groups.get(event.group)
    if group is None:
        raise RefusedError(Error.GROUP_ID_NOT_FOUND)
    is_static = event.group_instance_id is not None
    member = group.instance(event.group_instance_id) if is_static else None
    member = member if is_static else group.members.get(event.member_id)
    if member is None:
        raise RefusedError(Error.UNKNOWN_MEMBER_ID)
    if member.member_id != event.member_id:
        raise RefusedError(Error.FENCED_INSTANCE_ID)
    answer = RespondConsumerGroupHeartbeat(
        event.request, Error.NONE, event.member_id, event.member_epoch
    )
    if event.member_epoch != LEAVE_STATIC_EPOCH:
        end_membership(broker, group, member.member_id, answer, now_ms)
        return
    change = Change(group)
    left = replace(member, member_epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING)
    change.add(CurrentAssignmentRecord(event.group, member.member_id, left))
    commit(broker, change, answer, now_ms)


@rule
def on_member_expiration(broker: Broker, timer: MemberExpiration, now_ms: int) -> None:
    """Silent for its session time-out."""
    _expire(broker, timer, "its session is over", now_ms)


@rule
def on_revocation_expiration(broker: Broker, timer: RevocationExpiration, now_ms: int) -> None:
    group = broker.consumer_groups.get(timer.group)
    member = group.members.get(timer.member_id) if group else None
    if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
        _expire(broker, timer, "it has not given up its partitions in time", now_ms)


@rule
def on_classic_member_expiration(
    broker: Broker, timer: ClassicMemberExpiration, now_ms: int
) -> None:
    if timer in broker.expected:
        _expire(broker, timer, "it has not joined again, or not asked for its assignment", now_ms)


def _expire(
    broker: Broker,
    timer: MemberExpiration | RevocationExpiration | ClassicMemberExpiration,
    why: str,
    now_ms: int,
) -> None:
    """Where its end cannot be recorded now, it is tried again."""
    name, member_id = timer.group, timer.member_id
    group = broker.consumer_groups.get(name)
    if group is None or member_id not in group.members:
        return
    broker.note(f"group {name}: {member_id} is a member no more: {why}")
    if not end_membership(broker, group, member_id, None, now_ms):
        broker.set_timer(timer, broker.settings.group_consumer_session_timeout_ms)


def on_groups_read(broker: Broker, event: CommittedOffsetsRead, now_ms: int) -> None:
    """This broker coordinates them now: the time-outs of their members begin."""
    for group in event.consumer_groups:
        broker.consumer_groups[group.group] = group
        for member in group.members.values():
            watch(broker, group.group, member)
            if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
                timer = RevocationExpiration(group.group, member.member_id)
                broker.set_timer(timer, member.rebalance_timeout_ms)


def on_resignation(broker: Broker, topic_partition: TopicPartition) -> None:
    """Another broker coordinates them. Who waits for a record is answered as its log says."""
    partitions = broker.metadata.partition_counts.get(OFFSETS_TOPIC, 1)
    for group in tuple(broker.consumer_groups.values()):
        if partition_for(group.group, partitions) != topic_partition:
            continue
        for member_id in group.members:
            cancel_timers(broker, group.group, member_id)
        del broker.consumer_groups[group.group]
