"""How a group of the consumer protocol changes: records, and an answer that waits for them.

Each request comes to a `Change`. Its records are appended, and applied at once; the answer is given
when they are committed. Nothing else changes a group. Where members of the classic protocol alone
are left, the group is a classic one from then on; and it may have taken the place of one (KIP-848).
Not what is requested: see consumer_group_heartbeat and classic_member. As Kafka's
GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group import group_membership
from neaptide.clusters.broker.replication.group.assignors import Partitions
from neaptide.clusters.broker.replication.group.consumer_group import (
    JOINING_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    GroupTopicsRecord,
    MemberMetadataRecord,
    MemberState,
    SubscribedTopic,
    TargetEpochRecord,
    TargetRecord,
    applied,
    matching,
    reconciled,
    tombstones,
)
from neaptide.clusters.broker.replication.group.group_metadata import Group, GroupMetadataRecord
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    append_records,
    coordinated,
)
from neaptide.clusters.broker.replication.group.protocol_migration import downgraded
from neaptide.clusters.broker.replication.interface.effects import (
    RespondConsumerGroupHeartbeat,
    RespondJoinGroup,
    RespondLeaveGroup,
    RespondSyncGroup,
)
from neaptide.clusters.broker.replication.interface.events import (
    ClassicMemberExpiration,
    GroupSettingsChanged,
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
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.settings import GroupSettings

Answer = RespondConsumerGroupHeartbeat | RespondJoinGroup | RespondSyncGroup | RespondLeaveGroup
# What a member is answered for what became of its group's records.
_STORE_ERRORS = {
    **COORDINATOR_ERRORS,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.RECORD_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


class RefusedError(Exception):
    """Why a request is answered with an error. Raised before anything changes."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


class Change:
    """A group with the records that have led to it: what `applied` makes of them.

    `classic`: the classic group whose place it takes.
    """

    def __init__(self, before: ConsumerGroup, classic: Group | None = None) -> None:
        self.before = before
        self.group = before
        self.classic = classic
        self.records: list[ConsumerGroupRecord] = []

    def add(self, record: ConsumerGroupRecord) -> None:
        self.records.append(record)
        self.group = applied(self.group, record) or ConsumerGroup(self.group.group)


# --- members --------------------------------------------------------------------------------------


def is_full(broker: Broker, group: ConsumerGroup, member_id: str) -> bool:
    is_new = member_id not in group.members
    return is_new and len(group.members) >= broker.settings.group_consumer_max_size


def advance(
    broker: Broker,
    change: Change,
    before: ConsumerGroupMember,
    after: ConsumerGroupMember,
    owned: Partitions | None,
) -> ConsumerGroupMember:
    """A member as it shows itself now; what follows for all, and a step to its target for it."""
    bumps = before.topic_names != after.topic_names or before.topic_regex != after.topic_regex
    if after != before or before.member_id not in change.group.members:
        change.add(MemberMetadataRecord(change.group.group, after.member_id, after))
    learn_topics(broker, change, is_changed=bumps)
    if change.group.epoch > change.group.target_epoch:
        _set_targets(change)
    _reconcile(broker, change, change.group.members[after.member_id], owned)
    return change.group.members[after.member_id]


def replace_static(
    change: Change, static: ConsumerGroupMember, member_id: str
) -> ConsumerGroupMember:
    """A static member takes the place, and the target, of the one that it was."""
    group, target = change.group.group, change.group.target(static.member_id)
    remove_member(change, static.member_id)
    epoch = JOINING_EPOCH
    new = replace(static, member_id=member_id, member_epoch=epoch, previous_member_epoch=epoch)
    change.add(MemberMetadataRecord(group, member_id, new))
    change.add(TargetRecord(group, member_id, target))
    change.add(CurrentAssignmentRecord(group, member_id, new))
    return new


def remove_member(change: Change, member_id: str) -> None:
    """The next heartbeat of another gives its partitions away."""
    name = change.group.group
    change.add(CurrentAssignmentRecord(name, member_id, None))
    change.add(TargetRecord(name, member_id, None))
    change.add(MemberMetadataRecord(name, member_id, None))


def learn_topics(broker: Broker, change: Change, *, is_changed: bool) -> None:
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
def _set_targets(change: Change) -> None:
    group = change.group
    for member_id, target in group.next_targets().items():
        if group.targets.get(member_id) != target:
            change.add(TargetRecord(group.group, member_id, target))
    change.add(TargetEpochRecord(group.group, group.epoch))


def _reconcile(
    broker: Broker, change: Change, member: ConsumerGroupMember, owned: Partitions | None
) -> None:
    group = change.group
    after = reconciled(group, member, owned)
    if after == member:
        return
    change.add(CurrentAssignmentRecord(group.group, member.member_id, after))
    if member.classic is not None:  # it has to join again in time, and to ask for its assignment
        return
    timer = RevocationExpiration(group.group, member.member_id)
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        broker.set_timer(timer, after.rebalance_timeout_ms)
    else:
        broker.cancel_timer(timer)


# --- what becomes of a change ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DelayedChange(DelayedRecord):
    """Records of a group, in `__consumer_offsets`, and the answer that waits for them; None: nobody
    waits."""

    answer: Answer | None

    @rule
    def complete(self, broker: Broker) -> None:
        if self.answer is not None:
            broker.do(_answered(self.answer, self.outcome))


def _answered(answer: Answer, error: Error) -> Answer:
    if error is Error.NONE:
        return answer
    refused = _STORE_ERRORS.get(error, error)
    if isinstance(answer, RespondJoinGroup):
        return RespondJoinGroup(answer.request, refused, answer.member_id)
    return type(answer)(answer.request, refused)


@rule
def commit(broker: Broker, change: Change, answer: Answer | None, now_ms: int) -> bool:
    """Whether the group is what it has become. What says nothing new waits for what is not
    committed yet all the same: it may show that."""
    topic_partition, _ = coordinated(broker, change.group.group)
    classic = _as_classic(broker, change)
    records = _records(broker, change, classic)
    if records:
        appended = append_records(broker, topic_partition, records, now_ms)
    else:
        end_offset = broker.partitions[topic_partition].log.end_offset
        appended = Appended(None, end_offset, end_offset)
    if appended.error not in (None, Error.NONE):
        if answer is not None:
            broker.do(_answered(answer, appended.error))
        return False
    if classic is not None:
        _become_classic(broker, change, classic)
        if not isinstance(answer, RespondJoinGroup):  # whose member has what the one before it had
            group_membership.rebalance(broker, classic, now_ms)
    elif records:
        _take_place(broker, change)
    request = own_number(broker) if answer is None else answer.request
    waiting = DelayedChange(request, topic_partition, appended, answer)
    purgatory.complete_or_park(broker, waiting, broker.settings.offsets_commit_timeout_ms)
    return True


def _as_classic(broker: Broker, change: Change) -> Group | None:
    """The classic group that it has become: none, while a member of the consumer protocol is left
    or where the way back is not allowed."""
    policy, most = broker.settings.group_consumer_migration_policy, broker.settings.group_max_size
    group = change.group
    if change.before.is_classic or not group.is_classic:
        return None
    if not policy.allows_downgrade or len(group.members) > most:
        return None
    return downgraded(group, {topic_id: of for of, topic_id in broker.metadata.topic_ids.items()})


def _records(
    broker: Broker, change: Change, classic: Group | None
) -> tuple[ConsumerGroupRecord | GroupMetadataRecord, ...]:
    if classic is not None:
        assignments = {name: one.assignment for name, one in classic.members.items()}
        return (*tombstones(change.before), classic.record(assignments))
    ends = change.classic is not None and change.group.group in broker.groups
    ended = (GroupMetadataRecord(change.group.group, is_deleted=True),) if ends else ()
    return (*ended, *change.records)


def _become_classic(broker: Broker, change: Change, classic: Group) -> None:
    for member_id in change.before.members:
        cancel_timers(broker, classic.group, member_id)
    del broker.consumer_groups[classic.group]
    group_membership.take_group(broker, classic)


def _take_place(broker: Broker, change: Change) -> None:
    """Who waits in a classic group is to join again."""
    group = change.group
    broker.consumer_groups[group.group] = group
    if change.classic is not None:
        group_membership.forget_group(broker, change.classic, Error.REBALANCE_IN_PROGRESS)
        for member in group.members.values():
            watch(broker, group.group, member)


def end_membership(
    broker: Broker, group: ConsumerGroup, member_id: str, answer: Answer | None, now_ms: int
) -> bool:
    """Whether it is a member no more."""
    change = Change(group)
    remove_member(change, member_id)
    learn_topics(broker, change, is_changed=True)
    if not commit(broker, change, answer, now_ms):
        return False
    if group.group in broker.consumer_groups:
        cancel_timers(broker, group.group, member_id)
    return True


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


# --- time-outs ------------------------------------------------------------------------------------


def on_group_settings_changed(broker: Broker, event: GroupSettingsChanged, now_ms: int) -> None:
    """They hold from the next heartbeat of each member on."""
    if event.settings == GroupSettings():
        broker.group_settings.pop(event.group, None)
    else:
        broker.group_settings[event.group] = event.settings


def heartbeat_interval_ms(broker: Broker, name: str) -> int:
    own = broker.group_settings.get(name, GroupSettings()).consumer_heartbeat_interval_ms
    return broker.settings.group_consumer_heartbeat_interval_ms if own is None else own


def _session_timeout_ms(broker: Broker, name: str) -> int:
    own = broker.group_settings.get(name, GroupSettings()).consumer_session_timeout_ms
    return broker.settings.group_consumer_session_timeout_ms if own is None else own


def watch(broker: Broker, name: str, member: ConsumerGroupMember) -> None:
    """From now on its session time-out runs again."""
    session_ms = _session_timeout_ms(broker, name)
    if member.classic is not None:
        session_ms = member.classic.session_timeout_ms
    broker.set_timer(MemberExpiration(name, member.member_id), session_ms)


def expect(broker: Broker, name: str, member: ConsumerGroupMember, *, anew: bool = False) -> None:
    """A member of the classic protocol is to join again, or to ask for its assignment, within its
    rebalance time-out: from now on, or from when that was first so."""
    timer = ClassicMemberExpiration(name, member.member_id)
    if anew or timer not in broker.expected:
        broker.expected |= {timer}
        broker.set_timer(timer, member.rebalance_timeout_ms)


def expect_no_more(broker: Broker, name: str, member_id: str) -> None:
    timer = ClassicMemberExpiration(name, member_id)
    if timer in broker.expected:
        broker.expected -= {timer}
        broker.cancel_timer(timer)


def cancel_timers(broker: Broker, name: str, member_id: str) -> None:
    broker.cancel_timer(MemberExpiration(name, member_id))
    broker.cancel_timer(RevocationExpiration(name, member_id))
    expect_no_more(broker, name, member_id)
