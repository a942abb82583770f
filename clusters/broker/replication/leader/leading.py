"""What a leader does: append what is produced, serve what is fetched.

Delayed requests are completed here too: `complete_delayed` is called by whoever moved a log end,
a high watermark, an ISR or a role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.group.group_metadata_manager import answer_commit
from neaptide.clusters.broker.replication.interface.effects import (
    AppendToLog,
    FetchedResult,
    LogSlice,
    ProducedPartition,
    RespondFetch,
    RespondProduce,
    WriteLeaderEpochCheckpoint,
)
from neaptide.clusters.broker.replication.interface.events import (
    ACKS_ALL,
    CONSUMER,
    DelayedOperationExpired,
    FetchedPartition,
    FetchRequested,
    ProducedBatch,
    ProduceRequested,
    RequestAbandoned,
)
from neaptide.clusters.broker.replication.leader.delayed_operations import (
    Appended,
    DelayedCommit,
    DelayedFetch,
    DelayedOperation,
    DelayedProduce,
    FetchBaseline,
    bytes_readable,
    produce_outcome,
    watched_by,
)
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.leader.in_sync_replicas import maybe_expand_isr
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.replication.partition import partition_rules, producer_state_manager
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import Epochs
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition, isr_of
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    Duplicate,
    InSequence,
    Refused,
)

UNKNOWN = -1

# --- produce -------------------------------------------------------------------------------------


def on_produce(broker: Broker, event: ProduceRequested, now_ms: int) -> None:
    """Appends what may be appended, and answers by acks: never, now, or when HW has passed it."""
    acks = event.acks
    if broker.rules.acks_above_one and acks < 0:
        acks = ACKS_ALL
    if acks not in (0, 1, ACKS_ALL) and not broker.rules.acks_above_one:
        appended = {
            tp: Appended(Error.INVALID_REQUIRED_ACKS, UNKNOWN, UNKNOWN)
            for tp, _ in event.partitions
        }
        _respond_produce(broker, event.request, 1, appended)
        return
    appended = {
        tp: Appended(Error.INVALID_TOPIC_EXCEPTION, UNKNOWN, UNKNOWN)
        if tp.topic == OFFSETS_TOPIC  # internal: what is in it, brokers alone have written
        else append(broker, tp, batches, acks, now_ms)
        for tp, batches in event.partitions
    }
    if acks in (0, 1):
        _respond_produce(broker, event.request, acks, appended)
        return
    waiting = _settled(broker, DelayedProduce(event.request, appended, acks))
    if waiting.is_done:
        _respond_produce(broker, event.request, acks, waiting.partitions)
    else:
        _park(broker, waiting, event.timeout_ms)


def append(
    broker: Broker,
    topic_partition: TopicPartition,
    produced: tuple[ProducedBatch, ...],
    acks: int,
    now_ms: int,
) -> Appended:
    """Appends batches to a partition, where the rules allow it."""
    error = _refusal(broker, topic_partition, produced, acks)
    if error is not Error.NONE:
        return Appended(error, UNKNOWN, UNKNOWN)
    partition = broker.partitions[topic_partition]
    if broker.rules.idempotence is not None and produced[0].producer is not None:
        known = _known(broker, partition, produced[0], acks)
        if known is not None:
            return known
    batches: list[Batch] = []
    base_offset = partition.log.end_offset
    epoch = partition.leader_epoch if broker.rules.records_epochs else UNKNOWN
    for batch in produced:
        batches.append(
            Batch(base_offset, batch.count, epoch, batch.size, batch.identity, batch.producer)
        )
        base_offset += batch.count
    before = partition.log.epochs
    first_offset = partition.log.end_offset
    partition = broker.put(
        partition_rules.append_as_leader(partition, tuple(batches), broker.rules)
    )
    broker.do(AppendToLog(topic_partition, tuple(batches), assign=True))
    note_epochs(broker, partition, before)
    broker.increment_high_watermark(partition, now_ms)
    complete_delayed(broker, topic_partition, now_ms)
    return Appended(Error.NONE if acks in (0, 1) else None, first_offset, base_offset)


def _known(
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
            return None
        case Duplicate(base_offset, next_offset):
            return Appended(Error.NONE if acks in (0, 1) else None, base_offset, next_offset)
        case Refused(error):
            return Appended(error, UNKNOWN, UNKNOWN)


def _refusal(
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
    if any(batch.size > partition.settings.max_message_bytes for batch in produced):
        return Error.RECORD_TOO_LARGE
    if sum(batch.size for batch in produced) > partition.settings.segment_bytes:
        return Error.RECORD_LIST_TOO_LARGE
    if acks == ACKS_ALL and len(isr_of(partition)) < partition.settings.min_insync_replicas:
        return Error.NOT_ENOUGH_REPLICAS
    return Error.NONE


def _respond_produce(
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


def _settled(broker: Broker, waiting: DelayedProduce) -> DelayedProduce:
    """The request with the outcome of every partition of which it is known now."""
    return replace(
        waiting,
        partitions={
            tp: replace(appended, error=produce_outcome(appended, broker.led(tp), waiting.acks))
            for tp, appended in waiting.partitions.items()
        },
    )


# --- commits of groups ---------------------------------------------------------------------------


def answer_or_park(broker: Broker, waiting: DelayedCommit, timeout_ms: int) -> None:
    """Answers a commit now, or when the high watermark has passed its record."""
    waiting = _settled_commit(broker, waiting)
    if waiting.appended.error is not None:
        _respond_commit(broker, waiting)
    else:
        _park(broker, waiting, timeout_ms)


def _settled_commit(broker: Broker, waiting: DelayedCommit) -> DelayedCommit:
    outcome = produce_outcome(waiting.appended, broker.led(waiting.partition))
    return replace(waiting, appended=replace(waiting.appended, error=outcome))


def _respond_commit(broker: Broker, waiting: DelayedCommit) -> None:
    """One that still waits has run out of time."""
    error = waiting.appended.error
    answer_commit(
        broker,
        waiting.request,
        waiting.partition,
        waiting.committed,
        Error.REQUEST_TIMED_OUT if error is None else error,
    )


# --- fetch ---------------------------------------------------------------------------------------


def on_fetch(broker: Broker, event: FetchRequested, now_ms: int) -> None:
    """Takes a follower's position into account, then answers, now or later (F6).

    In this order (seed 003): the leader's copy of the follower's LEO, the ISR, the high watermark.
    An answer that is due at once carries the high watermark of before all that, as Kafka reads the
    log first (ReplicaManager.fetchMessages); one that waited, that of when it is given.
    """
    high_watermarks = {
        asked.partition: partition.high_watermark
        for asked in event.partitions
        if (partition := broker.led(asked.partition)) is not None
    }
    if event.replica_id != CONSUMER:
        for asked in event.partitions:
            _record_position(broker, event.replica_id, asked, now_ms)
    baselines = {
        asked.partition: FetchBaseline(
            asked.bytes_available,
            broker.partitions[asked.partition].log.appended_bytes
            if asked.partition in broker.partitions
            else 0,
        )
        for asked in event.partitions
    }
    waiting = DelayedFetch(event, baselines)
    if event.max_wait_ms <= 0 or _fetch_is_ready(broker, waiting):
        _respond_fetch(broker, waiting, high_watermarks)
    else:
        _park(broker, waiting, event.max_wait_ms)


def _record_position(broker: Broker, replica_id: int, asked: FetchedPartition, now_ms: int) -> None:
    partition = broker.led(asked.partition)
    if partition is None or _fetch_error(broker, asked) is not Error.NONE:
        return
    if not isinstance(partition.role, Leader) or replica_id not in partition.role.remotes:
        broker.note(f"{replica_id} fetches {asked.partition} but is not one of its replicas")
        return
    before = partition.high_watermark
    partition = broker.put(
        partition_rules.record_follower_fetch(
            partition,
            replica_id,
            fetch_offset=asked.fetch_offset,
            log_start_offset=asked.log_start_offset,
            now_ms=now_ms,
            rules=broker.rules,
        )
    )
    maybe_expand_isr(broker, partition, replica_id)
    partition = broker.increment_high_watermark(broker.partitions[asked.partition], now_ms)
    if partition.high_watermark != before or broker.rules.acks_above_one:
        complete_delayed(broker, asked.partition, now_ms)


def _fetch_error(broker: Broker, asked: FetchedPartition) -> Error:
    error = leader_error(broker, asked.partition, asked.current_leader_epoch)
    if error is not Error.NONE:
        return error
    partition = broker.partitions[asked.partition]
    if not partition.log.start_offset <= asked.fetch_offset <= partition.log.end_offset:
        return Error.OFFSET_OUT_OF_RANGE
    return Error.NONE


def _readable_end(partition: Partition, replica_id: int) -> int:
    """Followers read to the log end offset, consumers to the high watermark (F7)."""
    if replica_id == CONSUMER:
        return partition.high_watermark
    assert isinstance(partition.role, Leader)
    # A broker that is no assigned replica gets nothing (F12).
    return partition.log.end_offset if replica_id in partition.role.remotes else 0


def _fetch_is_ready(broker: Broker, waiting: DelayedFetch) -> bool:
    """Whether an answer is due: nothing was asked for, an error shows, or enough is readable."""
    message = waiting.message
    readable = 0
    for asked in message.partitions:
        partition = broker.led(asked.partition)
        if partition is None or _fetch_error(broker, asked) is not Error.NONE:
            return True
        readable += bytes_readable(
            partition,
            fetch_offset=asked.fetch_offset,
            end=_readable_end(partition, message.replica_id),
            baseline=waiting.baselines[asked.partition],
        )
    return not message.partitions or readable >= message.min_bytes


def _respond_fetch(
    broker: Broker,
    waiting: DelayedFetch,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
) -> None:
    """`high_watermarks`: those that the answer carries; None: those of now."""
    message = waiting.message
    results = []
    for asked in message.partitions:
        error = _fetch_error(broker, asked)
        partition = broker.led(asked.partition)
        if partition is None:
            results.append(FetchedResult(asked.partition, error, UNKNOWN, UNKNOWN, None))
            continue
        end = _readable_end(partition, message.replica_id)
        readable = error is Error.NONE and asked.fetch_offset < end
        results.append(
            FetchedResult(
                asked.partition,
                error,
                partition.high_watermark
                if high_watermarks is None
                else high_watermarks[asked.partition],
                partition.log.start_offset,
                LogSlice(asked.fetch_offset, end, asked.max_bytes) if readable else None,
            )
        )
    broker.do(RespondFetch(message.request, tuple(results)))


# --- waiting -------------------------------------------------------------------------------------


def _park(
    broker: Broker,
    operation: DelayedOperation,
    timeout_ms: int,
) -> None:
    broker.delayed[operation.request] = operation
    for topic_partition in watched_by(operation):
        broker.watchers[topic_partition] = (
            *broker.watchers.get(topic_partition, ()),
            operation.request,
        )
    broker.set_timer(DelayedOperationExpired(operation.request), timeout_ms)


def _unpark(broker: Broker, operation: DelayedOperation) -> None:
    del broker.delayed[operation.request]
    for topic_partition in watched_by(operation):
        left = tuple(r for r in broker.watchers[topic_partition] if r != operation.request)
        if left:
            broker.watchers[topic_partition] = left
        else:
            del broker.watchers[topic_partition]


def complete_delayed(broker: Broker, topic_partition: TopicPartition, now_ms: int) -> None:
    """Answers the requests that watch a partition and need wait no longer."""
    for request in broker.watchers.get(topic_partition, ()):
        operation = broker.delayed[request]
        match operation:
            case DelayedProduce():
                operation = broker.delayed[request] = _settled(broker, operation)
                done = operation.is_done
            case DelayedCommit():
                operation = broker.delayed[request] = _settled_commit(broker, operation)
                done = operation.appended.error is not None
            case DelayedFetch():
                done = _fetch_is_ready(broker, operation)
        if done:
            _answer(broker, operation)
            broker.cancel_timer(DelayedOperationExpired(request))


def _answer(broker: Broker, operation: DelayedOperation) -> None:
    """Answers a delayed request with what is known now, and forgets it."""
    match operation:
        case DelayedProduce():
            _respond_produce(broker, operation.request, operation.acks, operation.partitions)
        case DelayedCommit():
            _respond_commit(broker, operation)
        case DelayedFetch():
            _respond_fetch(broker, operation)
    _unpark(broker, operation)


def on_delayed_operation_expired(
    broker: Broker, timer: DelayedOperationExpired, now_ms: int
) -> None:
    operation = broker.delayed.get(timer.request)
    if operation is not None:
        _answer(broker, operation)


def on_request_abandoned(broker: Broker, event: RequestAbandoned, now_ms: int) -> None:
    """Nobody waits for the answer any more. What was appended stays appended."""
    operation = broker.delayed.get(event.request)
    if operation is not None:
        _unpark(broker, operation)
        broker.cancel_timer(DelayedOperationExpired(event.request))


def note_epochs(broker: Broker, partition: Partition, before: Epochs) -> None:
    """Has the epoch checkpoint written where the cache has changed."""
    if partition.log.epochs != before:
        broker.do(WriteLeaderEpochCheckpoint(partition.topic_partition, partition.log.epochs))
