"""Who is a member of a group, and what each is assigned: join, sync, heartbeat, leave.

The classic protocol, as Kafka's GroupCoordinator: members join, one of them leads and assigns, all
sync, and whoever is silent for its session time-out is taken out. A generation is known to the
group's log before its members learn their assignments. Not commits: see group_coordinator.
Sources: G2, KIP-62, KIP-134 (first rebalance), KIP-345 (static members), KIP-394 (member ids).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    partition_for,
)
from neaptide.clusters.broker.replication.group.group_metadata import (
    Group,
    GroupState,
    Member,
    group_of,
)
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    append_records,
    coordinated,
    known_group,
)
from neaptide.clusters.broker.replication.interface.effects import (
    JoinedMember,
    RespondHeartbeat,
    RespondJoinGroup,
    RespondLeaveGroup,
    RespondSyncGroup,
)
from neaptide.clusters.broker.replication.interface.events import (
    CommittedOffsetsRead,
    HeartbeatRequested,
    JoinGroupRequested,
    LeaveGroupRequested,
    MemberExpiration,
    RebalanceExpiration,
    SyncGroupRequested,
)
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.produce import (
    COORDINATOR_ERRORS,
    Appended,
    DelayedRecord,
    own_number,
)
from neaptide.clusters.broker.replication.model import TopicPartition, text_bytes
from neaptide.clusters.broker.replication.rule import rule

NO_GENERATION = -1
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
# What members are answered for what became of the record of their generation.
_STORE_ERRORS = {**COORDINATOR_ERRORS, Error.REQUEST_TIMED_OUT: Error.REBALANCE_IN_PROGRESS}


# --- join ----------------------------------------------------------------------------------------


def on_join_group(broker: Broker, event: JoinGroupRequested, now_ms: int) -> None:
    """Raises TextTooLongError: who is a member must have room in the group's record."""
    names = (name for name, _ in event.protocols)
    of_member = (event.member_id, event.new_member_id, event.group_instance_id, event.client_id)
    for text in (event.group, event.protocol_type, *of_member, *names):
        text_bytes(text)
    group, error = _joined_group(broker, event)
    if error is not Error.NONE:
        _refuse(broker, event.request, error, event.member_id)
        return
    if not group.supports(event.protocol_type, event.protocols):
        _refuse(broker, event.request, Error.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
    elif event.member_id in group.pending:
        _add(broker, group, event, event.member_id, now_ms)
    elif not event.member_id:
        _join_new(broker, group, event, now_ms)
    else:
        _join_again(broker, group, event, now_ms)


def joining_error(broker: Broker, event: JoinGroupRequested) -> Error:
    """Whatever the group is."""
    _, error = coordinated(broker, event.group)
    settings = broker.settings
    timeouts = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not event.group:
        return Error.INVALID_GROUP_ID
    if error is Error.NONE and not timeouts[0] <= event.session_timeout_ms <= timeouts[1]:
        return Error.INVALID_SESSION_TIMEOUT
    return error


def _joined_group(broker: Broker, event: JoinGroupRequested) -> tuple[Group, Error]:
    error = joining_error(broker, event)
    group = known_group(broker, event.group)
    if error is Error.NONE and group is None and event.member_id:
        error = Error.UNKNOWN_MEMBER_ID
    elif error is Error.NONE and group is not None and _is_full(broker, group, event.member_id):
        error = Error.GROUP_MAX_SIZE_REACHED
    return group or Group(event.group), error


def _is_full(broker: Broker, group: Group, member_id: str) -> bool:
    """KIP-389: who is a member already may go on."""
    there = {*group.members, *group.pending}
    return len(there) >= broker.settings.group_max_size and member_id not in there


def _join_new(broker: Broker, group: Group, event: JoinGroupRequested, now_ms: int) -> None:
    member_id = event.new_member_id
    if (static := group.instance(event.group_instance_id)) is not None:
        _replace_static(broker, group, static, event, now_ms)
    elif event.must_know_member_id and event.group_instance_id is None:
        _put(broker, replace(group, pending=(*group.pending, member_id)))
        broker.set_timer(MemberExpiration(group.group, member_id), event.session_timeout_ms)
        _refuse(broker, event.request, Error.MEMBER_ID_REQUIRED, member_id)
    else:
        _add(broker, group, event, member_id, now_ms)


def _join_again(broker: Broker, group: Group, event: JoinGroupRequested, now_ms: int) -> None:
    error = _member_error(group, event.member_id, event.group_instance_id)
    if error is not Error.NONE or group.state is GroupState.EMPTY:
        unknown = Error.UNKNOWN_MEMBER_ID if error is Error.NONE else error
        _refuse(broker, event.request, unknown, event.member_id)
        return
    member = group.members[event.member_id]
    same = member.protocols == event.protocols
    if group.state is _PREPARING or not same:
        is_settled = False
    elif group.state is _COMPLETING:
        is_settled = True  # it has not received its answer, perhaps
    else:
        is_settled = event.member_id != group.leader  # a leader that joins again wants to assign
    if is_settled:
        _respond_joined(broker, group, replace(member, joining=event.request))
        return
    _update(broker, group, member, event, now_ms)


def _add(
    broker: Broker, group: Group, event: JoinGroupRequested, member_id: str, now_ms: int
) -> None:
    broker.cancel_timer(MemberExpiration(group.group, member_id))
    member = Member(
        member_id,
        event.group_instance_id,
        event.client_id,
        event.client_host,
        event.rebalance_timeout_ms,
        event.session_timeout_ms,
        event.protocols,
        joining=event.request,
    )
    joined = replace(
        group.with_member(member),
        leader=group.leader or member_id,
        protocol_type=event.protocol_type if not group.members else group.protocol_type,
        pending=tuple(one for one in group.pending if one != member_id),
        has_new_member=group.state is _PREPARING or group.has_new_member,
    )
    rebalance(broker, joined, now_ms)


def _update(
    broker: Broker, group: Group, member: Member, event: JoinGroupRequested, now_ms: int
) -> None:
    broker.cancel_timer(MemberExpiration(group.group, member.member_id))
    changed = replace(
        member,
        protocols=event.protocols,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        joining=event.request,
    )
    rebalance(broker, group.with_member(changed), now_ms)


def _replace_static(
    broker: Broker, group: Group, old: Member, event: JoinGroupRequested, now_ms: int
) -> None:
    """A static member has started again: it takes the place, and the assignment, of what it was."""
    _answer_waiting(broker, old, Error.FENCED_INSTANCE_ID)
    broker.cancel_timer(MemberExpiration(group.group, old.member_id))
    member = replace(
        old,
        member_id=event.new_member_id,
        protocols=event.protocols,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        joining=event.request,
        syncing=None,
    )
    members = {
        member.member_id if name == old.member_id else name: member if one is old else one
        for name, one in group.members.items()
    }
    leader = member.member_id if group.leader == old.member_id else group.leader
    before = group.leader
    group = replace(group, members=members, leader=leader)
    if group.state is not GroupState.STABLE or group.selected_protocol() != group.protocol:
        rebalance(broker, group, now_ms)
        return
    _put(broker, group)
    assignments = {name: one.assignment for name, one in members.items()}
    _store(broker, group, assignments, now_ms)
    # The answer names the leader of before, so that it does not assign: all keep what they have.
    _respond_joined(broker, replace(group, leader=before), member)


def _refuse(broker: Broker, request: int, error: Error, member_id: str) -> None:
    broker.do(RespondJoinGroup(request, error, member_id))


# --- rebalance -----------------------------------------------------------------------------------


@rule
def rebalance(broker: Broker, group: Group, now_ms: int) -> None:
    """All members are to join again; where that has begun, it may be complete now."""
    if group.state is _PREPARING:
        _put(broker, group)
    else:
        _prepare(broker, group)
    _complete_if_all_joined(broker, group.group, now_ms)


def _prepare(broker: Broker, group: Group) -> None:
    if group.state is _COMPLETING:
        group = _reset_assignments(broker, group, Error.REBALANCE_IN_PROGRESS)
    delay_ms, left_ms = group.rebalance_timeout_ms, None
    first_ms = broker.settings.group_initial_rebalance_delay_ms
    if group.state is GroupState.EMPTY and first_ms:
        left_ms = max(0, delay_ms - first_ms)
        delay_ms = min(first_ms, delay_ms)
    broker.set_timer(RebalanceExpiration(group.group), delay_ms)
    _put(
        broker,
        replace(group, state=_PREPARING, initial_delay_left_ms=left_ms, has_new_member=False),
    )


def _reset_assignments(broker: Broker, group: Group, error: Error) -> Group:
    """Members that wait for an assignment learn why they get none."""
    for member in group.members.values():
        settled = replace(member, assignment=b"", syncing=None)
        if member.syncing is not None:
            broker.do(RespondSyncGroup(member.syncing, error))
            _watch(broker, group.group, settled)
        group = group.with_member(settled)
    return group


@rule
def _complete_if_all_joined(broker: Broker, name: str, now_ms: int) -> None:
    group = broker.groups[name]
    if group.state is not _PREPARING or group.initial_delay_left_ms is not None:
        return
    if group.has_all_joined:
        broker.cancel_timer(RebalanceExpiration(name))
        _complete(broker, group, now_ms)


def on_rebalance_expiration(broker: Broker, timer: RebalanceExpiration, now_ms: int) -> None:
    group = broker.groups.get(timer.group)
    if group is None or group.state is not _PREPARING:
        return
    left_ms = group.initial_delay_left_ms
    if left_ms and group.has_new_member:
        delay_ms = min(broker.settings.group_initial_rebalance_delay_ms, left_ms)
        broker.set_timer(timer, delay_ms)
        _put(broker, replace(group, has_new_member=False, initial_delay_left_ms=left_ms - delay_ms))
        return
    _complete(broker, group, now_ms)


@rule
def _complete(broker: Broker, group: Group, now_ms: int) -> None:
    """The next generation: of those who have joined, and of static members that have not."""
    for member in tuple(group.members.values()):
        if member.joining is None and member.group_instance_id is None:
            broker.cancel_timer(MemberExpiration(group.group, member.member_id))
            group = group.without(member.member_id)
    joined = [one.member_id for one in group.members.values() if one.joining is not None]
    if group.members and not joined:
        broker.set_timer(RebalanceExpiration(group.group), group.rebalance_timeout_ms)
        _put(broker, replace(group, initial_delay_left_ms=None))
        return
    generation = group.generation_id + 1
    group = replace(group, generation_id=generation, initial_delay_left_ms=None)
    if not joined:
        _put(broker, replace(group, state=GroupState.EMPTY, protocol=None, leader=None))
        _store(broker, broker.groups[group.group], {}, now_ms)
        return
    leader = group.leader if group.leader in joined else joined[0]
    protocol = group.selected_protocol()
    group = replace(group, state=_COMPLETING, leader=leader, protocol=protocol)
    answered = {
        name: replace(one, joining=None, assignment=b"") for name, one in group.members.items()
    }
    _put(broker, replace(group, members=answered))
    for member in group.members.values():
        if member.joining is not None:
            _respond_joined(broker, group, member)


def _respond_joined(broker: Broker, group: Group, member: Member) -> None:
    """The leader learns of all members what they want."""
    assert member.joining is not None
    of_all = member.member_id == group.leader
    members = tuple(
        JoinedMember(one.member_id, one.group_instance_id, one.metadata(group.protocol))
        for one in (group.members.values() if of_all else ())
    )
    broker.do(
        RespondJoinGroup(
            member.joining,
            Error.NONE,
            member.member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol,
            group.leader or "",
            members,
        )
    )
    settled = replace(member, joining=None)
    _put(broker, broker.groups.get(group.group, group).with_member(settled))
    _watch(broker, group.group, settled)


# --- sync ----------------------------------------------------------------------------------------


def on_sync_group(broker: Broker, event: SyncGroupRequested, now_ms: int) -> None:
    error = _sync_error(broker, event)
    if error is not Error.NONE:
        broker.do(RespondSyncGroup(event.request, error))
        return
    group = broker.groups[event.group]
    member = group.members[event.member_id]
    if group.state is GroupState.STABLE:
        _respond_synced(broker, group, replace(member, syncing=event.request))
        return
    broker.cancel_timer(MemberExpiration(group.group, member.member_id))
    _put(broker, group.with_member(replace(member, syncing=event.request)))
    if member.member_id == group.leader:
        _store(broker, broker.groups[event.group], event.assignments, now_ms, is_generation=True)


def _sync_error(broker: Broker, event: SyncGroupRequested) -> Error:
    error = _error_of_member(
        broker, event.group, event.member_id, event.group_instance_id, event.generation_id
    )
    if error is not Error.NONE:
        return error
    group = broker.groups[event.group]
    for wanted, is_so in (
        (event.protocol_type, group.protocol_type),
        (event.protocol, group.protocol),
    ):
        if wanted is not None and wanted != is_so:
            return Error.INCONSISTENT_GROUP_PROTOCOL
    return Error.REBALANCE_IN_PROGRESS if group.state is _PREPARING else Error.NONE


def _store(
    broker: Broker,
    group: Group,
    assignments: Mapping[str, bytes],
    now_ms: int,
    *,
    is_generation: bool = False,
) -> None:
    """Appends a generation of the group. `is_generation`: its members wait for that."""
    topic_partition, error = coordinated(broker, group.group)
    appended = Appended(error, -1, -1)
    if error is Error.NONE:
        appended = append_records(broker, topic_partition, (group.record(assignments),), now_ms)
    if not is_generation:
        return
    waiting = DelayedGeneration(
        own_number(broker),
        topic_partition,
        appended,
        group.group,
        group.generation_id,
        dict(assignments),
    )
    purgatory.complete_or_park(broker, waiting, broker.settings.offsets_commit_timeout_ms)


@dataclass(frozen=True, slots=True)
class DelayedGeneration(DelayedRecord):
    """A generation of a group, in `__consumer_offsets`."""

    group: str
    generation_id: int
    assignments: Mapping[str, bytes]

    @rule
    def complete(self, broker: Broker) -> None:
        """Where another generation has begun meanwhile, nobody waits for this one."""
        error = self.outcome
        group = broker.groups.get(self.group)
        if (
            group is None
            or group.state is not _COMPLETING
            or group.generation_id != self.generation_id
        ):
            return
        if error is not Error.NONE:
            answer = _STORE_ERRORS.get(error, Error.UNKNOWN_SERVER_ERROR)
            _prepare(broker, _reset_assignments(broker, group, answer))
            return
        for member in group.members.values():
            given = self.assignments.get(member.member_id, b"")
            group = group.with_member(replace(member, assignment=given))
        group = replace(group, state=GroupState.STABLE)
        _put(broker, group)
        for member in group.members.values():
            if member.syncing is not None:
                _respond_synced(broker, group, member)


def _respond_synced(broker: Broker, group: Group, member: Member) -> None:
    assert member.syncing is not None
    broker.do(
        RespondSyncGroup(
            member.syncing, Error.NONE, member.assignment, group.protocol_type, group.protocol
        )
    )
    settled = replace(member, syncing=None)
    _put(broker, broker.groups[group.group].with_member(settled))
    _watch(broker, group.group, settled)


# --- heartbeats, and the end of a membership -----------------------------------------------------


def on_heartbeat(broker: Broker, event: HeartbeatRequested, now_ms: int) -> None:
    error = _error_of_member(
        broker, event.group, event.member_id, event.group_instance_id, event.generation_id
    )
    if error is Error.NONE:
        group = broker.groups[event.group]
        _watch(broker, event.group, group.members[event.member_id])
        error = Error.REBALANCE_IN_PROGRESS if group.state is _PREPARING else Error.NONE
    broker.do(RespondHeartbeat(event.request, error))


def on_leave_group(broker: Broker, event: LeaveGroupRequested, now_ms: int) -> None:
    _, error = coordinated(broker, event.group)
    group = known_group(broker, event.group)
    if error is Error.NONE and (group is None or not event.group):
        error = Error.INVALID_GROUP_ID if not event.group else Error.UNKNOWN_MEMBER_ID
    if error is not Error.NONE:
        broker.do(RespondLeaveGroup(event.request, error))
        return
    results = tuple(
        (member_id, instance_id, _leave(broker, event.group, member_id, instance_id, now_ms))
        for member_id, instance_id in event.members
    )
    broker.do(RespondLeaveGroup(event.request, Error.NONE, results))


def _leave(
    broker: Broker, name: str, member_id: str, group_instance_id: str | None, now_ms: int
) -> Error:
    """An operator may name a static member by its instance alone."""
    group = known_group(broker, name) or Group(name)
    if member_id in group.pending:
        _forget_pending(broker, group, member_id, now_ms)
        return Error.NONE
    if not member_id and group_instance_id is not None:
        static = group.instance(group_instance_id)
        if static is None:
            return Error.UNKNOWN_MEMBER_ID
        member_id = static.member_id
    error = _member_error(group, member_id, group_instance_id)
    if error is Error.NONE:
        _remove(broker, group, member_id, now_ms)
    return error


@rule
def on_member_expiration(broker: Broker, timer: MemberExpiration, now_ms: int) -> None:
    """Silent for its session time-out. Who waits for an answer is not silent."""
    group = broker.groups.get(timer.group)
    if group is None:
        return
    if timer.member_id in group.pending:
        _forget_pending(broker, group, timer.member_id, now_ms)
    elif timer.member_id in group.members and not group.members[timer.member_id].waits:
        broker.note(f"group {group.group}: the session of {timer.member_id} is over")
        _remove(broker, group, timer.member_id, now_ms)


def _forget_pending(broker: Broker, group: Group, member_id: str, now_ms: int) -> None:
    broker.cancel_timer(MemberExpiration(group.group, member_id))
    left = replace(group, pending=tuple(p for p in group.pending if p != member_id))
    if left == Group(group.group):  # nobody has ever joined it
        del broker.groups[group.group]
        return
    _put(broker, left)
    _complete_if_all_joined(broker, group.group, now_ms)


def _remove(broker: Broker, group: Group, member_id: str, now_ms: int) -> None:
    broker.cancel_timer(MemberExpiration(group.group, member_id))
    _answer_waiting(broker, group.members[member_id], Error.UNKNOWN_MEMBER_ID)
    left = group.without(member_id)
    if left.state is GroupState.STABLE or left.state is _COMPLETING or left.state is _PREPARING:
        rebalance(broker, left, now_ms)
    else:
        _put(broker, left)


def _answer_waiting(broker: Broker, member: Member, error: Error) -> None:
    if member.joining is not None:
        _refuse(broker, member.joining, error, member.member_id)
    if member.syncing is not None:
        broker.do(RespondSyncGroup(member.syncing, error))


# --- what all of them need -----------------------------------------------------------------------


def commit_error(
    broker: Broker,
    name: str,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
) -> Error:
    """Whether a commit is one of a member, or of a group that has none. Of a member of the classic
    protocol it is a heartbeat, too."""
    if (consumer_group := broker.consumer_groups.get(name)) is not None:
        return consumer_group.epoch_error(member_id, generation_id)
    group = known_group(broker, name)
    if generation_id < 0 and (group is None or group.state is GroupState.EMPTY):
        return Error.NONE
    if group is None:
        return Error.ILLEGAL_GENERATION
    error = _member_error(group, member_id, group_instance_id)
    if error is Error.NONE and generation_id != group.generation_id:
        error = Error.ILLEGAL_GENERATION
    if error is Error.NONE and group.state is _COMPLETING:
        return Error.REBALANCE_IN_PROGRESS
    if error is Error.NONE and group.state is not GroupState.EMPTY:
        _watch(broker, name, group.members[member_id])
    return error


@rule
def _error_of_member(
    broker: Broker, name: str, member_id: str, group_instance_id: str | None, generation_id: int
) -> Error:
    _, error = coordinated(broker, name)
    group = known_group(broker, name)
    if not name:
        return Error.INVALID_GROUP_ID
    if error is not Error.NONE:
        return error
    if group is None or group.state is GroupState.EMPTY:
        return Error.UNKNOWN_MEMBER_ID
    error = _member_error(group, member_id, group_instance_id)
    if error is not Error.NONE:
        return error
    return Error.NONE if generation_id == group.generation_id else Error.ILLEGAL_GENERATION


def _member_error(group: Group, member_id: str, group_instance_id: str | None) -> Error:
    """Who has a static member's name, and not its id, was replaced by another (KIP-345)."""
    if group_instance_id is not None:
        static = group.instance(group_instance_id)
        if static is None:
            return Error.UNKNOWN_MEMBER_ID
        if static.member_id != member_id:
            return Error.FENCED_INSTANCE_ID
    return Error.NONE if member_id in group.members else Error.UNKNOWN_MEMBER_ID


def _put(broker: Broker, group: Group) -> None:
    broker.groups[group.group] = group


@rule
def _watch(broker: Broker, name: str, member: Member) -> None:
    """From now on its session time-out runs again."""
    if not member.waits:
        broker.set_timer(MemberExpiration(name, member.member_id), member.session_timeout_ms)


def on_groups_read(broker: Broker, event: CommittedOffsetsRead, now_ms: int) -> None:
    for record in event.groups:
        take_group(broker, group_of(record))


def take_group(broker: Broker, group: Group) -> None:
    """This broker coordinates it now: its members' session time-outs begin."""
    _put(broker, group)
    for member in group.members.values():
        _watch(broker, group.group, member)


def on_resignation(broker: Broker, topic_partition: TopicPartition) -> None:
    """Another broker coordinates them: whoever waits is to look for it."""
    partitions = broker.metadata.partition_counts.get(OFFSETS_TOPIC, 1)
    for group in tuple(broker.groups.values()):
        if partition_for(group.group, partitions) == topic_partition:
            forget_group(broker, group, Error.NOT_COORDINATOR)


def forget_group(broker: Broker, group: Group, error: Error) -> None:
    """It is not coordinated here, or not as a classic one. `error`: for who waits."""
    for member in group.members.values():
        _answer_waiting(broker, member, error)
    for member_id in (*group.members, *group.pending):
        broker.cancel_timer(MemberExpiration(group.group, member_id))
    broker.cancel_timer(RebalanceExpiration(group.group))
    broker.groups.pop(group.group, None)
