"""What a leader does about Produce: refuse, append, and acknowledge when the acks are there.

As Kafka's ReplicaManager.appendRecords and its DelayedProduce. Coordinators append by `append` too,
and wait by `with_outcome`. Not the format of records: the shell has validated them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.interface.effects import (
    AppendToLog,
    ProducedPartition,
    RespondProduce,
)
from neaptide.clusters.broker.replication.interface.events import (
    ACKS_ALL,
    ProducedBatch,
    ProduceRequested,
)
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.replication.partition import (
    partition_rules,
    producer_state_manager,
    transactions,
)
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import is_under_min_isr
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition, isr_of
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    Duplicate,
    InSequence,
    Refused,
)
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
)

UNKNOWN = -1
# What those whose coordinator has appended a record are answered for what became of it; some are
# answered otherwise in more cases.
COORDINATOR_ERRORS: Final[Mapping[Error, Error]] = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
}
NOTHING: Final[Mapping[TopicPartition, Error]] = {}


@dataclass(frozen=True, slots=True)
class Appended:
    """One partition of a produce request: appended at `base_offset`, done when HW ≥ required, or,
    where acks is a number above 1, when so many replicas of the ISR have it.

    `error` is None while that waits. Once it is known it stays: a leader that lost its role and got
    it back may have lost the record too, and must not acknowledge it.
    """

    error: Error | None
    base_offset: int
    required_offset: int


def on_produce(
    broker: Broker,
    event: ProduceRequested,
    now_ms: int,
    refused: Mapping[TopicPartition, Error] = NOTHING,
) -> None:
    """Appends what may be appended, and answers by acks: never, now, or when HW has passed it.

    `refused`: what a transaction coordinator has found to be in none.
    """
    acks = event.acks
    if broker.rules.acks_above_one and acks < 0:
        acks = ACKS_ALL
    if acks not in (0, 1, ACKS_ALL) and not broker.rules.acks_above_one:
        appended = {
            tp: Appended(Error.INVALID_REQUIRED_ACKS, UNKNOWN, UNKNOWN)
            for tp, _ in event.partitions
        }
        respond(broker, event.request, 1, appended)
        return
    internal = {
        tp: Error.INVALID_TOPIC_EXCEPTION  # what is in it, brokers alone have written
        for tp, _ in event.partitions
        if tp.topic in INTERNAL_TOPICS
    }
    errors = {**refused, **internal, **_without_transactional_id(event)}
    appended = {
        tp: Appended(errors[tp], UNKNOWN, UNKNOWN)
        if tp in errors
        else append(broker, tp, batches, acks, now_ms)
        for tp, batches in event.partitions
    }
    if acks in (0, 1):
        respond(broker, event.request, acks, appended)
        return
    waiting = DelayedProduce(event.request, appended, acks)
    purgatory.complete_or_park(broker, waiting, event.timeout_ms)


def _without_transactional_id(event: ProduceRequested) -> Mapping[TopicPartition, Error]:
    """Records of a transaction need the id of one: else nothing of the request is taken."""
    batches = (batch for _, produced in event.partitions for batch in produced)
    if event.transactional_id is not None or not any(
        batch.producer is not None and batch.producer.is_transactional for batch in batches
    ):
        return NOTHING
    failed = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return dict.fromkeys((place for place, _ in event.partitions), failed)


def append(
    broker: Broker,
    topic_partition: TopicPartition,
    produced: tuple[ProducedBatch, ...],
    acks: int,
    now_ms: int,
    *,
    of_coordinator: bool = False,
) -> Appended:
    """Appends batches to a partition, where the rules allow it.

    `of_coordinator`: what a broker writes for a producer has no sequence of that producer.
    """
    error = refusal(broker, topic_partition, produced, acks)
    if error is Error.NONE and of_coordinator:
        error = fenced(broker.partitions[topic_partition], produced[0])
    if error is not Error.NONE:
        return Appended(error, UNKNOWN, UNKNOWN)
    partition = broker.partitions[topic_partition]
    is_checked = broker.rules.idempotence is not None and not of_coordinator
    if is_checked and produced[0].producer is not None:
        known = known_error(broker, partition, produced[0], acks)
        if known is not None:
            return known
    batches: list[Batch] = []
    base_offset = partition.log.end_offset
    epoch = partition.leader_epoch if broker.rules.records_epochs else UNKNOWN
    for batch in produced:
        batches.append(
            Batch(
                base_offset,
                batch.count,
                epoch,
                batch.size,
                batch.identity,
                batch.producer,
                batch.marker,
            )
        )
        base_offset += batch.count
    before = partition.log.epochs
    aborted = transactions.aborted_by(partition.log.transactions, batches)
    first_offset = partition.log.end_offset
    partition = broker.put(
        partition_rules.append_as_leader(partition, tuple(batches), broker.rules)
    )
    broker.do(AppendToLog(topic_partition, tuple(batches), assign=True, aborted=aborted))
    broker.write_epochs(partition, before)
    broker.increment_high_watermark(partition, now_ms)
    purgatory.complete_delayed(broker, topic_partition, now_ms)
    return Appended(Error.NONE if acks in (0, 1) else None, first_offset, base_offset)


@rule
def refusal(
    broker: Broker,
    topic_partition: TopicPartition,
    produced: tuple[ProducedBatch, ...],
    acks: int,
) -> Error:
    """Why a produce request may not be appended; NONE where it may."""
    partition = broker.partitions.get(topic_partition)
    if partition is None or not isinstance(partition.role, Leader):
        return leader_error(broker, topic_partition)
    if not produced:
        return Error.CORRUPT_MESSAGE
    for batch in produced:
        if batch.error is not Error.NONE:
            return batch.error
    if len(produced) > 1 and any(batch.producer is not None for batch in produced):
        return Error.CORRUPT_MESSAGE  # from Produce v3 on there is one batch for a partition
    if broker.rules.idempotence is None and any(
        batch.producer is not None and batch.producer.is_transactional for batch in produced
    ):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # there are none before 0.11
    if any(batch.size > partition.settings.max_message_bytes for batch in produced):
        return Error.RECORD_TOO_LARGE
    if sum(batch.size for batch in produced) > partition.settings.segment_bytes:
        return Error.RECORD_LIST_TOO_LARGE
    if acks == ACKS_ALL and has_too_small_an_isr(partition, broker.rules):
        return Error.NOT_ENOUGH_REPLICAS
    return Error.NONE


@rule
def fenced(partition: Partition, batch: ProducedBatch) -> Error:
    """Whether a newer epoch of the producer, or of its coordinator, is known already."""
    producers = partition.log.producers
    if batch.marker is not None:
        return producer_state_manager.check_marker(producers, batch.marker)
    if batch.producer is None:
        return Error.NONE
    return producer_state_manager.check_epoch(
        producers, batch.producer.producer_id, batch.producer.producer_epoch
    )


@rule
def known_error(
    broker: Broker, partition: Partition, batch: ProducedBatch, acks: int
) -> Appended | None:
    """What an idempotent producer's batch comes to without being appended; None: append it (P4).

    A duplicate is acknowledged with the offset that it got the first time, and to acks=all not
    before that is committed: its first copy may still be lost with this leader.
    """
    assert batch.producer is not None
    assert broker.rules.idempotence is not None
    checked = producer_state_manager.check(
        partition.log.producers, batch.producer, batch.count, broker.rules.idempotence
    )
    match checked:
        case InSequence():
            is_open = batch.producer.producer_id in partition.log.transactions.ongoing
            if is_open and not batch.producer.is_transactional:
                return Appended(Error.INVALID_TXN_STATE, UNKNOWN, UNKNOWN)
            return None
        case Duplicate(base_offset, next_offset):
            return Appended(Error.NONE if acks in (0, 1) else None, base_offset, next_offset)
        case Refused(error):
            return Appended(error, UNKNOWN, UNKNOWN)


@rule
def respond(
    broker: Broker, request: int, acks: int, appended: Mapping[TopicPartition, Appended]
) -> None:
    """Answers a produce request; a partition that still waits has run out of time."""
    results = []
    for topic_partition, outcome in appended.items():
        error = Error.REQUEST_TIMED_OUT if outcome.error is None else outcome.error
        partition = broker.partitions.get(topic_partition)
        results.append(
            ProducedPartition(
                topic_partition,
                error,
                outcome.base_offset if error is Error.NONE else UNKNOWN,
                partition.log.start_offset if partition else UNKNOWN,
            )
        )
    broker.do(RespondProduce(request, acks, tuple(results)))


# --- waiting for acks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DelayedProduce:
    """A produce request whose records are not yet below the high watermark, or, with acks above 1
    (0.8), not yet on so many replicas."""

    request: int
    partitions: Mapping[TopicPartition, Appended]
    acks: int = ACKS_ALL

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        return tuple(self.partitions)

    def updated(self, broker: Broker) -> DelayedProduce:
        outcomes = {
            tp: with_outcome(broker, tp, appended, self.acks)
            for tp, appended in self.partitions.items()
        }
        return replace(self, partitions=outcomes)

    @rule
    def is_complete(self, broker: Broker) -> bool:
        return all(appended.error is not None for appended in self.partitions.values())

    def complete(self, broker: Broker) -> None:
        respond(broker, self.request, self.acks, self.partitions)


@dataclass(frozen=True, slots=True)
class DelayedRecord:
    """What a coordinator has appended to its own log, not yet below the high watermark: whoever
    has such records says what is done then (`complete`), or once the time for it is over.

    `request`: of the client that waits, or a number of the core's own.
    """

    request: int
    partition: TopicPartition
    appended: Appended

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        return (self.partition,)

    def updated(self, broker: Broker) -> Self:
        return replace(self, appended=with_outcome(broker, self.partition, self.appended))

    def is_complete(self, broker: Broker) -> bool:
        return self.appended.error is not None

    @property
    def outcome(self) -> Error:
        error = self.appended.error
        return Error.REQUEST_TIMED_OUT if error is None else error


def own_number(broker: Broker) -> int:
    """Of what waits for a record, where no request of a client does: who asked may be gone."""
    broker.next_sequence += 1
    return 1 - broker.next_sequence


@rule
def with_outcome(
    broker: Broker, topic_partition: TopicPartition, appended: Appended, acks: int = ACKS_ALL
) -> Appended:
    """What was appended, with its outcome if that is known now."""
    led = broker.led(topic_partition)
    if led is None and topic_partition in broker.offline and appended.error is None:
        return replace(appended, error=Error.KAFKA_STORAGE_ERROR)
    return replace(appended, error=produce_outcome(broker, appended, led, acks))


@rule
def produce_outcome(
    broker: Broker, waiting: Appended, partition: Partition | None, acks: int = ACKS_ALL
) -> Error | None:
    """The final error (or NONE) of one partition, or None while it must still wait.

    Where HW got there but the ISR has shrunk below min.insync.replicas meanwhile, the record is in
    the log and stays there, and the producer receives NOT_ENOUGH_REPLICAS_AFTER_APPEND (seed 000).
    """
    if waiting.error is not None:
        return waiting.error
    if partition is None or not isinstance(partition.role, Leader):
        return Error.NOT_LEADER_OR_FOLLOWER
    if acks != ACKS_ALL:
        have_it = replicas_with(partition, waiting.required_offset)
        return Error.NONE if have_it >= acks else None
    if partition.high_watermark < waiting.required_offset:
        return None
    if has_too_small_an_isr(partition, broker.rules):
        return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return Error.NONE


def has_too_small_an_isr(partition: Partition, rules: Generation) -> bool:
    isr, least = isr_of(partition), partition.settings.min_insync_replicas
    if rules.caps_min_isr:
        return is_under_min_isr(isr, partition.assigned, least)
    return len(isr) < least


def replicas_with(partition: Partition, offset: int) -> int:
    """How many replicas of the ISR have all before an offset; the leader has."""
    assert isinstance(partition.role, Leader)
    remotes = partition.role.remotes
    return sum(
        replica not in remotes or remotes[replica].log_end_offset >= offset
        for replica in isr_of(partition)
    )
