"""Who in a group of the consumer protocol gets which partitions (KIP-848). Pure functions.

`uniform` gives all members equally many, and takes no more away than that needs; `range_` gives
each member a range of every topic, so that equal partitions of several topics come together. As
Kafka's UniformAssignor and RangeAssignor; which of two equal members gets more is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, NamedTuple


class TopicIdPartition(NamedTuple):
    topic_id: str
    partition: int


Partitions = frozenset[TopicIdPartition]


class Subscriber(NamedTuple):
    """A member: the ids of the topics that it reads, and what its target was before."""

    group_instance_id: str | None
    topic_ids: tuple[str, ...]
    target: Partitions


Assignor = Callable[[Mapping[str, Subscriber], Mapping[str, int]], Mapping[str, Partitions]]


def uniform(
    subscribers: Mapping[str, Subscriber], topics: Mapping[str, int]
) -> Mapping[str, Partitions]:
    """By member. `topics`: how many partitions each has, by id.

    Nobody has two more than another who could read one of them.
    """
    owners: dict[TopicIdPartition, str] = {}
    for member_id, subscriber in subscribers.items():
        for one in sorted(subscriber.target):
            is_read = one.topic_id in subscriber.topic_ids
            if is_read and one.partition < topics.get(one.topic_id, 0):
                owners.setdefault(one, member_id)
    read = sorted({topic_id for one in subscribers.values() for topic_id in one.topic_ids})
    everything = [TopicIdPartition(one, at) for one in read for at in range(topics.get(one, 0))]
    free = [one for one in everything if one not in owners]
    given: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscribers}
    for one, member_id in owners.items():
        given[member_id].add(one)
    if len({frozenset(one.topic_ids) for one in subscribers.values()}) == 1:
        _fill(given, free, len(everything))
    else:
        _spread(given, free, owners, subscribers)
    return {member_id: frozenset(of) for member_id, of in given.items()}


def _fill(given: dict[str, set[TopicIdPartition]], free: list[TopicIdPartition], all_: int) -> None:
    """All read the same topics: each has its quota. Who has more already has the larger one."""
    quota, larger = divmod(all_, len(given))
    order = sorted(given, key=lambda member_id: -len(given[member_id]))
    sizes = {member_id: quota + (at < larger) for at, member_id in enumerate(order)}
    for member_id in order:
        excess = sorted(given[member_id])[sizes[member_id] :]
        given[member_id].difference_update(excess)
        free.extend(excess)
    left = iter(free)
    for member_id in order:
        given[member_id].update(islice(left, sizes[member_id] - len(given[member_id])))


def _spread(
    given: dict[str, set[TopicIdPartition]],
    free: list[TopicIdPartition],
    owners: dict[TopicIdPartition, str],
    subscribers: Mapping[str, Subscriber],
) -> None:
    """What is free goes to who has least of those who read it; then it is levelled."""
    readers: dict[str, list[str]] = defaultdict(list)
    for member_id, subscriber in subscribers.items():
        for topic_id in subscriber.topic_ids:
            readers[topic_id].append(member_id)
    for one in free:
        member_id = min(readers[one.topic_id], key=lambda name: len(given[name]))
        given[member_id].add(one)
        owners[one] = member_id
    _level(given, owners, readers)


def _level(
    given: dict[str, set[TopicIdPartition]],
    owners: dict[TopicIdPartition, str],
    readers: Mapping[str, list[str]],
) -> None:
    """Moves partitions from who has most to who could read them and has at least two fewer, until
    there is no such pair: each move makes the sum of the squares of what all have smaller."""
    has_moved = True
    while has_moved:
        has_moved = False
        for one in sorted(owners):
            owner = owners[one]
            least = min(readers[one.topic_id], key=lambda name: len(given[name]))
            if len(given[owner]) - len(given[least]) > 1:
                given[owner].remove(one)
                given[least].add(one)
                owners[one] = least
                has_moved = True


def range_(
    subscribers: Mapping[str, Subscriber], topics: Mapping[str, int]
) -> Mapping[str, Partitions]:
    """By member. Static members come first, by their instances: who starts again has the same."""

    def order(member_id: str) -> tuple[bool, str]:
        instance = subscribers[member_id].group_instance_id
        return instance is None, member_id if instance is None else instance

    given: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscribers}
    for topic_id, count in topics.items():
        readers = [one for one in subscribers if topic_id in subscribers[one].topic_ids]
        readers.sort(key=order)
        begin = 0
        for at, member_id in enumerate(readers):
            size = count // len(readers) + (at < count % len(readers))
            part = range(begin, begin + size)
            given[member_id].update(TopicIdPartition(topic_id, number) for number in part)
            begin += size
    return {member_id: frozenset(of) for member_id, of in given.items()}


# By their names; the first is the default.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
