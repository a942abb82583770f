"""What operators request of a group's coordinator: to describe, list and delete groups and offsets.

As Kafka's GroupCoordinator. What is deleted is deleted when its tombstones are appended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OffsetCommitRecord,
    with_committed,
)
from neaptide.clusters.broker.replication.group.consumer_group import ConsumerGroup
from neaptide.clusters.broker.replication.group.consumer_group_change import end_group
from neaptide.clusters.broker.replication.group.group_metadata import (
    Group,
    GroupMetadataRecord,
    GroupState,
)
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    append_records,
    coordinated,
    known_group,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondConsumerGroupDescribe,
    RespondDeleteGroups,
    RespondDescribeGroups,
    RespondListGroups,
    RespondOffsetDelete,
)
from neaptide.clusters.broker.replication.interface.events import (
    ConsumerGroupDescribeRequested,
    DeleteGroupsRequested,
    DescribeGroupsRequested,
    ListGroupsRequested,
    OffsetDeleteRequested,
)
from neaptide.clusters.broker.replication.model import TopicPartition

_CONSUMER = "consumer"  # the protocol type of consumers: their topics are known


def on_describe_groups(broker: Broker, event: DescribeGroupsRequested, now_ms: int) -> None:
    """A group that is not there is dead, and no error."""
    results = []
    for name in event.groups:
        _, error = coordinated(broker, name)
        group = known_group(broker, name) or Group(name, GroupState.DEAD)
        results.append((group, error))
    broker.do(RespondDescribeGroups(event.request, tuple(results)))


def on_list_groups(broker: Broker, event: ListGroupsRequested, now_ms: int) -> None:
    """Those that this broker coordinates."""
    committed = {name for offsets in broker.committed_offsets.values() for name, _ in offsets}
    classic = [known_group(broker, name) for name in {*broker.groups, *committed}]
    groups: list[Group | ConsumerGroup] = [one for one in classic if one is not None]
    groups += broker.consumer_groups.values()
    shown = [
        one
        for one in groups
        if (not event.states or one.state.lower() in event.states)
        and (not event.types or one.group_type in event.types)
    ]
    shown.sort(key=lambda one: one.group)
    broker.do(RespondListGroups(event.request, Error.NONE, tuple(shown)))


def on_consumer_group_describe(
    broker: Broker, event: ConsumerGroupDescribeRequested, now_ms: int
) -> None:
    results = []
    for name in event.groups:
        _, error = coordinated(broker, name)
        group = broker.consumer_groups.get(name)
        if error is Error.NONE and group is None:
            error = Error.GROUP_ID_NOT_FOUND
        results.append((group or ConsumerGroup(name), error))
    names = {topic_id: name for name, topic_id in broker.metadata.topic_ids.items()}
    broker.do(RespondConsumerGroupDescribe(event.request, tuple(results), names))


def on_delete_groups(broker: Broker, event: DeleteGroupsRequested, now_ms: int) -> None:
    results = tuple((name, _delete(broker, name, now_ms)) for name in event.groups)
    broker.do(RespondDeleteGroups(event.request, results))


def _delete(broker: Broker, name: str, now_ms: int) -> Error:
    topic_partition, error = coordinated(broker, name)
    if error is not Error.NONE:
        return error
    group = known_group(broker, name)
    if name in broker.consumer_groups:
        error = end_group(broker, name, now_ms)
        if error is not Error.NONE:
            return error
    elif group is None:
        return Error.GROUP_ID_NOT_FOUND
    elif group.state is not GroupState.EMPTY or group.pending:
        return Error.NON_EMPTY_GROUP
    committed = broker.committed_offsets[topic_partition]
    partitions = [partition for of, partition in committed if of == name]
    error = _forget(broker, topic_partition, name, partitions, now_ms, whole=True)
    if error is Error.NONE:
        broker.groups.pop(name, None)
    return error


def on_offset_delete(broker: Broker, event: OffsetDeleteRequested, now_ms: int) -> None:
    """Of a group that reads a topic its offsets stay. What its members read stands in bytes that
    only clients understand: a group of consumers that has members reads all that it has committed.
    """
    topic_partition, error = coordinated(broker, event.group)
    group = broker.consumer_groups.get(event.group) or known_group(broker, event.group)
    if error is Error.NONE and group is None:
        error = Error.GROUP_ID_NOT_FOUND
    elif isinstance(group, Group) and group.members and group.protocol_type != _CONSUMER:
        error = Error.NON_EMPTY_GROUP
    if error is not Error.NONE or group is None:
        broker.do(RespondOffsetDelete(event.request, error))
        return
    read = {one for one in event.partitions if _may_read(group, one.topic)}
    free = tuple(one for one in event.partitions if one not in read)
    error = _forget(broker, topic_partition, event.group, free, now_ms)
    refused = Error.GROUP_SUBSCRIBED_TO_TOPIC
    results = tuple((one, refused if one in read else error) for one in event.partitions)
    broker.do(RespondOffsetDelete(event.request, Error.NONE, results))


def _may_read(group: Group | ConsumerGroup, topic: str) -> bool:
    if isinstance(group, Group):
        return bool(group.members)
    return bool(group.members) and topic in group.topics


def on_partitions_deleted(
    broker: Broker, partitions: Collection[TopicPartition], now_ms: int
) -> None:
    """Positions in topics that are deleted go, and with its last one a group that is empty."""
    for topic_partition, committed in tuple(broker.committed_offsets.items()):
        gone: dict[str, list[TopicPartition]] = defaultdict(list)
        kept = set()
        for name, partition in committed:
            if partition in partitions:
                gone[name].append(partition)
            else:
                kept.add(name)
        for name, positions in gone.items():
            group = known_group(broker, name)
            is_empty = group is None or (group.state is GroupState.EMPTY and not group.pending)
            ends = is_empty and name not in kept and name not in broker.consumer_groups
            error = _forget(broker, topic_partition, name, positions, now_ms, whole=ends)
            if ends and error is Error.NONE:
                broker.groups.pop(name, None)


def _forget(
    broker: Broker,
    topic_partition: TopicPartition,
    name: str,
    partitions: list[TopicPartition] | tuple[TopicPartition, ...],
    now_ms: int,
    *,
    whole: bool = False,
) -> Error:
    """`whole`: the group, too."""
    gone = tuple(OffsetCommitRecord(name, partition, None) for partition in partitions)
    end = (GroupMetadataRecord(name, is_deleted=True),) if whole else ()
    if not gone and not end:
        return Error.NONE
    appended = append_records(broker, topic_partition, (*gone, *end), now_ms)
    if appended.error not in (None, Error.NONE):
        return Error.NOT_COORDINATOR
    known = broker.committed_offsets[topic_partition]
    broker.committed_offsets[topic_partition] = with_committed(known, gone)
    return Error.NONE
