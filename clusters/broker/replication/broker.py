"""The state of one broker, and the verbs that all handlers share.

The Broker is a shallow holder of frozen values: its dictionaries are its own, what is in them is
never changed in place, so `copy` is cheap and a search can branch from any state. Each field
belongs to one room, which alone changes it; step.py says who handles which event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    ControllerState,
    Standby,
)
from neaptide.clusters.broker.replication.follower.replica_fetcher import ReplicaFetcher
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    PendingOffsets,
)
from neaptide.clusters.broker.replication.group.consumer_group import ConsumerGroup
from neaptide.clusters.broker.replication.group.group_metadata import Group
from neaptide.clusters.broker.replication.interface.coordination_service import CoordinationRequest
from neaptide.clusters.broker.replication.interface.effects import (
    CancelTimer,
    ControlRequest,
    Coordinate,
    Effect,
    Note,
    SendWriteTxnMarkers,
    SetTimer,
    WriteLeaderEpochCheckpoint,
)
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    ClassicMemberExpiration,
    FetcherId,
    InitProducerIdRequested,
    ProduceRequested,
    Timer,
)
from neaptide.clusters.broker.replication.model import UNKNOWN_BROKER_EPOCH, TopicPartition
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import Epochs
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Leader,
    Partition,
    Unassigned,
)
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.settings import GroupSettings, ReplicationSettings
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """A replica found on disk at the start: its log, and the high watermark last checkpointed."""

    log: UnifiedLog
    high_watermark: int
    topic_id: str | None = None  # None: it was made before topics had ids


class DelayedOperation(Protocol):
    """A request that waits in the purgatory, as Kafka's DelayedOperation; a frozen value."""

    @property
    def request(self) -> int: ...

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        """The partitions by which it may come to be answered."""

    def updated(self, broker: Broker) -> DelayedOperation:
        """The same request with all of its outcome that is known by now."""

    def is_complete(self, broker: Broker) -> bool: ...

    def complete(self, broker: Broker) -> None:
        """Answers it; what is still not known by then has run out of time."""


@dataclass(frozen=True, slots=True)
class IsrChanges:
    """ISR changes that were not reported to the controller yet, and when (I7)."""

    partitions: tuple[TopicPartition, ...] = ()
    last_change_ms: int = 0
    last_propagation_ms: int | None = (
        None  # None: the first look is still to come, and counts as one
    )


@dataclass(frozen=True, slots=True)
class InFlightAlteration:
    """ISR changes that were sent to a controller in one request."""

    sequence: int
    asked: Mapping[TopicPartition, AlteredPartition]


@dataclass(frozen=True, slots=True)
class Alterations:
    """ISR changes that no controller has answered yet, also those in flight (KIP-497).

    `is_waiting`: they are sent again when the timer fires.
    """

    unsent: Mapping[TopicPartition, AlteredPartition] = field(default_factory=dict)
    in_flight: InFlightAlteration | None = None
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """The ids that this broker may still hand out, from `next` to before `end`, and who waits.

    `is_allocating`: the next block has been asked for, and its answer may still come.
    """

    next: int = 0
    end: int = 0
    waiting: tuple[int, ...] = ()
    is_allocating: bool = False


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """This broker stops: how often it may still ask the controller, and its request under way."""

    attempts_left: int
    in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a coordinator knows of a transactional id. `pending`: a record that says more is not
    committed yet, and nothing else may change meanwhile."""

    partition: TopicPartition  # of `__transaction_state`
    metadata: TransactionMetadata
    pending: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """A Produce request that waits for what a transaction coordinator says. `guards`: of each
    partition that it was asked about, the offset behind the producer's last marker."""

    event: ProduceRequested
    guards: Mapping[TopicPartition, int]


@dataclass(slots=True)
class Broker:
    broker_id: int
    rules: Generation
    settings: ReplicationSettings
    stored: dict[TopicPartition, StoredReplica] = field(default_factory=dict)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    fetchers: dict[FetcherId, ReplicaFetcher] = field(default_factory=dict)
    # Replicas in log directories that have failed (KIP-112). While there is such a directory, logs
    # are made of new replicas alone: one that is missing may be in it.
    offline: frozenset[TopicPartition] = frozenset()
    has_offline_log_directory: bool = False
    next_sequence: int = 1  # of a fetcher's request
    delayed: dict[int, DelayedOperation] = field(default_factory=dict)
    # Requests in `delayed` by the partitions that they watch, in order of arrival.
    watchers: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    metadata: MetadataCache = field(default_factory=MetadataCache)
    controller_epoch: int = 0
    broker_epoch: int | None = None  # of its registration; None: it has not registered yet
    # Requests of a controller that came before it had (KIP-380): nothing is done about them yet.
    early_requests: tuple[ControlRequest, ...] = ()
    controller: ControllerState = field(default_factory=Standby)
    isr_changes: IsrChanges = field(default_factory=IsrChanges)
    alterations: Alterations = field(default_factory=Alterations)
    checkpoints_high_watermarks: bool = False
    shutdown: ControlledShutdown | None = None
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    # Of the groups that this broker coordinates, by the partition of `__consumer_offsets`.
    committed_offsets: dict[TopicPartition, CommittedOffsets] = field(default_factory=dict)
    # Likewise, by producer id: what open transactions commit.
    pending_offsets: dict[TopicPartition, PendingOffsets] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)  # of the classic protocol
    consumer_groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    expected: frozenset[ClassicMemberExpiration] = frozenset()
    group_settings: dict[str, GroupSettings] = field(default_factory=dict)
    # Of the transactional ids that this broker coordinates: the leader epochs of its partitions of
    # `__transaction_state`, the transactions, and the markers that are not written yet.
    coordinator_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    unmarked: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    marking: dict[int, SendWriteTxnMarkers] = field(default_factory=dict)  # by leader
    # Requests that wait for a producer id of their own.
    initializing: dict[int, InitProducerIdRequested] = field(default_factory=dict)
    verifying: dict[int, Verification] = field(default_factory=dict)  # by sequence
    effects: list[Effect] = field(default_factory=list)

    def copy(self) -> Broker:
        """A broker that can go another way; shares every frozen value with this one.

        Field by field: a search does this at each of its branches.
        """
        return Broker(
            broker_id=self.broker_id,
            rules=self.rules,
            settings=self.settings,
            stored=dict(self.stored),
            partitions=dict(self.partitions),
            fetchers=dict(self.fetchers),
            offline=self.offline,
            has_offline_log_directory=self.has_offline_log_directory,
            next_sequence=self.next_sequence,
            delayed=dict(self.delayed),
            watchers=dict(self.watchers),
            metadata=self.metadata,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            early_requests=self.early_requests,
            controller=self.controller,
            isr_changes=self.isr_changes,
            alterations=self.alterations,
            checkpoints_high_watermarks=self.checkpoints_high_watermarks,
            shutdown=self.shutdown,
            producer_ids=self.producer_ids,
            committed_offsets=dict(self.committed_offsets),
            pending_offsets=dict(self.pending_offsets),
            groups=dict(self.groups),
            consumer_groups=dict(self.consumer_groups),
            expected=self.expected,
            group_settings=dict(self.group_settings),
            coordinator_epochs=dict(self.coordinator_epochs),
            transactions=dict(self.transactions),
            unmarked=dict(self.unmarked),
            marking=dict(self.marking),
            initializing=dict(self.initializing),
            verifying=dict(self.verifying),
            effects=list(self.effects),
        )

    # --- verbs shared by the handlers ---

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def note(self, text: str) -> None:
        self.effects.append(Note(text))

    def coordinate(self, request: CoordinationRequest) -> None:
        self.effects.append(Coordinate(request))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.effects.append(SetTimer(timer, max(0, delay_ms)))

    def cancel_timer(self, timer: Timer) -> None:
        self.effects.append(CancelTimer(timer))

    def put(self, partition: Partition) -> Partition:
        self.partitions[partition.topic_partition] = partition
        return partition

    def led(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition where this broker leads it."""
        partition = self.partitions.get(topic_partition)
        return partition if partition and isinstance(partition.role, Leader) else None

    def served(self, topic_partition: TopicPartition, *, or_follower: bool) -> Partition | None:
        """The partition where this broker leads it, or follows."""
        if not or_follower:
            return self.led(topic_partition)
        partition = self.partitions.get(topic_partition)
        return partition if partition and not isinstance(partition.role, Unassigned) else None

    def write_epochs(self, partition: Partition, before: Epochs) -> None:
        """Has the epoch checkpoint written where the log's epochs are no longer those."""
        if partition.log.epochs != before:
            self.do(WriteLeaderEpochCheckpoint(partition.topic_partition, partition.log.epochs))

    @property
    def active_controller(self) -> Active | None:
        return self.controller if isinstance(self.controller, Active) else None

    def increment_high_watermark(self, partition: Partition, now_ms: int) -> Partition:
        """Moves the high watermark of a led partition as far as the rules allow."""
        return self.put(
            partition_rules.maybe_increment_high_watermark(
                partition,
                now_ms=now_ms,
                lag_time_max_ms=self.settings.replica_lag_time_max_ms,
                rules=self.rules,
                ineligible=self.ineligible_replicas(partition),
            )
        )

    def ineligible_replicas(self, partition: Partition) -> tuple[int, ...]:
        role = partition.role
        if not self.rules.fences_isr_members or not isinstance(role, Leader):
            return ()
        return tuple(one for one in role.remotes if not self.may_be_in_isr(partition, one))

    def may_be_in_isr(self, partition: Partition, replica_id: int) -> bool:
        """As far as this leader's metadata know, which may be of some time ago: the controller
        checks it again. Registered (KIP-841), and not again since its last fetch (KIP-903)."""
        if not self.rules.fences_isr_members:
            return True
        registration = self.metadata.brokers.get(replica_id)
        if registration is None or not isinstance(partition.role, Leader):
            return False
        fetched_in = partition.role.remotes[replica_id].broker_epoch
        return (
            not self.rules.isr_names_broker_epochs
            or UNKNOWN_BROKER_EPOCH in (fetched_in, registration.epoch)
            or fetched_in == registration.epoch
        )


def start(
    broker_id: int,
    rules: Generation,
    settings: ReplicationSettings,
    stored: Mapping[TopicPartition, StoredReplica],
    *,
    has_offline_log_directory: bool = False,
) -> Broker:
    """A broker as it is after reading its disk, before it knows of any other."""
    return Broker(
        broker_id=broker_id,
        rules=rules,
        settings=settings,
        stored=dict(stored),
        has_offline_log_directory=has_offline_log_directory,
    )
