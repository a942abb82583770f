"""A group and its members, as frozen values, and what follows from them alone.

Not what is requested of a group: see group_membership. As Kafka's GroupMetadata and MemberMetadata
(the classic protocol). `GroupMetadataRecord` is what of it is kept in `__consumer_offsets`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, NamedTuple

from neaptide.clusters.broker.replication.model import text_bytes

Protocols = tuple[tuple[str, bytes], ...]  # names and metadata, in the order of preference


class GroupState(StrEnum):
    """By the names that clients are shown."""

    EMPTY = "Empty"  # no members; what it has committed stays
    PREPARING_REBALANCE = "PreparingRebalance"  # members join
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader's assignment is awaited
    STABLE = "Stable"
    DEAD = "Dead"  # of a group that is not there


@dataclass(frozen=True, slots=True)
class Member:
    """`joining` and `syncing`: its request that waits for an answer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


class MemberRecord(NamedTuple):
    """What is kept of a member: of its protocols the metadata of the one that was chosen."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes

    @property
    def size_bytes(self) -> int:
        texts = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        return 20 + sum(map(text_bytes, texts)) + len(self.subscription) + len(self.assignment)


class GroupMetadataRecord(NamedTuple):
    """One record of `__consumer_offsets`: a generation of a group. `is_deleted`: it is no more."""

    group: str
    protocol_type: str = ""
    generation_id: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: tuple[MemberRecord, ...] = ()
    is_deleted: bool = False

    @property
    def size_bytes(self) -> int:
        """About as many as it has in the log. Raises TextTooLongError."""
        texts = (self.group, self.protocol_type, self.protocol, self.leader)
        return 70 + sum(map(text_bytes, texts)) + sum(one.size_bytes for one in self.members)


@dataclass(frozen=True, slots=True)
class Group:
    """`pending`: member ids that were given out, and have not joined (KIP-394).

    `initial_delay_left_ms`: of the first rebalance of an empty group (KIP-134), how long it may
    still be put off while members join; None: it is another one. `has_new_member`: since then one
    has joined.
    """

    group: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    pending: tuple[str, ...] = ()
    initial_delay_left_ms: int | None = None
    has_new_member: bool = False
    group_type: ClassVar = "classic"

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(m.joining is not None for m in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def instance(self, group_instance_id: str | None) -> Member | None:
        """The static member of this name (KIP-345)."""
        if group_instance_id is None:
            return None
        members = self.members.values()
        return next((m for m in members if m.group_instance_id == group_instance_id), None)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these can join: one protocol must be everybody's."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(names & self._of_all())

    def _of_all(self) -> set[str]:
        each = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*each) if each else set()

    def selected_protocol(self) -> str:
        """Each member votes for the first of its protocols that all have."""
        of_all = self._of_all()
        votes = Counter(
            next(name for name, _ in member.protocols if name in of_all)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def with_member(self, member: Member) -> Group:
        return replace(self, members={**self.members, member.member_id: member})

    def without(self, member_id: str) -> Group:
        """Its leader is then the member that has been there longest."""
        left = {name: one for name, one in self.members.items() if name != member_id}
        leader = next(iter(left), None) if self.leader == member_id else self.leader
        return replace(self, members=left, leader=leader)

    def record(self, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
        return GroupMetadataRecord(
            self.group,
            self.protocol_type,
            self.generation_id,
            self.protocol,
            self.leader,
            tuple(
                MemberRecord(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    one.rebalance_timeout_ms,
                    one.session_timeout_ms,
                    one.metadata(self.protocol),
                    assignments.get(one.member_id, b""),
                )
                for one in self.members.values()
            ),
        )


def group_of(record: GroupMetadataRecord) -> Group:
    """A group as its log has it: stable where it has members."""
    members = {
        one.member_id: Member(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            one.rebalance_timeout_ms,
            one.session_timeout_ms,
            ((record.protocol or "", one.subscription),),
            one.assignment,
        )
        for one in record.members
    }
    return Group(
        record.group,
        GroupState.STABLE if members else GroupState.EMPTY,
        record.generation_id,
        record.protocol_type,
        record.protocol,
        record.leader,
        members,
    )
