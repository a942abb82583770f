"""Mutants of what a successor knows: sequences of producers, positions of groups.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker, StoredReplica
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group import group_coordinator, group_metadata_manager
from neaptide.clusters.broker.replication.group.committed_offsets import with_committed
from neaptide.clusters.broker.replication.interface.events import (
    OffsetCommitRequested,
    PartitionState,
)
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition import partition_rules, producer_state_manager
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.clusters.broker.replication.partition.producer_state_manager import NO_PRODUCERS
from neaptide.clusters.simulation.disk import Disk
from neaptide.nemesis.search.mutants.mutant import unseen

# The core's own rules, whatever stands in their places while a mutant is searched.
_make_leader = partition_rules.make_leader.own
_stored = Disk.stored.own
_on_offset_commit = group_coordinator.on_offset_commit.own


def forgets_the_sequences(held: Partition, sent: PartitionState, **rest: Any) -> Partition:
    led = _make_leader(held, sent, **rest)
    return replace(led, log=replace(led.log, producers=NO_PRODUCERS))


def reads_committed_producers(disk: Disk) -> dict[TopicPartition, StoredReplica]:
    def below(partition: TopicPartition, mark: int) -> Any:
        batches = disk.logs[partition].batches
        return producer_state_manager.of_batches(b for b in batches if b.next_offset <= mark)

    return {
        tp: replace(one, log=replace(one.log, producers=below(tp, one.high_watermark)))
        for tp, one in _stored(disk).items()
    }


def keeps_positions(broker: Broker, topic_partition: TopicPartition) -> None:
    """In place of `on_resignation`."""


def knows_at_once(broker: Broker, event: OffsetCommitRequested, now_ms: int) -> None:
    _on_offset_commit(broker, event, now_ms)
    topic_partition, error = group_metadata_manager.coordinated(broker, event.group)
    if error is Error.NONE:
        before = broker.committed_offsets[topic_partition]
        broker.committed_offsets[topic_partition] = with_committed(before, event.committed)


MUTANTS: Final = (
    unseen(
        "new-leader-forgets-sequences",
        partition_rules.make_leader,
        forgets_the_sequences,
        "A new leader knows nothing of the producers of what it has.",
    ),
    unseen(
        "producers-read-to-high-watermark",
        Disk.stored,
        reads_committed_producers,
        "A broker that starts knows only the producers of what was committed.",
    ),
    unseen(
        "old-coordinator-answers",
        group_metadata_manager.on_resignation,
        keeps_positions,
        "A coordinator that leads no more goes on answering from what it knew.",
    ),
    unseen(
        "unacknowledged-commit-is-known",
        group_coordinator.on_offset_commit,
        knows_at_once,
        "A coordinator answers with a commit that was not acknowledged.",
        shown="a second client that asks while the first one commits",
    ),
)
