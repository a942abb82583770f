"""From a classic group of consumers to one of the consumer protocol, and back (KIP-848).

Members keep what they are assigned. As Kafka's ConsumerGroup.fromClassicGroup and
ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.clusters.broker.replication.group.assignors import Partitions, TopicIdPartition
from neaptide.clusters.broker.replication.group.consumer_group import (
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberMetadataRecord,
    TargetEpochRecord,
    TargetRecord,
)
from neaptide.clusters.broker.replication.group.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from neaptide.clusters.broker.replication.group.group_metadata import Group, GroupState, Member
from neaptide.clusters.broker.replication.model import TopicPartition


def upgrading_records(
    group: Group, topic_ids: Mapping[str, str]
) -> tuple[ConsumerGroupRecord, ...]:
    """What makes it a group of the consumer protocol, in the epoch of its generation.

    Raises MalformedProtocolError.
    """
    members = [_consumer_member(group, one, topic_ids) for one in group.members.values()]
    name, epoch = group.group, group.generation_id
    return (
        *(MemberMetadataRecord(name, one.member_id, one) for one in members),
        GroupEpochRecord(name, epoch),
        *(TargetRecord(name, one.member_id, one.assigned) for one in members),
        TargetEpochRecord(name, epoch),
        *(CurrentAssignmentRecord(name, one.member_id, one) for one in members),
    )


def _consumer_member(
    group: Group, member: Member, topic_ids: Mapping[str, str]
) -> ConsumerGroupMember:
    subscription = read_subscription(member.protocols[0][1])  # the same in all
    return ConsumerGroupMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        tuple(sorted(set(subscription.topics))),
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        assigned=frozenset(
            TopicIdPartition(topic_ids[one.topic], one.partition)
            for one in read_assignment(member.assignment)
            if one.topic in topic_ids
        ),
        classic=ClassicProtocol(member.session_timeout_ms, member.protocols),
    )


def downgraded(group: ConsumerGroup, topics: Mapping[str, str]) -> Group:
    """A classic group of the same members, who are assigned their targets. `topics`: names by id.

    All members are of the classic protocol.
    """
    members = {one.member_id: _classic_member(group, one, topics) for one in group.members.values()}
    classic = Group(
        group.group,
        GroupState.STABLE,
        group.epoch,
        PROTOCOL_TYPE,
        leader=next(iter(members)),
        members=members,
    )
    return replace(classic, protocol=classic.selected_protocol())


def _classic_member(
    group: ConsumerGroup, member: ConsumerGroupMember, topics: Mapping[str, str]
) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        member.classic.protocols,
        assignment_of(member.classic, group.target(member.member_id), topics),
    )


def assignment_of(
    classic: ClassicProtocol, partitions: Partitions, topics: Mapping[str, str]
) -> bytes:
    """In the version that the member speaks; of a topic that is gone nothing. `topics`: by id."""
    version = read_subscription(classic.protocols[0][1]).version
    return assignment_bytes(
        version,
        (
            TopicPartition(topics[one.topic_id], one.partition)
            for one in partitions
            if one.topic_id in topics
        ),
    )
