"""Mutants of a term: what a leader believes of its followers, whom a follower asks, who is woken.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.follower import replica_fetcher_manager
from neaptide.clusters.broker.replication.interface.events import PartitionState
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.nemesis.search.mutants.mutant import unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_make_leader = partition_rules.make_leader.own
_begin_following = replica_fetcher_manager.begin_following.own
_maybe_increment = partition_rules.maybe_increment_high_watermark.own


def takes_all_to_be_level(partition: Partition, sent: PartitionState, **others: Any) -> Partition:
    led = _make_leader(partition, sent, **others)
    assert isinstance(led.role, Leader)
    end = led.log.end_offset
    level = {one: replace(r, log_end_offset=end) for one, r in led.role.remotes.items()}
    return replace(led, role=replace(led.role, remotes=level))


def follows_the_first(broker: Broker, partition: Partition, leader: int, now_ms: int) -> None:
    first = next((one for one in partition.assigned if one != broker.broker_id), leader)
    _begin_following(broker, partition, first, now_ms)


def waits_for_all_assigned(led: Partition, **others: Any) -> Partition:
    assert isinstance(led.role, Leader)
    moved = _maybe_increment(led, **others)
    lowest = min((one.log_end_offset for one in led.role.remotes.values()), default=0)
    return led if led.role.remotes and lowest < moved.high_watermark else moved


def wakes_nobody(broker: Broker, topic_partition: TopicPartition, now_ms: int) -> None:
    """In place of `complete_delayed`."""


MUTANTS: Final = (
    unseen(
        "takes-all-to-be-level",
        partition_rules.make_leader,
        takes_all_to_be_level,
        "A new leader takes its followers to have what it has, before they have fetched.",
    ),
    unseen(
        "follows-the-first",
        replica_fetcher_manager.begin_following,
        follows_the_first,
        "A follower fetches from the first other replica, whoever leads.",
    ),
    unseen(
        "waits-for-all-assigned",
        partition_rules.maybe_increment_high_watermark,
        waits_for_all_assigned,
        "The high watermark waits for every replica, also for those that are out of the ISR.",
    ),
    unseen(
        "wakes-nobody",
        purgatory.complete_delayed,
        wakes_nobody,
        "What waits is answered when its time is over, and not before.",
    ),
)
