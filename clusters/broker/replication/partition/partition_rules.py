"""One partition on one broker: its role, its ISR, its high watermark. Pure functions on a value.

As Kafka's Partition. The rules of HW and ISR are here and nowhere else (seeds 000, 001, 003;
KIP-101). Nothing here knows of requests, other partitions or effects: the callers turn what changed
into effects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError
from neaptide.clusters.broker.replication.generation import (
    CleanableUpTo,
    EpochAssignment,
    Generation,
)
from neaptide.clusters.broker.replication.interface.events import PartitionState
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    Batch,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import (
    leader_epoch_file_cache,
    transactions,
    unified_log,
)
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import (
    is_under_min_isr,
)
from neaptide.clusters.broker.replication.partition.remote_replica import (
    NEVER_MS,
    RemoteReplica,
    is_at_end,
    is_caught_up,
    record_fetch,
)
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.settings import TopicSettings

# --- the ISR: committed in the coordination service, or on its way there --------------------------


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    isr: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        """All that may be in the ISR: the high watermark must wait for every one of them."""
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpandIsr:
    """A larger ISR was written, the answer is not here: the new member already counts for HW."""

    isr: tuple[int, ...]
    joining: int

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.isr, self.joining)


@dataclass(frozen=True, slots=True)
class PendingShrinkIsr:
    """A smaller ISR was written, the answer is not here: those that leave still count for HW."""

    isr: tuple[int, ...]
    leaving: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.isr


@dataclass(frozen=True, slots=True)
class UncertainIsr:
    """An ISR change was written, and its answer was lost with the session: either may hold.

    So the high watermark waits for everybody who may be a member; what was written is read again.
    """

    isr: tuple[int, ...]
    maximal: tuple[int, ...]


IsrState = CommittedIsr | PendingExpandIsr | PendingShrinkIsr | UncertainIsr

# --- roles ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leader:
    """`remotes` has every assigned replica but the leader; it is replaced, never changed."""

    epoch_start_offset: int
    isr: IsrState
    remotes: Mapping[int, RemoteReplica]


@dataclass(frozen=True, slots=True)
class Follower:
    """`leader` is NO_LEADER while the partition has none."""

    leader: int


@dataclass(frozen=True, slots=True)
class Unassigned:
    """The log is there; no controller has yet said what this replica is."""


Role = Leader | Follower | Unassigned


@dataclass(frozen=True, slots=True)
class Partition:
    topic_partition: TopicPartition
    settings: TopicSettings
    log: UnifiedLog
    high_watermark: int
    role: Role = Unassigned()
    assigned: tuple[int, ...] = ()
    leader_epoch: int = -1
    controller_epoch: int = -1
    version: int = -1  # of the state in the coordination service
    topic_id: str | None = None  # None: it is not known


def set_high_watermark(partition: Partition, high_watermark: int) -> Partition:
    """The only way in which a high watermark changes: never negative, never past the log's end."""
    if high_watermark < 0:
        raise IllegalReplicaStateError(f"high watermark {high_watermark} is negative")
    if high_watermark > partition.log.end_offset:
        raise IllegalReplicaStateError(
            f"high watermark {high_watermark} is past log end offset {partition.log.end_offset}"
        )
    if high_watermark == partition.high_watermark:
        return partition
    log = partition.log
    if log.transactions.completed:
        left = transactions.replicated(log.transactions, high_watermark)
        log = replace(log, transactions=left)
    return replace(partition, log=log, high_watermark=high_watermark)


@rule
def last_stable_offset(partition: Partition) -> int:
    """Up to where whoever reads committed records alone may read (KIP-98)."""
    unstable = transactions.first_unstable_offset(partition.log.transactions)
    if unstable is None:
        return partition.high_watermark
    return min(partition.high_watermark, max(unstable, partition.log.start_offset))


@rule
def cleanable_up_to(partition: Partition, rules: Generation) -> int | None:
    """Above it the log cleaner leaves the log alone; None: it may clean all that is not active."""
    match rules.cleanable_up_to:
        case CleanableUpTo.ACTIVE_SEGMENT:
            return None
        case CleanableUpTo.FIRST_UNSTABLE_OFFSET:
            return transactions.first_unstable_offset(partition.log.transactions)
        case CleanableUpTo.LAST_STABLE_OFFSET:
            return last_stable_offset(partition)


@rule
def isr_of(partition: Partition) -> tuple[int, ...]:
    """The committed ISR as the leader knows it; empty on a follower."""
    return partition.role.isr.isr if isinstance(partition.role, Leader) else ()


def is_isr_pending(partition: Partition) -> bool:
    """Whether an ISR change was written whose answer is still to come."""
    role = partition.role
    return isinstance(role, Leader) and isinstance(role.isr, PendingExpandIsr | PendingShrinkIsr)


def is_isr_uncertain(partition: Partition) -> bool:
    """Whether an ISR change was written whose answer will never come."""
    return isinstance(partition.role, Leader) and isinstance(partition.role.isr, UncertainIsr)


# --- becoming ------------------------------------------------------------------------------------


@rule
def make_leader(
    partition: Partition, sent: PartitionState, *, broker_id: int, now_ms: int, rules: Generation
) -> Partition:
    """Takes the leadership that the controller gave, with a new leader epoch.

    What the previous leader knew of the followers is not known here: their log end offsets are
    unknown until they fetch, and the high watermark stays. A leader that stays leader (the
    controller shrank its ISR) keeps their offsets. Either way ISR members count as caught up now,
    and all others as never: the high watermark does not wait for one whom the controller took out.
    """
    state = sent.state
    log = partition.log
    known = partition.role.remotes if isinstance(partition.role, Leader) else {}
    remotes = {
        replica: replace(
            known.get(replica, RemoteReplica()),
            last_fetch_leader_log_end_offset=log.end_offset,
            last_fetch_time_ms=now_ms,
            last_caught_up_time_ms=now_ms if replica in state.isr else NEVER_MS,
        )
        for replica in sent.replicas
        if replica != broker_id
    }
    if rules.epoch_assignment is EpochAssignment.ON_BECOMING_LEADER:
        log = replace(
            log,
            epochs=leader_epoch_file_cache.assign(log.epochs, state.leader_epoch, log.end_offset),
        )
    return replace(
        partition,
        log=log,
        role=Leader(
            epoch_start_offset=log.end_offset,
            isr=CommittedIsr(state.isr),
            remotes=remotes,
        ),
        assigned=sent.replicas,
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        version=state.version,
    )


def make_follower(partition: Partition, sent: PartitionState) -> Partition:
    """Follows the leader that the controller named. Truncation is the fetcher's matter."""
    state = sent.state
    return replace(
        partition,
        role=Follower(state.leader),
        assigned=sent.replicas,
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        version=state.version,
    )


# --- leading -------------------------------------------------------------------------------------


@rule
def append_as_leader(
    partition: Partition, batches: tuple[Batch, ...], rules: Generation
) -> Partition:
    return replace(
        partition,
        log=unified_log.append(partition.log, batches, record_epochs=rules.records_epochs),
    )


@rule
def record_follower_fetch(
    partition: Partition,
    replica_id: int,
    *,
    fetch_offset: int,
    log_start_offset: int,
    now_ms: int,
    rules: Generation,
    broker_epoch: int = UNKNOWN_BROKER_EPOCH,
) -> Partition:
    """Moves the leader's copy of a follower's log end offset; the only thing that ever does.

    Its own log end offset moves by appending to its log, and by nothing else (seed 000).
    """
    leader = _leader(partition)
    if replica_id not in leader.remotes:
        raise IllegalReplicaStateError(
            f"{partition.topic_partition}: {replica_id} is no remote replica of this leader"
        )
    remote = record_fetch(
        leader.remotes[replica_id],
        fetch_offset=fetch_offset,
        log_start_offset=log_start_offset,
        leader_log_end_offset=partition.log.end_offset,
        now_ms=now_ms,
        rule=rules.caught_up,
        broker_epoch=broker_epoch,
    )
    return replace(partition, role=replace(leader, remotes={**leader.remotes, replica_id: remote}))


@rule
def maybe_increment_high_watermark(
    partition: Partition,
    *,
    now_ms: int,
    lag_time_max_ms: int,
    rules: Generation,
    ineligible: Collection[int] = (),
) -> Partition:
    """HW = max(HW, min LEO over the ISR and the replicas that are caught up in time).

    A replica that has caught up but is not yet back in the ISR counts as well (from 0.10 on), so
    that HW does not run away from it while it tries to join (seed 003); not so one that may not
    join, as its broker has gone (`ineligible`, KIP-841). With KIP-966 HW stands
    still while the ISR is smaller than min.insync.replicas: what is committed then is on so many
    replicas for sure.
    """
    leader = _leader(partition)
    min_isr = partition.settings.min_insync_replicas
    if rules.eligible_leader_replicas and is_under_min_isr(
        leader.isr.isr, partition.assigned, min_isr
    ):
        return partition
    isr = leader.isr.maximal
    lowest = partition.log.end_offset
    for replica_id, remote in leader.remotes.items():
        if replica_id in isr or (
            rules.waits_for_caught_up
            and replica_id not in ineligible
            and is_caught_up(remote, now_ms, lag_time_max_ms)
        ):
            lowest = min(lowest, remote.log_end_offset)
    if lowest <= partition.high_watermark:
        return partition
    return set_high_watermark(partition, lowest)


@rule
def may_join_isr(partition: Partition, replica_id: int, rules: Generation) -> bool:
    """Assigned, not in, LEO at or past the HW and (from 2.0.1 on) past the epoch's start offset."""
    leader = _leader(partition)
    if not isinstance(leader.isr, CommittedIsr) or replica_id in leader.isr.isr:
        return False
    remote = leader.remotes.get(replica_id)
    if remote is None or remote.log_end_offset < partition.high_watermark:
        return False
    return not rules.isr_needs_epoch_start or remote.log_end_offset >= leader.epoch_start_offset


@rule
def out_of_sync_replicas(
    partition: Partition,
    *,
    now_ms: int,
    lag_time_max_ms: int,
    rules: Generation,
    lag_max_messages: int | None = None,
) -> tuple[int, ...]:
    """ISR members, stuck or slow, that have not been caught up for replica.lag.time.max.ms.

    In 0.8 also those that are more than replica.lag.max.messages behind: a burst is enough (I5).
    """
    leader = _leader(partition)
    if not isinstance(leader.isr, CommittedIsr):
        return ()
    end_offset = partition.log.end_offset

    def is_out_of_sync(remote: RemoteReplica) -> bool:
        if rules.caught_up_at_log_end and is_at_end(remote, end_offset):
            return False
        if not is_caught_up(remote, now_ms, lag_time_max_ms):
            return True
        has_fetched = remote.log_end_offset != UNKNOWN_OFFSET
        behind = end_offset - remote.log_end_offset
        return lag_max_messages is not None and has_fetched and behind > lag_max_messages

    return tuple(
        replica_id
        for replica_id in leader.isr.isr
        if replica_id in leader.remotes and is_out_of_sync(leader.remotes[replica_id])
    )


def begin_expand(partition: Partition, replica_id: int) -> tuple[Partition, LeaderAndIsr]:
    """The partition while the larger ISR is being written, and what to write."""
    leader = _leader(partition)
    pending = PendingExpandIsr(leader.isr.isr, replica_id)
    return replace(partition, role=replace(leader, isr=pending)), _state_to_write(
        partition, pending.maximal
    )


def begin_shrink(partition: Partition, leaving: tuple[int, ...]) -> tuple[Partition, LeaderAndIsr]:
    """The partition while the smaller ISR is being written, and what to write."""
    leader = _leader(partition)
    pending = PendingShrinkIsr(leader.isr.isr, leaving)
    staying = tuple(replica for replica in leader.isr.isr if replica not in leaving)
    return replace(partition, role=replace(leader, isr=pending)), _state_to_write(
        partition, staying
    )


def commit_isr(partition: Partition, written: LeaderAndIsr) -> Partition:
    """The write succeeded: its ISR is now the ISR, at the new version."""
    leader = _leader(partition)
    return replace(
        partition,
        version=written.version,
        role=replace(leader, isr=CommittedIsr(written.isr)),
    )


@rule
def abandon_isr_change(partition: Partition) -> Partition:
    """The write lost a race: the old ISR stays, until the controller sends what holds (I6)."""
    leader = _leader(partition)
    return replace(partition, role=replace(leader, isr=CommittedIsr(leader.isr.isr)))


@rule
def doubt_isr_change(partition: Partition) -> Partition:
    """No answer to the write will come: whether it took place is not known."""
    leader = _leader(partition)
    return replace(
        partition, role=replace(leader, isr=UncertainIsr(leader.isr.isr, leader.isr.maximal))
    )


def _state_to_write(partition: Partition, isr: tuple[int, ...]) -> LeaderAndIsr:
    leader = _leader(partition)
    in_assigned_order = tuple(replica for replica in partition.assigned if replica in isr)
    leader_id = next(replica for replica in partition.assigned if replica not in leader.remotes)
    return LeaderAndIsr(
        leader=leader_id,
        leader_epoch=partition.leader_epoch,
        isr=in_assigned_order,
        controller_epoch=partition.controller_epoch,
        version=partition.version,
    )


def _leader(partition: Partition) -> Leader:
    if not isinstance(partition.role, Leader):
        raise IllegalReplicaStateError(f"{partition.topic_partition} is not led by this broker")
    return partition.role


# --- following -----------------------------------------------------------------------------------


@rule
def append_as_follower(
    partition: Partition,
    batches: tuple[Batch, ...],
    *,
    leader_high_watermark: int,
    leader_log_start_offset: int,
    rules: Generation,
) -> Partition:
    """Ends a fetch round: append, then HW = min(own LEO, HW in the response), then log start.

    A new leader's HW may be a round old, and below what this replica has deleted already: from 2.4
    on its own then stays where its log starts (Log.updateHighWatermark).
    """
    log = unified_log.append(partition.log, batches, record_epochs=rules.records_epochs)
    log = unified_log.advance_start_offset(
        log, leader_log_start_offset, forgets_producers=rules.forgets_deleted_producers
    )
    lowest = log.start_offset if rules.bounds_high_watermark else 0
    return set_high_watermark(
        replace(partition, log=log), max(lowest, min(log.end_offset, leader_high_watermark))
    )


@rule
def truncate_to(partition: Partition, offset: int) -> Partition:
    """Cuts the log; the high watermark cannot stay past its end."""
    log = unified_log.truncate_to(partition.log, offset)
    return replace(partition, log=log, high_watermark=min(partition.high_watermark, log.end_offset))


def start_afresh_at(partition: Partition, offset: int) -> Partition:
    """Drops the log, which was entirely behind the leader's start; the next offset is this one."""
    return replace(
        partition, log=unified_log.start_afresh_at(partition.log, offset), high_watermark=offset
    )
