"""Growing and shrinking the ISR, and telling the controller of it (seeds 000, 001).

A change is written to the coordination service with the version that this leader last knew; until
the answer is here the partition is pending (see partition.py). A lost race keeps the old ISR.
"""

from __future__ import annotations

from dataclasses import replace

from clusters.broker.replication import partition as partitions
from clusters.broker.replication.broker import Broker, IsrChanges
from clusters.broker.replication.coordination import (
    LeaderAndIsrConflict,
    LeaderAndIsrWritten,
    NotifyIsrChange,
    WriteLeaderAndIsr,
)
from clusters.broker.replication.effects import Coordinate
from clusters.broker.replication.messages import (
    IsrChangePropagation,
    IsrExpiration,
)
from clusters.broker.replication.model import LeaderAndIsr
from clusters.broker.replication.partition import (
    CommittedIsr,
    Leader,
    Partition,
    PendingExpandIsr,
    PendingShrinkIsr,
)

PROPAGATION_INTERVAL_MS = 2_500
QUIET_SINCE_CHANGE_MS = 5_000  # told once the last change is older than this …
SINCE_LAST_TOLD_MS = 60_000  # … or once the controller has not been told for this long


def maybe_expand_isr(broker: Broker, partition: Partition, replica_id: int) -> None:
    """Lets a follower in, if its fetch has just shown that it belongs there."""
    if partitions.may_join_isr(partition, replica_id, broker.rules):
        pending, state = partitions.begin_expand(partition, replica_id)
        broker.put(pending)
        broker.note(f"{partition.topic_partition}: expanding the ISR to {list(state.isr)}")
        broker.do(Coordinate(WriteLeaderAndIsr(partition.topic_partition, state, False)))


def on_isr_expiration(broker: Broker, timer: IsrExpiration, now_ms: int) -> None:
    """Every replica.lag.time.max.ms / 2: who is out of sync leaves. So a dead follower stays up
    to one and a half times that time."""
    lag_ms = broker.settings.replica_lag_time_max_ms
    for partition in tuple(broker.partitions.values()):
        if not isinstance(partition.role, Leader):
            continue
        leaving = partitions.out_of_sync_replicas(partition, now_ms=now_ms, lag_time_max_ms=lag_ms)
        if leaving:
            pending, state = partitions.begin_shrink(partition, leaving)
            broker.put(pending)
            broker.note(f"{partition.topic_partition}: shrinking the ISR to {list(state.isr)}")
            broker.do(Coordinate(WriteLeaderAndIsr(partition.topic_partition, state, False)))
    broker.set_timer(timer, max(1, lag_ms // 2))


def is_answer_to(partition: Partition | None, state: LeaderAndIsr) -> bool:
    """Whether a partition still waits for the answer to writing this state."""
    return (
        partition is not None
        and isinstance(partition.role, Leader)
        and isinstance(partition.role.isr, PendingExpandIsr | PendingShrinkIsr)
        and partition.leader_epoch == state.leader_epoch
    )


def on_isr_written(broker: Broker, event: LeaderAndIsrWritten, now_ms: int) -> bool:
    """The ISR is committed. True where the high watermark or a delayed request may have moved."""
    partition = broker.partitions.get(event.partition)
    if partition is None or not is_answer_to(partition, event.state):
        return False
    partition = broker.put(partitions.commit_isr(partition, event.state))
    changes = broker.isr_changes
    if event.partition not in changes.partitions:
        changes = replace(changes, partitions=(*changes.partitions, event.partition))
    broker.isr_changes = replace(changes, last_change_ms=now_ms)
    broker.increment_high_watermark(partition, now_ms)
    return True


def on_isr_conflict(broker: Broker, event: LeaderAndIsrConflict, now_ms: int) -> None:
    partition = broker.partitions.get(event.partition)
    if partition is not None and is_answer_to(partition, event.state):
        broker.note(f"{event.partition}: the ISR was changed by another; keeping the old one")
        broker.put(partitions.abandon_isr_change(partition))


def on_isr_change_propagation(broker: Broker, timer: IsrChangePropagation, now_ms: int) -> None:
    """Tells the controller of ISR changes in bunches, so that flapping does not flood it."""
    changes = broker.isr_changes
    quiet = now_ms - changes.last_change_ms > QUIET_SINCE_CHANGE_MS
    overdue = now_ms - changes.last_told_ms > SINCE_LAST_TOLD_MS
    if changes.partitions and (quiet or overdue):
        broker.do(Coordinate(NotifyIsrChange(changes.partitions)))
        broker.isr_changes = IsrChanges((), changes.last_change_ms, now_ms)
    broker.set_timer(timer, PROPAGATION_INTERVAL_MS)


def forget_pending_isr(partition: Partition) -> Partition:
    """After the session with the coordination service is lost, no answer will come."""
    if isinstance(partition.role, Leader) and not isinstance(partition.role.isr, CommittedIsr):
        return partitions.abandon_isr_change(partition)
    return partition
