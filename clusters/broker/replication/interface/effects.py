"""Effects: what a broker must do, as data, in the order in which it must be done.

The order is a duty. A log effect (append, truncate, epoch checkpoint) comes before every answer or
request that reports it, and must have reached the operating system by then; it need not have
reached the disk, because Kafka's replication does not fsync before it acknowledges. The shell does
effects one by one and never reorders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.assignors import Partitions
from neaptide.clusters.broker.replication.group.committed_offsets import OffsetAndMetadata
from neaptide.clusters.broker.replication.group.consumer_group import ConsumerGroup
from neaptide.clusters.broker.replication.group.group_metadata import Group
from neaptide.clusters.broker.replication.interface.administration import PartitionResult
from neaptide.clusters.broker.replication.interface.coordination_service import CoordinationRequest
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    AlteredResult,
    EpochAsked,
    FetchedPartition,
    FetcherId,
    LeaderAndIsrRequested,
    MarkedPartition,
    OffsetAsked,
    StopReplicaRequested,
    Timer,
    UpdateMetadataRequested,
)
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    Batch,
    EndTransactionMarker,
    ReplicaAssignment,
    TopicConfiguration,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import (
    EpochEnd,
    Epochs,
)
from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)

# --- the log -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateLog:
    """`topic_id` None: it is not known."""

    partition: TopicPartition
    settings: Mapping[str, str]
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignTopicId:
    """Write into the directory of a log which topic it is of (KIP-516)."""

    partition: TopicPartition
    topic_id: str


@dataclass(frozen=True, slots=True)
class DeleteLog:
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Append batches. A leader's get their base offset and leader epoch written in (`assign`).

    `aborted`: the transactions that markers among them abort, for the log's index of them.
    """

    partition: TopicPartition
    batches: tuple[Batch, ...]
    assign: bool
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log at this offset; where that is inside a batch, before it (then LogTruncated)."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class ReadProducers:
    """The log was cut: read from all that is left what it says of producers and, as far as their
    markers are not below the high watermark, of transactions (ProducersRead)."""

    partition: TopicPartition
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ReadCommittedOffsets:
    """This broker leads a partition of `__consumer_offsets`: read all of it."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ReadTransactions:
    """This broker leads a partition of `__transaction_state`: read all of it."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Drop the whole log; the next record has this offset."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceLogStartOffset:
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class WriteLeaderEpochCheckpoint:
    partition: TopicPartition
    epochs: Epochs


@dataclass(frozen=True, slots=True)
class WriteHighWatermarkCheckpoint:
    high_watermarks: tuple[tuple[TopicPartition, int], ...]


# --- answers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    partition: TopicPartition
    error: Error
    base_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class RespondProduce:
    """`acks` 0 has no answer: the shell closes the connection where `results` has errors."""

    request: int
    acks: int
    results: tuple[ProducedPartition, ...]


@dataclass(frozen=True, slots=True)
class RespondInitProducerId:
    """The epoch of an id that nobody has had is 0; -1 where there is an error."""

    request: int
    error: Error
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class RespondTransaction:
    """The answer to AddPartitionsToTxn, with each of its partitions, AddOffsetsToTxn or EndTxn.

    `transactional_id`: where a leader has asked, whose answer names it.
    """

    request: int
    error: Error
    partitions: tuple[tuple[TopicPartition, Error], ...] = ()
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class RespondTxnOffsetCommit:
    request: int
    results: tuple[tuple[TopicPartition, Error], ...]


@dataclass(frozen=True, slots=True)
class RespondWriteTxnMarkers:
    request: int
    results: tuple[MarkedPartition, ...]


@dataclass(frozen=True, slots=True)
class RespondDescribeTransactions:
    """`metadata` None where there is an error."""

    request: int
    results: tuple[tuple[str, Error, TransactionMetadata | None], ...]


@dataclass(frozen=True, slots=True)
class RespondListTransactions:
    request: int
    error: Error
    transactions: tuple[TransactionMetadata, ...] = ()


class ActiveProducer(NamedTuple):
    """What a partition remembers of a producer. `txn_start_offset` -1: it is in none here."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int
    txn_start_offset: int


@dataclass(frozen=True, slots=True)
class RespondDescribeProducers:
    request: int
    results: tuple[tuple[TopicPartition, Error, tuple[ActiveProducer, ...]], ...]


class FoundCoordinator(NamedTuple):
    """Of a group or a transactional id; `coordinator` is -1 where there is an error."""

    name: str
    error: Error
    coordinator: int


@dataclass(frozen=True, slots=True)
class RespondFindCoordinator:
    request: int
    found: tuple[FoundCoordinator, ...]


@dataclass(frozen=True, slots=True)
class RespondOffsetCommit:
    request: int
    results: tuple[tuple[TopicPartition, Error], ...]


class FetchedOffsets(NamedTuple):
    """A partition for which the group has committed nothing has the offset -1, and no error."""

    group: str
    error: Error
    results: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]
    unstable: tuple[TopicPartition, ...] = ()  # of these a transaction decides (KIP-447)


@dataclass(frozen=True, slots=True)
class RespondOffsetFetch:
    request: int
    groups: tuple[FetchedOffsets, ...]


class DeletedRecords(NamedTuple):
    """`low_watermark`: where the log starts on all replicas that live; -1: that is not known."""

    partition: TopicPartition
    error: Error
    low_watermark: int


@dataclass(frozen=True, slots=True)
class RespondDeleteRecords:
    request: int
    results: tuple[DeletedRecords, ...]


class JoinedMember(NamedTuple):
    """What the leader of a group learns of a member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class RespondJoinGroup:
    """`members` for the leader alone."""

    request: int
    error: Error
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class RespondSyncGroup:
    request: int
    error: Error
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class RespondHeartbeat:
    request: int
    error: Error


@dataclass(frozen=True, slots=True)
class RespondLeaveGroup:
    """Where `error` is one, it concerns all; `members`: member id, group instance id, its error."""

    request: int
    error: Error
    members: tuple[tuple[str, str | None, Error], ...] = ()


@dataclass(frozen=True, slots=True)
class RespondConsumerGroupHeartbeat:
    """`assigned` None: it is what the member knows already."""

    request: int
    error: Error
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


@dataclass(frozen=True, slots=True)
class RespondConsumerGroupDescribe:
    """`topics`: names by ids."""

    request: int
    results: tuple[tuple[ConsumerGroup, Error], ...]
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RespondDescribeGroups:
    request: int
    results: tuple[tuple[Group, Error], ...]


@dataclass(frozen=True, slots=True)
class RespondListGroups:
    request: int
    error: Error
    groups: tuple[Group | ConsumerGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class RespondDeleteGroups:
    request: int
    results: tuple[tuple[str, Error], ...]


@dataclass(frozen=True, slots=True)
class RespondOffsetDelete:
    """Where `error` is one, it concerns the request as a whole."""

    request: int
    error: Error
    results: tuple[tuple[TopicPartition, Error], ...] = ()


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Whole batches from the one that contains `offset`, none that begins at or after `end`."""

    offset: int
    end: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchedResult:
    partition: TopicPartition
    error: Error
    high_watermark: int
    log_start_offset: int
    records: LogSlice | None
    diverging_epoch: EpochEnd | None = None  # KIP-595; None: the follower's log is a prefix
    last_stable_offset: int = -1
    preferred_read_replica: int = -1  # the follower that a consumer is sent to (KIP-392)


@dataclass(frozen=True, slots=True)
class RespondFetch:
    request: int
    results: tuple[FetchedResult, ...]


@dataclass(frozen=True, slots=True)
class EpochEndOffsetResult:
    """`leader_epoch` is the epoch that the end offset is of (KIP-279); -1: that is not known."""

    partition: TopicPartition
    error: Error
    end_offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class RespondOffsetForLeaderEpoch:
    request: int
    results: tuple[EpochEndOffsetResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """`look_up`: the shell finds the first record at or after this timestamp, below `end`.

    If there is none, `not_found` is the answer.
    """

    partition: TopicPartition
    error: Error
    offset: int
    look_up: int | None = None
    end: int = -1
    leader_epoch: int = -1  # of the record at `offset`, as far as it is known
    not_found: Error = Error.NONE


@dataclass(frozen=True, slots=True)
class RespondListOffsets:
    request: int
    results: tuple[OffsetResult, ...]


@dataclass(frozen=True, slots=True)
class RespondControl:
    """The answer to LeaderAndIsr, StopReplica or UpdateMetadata."""

    request: int
    error: Error
    partitions: tuple[tuple[TopicPartition, Error], ...] = ()


@dataclass(frozen=True, slots=True)
class RespondAlterPartition:
    """Where `error` is one, it concerns the request as a whole."""

    request: int
    error: Error
    results: tuple[AlteredResult, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicResult:
    """`configuration`: what was created, or would be; None where there is an error."""

    topic: str
    error: Error
    message: str | None = None
    configuration: TopicConfiguration | None = None


@dataclass(frozen=True, slots=True)
class RespondCreateTopics:
    request: int
    results: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class RespondCreatePartitions:
    request: int
    results: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class TopicDeletionResult:
    """What became of one topic of a DeleteTopics request; `topic` None: its id names none."""

    topic: str | None
    topic_id: str | None
    error: Error


@dataclass(frozen=True, slots=True)
class RespondDeleteTopics:
    request: int
    results: tuple[TopicDeletionResult, ...]


@dataclass(frozen=True, slots=True)
class RespondElectLeaders:
    """Where `error` is one, it concerns the request as a whole."""

    request: int
    error: Error
    results: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RespondControlledShutdown:
    """`remaining`: what the broker that asked still leads."""

    request: int
    error: Error
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class RespondAlterPartitionReassignments:
    """Where `error` is one, it concerns the request as a whole."""

    request: int
    error: Error
    results: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RespondListPartitionReassignments:
    request: int
    error: Error
    ongoing: tuple[tuple[TopicPartition, ReplicaAssignment], ...] = ()


# --- requests to other brokers -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendFetch:
    """The request of one fetch round; answered by FetchResponded or FetcherRequestFailed."""

    fetcher: FetcherId
    sequence: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchedPartition, ...]
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # of this broker's registration (KIP-903)


@dataclass(frozen=True, slots=True)
class SendOffsetForLeaderEpoch:
    fetcher: FetcherId
    sequence: int
    partitions: tuple[EpochAsked, ...]


@dataclass(frozen=True, slots=True)
class SendListOffsets:
    fetcher: FetcherId
    sequence: int
    partitions: tuple[OffsetAsked, ...]


@dataclass(frozen=True, slots=True)
class CloseFetcher:
    """The fetcher has no partition left: its connection can be closed."""

    fetcher: FetcherId


@dataclass(frozen=True, slots=True)
class SendAlterPartition:
    """A leader's ISR changes to the controller; answered by AlterPartitionResponded or …Failed.

    One is under way at a time. The controller may be this broker itself.
    """

    controller: int
    sequence: int
    broker_epoch: int
    partitions: tuple[AlteredPartition, ...]


@dataclass(frozen=True, slots=True)
class SendWriteTxnMarkers:
    """A coordinator's markers to one leader; answered by WriteTxnMarkersResponded or …Failed.

    One is under way to each at a time. The leader may be this broker itself.
    """

    leader: int
    sequence: int
    markers: tuple[tuple[EndTransactionMarker, tuple[TopicPartition, ...]], ...]


@dataclass(frozen=True, slots=True)
class SendAddPartitionsToTxn:
    """A leader asks a coordinator whether partitions are in a transaction (KIP-890); answered by
    AddPartitionsToTxnResponded or …Failed. The coordinator may be this broker itself."""

    coordinator: int
    sequence: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SendControlledShutdown:
    """Of a broker that stops; answered by ControlledShutdownResponded or …Failed.

    The controller may be this broker itself.
    """

    controller: int
    sequence: int
    broker_epoch: int


ControlRequest = LeaderAndIsrRequested | StopReplicaRequested | UpdateMetadataRequested


@dataclass(frozen=True, slots=True)
class SendControl:
    """A controller's request to one broker.

    Requests to one broker are sent one at a time, in order, and tried again until that broker
    answers or StopSendingControl names it.
    """

    broker: int
    message: ControlRequest


@dataclass(frozen=True, slots=True)
class StopSendingControl:
    """Forget what waits to be sent to these brokers (None: to all; this is no controller now)."""

    brokers: tuple[int, ...] | None


# --- the end -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Halt:
    """The process ends at once, and does nothing more: to go on could lose what it has."""

    reason: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The process ends cleanly: it leads nothing that another broker could lead, or gives up."""


# --- time, and the coordination service ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire once, `delay_ms` from now; set again, it moves."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    timer: Timer


@dataclass(frozen=True, slots=True)
class Coordinate:
    request: CoordinationRequest


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the broker's log: the only way in which the core speaks to people."""

    text: str


Answer = (
    RespondProduce
    | RespondInitProducerId
    | RespondTransaction
    | RespondTxnOffsetCommit
    | RespondWriteTxnMarkers
    | RespondDescribeTransactions
    | RespondListTransactions
    | RespondDescribeProducers
    | RespondFindCoordinator
    | RespondOffsetCommit
    | RespondOffsetFetch
    | RespondJoinGroup
    | RespondSyncGroup
    | RespondHeartbeat
    | RespondLeaveGroup
    | RespondConsumerGroupHeartbeat
    | RespondConsumerGroupDescribe
    | RespondDescribeGroups
    | RespondListGroups
    | RespondDeleteGroups
    | RespondOffsetDelete
    | RespondDeleteRecords
    | RespondFetch
    | RespondOffsetForLeaderEpoch
    | RespondListOffsets
    | RespondControl
    | RespondAlterPartition
    | RespondCreateTopics
    | RespondCreatePartitions
    | RespondDeleteTopics
    | RespondElectLeaders
    | RespondControlledShutdown
    | RespondAlterPartitionReassignments
    | RespondListPartitionReassignments
)

# What is written under a log directory.
LogWrite = (
    CreateLog
    | AssignTopicId
    | DeleteLog
    | AppendToLog
    | TruncateLog
    | TruncateFullyAndStartAt
    | AdvanceLogStartOffset
    | WriteLeaderEpochCheckpoint
    | WriteHighWatermarkCheckpoint
)

Effect = (
    LogWrite
    | ReadProducers
    | ReadCommittedOffsets
    | ReadTransactions
    | Answer
    | SendFetch
    | SendOffsetForLeaderEpoch
    | SendListOffsets
    | CloseFetcher
    | SendAlterPartition
    | SendWriteTxnMarkers
    | SendAddPartitionsToTxn
    | SendControlledShutdown
    | SendControl
    | StopSendingControl
    | SetTimer
    | CancelTimer
    | Coordinate
    | Halt
    | Shutdown
    | Note
)
