"""Events: what a broker receives, as data: requests, responses, timers, what its disk reports.

Those of the coordination service are in coordination_service, beside what they answer.
Field names are Kafka's. `request` is the shell's handle to the connection that waits for the
answer; the effect that answers carries it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.assignors import Partitions
from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.group.consumer_group import ConsumerGroup
from neaptide.clusters.broker.replication.group.group_metadata import (
    GroupMetadataRecord,
    Protocols,
)
from neaptide.clusters.broker.replication.interface.administration import (
    AutoPreferredReplicaLeaderElection,
    ControlledShutdownRetry,
    ReassignmentRetry,
)
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    Batch,
    BrokerRegistration,
    EndTransactionMarker,
    LeaderAndIsr,
    ProducerSequence,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.producer_state_manager import Producers
from neaptide.clusters.broker.replication.partition.transactions import (
    NO_TRANSACTIONS,
    Transactions,
)
from neaptide.clusters.broker.replication.settings import GroupSettings, ReplicationSettings
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)

ACKS_ALL = -1
CONSUMER = -1  # the replica_id of whoever is no broker


# --- requests of clients and of followers --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducedBatch:
    """A batch that a producer sent: not yet in any log, so without offset and epoch."""

    count: int
    size: int
    identity: object
    error: Error = Error.NONE  # what its validation found
    producer: ProducerSequence | None = None  # None: its producer is not idempotent
    marker: EndTransactionMarker | None = None  # of a coordinator


@dataclass(frozen=True, slots=True)
class ProduceRequested:
    request: int
    acks: int  # 0, 1 or ACKS_ALL
    timeout_ms: int
    partitions: tuple[tuple[TopicPartition, tuple[ProducedBatch, ...]], ...]
    transactional_id: str | None = None


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class InitProducerIdRequested:
    """A producer asks for its id and epoch. None: it has no transactional id.

    `producer_id` and `producer_epoch`: those that it has had already (KIP-360), or -1.
    """

    request: int
    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequested:
    """A producer will write to these partitions in its transaction. `verifies`: a leader asks
    whether they are in it, and nothing is added (KIP-890)."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verifies: bool = False


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequested:
    """A producer will commit offsets of this group in its transaction."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group: str


@dataclass(frozen=True, slots=True)
class EndTxnRequested:
    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequested:
    request: int
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTransactionsRequested:
    """Those in one of these states, of these producers, that have gone on for so long; nothing
    named, or -1: of all."""

    request: int
    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms: int = -1


@dataclass(frozen=True, slots=True)
class DescribeProducersRequested:
    request: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersRequested:
    """A coordinator ends transactions in partitions that this broker leads."""

    request: int
    markers: tuple[tuple[EndTransactionMarker, tuple[TopicPartition, ...]], ...]


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequested:
    """Who coordinates groups, or the transactions of transactional ids, of these names?"""

    request: int
    names: tuple[str, ...]
    is_transaction: bool = False


@dataclass(frozen=True, slots=True)
class OffsetCommitRequested:
    """A consumer commits offsets.

    `generation_id` is -1 for a consumer that is no member of its group, and assigns itself what it
    reads.
    """

    request: int
    group: str
    generation_id: int
    committed: tuple[OffsetCommitRecord, ...]
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequested:
    """A producer commits offsets of a group in its transaction: they hold once that is committed.

    `generation_id` and the ids of a member: see OffsetCommitRequested; before KIP-447 none is said.
    """

    request: int
    group: str
    producer_id: int
    producer_epoch: int
    committed: tuple[OffsetCommitRecord, ...]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class WantedOffsets(NamedTuple):
    """Where does a group go on? `partitions` None: in all for which it has committed.

    `member_epoch`: of a member of the consumer protocol; -1: whoever asks is none.
    """

    group: str
    partitions: tuple[TopicPartition, ...] | None
    member_id: str = ""
    member_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchRequested:
    """`is_stable`: offsets that a transaction is about to replace are not wanted (KIP-447)."""

    request: int
    groups: tuple[WantedOffsets, ...]
    is_stable: bool = False


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequested:
    """`partitions`: which, and before which offset; -1: all below the high watermark."""

    request: int
    timeout_ms: int
    partitions: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class JoinGroupRequested:
    """`member_id` is empty for who is new: it is called `new_member_id`, and where it must know its
    id (KIP-394) it has to ask again with that."""

    request: int
    group: str
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_member_id: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroupRequested:
    """`assignments`, by member id, of the leader alone. None: a version that does not name it."""

    request: int
    group: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    assignments: Mapping[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    request: int
    group: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


@dataclass(frozen=True, slots=True)
class LeaveGroupRequested:
    """`members`: member id and group instance id of each."""

    request: int
    group: str
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequested:
    request: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatRequested:
    """A member of the consumer protocol (KIP-848). What is None has not changed since it last said.

    `member_epoch`: 0 to join, -1 to leave, -2 to come back as the same static member.
    `new_member_id`: for one that has none. `rebalance_timeout_ms`: -1 where it does not say.
    `owned`: what it reads now.
    """

    request: int
    group: str
    member_id: str
    member_epoch: int
    new_member_id: str = ""
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribeRequested:
    request: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroupsRequested:
    """`states` and `types`, in lower case; none: groups of all."""

    request: int
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequested:
    request: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequested:
    request: int
    group: str
    partitions: tuple[TopicPartition, ...]


def is_consumer(replica_id: int) -> bool:
    """-1, or -2, which Kafka's tool names that compares replicas."""
    return replica_id < 0


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a Fetch request.

    `bytes_available` is what the log held from `fetch_offset` on when the request came, as the
    shell measured it; replica.fetch.min.bytes is judged by it and by what is appended later.
    """

    partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    bytes_available: int = 0
    log_start_offset: int = -1
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1  # of the record before `fetch_offset` (KIP-595)
    topic_id: str | None = None  # None: the request names the topic by nothing but its name


@dataclass(frozen=True, slots=True)
class FetchRequested:
    request: int
    replica_id: int  # -1: a consumer
    max_wait_ms: int
    min_bytes: int
    partitions: tuple[FetchedPartition, ...]
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # of the follower's registration (KIP-903)
    is_committed: bool = False  # read_committed: to the last stable offset
    # Of a consumer that followers may serve too (KIP-392); None: it knows nothing of that.
    rack: str | None = None
    # Of these a replica that is not in sync gets no records for now (KIP-73).
    throttled: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class EpochAsked:
    partition: TopicPartition
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochRequested:
    request: int
    partitions: tuple[EpochAsked, ...]


@dataclass(frozen=True, slots=True)
class OffsetAsked:
    """`timestamp` in ms, or Kafka's EARLIEST (-2) or LATEST (-1)."""

    partition: TopicPartition
    timestamp: int
    current_leader_epoch: int = -1


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3  # the record with the newest time (KIP-734, from ListOffsets v7 on)
EARLIEST_LOCAL_TIMESTAMP = -4  # v8 on: without tiered storage (KIP-405) the earliest
LATEST_TIERED_TIMESTAMP = -5  # v9 on: without tiered storage there is none


@dataclass(frozen=True, slots=True)
class ListOffsetsRequested:
    request: int
    replica_id: int
    partitions: tuple[OffsetAsked, ...]
    is_committed: bool = False  # read_committed: the latest is the last stable offset


@dataclass(frozen=True, slots=True)
class NewTopic:
    topic: str
    num_partitions: int  # -1: the broker's default, or as assigned
    replication_factor: int  # -1: likewise
    assignment: Mapping[int, tuple[int, ...]]
    settings: Mapping[str, str]
    refused: str | None = None  # why its settings cannot be those of a log, where they cannot


@dataclass(frozen=True, slots=True)
class CreateTopicsRequested:
    request: int
    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class NewPartitions(NamedTuple):
    """How many the topic is to have. `assignments`: of the new ones; None: by the controller."""

    topic: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequested:
    request: int
    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool = False


class TopicToDelete(NamedTuple):
    """By its name, or from v6 on by its id."""

    topic: str | None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequested:
    request: int
    topics: tuple[TopicToDelete, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TopicWanted:
    """Metadata was asked for a topic that does not exist (auto.create.topics.enable)."""

    topic: str


@dataclass(frozen=True, slots=True)
class RequestAbandoned:
    """The connection that waited for this answer is gone: it must not be given."""

    request: int


# --- requests of the controller ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the controller says of one partition, in LeaderAndIsr and UpdateMetadata."""

    partition: TopicPartition
    state: LeaderAndIsr
    replicas: tuple[int, ...]
    settings: Mapping[str, str]
    topic_id: str | None = None  # None: the request does not say
    # LeaderAndIsr: the receiver has no log of it yet, and makes one.
    is_new: bool = False
    # UpdateMetadata: those whose brokers live, and have lost the log directory that it was in.
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequested:
    request: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[PartitionState, ...]
    live_leaders: tuple[BrokerRegistration, ...]
    # Of the broker that it is for, as its registration says (KIP-380); -1: that is not said.
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class StopReplicaRequested:
    request: int
    controller_id: int
    controller_epoch: int
    delete_partitions: bool
    partitions: tuple[TopicPartition, ...]
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class LogDirectoryFailed:
    """A log directory cannot be used any more, and these replicas are in it."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequested:
    request: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[PartitionState, ...]
    live_brokers: tuple[BrokerRegistration, ...]
    # How many partitions `__consumer_offsets` and `__transaction_state` have in all, as far as this
    # request says.
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class BrokerSettingsChanged:
    """Dynamic settings of this broker (KIP-226); each topic's follow as TopicSettingsChanged."""

    settings: ReplicationSettings


@dataclass(frozen=True, slots=True)
class GroupSettingsChanged:
    """What a group of the consumer protocol has for itself is something else now."""

    group: str
    settings: GroupSettings


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged:
    """A topic's own settings are others now; all of them are named."""

    topic: str
    settings: Mapping[str, str]


# --- requests of leaders, to the controller ------------------------------------------------------


class IsrMember(NamedTuple):
    """`broker_epoch`: of the registration that its last fetch named, or its leader's own."""

    broker_id: int
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The ISR that a leader wants, if the state's version still is `partition_epoch`."""

    partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionRequested:
    """A leader asks its controller to change ISRs (KIP-497)."""

    request: int
    broker_id: int
    broker_epoch: int
    partitions: tuple[AlteredPartition, ...]


@dataclass(frozen=True, slots=True)
class AlteredResult:
    """`state`: as it is now; None where there is an error."""

    partition: TopicPartition
    error: Error
    state: LeaderAndIsr | None = None


# --- responses to this broker's own requests -----------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class FetcherId:
    """One fetcher: the broker that it fetches from, and its number among that broker's."""

    leader: int
    number: int


@dataclass(frozen=True, slots=True)
class FetchResult:
    """One partition of a Fetch response.

    `diverging_epoch`: the follower's log is the leader's up to the end of this epoch at most, and
    must be cut there (KIP-595). Then there are no batches.
    """

    partition: TopicPartition
    error: Error
    high_watermark: int
    log_start_offset: int
    batches: tuple[Batch, ...]
    diverging_epoch: EpochEnd | None = None


@dataclass(frozen=True, slots=True)
class FetchResponded:
    fetcher: FetcherId
    sequence: int  # of the request that it answers
    results: tuple[FetchResult, ...]


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """One partition of an OffsetForLeaderEpoch response; `leader_epoch` -1: that is not known."""

    partition: TopicPartition
    error: Error
    end_offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochResponded:
    fetcher: FetcherId
    sequence: int
    results: tuple[EpochEndOffset, ...]


@dataclass(frozen=True, slots=True)
class ListedOffset:
    partition: TopicPartition
    error: Error
    offset: int


@dataclass(frozen=True, slots=True)
class ListOffsetsResponded:
    fetcher: FetcherId
    sequence: int
    results: tuple[ListedOffset, ...]


@dataclass(frozen=True, slots=True)
class FetcherRequestFailed:
    """A fetcher's request got no answer: no connection, a broken one, or a time-out."""

    fetcher: FetcherId
    sequence: int


@dataclass(frozen=True, slots=True)
class ControlResponded:
    """A broker answered LeaderAndIsr, StopReplica or UpdateMetadata of this controller.

    `deleted`: the replicas that it has deleted, because a StopReplica said so. `offline`: those of
    a LeaderAndIsr that are in a log directory that has failed; `online`: those that are not.
    """

    broker: int
    controller_epoch: int
    error: Error
    deleted: tuple[TopicPartition, ...] = ()
    offline: tuple[TopicPartition, ...] = ()
    online: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionResponded:
    """`error` concerns the request as a whole; then there are no results."""

    sequence: int  # of the request that it answers
    error: Error
    results: tuple[AlteredResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionFailed:
    """The request got no answer: no connection, a broken one, or a time-out."""

    sequence: int


class MarkedPartition(NamedTuple):
    """What became of a marker in one partition."""

    producer_id: int
    partition: TopicPartition
    error: Error


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersResponded:
    """A leader answered the markers of this coordinator."""

    leader: int
    sequence: int  # of the request that it answers
    results: tuple[MarkedPartition, ...]


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponded:
    """A coordinator says whether partitions are in a transaction."""

    sequence: int  # of the request that it answers
    results: tuple[tuple[TopicPartition, Error], ...]


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnFailed:
    """The request got no answer: no connection, a broken one, or a time-out."""

    sequence: int


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersFailed:
    """The request got no answer: no connection, a broken one, or a time-out."""

    leader: int
    sequence: int


# --- of the shell itself -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """Where a log ends after TruncateLog, if that is before the offset asked for.

    A log can only be cut between batches. Comes before any other event: until then the
    core believes in a longer log than there is.
    """

    partition: TopicPartition
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class ProducersRead:
    """What the batches of a log say of producers: the answer to ReadProducers.

    Comes before any other event but LogTruncated.
    """

    partition: TopicPartition
    producers: Producers
    transactions: Transactions = NO_TRANSACTIONS


@dataclass(frozen=True, slots=True)
class CommittedOffsetsRead:
    """What a log of `__consumer_offsets` says of groups: the answer to ReadCommittedOffsets.

    Comes before any other event but LogTruncated and ProducersRead.
    """

    partition: TopicPartition
    committed_offsets: CommittedOffsets
    groups: tuple[GroupMetadataRecord, ...] = ()
    consumer_groups: tuple[ConsumerGroup, ...] = ()
    # By producer id: what its open transaction commits.
    pending: Mapping[int, tuple[OffsetCommitRecord, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransactionsRead:
    """What a log of `__transaction_state` says: the answer to ReadTransactions.

    Comes before any other event but LogTruncated and ProducersRead.
    """

    partition: TopicPartition
    transactions: tuple[TransactionMetadata, ...]


@dataclass(frozen=True, slots=True)
class LogStartAdvanced:
    """Retention has deleted the oldest segments of a log: it starts here now."""

    partition: TopicPartition
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class ProducerExpiration:
    """Every producer.id.expiration.check.interval.ms: who was silent for so long is forgotten."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class IsrExpiration:
    """Timer: every replica.lag.time.max.ms / 2."""


@dataclass(frozen=True, slots=True)
class IsrChangePropagation:
    """Timer: every 2,500 ms."""


@dataclass(frozen=True, slots=True)
class HighWatermarkCheckpoint:
    """Timer: every replica.high.watermark.checkpoint.interval.ms."""


@dataclass(frozen=True, slots=True)
class DelayedOperationExpired:
    """Timer: a request in the purgatory has waited for as long as it may."""

    request: int


@dataclass(frozen=True, slots=True)
class FetcherBackoffOver:
    """Timer: a fetcher's delayed partitions may be tried again."""

    fetcher: FetcherId


@dataclass(frozen=True, slots=True)
class AlterPartitionRetry:
    """Timer: ISR changes that the controller did not take may be sent again."""


@dataclass(frozen=True, slots=True)
class MemberExpiration:
    """Timer: a member of a group has sent no heartbeat for its session time-out."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceExpiration:
    """Timer: members of a group have had as long to join as they may."""

    group: str


@dataclass(frozen=True, slots=True)
class RevocationExpiration:
    """Timer: a member of the consumer protocol has had as long to give up partitions as it may."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicMemberExpiration:
    """Timer: a member of the classic protocol, in a group of the consumer protocol, has had as long
    to join again, or to ask for its assignment, as it may."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TransactionExpiration:
    """Timer: every transaction.abort.timed.out.transaction.cleanup.interval.ms."""


@dataclass(frozen=True, slots=True)
class MarkerRetry:
    """Timer: markers that were not written, and states that were not, may be tried again."""


Timer = (
    IsrExpiration
    | TransactionExpiration
    | MarkerRetry
    | MemberExpiration
    | RebalanceExpiration
    | RevocationExpiration
    | ClassicMemberExpiration
    | AlterPartitionRetry
    | IsrChangePropagation
    | HighWatermarkCheckpoint
    | DelayedOperationExpired
    | FetcherBackoffOver
    | AutoPreferredReplicaLeaderElection
    | ControlledShutdownRetry
    | ReassignmentRetry
)


@dataclass(frozen=True, slots=True)
class TimerFired:
    timer: Timer
