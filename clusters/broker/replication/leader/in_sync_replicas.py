"""Growing and shrinking the ISR, and reporting it to the controller (seeds 000, 001).

A change is written to the coordination service with the version that this leader last knew; until
the answer is here the partition is pending (see partition_rules). A lost race keeps the old ISR.
Where the generation has it so (KIP-497) the controller is asked to write it: see
alter_partition_manager.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker, IsrChanges
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    LeaderAndIsrConflict,
    LeaderAndIsrWritten,
    NotifyIsrChange,
    ReadLeaderAndIsr,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    AlterPartitionResponded,
    IsrChangePropagation,
    IsrExpiration,
    IsrMember,
)
from neaptide.clusters.broker.replication.leader import alter_partition_manager
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.broker.replication.rule import rule

PROPAGATION_INTERVAL_MS = 2_500
QUIET_SINCE_CHANGE_MS = 5_000  # reported once the last change is older than this …
SINCE_PROPAGATION_MS = 60_000  # … or once nothing has been reported for this long


def maybe_expand_isr(broker: Broker, partition: Partition, replica_id: int) -> None:
    """Lets a follower in, if its fetch has just shown that it belongs there."""
    if partition_rules.may_join_isr(partition, replica_id, broker.rules):
        if not broker.may_be_in_isr(partition, replica_id):
            return
        pending, state = partition_rules.begin_expand(partition, replica_id)
        broker.put(pending)
        broker.note(f"{partition.topic_partition}: expanding the ISR to {list(state.isr)}")
        _propose(broker, pending, state)


def _propose(broker: Broker, partition: Partition, state: LeaderAndIsr) -> None:
    topic_partition = partition.topic_partition
    if not broker.rules.alters_partitions:
        broker.coordinate(WriteLeaderAndIsr(topic_partition, state, False))
        return
    isr = tuple(IsrMember(replica, _epoch_of(broker, partition, replica)) for replica in state.isr)
    asked = AlteredPartition(
        topic_partition, state.leader_epoch, state.version, isr, partition.topic_id
    )
    alter_partition_manager.submit(broker, asked)


def _epoch_of(broker: Broker, partition: Partition, replica_id: int) -> int:
    """Unknown of a member that has not fetched from this leader: should it register again, the
    controller takes it out of the ISR, and this change with it."""
    if not broker.rules.isr_names_broker_epochs or not isinstance(partition.role, Leader):
        return UNKNOWN_BROKER_EPOCH
    remote = partition.role.remotes.get(replica_id)
    if remote is not None:
        return remote.broker_epoch
    return UNKNOWN_BROKER_EPOCH if broker.broker_epoch is None else broker.broker_epoch


def on_isr_expiration(broker: Broker, timer: IsrExpiration, now_ms: int) -> None:
    """Every replica.lag.time.max.ms / 2: who is out of sync leaves. So a dead follower stays up
    to one and a half times that time; in 0.8, which looks half as often, up to twice."""
    lag_ms = broker.settings.replica_lag_time_max_ms
    messages = broker.settings.replica_lag_max_messages if broker.rules.lag_max_messages else None
    for partition in tuple(broker.partitions.values()):
        if not isinstance(partition.role, Leader):
            continue
        leaving = partition_rules.out_of_sync_replicas(
            partition,
            now_ms=now_ms,
            lag_time_max_ms=lag_ms,
            rules=broker.rules,
            lag_max_messages=messages,
        )
        if leaving:
            pending, state = partition_rules.begin_shrink(partition, leaving)
            broker.put(pending)
            broker.note(f"{partition.topic_partition}: shrinking the ISR to {list(state.isr)}")
            _propose(broker, pending, state)
    broker.set_timer(timer, isr_check_interval_ms(broker))


def isr_check_interval_ms(broker: Broker) -> int:
    lag_ms = broker.settings.replica_lag_time_max_ms
    return max(1, lag_ms // broker.rules.isr_checks_in_lag_time)


@rule
def led_in_epoch(
    broker: Broker, topic_partition: TopicPartition, state: LeaderAndIsr
) -> Partition | None:
    """The partition, if it is led, and in the leader epoch of this state."""
    partition = broker.led(topic_partition)
    return partition if partition and partition.leader_epoch == state.leader_epoch else None


def on_isr_written(broker: Broker, event: LeaderAndIsrWritten, now_ms: int) -> bool:
    """The ISR is committed. True where the high watermark or a delayed request may have moved."""
    partition = led_in_epoch(broker, event.partition, event.state)
    if partition is None or not partition_rules.is_isr_pending(partition):
        return False
    _commit(broker, partition, event.state, now_ms)
    return True


def _commit(broker: Broker, partition: Partition, state: LeaderAndIsr, now_ms: int) -> None:
    topic_partition = partition.topic_partition
    partition = broker.put(partition_rules.commit_isr(partition, state))
    if broker.rules.reports_isr_changes:
        changes = broker.isr_changes
        if topic_partition not in changes.partitions:
            changes = replace(changes, partitions=(*changes.partitions, topic_partition))
        broker.isr_changes = replace(changes, last_change_ms=now_ms)
    broker.increment_high_watermark(partition, now_ms)


def on_isr_conflict(broker: Broker, event: LeaderAndIsrConflict, now_ms: int) -> None:
    partition = led_in_epoch(broker, event.partition, event.state)
    if partition is not None and partition_rules.is_isr_pending(partition):
        broker.note(f"{event.partition}: the ISR was changed by another; keeping the old one")
        broker.put(partition_rules.abandon_isr_change(partition))


def on_alter_partition_responded(
    broker: Broker, event: AlterPartitionResponded, now_ms: int
) -> tuple[TopicPartition, ...]:
    """The controller has written ISRs, or has refused to. Returns the partitions where the high
    watermark or a delayed request may have moved."""
    moved = []
    for asked, result in alter_partition_manager.take_response(broker, event):
        partition = broker.led(asked.partition)
        if partition is None or not partition_rules.is_isr_pending(partition):
            continue
        if result.state is None:
            _refused(broker, partition, result.error)
        elif (
            result.state.leader_epoch == partition.leader_epoch
            and result.state.version >= partition.version
        ):
            _commit(broker, partition, result.state, now_ms)
            moved.append(asked.partition)
    alter_partition_manager.go_on(broker)
    return tuple(moved)


def _refused(broker: Broker, partition: Partition, error: Error) -> None:
    """Who is rejected was never written, and the old ISR holds. Else the change may have been
    written by an earlier attempt: it stays pending until the controller sends the state."""
    topic_partition = partition.topic_partition
    broker.note(f"{topic_partition}: the controller refuses the ISR change: {error.name}")
    if error in alter_partition_manager.REJECTED:
        broker.put(partition_rules.abandon_isr_change(partition))


def on_isr_change_propagation(broker: Broker, timer: IsrChangePropagation, now_ms: int) -> None:
    """Reports ISR changes to the controller in bunches, so that flapping does not flood it."""
    changes = broker.isr_changes
    if changes.last_propagation_ms is None:
        changes = broker.isr_changes = replace(changes, last_propagation_ms=now_ms)
    quiet = now_ms - changes.last_change_ms > QUIET_SINCE_CHANGE_MS
    overdue = now_ms - (changes.last_propagation_ms or 0) > SINCE_PROPAGATION_MS
    if changes.partitions and (quiet or overdue):
        broker.coordinate(NotifyIsrChange(changes.partitions))
        broker.isr_changes = IsrChanges((), changes.last_change_ms, now_ms)
    broker.set_timer(timer, PROPAGATION_INTERVAL_MS)


# --- a session that ended between an ISR change and its answer -----------------------------------


def on_session_expired(broker: Broker) -> None:
    """No answer will come to what was written in the session that is over."""
    if broker.rules.alters_partitions:
        return  # the controller's answer needs no session
    for partition in tuple(broker.partitions.values()):
        if partition_rules.is_isr_pending(partition):
            broker.put(partition_rules.doubt_isr_change(partition))


def on_session_started(broker: Broker) -> None:
    """Asks what became of the changes that were never answered."""
    doubted = tuple(
        tp for tp, one in broker.partitions.items() if partition_rules.is_isr_uncertain(one)
    )
    if doubted:
        broker.coordinate(ReadLeaderAndIsr(doubted))


def on_state_read(
    broker: Broker, topic_partition: TopicPartition, state: LeaderAndIsr, now_ms: int
) -> bool:
    """Ends the doubt; a state of another leader epoch is for the controller to send."""
    partition = led_in_epoch(broker, topic_partition, state)
    if partition is None or not partition_rules.is_isr_uncertain(partition):
        return False
    _commit(broker, partition, state, now_ms)
    return True
