"""ConsumerGroupHeartbeat: all that members of the consumer protocol request (KIP-848).

Each heartbeat comes to records and an answer; the records are appended, applied at once, and the
answer is given when they are committed. Nothing else changes a group. Not the rules of a group by
itself: see consumer_group. As Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    GroupEpochRecord,
    GroupTopicsRecord,
    InvalidPatternError,
    MemberMetadataRecord,
    MemberState,
    SubscribedTopic,
    TargetEpochRecord,
    TargetRecord,
    applied,
    compiled,
    matching,
    reconciled,
    tombstones,
)
from neaptide.clusters.broker.replication.group.group_metadata import (
    GroupMetadataRecord,
    GroupState,
)
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    append_records,
    coordinated,
    known_group,
)
from neaptide.clusters.broker.replication.interface.effects import RespondConsumerGroupHeartbeat
from neaptide.clusters.broker.replication.interface.events import (
    CommittedOffsetsRead,
    ConsumerGroupHeartbeatRequested,
    MemberExpiration,
    RevocationExpiration,
)
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.produce import (
    COORDINATOR_ERRORS,
    Appended,
    DelayedRecord,
    own_number,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule

# What a member is answered for what became of its group's records.
_STORE_ERRORS = {
    **COORDINATOR_ERRORS,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.RECORD_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


class _RefusedError(Exception):
    """Why a heartbeat is answered with an error. Raised before anything changes."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


class _Change:
    """A group with the records that have led to it: what `applied` makes of them."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[ConsumerGroupRecord] = []

    def add(self, record: ConsumerGroupRecord) -> None:
        self.records.append(record)
        self.group = applied(self.group, record) or ConsumerGroup(self.group.group)


# --- heartbeats -----------------------------------------------------------------------------------


def on_consumer_group_heartbeat(
    broker: Broker, event: ConsumerGroupHeartbeatRequested, now_ms: int
) -> None:
    """Raises TextTooLongError: who is a member must have room in the group's records."""
    _, error = coordinated(broker, event.group)
    try:
        if error is not Error.NONE:
            raise _RefusedError(error)
        _validate(event)
        if event.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            _leave(broker, event, now_ms)
        else:
            _take_heartbeat(broker, event, now_ms)
    except _RefusedError as refused:
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
        raise _RefusedError(Error.INVALID_REQUEST)
    if event.server_assignor is not None and event.server_assignor not in ASSIGNORS:
        raise _RefusedError(Error.UNSUPPORTED_ASSIGNOR)
    if event.topic_regex:
        try:
            compiled(event.topic_regex)
        except InvalidPatternError:
            raise _RefusedError(Error.INVALID_REGULAR_EXPRESSION) from None


@rule
def _take_heartbeat(broker: Broker, event: ConsumerGroupHeartbeatRequested, now_ms: int) -> None:
    is_joining = event.member_epoch == JOINING_EPOCH
    known, replaced = _group_of(broker, event.group, may_be_new=is_joining)
    if is_joining and _is_full(broker, known, event.member_id):
        raise _RefusedError(Error.GROUP_MAX_SIZE_REACHED)
    change = _Change(known)
    before = _member_of(change, event)
    after = _updated(before, event)
    bumps = before.topic_names != after.topic_names or before.topic_regex != after.topic_regex
    if after != before or before.member_id not in change.group.members:
        change.add(MemberMetadataRecord(event.group, after.member_id, after))
    _learn_topics(broker, change, is_changed=bumps)
    if change.group.epoch > change.group.target_epoch:
        _set_targets(change)
    now = change.group.members[after.member_id]
    _reconcile(broker, change, now, event.owned)
    now = change.group.members[after.member_id]
    is_full = event.rebalance_timeout_ms != -1 and event.owned is not None
    is_full = is_full and (event.topic_names is not None or event.topic_regex is not None)
    shows = is_joining or is_full or now.assigned != before.assigned
    answer = RespondConsumerGroupHeartbeat(
        event.request,
        Error.NONE,
        now.member_id,
        now.member_epoch,
        broker.settings.group_consumer_heartbeat_interval_ms,
        now.assigned if shows else None,
    )
    _commit(broker, change, answer, now_ms, replaced)
    _watch(broker, event.group, now.member_id)


def _group_of(
    broker: Broker, name: str, *, may_be_new: bool
) -> tuple[ConsumerGroup, tuple[GroupMetadataRecord, ...]]:
    """The group, and what ends a classic one that is empty, whose name it takes."""
    known = broker.consumer_groups.get(name)
    if known is not None:
        return known, ()
    classic = known_group(broker, name)
    if not may_be_new or (
        classic is not None and (classic.state is not GroupState.EMPTY or classic.pending)
    ):
        raise _RefusedError(Error.GROUP_ID_NOT_FOUND)
    ends = (GroupMetadataRecord(name, is_deleted=True),) if name in broker.groups else ()
    return ConsumerGroup(name), ends


def _is_full(broker: Broker, group: ConsumerGroup, member_id: str) -> bool:
    is_new = member_id not in group.members
    return is_new and len(group.members) >= broker.settings.group_consumer_max_size


def _member_of(change: _Change, event: ConsumerGroupHeartbeatRequested) -> ConsumerGroupMember:
    """Who has sent it, as known before; a static member takes the place of the one that it was."""
    group, is_joining = change.group, event.member_epoch == JOINING_EPOCH
    member_id = event.member_id or event.new_member_id
    static = group.instance(event.group_instance_id)
    if event.group_instance_id is None:
        known = group.members.get(member_id)
    elif is_joining and static is not None:
        if static.member_epoch != LEAVE_STATIC_EPOCH:
            raise _RefusedError(Error.UNRELEASED_INSTANCE_ID)
        return _replace(change, static, member_id)
    elif static is not None and static.member_id != member_id:
        raise _RefusedError(Error.FENCED_INSTANCE_ID)
    else:
        known = static
    if known is None and not is_joining:
        raise _RefusedError(Error.UNKNOWN_MEMBER_ID)
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
        raise _RefusedError(Error.FENCED_MEMBER_EPOCH)


def _replace(change: _Change, static: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
    group, target = change.group.group, change.group.target(static.member_id)
    _remove_member(change, static.member_id)
    epoch = JOINING_EPOCH
    new = replace(static, member_id=member_id, member_epoch=epoch, previous_member_epoch=epoch)
    change.add(MemberMetadataRecord(group, member_id, new))
    change.add(TargetRecord(group, member_id, target))
    change.add(CurrentAssignmentRecord(group, member_id, new))
    return new


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
    )


def _learn_topics(broker: Broker, change: _Change, *, is_changed: bool) -> None:
    """What the group reads, as the metadata of now say: where that has changed, by a topic that
    has come, gone or grown too, the group begins another epoch."""
    group = change.group
    topics = _topics_of(broker, group.members)
    if topics != tuple(group.topics.values()):
        change.add(GroupTopicsRecord(group.group, topics))
        is_changed = True
    if is_changed:
        change.add(GroupEpochRecord(group.group, group.epoch + 1))


def _topics_of(
    broker: Broker, members: Mapping[str, ConsumerGroupMember]
) -> tuple[SubscribedTopic, ...]:
    metadata = broker.metadata
    wanted = {name for one in members.values() for name in one.topic_names}
    by_pattern = {one.topic_regex: one for one in members.values() if one.topic_regex is not None}
    for member in by_pattern.values():
        wanted.update(matching(member, metadata.topics))
    return tuple(
        SubscribedTopic(name, metadata.topic_ids[name], max(metadata.topics[name]) + 1)
        for name in sorted(wanted)
        if metadata.topics.get(name) and name in metadata.topic_ids
    )


@rule
def _set_targets(change: _Change) -> None:
    group = change.group
    for member_id, target in group.next_targets().items():
        if group.targets.get(member_id) != target:
            change.add(TargetRecord(group.group, member_id, target))
    change.add(TargetEpochRecord(group.group, group.epoch))


def _reconcile(
    broker: Broker, change: _Change, member: ConsumerGroupMember, owned: Partitions | None
) -> None:
    group = change.group
    after = reconciled(group, member, owned)
    if after == member:
        return
    change.add(CurrentAssignmentRecord(group.group, member.member_id, after))
    timer = RevocationExpiration(group.group, member.member_id)
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        broker.set_timer(timer, after.rebalance_timeout_ms)
    else:
        broker.cancel_timer(timer)


# --- the end of a membership ----------------------------------------------------------------------


@rule
def _leave(broker: Broker, event: ConsumerGroupHeartbeatRequested, now_ms: int) -> None:
    group = broker.consumer_groups.get(event.group)
    if group is None:
        raise _RefusedError(Error.GROUP_ID_NOT_FOUND)
    is_static = event.group_instance_id is not None
    member = group.instance(event.group_instance_id) if is_static else None
    member = member if is_static else group.members.get(event.member_id)
    if member is None:
        raise _RefusedError(Error.UNKNOWN_MEMBER_ID)
    if member.member_id != event.member_id:
        raise _RefusedError(Error.FENCED_INSTANCE_ID)
    change = _Change(group)
    if event.member_epoch == LEAVE_STATIC_EPOCH:
        left = replace(member, member_epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING)
        change.add(CurrentAssignmentRecord(event.group, member.member_id, left))
    else:
        _fence(broker, change, member.member_id)
    answer = RespondConsumerGroupHeartbeat(
        event.request, Error.NONE, event.member_id, event.member_epoch
    )
    if _commit(broker, change, answer, now_ms) and member.member_id not in change.group.members:
        _cancel_timers(broker, event.group, member.member_id)


def _fence(broker: Broker, change: _Change, member_id: str) -> None:
    """It is a member no more: the next heartbeat of another gives its partitions away."""
    _remove_member(change, member_id)
    _learn_topics(broker, change, is_changed=True)


def _remove_member(change: _Change, member_id: str) -> None:
    name = change.group.group
    change.add(CurrentAssignmentRecord(name, member_id, None))
    change.add(TargetRecord(name, member_id, None))
    change.add(MemberMetadataRecord(name, member_id, None))


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


def _expire(
    broker: Broker, timer: MemberExpiration | RevocationExpiration, why: str, now_ms: int
) -> None:
    """Where its end cannot be recorded now, it is tried again."""
    name, member_id = timer.group, timer.member_id
    group = broker.consumer_groups.get(name)
    if group is None or member_id not in group.members:
        return
    broker.note(f"group {name}: {member_id} is a member no more: {why}")
    change = _Change(group)
    _fence(broker, change, member_id)
    if _commit(broker, change, None, now_ms):
        _cancel_timers(broker, name, member_id)
    else:
        broker.set_timer(timer, broker.settings.group_consumer_session_timeout_ms)


def end_group(broker: Broker, name: str, now_ms: int) -> Error:
    """Takes a group away, where nobody is a member of it."""
    group = broker.consumer_groups[name]
    if group.members:
        return Error.NON_EMPTY_GROUP
    topic_partition, _ = coordinated(broker, name)
    appended = append_records(broker, topic_partition, tombstones(group), now_ms)
    if appended.error not in (None, Error.NONE):
        return Error.NOT_COORDINATOR
    del broker.consumer_groups[name]
    return Error.NONE


# --- what others ask of a group -------------------------------------------------------------------


def epoch_error(group: ConsumerGroup, member_id: str, epoch: int) -> Error:
    """Whether a commit, or a question for what is committed, is one of a member in its epoch, or
    one of an operator where there are none."""
    if epoch < 0 and not group.members:
        return Error.NONE
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if member.member_epoch == epoch else Error.STALE_MEMBER_EPOCH


# --- what all of them need ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DelayedHeartbeat(DelayedRecord):
    """Records of a group, in `__consumer_offsets`, and the answer that waits for them; None: nobody
    waits."""

    answer: RespondConsumerGroupHeartbeat | None

    @rule
    def complete(self, broker: Broker) -> None:
        if self.answer is not None:
            broker.do(_answered(self.answer, self.outcome))


def _answered(answer: RespondConsumerGroupHeartbeat, error: Error) -> RespondConsumerGroupHeartbeat:
    if error is Error.NONE:
        return answer
    return RespondConsumerGroupHeartbeat(answer.request, _STORE_ERRORS.get(error, error))


@rule
def _commit(
    broker: Broker,
    change: _Change,
    answer: RespondConsumerGroupHeartbeat | None,
    now_ms: int,
    replaced: tuple[GroupMetadataRecord, ...] = (),
) -> bool:
    """Whether the group is what it has become. What says nothing new waits for what is not
    committed yet all the same: it may show that."""
    name = change.group.group
    topic_partition, _ = coordinated(broker, name)
    records = (*replaced, *change.records)
    if records:
        appended = append_records(broker, topic_partition, records, now_ms)
    else:
        end_offset = broker.partitions[topic_partition].log.end_offset
        appended = Appended(None, end_offset, end_offset)
    if appended.error not in (None, Error.NONE):
        if answer is not None:
            broker.do(_answered(answer, appended.error))
        return False
    if replaced:
        broker.groups.pop(name, None)
    if records:
        broker.consumer_groups[name] = change.group
    request = own_number(broker) if answer is None else answer.request
    waiting = DelayedHeartbeat(request, topic_partition, appended, answer)
    purgatory.complete_or_park(broker, waiting, broker.settings.offsets_commit_timeout_ms)
    return True


def _watch(broker: Broker, name: str, member_id: str) -> None:
    """From now on its session time-out runs again."""
    session_ms = broker.settings.group_consumer_session_timeout_ms
    broker.set_timer(MemberExpiration(name, member_id), session_ms)


def _cancel_timers(broker: Broker, name: str, member_id: str) -> None:
    broker.cancel_timer(MemberExpiration(name, member_id))
    broker.cancel_timer(RevocationExpiration(name, member_id))


def on_groups_read(broker: Broker, event: CommittedOffsetsRead, now_ms: int) -> None:
    """This broker coordinates them now: the time-outs of their members begin."""
    for group in event.consumer_groups:
        broker.consumer_groups[group.group] = group
        for member in group.members.values():
            _watch(broker, group.group, member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timer = RevocationExpiration(group.group, member.member_id)
                broker.set_timer(timer, member.rebalance_timeout_ms)


def on_resignation(broker: Broker, topic_partition: TopicPartition) -> None:
    """Another broker coordinates them. Who waits for a record is answered as its log says."""
    partitions = broker.metadata.partition_counts.get(OFFSETS_TOPIC, 1)
    for group in tuple(broker.consumer_groups.values()):
        if partition_for(group.group, partitions) != topic_partition:
            continue
        for member_id in group.members:
            _cancel_timers(broker, group.group, member_id)
        del broker.consumer_groups[group.group]
