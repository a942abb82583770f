"""A group of the consumer protocol (KIP-848), as frozen values, and what follows from them alone.

Here members do not assign: the coordinator computes a target for all, and leads each member to it,
step by step. Everything that is known of a group is in records of `__consumer_offsets`; `applied`
alone makes a group of them, when they are written and when they are read again.

Not what is requested: see consumer_group_heartbeat. Not who is to get what: see assignors. As
Kafka's ConsumerGroup, ConsumerGroupMember and CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.assignors import (
    ASSIGNORS,
    Partitions,
    Subscriber,
)
from neaptide.clusters.broker.replication.model import text_bytes
from neaptide.clusters.broker.replication.rule import rule

JOINING_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2  # a static member that will be back

NOTHING: Final[Partitions] = frozenset()
T = TypeVar("T")


class ConsumerGroupState(StrEnum):
    """By the names that clients are shown."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target is of an older epoch than the group
    RECONCILING = "Reconciling"  # some member has not reached its target
    STABLE = "Stable"


class MemberState(IntEnum):
    """By the numbers of ConsumerGroupCurrentMemberAssignmentValue."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it is to give up some first
    UNRELEASED_PARTITIONS = 2  # it waits for some that another has still


class SubscribedTopic(NamedTuple):
    """What a group knows of a topic that it reads."""

    name: str
    topic_id: str
    partitions: int


class ClassicProtocol(NamedTuple):
    """Of a member of the classic protocol, in a group that has others of the consumer protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # names and subscriptions

    @property
    def name(self) -> str:
        """The one that the member is answered: it assigns nothing by it."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """`assigned`: what it may read now; `revoking`: what it was asked to give up, and has not.

    `classic`: None for a member of the consumer protocol.
    """

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    server_assignor: str | None = None
    member_epoch: int = JOINING_EPOCH
    previous_member_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING
    classic: ClassicProtocol | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def in_epoch(self, epoch: int) -> ConsumerGroupMember:
        """The epoch before is remembered: the answer that names the new one may be lost."""
        return replace(self, member_epoch=epoch, previous_member_epoch=self.member_epoch)


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """`epoch` rises with each change of who reads what; `target_epoch`: that of the target.

    `topics`: by name, of those that members read and that exist.
    """

    group: str
    epoch: int = 0
    topics: Mapping[str, SubscribedTopic] = field(default_factory=dict)
    members: Mapping[str, ConsumerGroupMember] = field(default_factory=dict)
    target_epoch: int = 0
    targets: Mapping[str, Partitions] = field(default_factory=dict)
    group_type: ClassVar = "consumer"
    protocol_type: ClassVar = "consumer"

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(one.is_reconciled_to(self.target_epoch) for one in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The one that most members prefer; the first, where none says."""
        named = (one.server_assignor for one in self.members.values())
        votes = Counter(name for name in named if name is not None)
        return max(votes, key=lambda name: votes[name], default=next(iter(ASSIGNORS)))

    def instance(self, group_instance_id: str | None) -> ConsumerGroupMember | None:
        if group_instance_id is None:
            return None
        members = self.members.values()
        return next((one for one in members if one.group_instance_id == group_instance_id), None)

    @property
    def is_classic(self) -> bool:
        """Whether nobody but members of the classic protocol is left."""
        return bool(self.members) and all(one.classic for one in self.members.values())

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member of the classic protocol can join: one must be all such members'."""
        each = [dict(one.classic.protocols) for one in self.members.values() if one.classic]
        return protocol_type == self.protocol_type and any(
            all(name in protocols for protocols in each) for name in names
        )

    def epoch_error(self, member_id: str, epoch: int) -> Error:
        """Whether a commit, or a question for what is committed, is one of a member in its epoch,
        or one of an operator where there are none."""
        if epoch < 0 and not self.members:
            return Error.NONE
        member = self.members.get(member_id)
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        if member.member_epoch == epoch:
            return Error.NONE
        return Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether another has still what the member is to get."""
        return bool((self.target(member.member_id) - member.assigned) & self.owned_by_members())

    def owned_by_members(self) -> Partitions:
        """What some member has, or has not given up yet."""
        each = (one.assigned | one.revoking for one in self.members.values())
        return frozenset().union(*each)

    @rule
    def next_targets(self) -> Mapping[str, Partitions]:
        """Who is to get what, by what each reads now."""
        ids = {one.topic_id: one.partitions for one in self.topics.values()}
        subscribers = {
            one.member_id: Subscriber(
                one.group_instance_id,
                tuple(self.topics[name].topic_id for name in matching(one, self.topics)),
                self.target(one.member_id),
            )
            for one in self.members.values()
        }
        return ASSIGNORS[self.assignor](subscribers, ids)


def tombstones(group: ConsumerGroup) -> tuple[ConsumerGroupRecord, ...]:
    """What ends a group; its epoch goes last."""
    name, members = group.group, tuple(group.members)
    return (
        *(CurrentAssignmentRecord(name, one, None) for one in members),
        *(TargetRecord(name, one, None) for one in group.targets),
        TargetEpochRecord(name, None),
        *(MemberMetadataRecord(name, one, None) for one in members),
        GroupTopicsRecord(name, None),
        GroupEpochRecord(name, None),
    )


@lru_cache(maxsize=1_024)
def compiled(pattern: str) -> Any:
    """A pattern of topics, in the syntax of RE2, as in Kafka: whatever a client says, it takes no
    more than time in proportion to the names. Raises InvalidPatternError."""
    import re2  # most brokers do without

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPatternError(str(error)) from None


class InvalidPatternError(ValueError):
    """A pattern that is no regular expression."""


def matching(member: ConsumerGroupMember, names: Iterable[str]) -> list[str]:
    """Those of some topics that a member reads."""
    pattern = None if member.topic_regex is None else compiled(member.topic_regex)
    return [
        name
        for name in names
        if name in member.topic_names or (pattern is not None and pattern.fullmatch(name))
    ]


# --- what a member is to do next ------------------------------------------------------------------


@rule
def reconciled(
    group: ConsumerGroup, member: ConsumerGroupMember, owned: Partitions | None
) -> ConsumerGroupMember:
    """The member one step nearer to its target. `owned`: what it says that it reads; None: it does
    not say. What it is to give up, another gets only once the member no longer names it."""
    match member.state:
        case MemberState.STABLE if member.member_epoch == group.target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(member.revoking, owned):
                return member
            return _next(group, member, member.member_epoch + 1, owned)
    return _next(group, member, member.member_epoch, owned)


def _next(
    group: ConsumerGroup, member: ConsumerGroupMember, epoch: int, owned: Partitions | None
) -> ConsumerGroupMember:
    target = group.target(member.member_id)
    kept = member.assigned & target
    revoking = member.assigned - kept
    wanted = target - kept
    free = wanted - group.owned_by_members()
    if revoking and _still_owns(revoking, owned):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(member.in_epoch(epoch), state=state, assigned=kept, revoking=revoking)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    changed = member.in_epoch(group.target_epoch)
    return replace(changed, state=state, assigned=kept | free, revoking=NOTHING)


def _still_owns(revoking: Partitions, owned: Partitions | None) -> bool:
    return owned is None or bool(revoking & owned)


# --- what is kept ---------------------------------------------------------------------------------
# Each is one record, by the number of its key; `value` None: it deletes that.


class GroupEpochRecord(NamedTuple):
    group: str
    value: int | None

    @property
    def size_bytes(self) -> int:
        return _size(self.group)


class GroupTopicsRecord(NamedTuple):
    group: str
    value: tuple[SubscribedTopic, ...] | None

    @property
    def size_bytes(self) -> int:
        topics = self.value or ()
        return _size(self.group, *(one.name for one in topics)) + 30 * len(topics)


class MemberMetadataRecord(NamedTuple):
    """`value`: of it what a member says of itself is kept."""

    group: str
    member_id: str
    value: ConsumerGroupMember | None

    @property
    def size_bytes(self) -> int:
        one = self.value
        if one is None:
            return _size(self.group, self.member_id)
        own = one.group_instance_id, one.rack_id, one.client_id, one.client_host
        wanted = one.topic_regex, one.server_assignor, *one.topic_names
        classic = () if one.classic is None else one.classic.protocols
        size = _size(self.group, self.member_id, *own, *wanted)
        return size + sum(text_bytes(name) + len(data) + 10 for name, data in classic)


class TargetEpochRecord(NamedTuple):
    group: str
    value: int | None

    @property
    def size_bytes(self) -> int:
        return _size(self.group)


class TargetRecord(NamedTuple):
    group: str
    member_id: str
    value: Partitions | None

    @property
    def size_bytes(self) -> int:
        return _size(self.group, self.member_id) + 4 * len(self.value or ())


class CurrentAssignmentRecord(NamedTuple):
    """`value`: of it the epochs, the state and the partitions are kept."""

    group: str
    member_id: str
    value: ConsumerGroupMember | None

    @property
    def size_bytes(self) -> int:
        partitions = () if self.value is None else (*self.value.assigned, *self.value.revoking)
        return _size(self.group, self.member_id) + 20 * len(partitions)


ConsumerGroupRecord = (
    GroupEpochRecord
    | GroupTopicsRecord
    | MemberMetadataRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentAssignmentRecord
)


def _size(*texts: str | None) -> int:
    """About as many bytes as it has in the log. Raises TextTooLongError."""
    return 70 + sum(map(text_bytes, texts))


@rule
def applied(group: ConsumerGroup | None, record: ConsumerGroupRecord) -> ConsumerGroup | None:
    """The group after one of its records; None: there is none. As the log is compacted, a record
    of a member may come before the one that has the group's epoch."""
    if record.value is None and (group is None or isinstance(record, GroupEpochRecord)):
        return None
    known = group or ConsumerGroup(record.group)
    match record:
        case GroupEpochRecord(_, epoch):
            return replace(known, epoch=epoch or 0)
        case GroupTopicsRecord(_, topics):
            return replace(known, topics={one.name: one for one in topics or ()})
        case TargetEpochRecord(_, epoch):
            return replace(known, target_epoch=epoch or 0)
        case TargetRecord(_, member_id, target):
            return replace(known, targets=_with(known.targets, member_id, target))
        case MemberMetadataRecord(_, member_id, said):
            before = known.members.get(member_id, ConsumerGroupMember(member_id))
            after = None if said is None else _with_assignment_of(said, before)
            return replace(known, members=_with(known.members, member_id, after))
        case CurrentAssignmentRecord(_, member_id, now):
            return replace(known, members=_with_current(known.members, member_id, now))


def _with_current(
    members: Mapping[str, ConsumerGroupMember], member_id: str, now: ConsumerGroupMember | None
) -> Mapping[str, ConsumerGroupMember]:
    """A member without an assignment begins again."""
    before = members.get(member_id)
    if before is None and now is None:
        return members
    nobody = ConsumerGroupMember(member_id)
    return {**members, member_id: _with_assignment_of(before or nobody, now or nobody)}


def _with(known: Mapping[str, T], name: str, value: T | None) -> Mapping[str, T]:
    left = {one: of for one, of in known.items() if value is not None or one != name}
    return left if value is None else {**left, name: value}


def _with_assignment_of(
    member: ConsumerGroupMember, assigned: ConsumerGroupMember
) -> ConsumerGroupMember:
    return replace(
        member,
        member_epoch=assigned.member_epoch,
        previous_member_epoch=assigned.previous_member_epoch,
        state=assigned.state,
        assigned=assigned.assigned,
        revoking=assigned.revoking,
    )
