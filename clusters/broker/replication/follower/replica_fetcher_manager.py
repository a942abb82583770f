"""The fetchers of a broker: truncate, fetch, append, and what to do about every error.

One request of a fetcher is in flight at a time. `advance` looks at a fetcher and sends its next
request: first what must be truncated, then the offsets of who is out of range, then the fetch.
Where a log is cut is in truncation; what follows OFFSET_OUT_OF_RANGE, in out_of_range. As Kafka's
ReplicaFetcherManager and AbstractFetcherThread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower import out_of_range, replica_fetcher
from neaptide.clusters.broker.replication.follower.replica_fetcher import (
    AskForOffsets,
    Delayed,
    Fetching,
    FetchState,
    InFlight,
    OutOfRange,
    PartitionFetchState,
    ReplicaFetcher,
    RetryLater,
    StopFollowing,
    Truncating,
)
from neaptide.clusters.broker.replication.follower.truncation import (
    start_afresh,
    truncate,
    truncate_for_leader,
)
from neaptide.clusters.broker.replication.generation import Truncation
from neaptide.clusters.broker.replication.interface.effects import (
    AdvanceLogStartOffset,
    AppendToLog,
    CloseFetcher,
    SendFetch,
    SendListOffsets,
    SendOffsetForLeaderEpoch,
)
from neaptide.clusters.broker.replication.interface.events import (
    EpochAsked,
    EpochEndOffset,
    FetchedPartition,
    FetcherBackoffOver,
    FetcherId,
    FetcherRequestFailed,
    FetchResponded,
    FetchResult,
    ListedOffset,
    ListOffsetsResponded,
    OffsetAsked,
    OffsetForLeaderEpochResponded,
)
from neaptide.clusters.broker.replication.leader.purgatory import complete_delayed
from neaptide.clusters.broker.replication.model import (
    UNDEFINED_EPOCH,
    UNKNOWN_BROKER_EPOCH,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import (
    leader_epoch_file_cache,
    partition_rules,
    transactions,
    unified_log,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.partition_rules import Follower, Partition
from neaptide.clusters.broker.replication.rule import rule

# --- beginning and ending ------------------------------------------------------------------------


@rule
def begin_following(broker: Broker, partition: Partition, leader: int, now_ms: int) -> None:
    """Adds a partition to the fetcher of its new leader, truncating by the generation's rule."""
    topic_partition = partition.topic_partition
    rules = broker.rules
    # Who truncates by its fetches, and has no epoch to name in them, has the high watermark only.
    by_high_watermark = rules.truncation is Truncation.TO_HIGH_WATERMARK or (
        rules.truncates_on_fetch and not partition.log.epochs
    )
    if by_high_watermark:
        truncate(broker, partition, partition.high_watermark)
    asks_first = not (by_high_watermark or rules.truncates_on_fetch)
    state: FetchState = Truncating() if asks_first else Fetching()
    number = replica_fetcher.fetcher_number(topic_partition, broker.settings.num_replica_fetchers)
    fetcher_id = FetcherId(leader, number)
    fetcher = broker.fetchers.get(fetcher_id) or ReplicaFetcher(fetcher_id, {})
    broker.fetchers[fetcher_id] = replica_fetcher.follow(
        fetcher, topic_partition, PartitionFetchState(partition.leader_epoch, state)
    )


def stop_following(broker: Broker, topic_partition: TopicPartition) -> None:
    """Takes a partition out of whatever fetcher has it; the fetcher stays, if only to be closed."""
    for fetcher_id, fetcher in broker.fetchers.items():
        if topic_partition in fetcher.followed:
            broker.fetchers[fetcher_id] = replica_fetcher.unfollow(fetcher, topic_partition)


def close_idle_fetchers(broker: Broker) -> None:
    """Of the leaders of which no partition is followed any more, after all have been named.

    A partition that goes on following the same leader keeps the request in flight.
    """
    for fetcher_id, fetcher in tuple(broker.fetchers.items()):
        if not fetcher.followed:
            del broker.fetchers[fetcher_id]
            broker.cancel_timer(FetcherBackoffOver(fetcher_id))
            broker.do(CloseFetcher(fetcher_id))


# --- the loop ------------------------------------------------------------------------------------


def advance(broker: Broker, fetcher_id: FetcherId, now_ms: int) -> None:
    """Sends a fetcher's next request, unless one is in flight or all partitions are delayed."""
    fetcher = broker.fetchers.get(fetcher_id)
    if fetcher is None or fetcher.in_flight is not None:
        return
    fetcher = replica_fetcher.wake(fetcher, now_ms)
    broker.fetchers[fetcher_id] = fetcher
    for send in (send_epochs, _send_offsets, _send_fetch):
        if send(broker, fetcher):
            return
    wakes_at_ms = replica_fetcher.next_wake_ms(fetcher)
    if wakes_at_ms is not None:
        broker.set_timer(FetcherBackoffOver(fetcher_id), wakes_at_ms - now_ms)


def advance_all(broker: Broker, now_ms: int) -> None:
    for fetcher_id in sorted(broker.fetchers):
        advance(broker, fetcher_id, now_ms)


def in_state(
    broker: Broker, fetcher: ReplicaFetcher, state: type[FetchState]
) -> list[tuple[TopicPartition, PartitionFetchState, Partition]]:
    return [
        (topic_partition, followed, broker.partitions[topic_partition])
        for topic_partition, followed in fetcher.followed.items()
        if isinstance(followed.state, state)
    ]


def sent_to(
    broker: Broker,
    fetcher: ReplicaFetcher,
    chosen: list[tuple[TopicPartition, PartitionFetchState, Partition]],
) -> int:
    """Notes what is in flight; returns the sequence number of the request."""
    sequence = broker.next_sequence
    broker.next_sequence += 1
    sent = {tp: (followed, partition.log.end_offset) for tp, followed, partition in chosen}
    broker.fetchers[fetcher.fetcher_id] = replace(fetcher, in_flight=InFlight(sequence, sent))
    return sequence


@rule
def send_epochs(broker: Broker, fetcher: ReplicaFetcher) -> bool:
    chosen = in_state(broker, fetcher, Truncating)
    if chosen:
        asked = tuple(
            EpochAsked(
                tp,
                leader_epoch_file_cache.latest_epoch(partition.log.epochs),
                followed.leader_epoch,
            )
            for tp, followed, partition in chosen
        )
        sequence = sent_to(broker, fetcher, chosen)
        broker.do(SendOffsetForLeaderEpoch(fetcher.fetcher_id, sequence, asked))
    return bool(chosen)


def _send_offsets(broker: Broker, fetcher: ReplicaFetcher) -> bool:
    chosen = in_state(broker, fetcher, OutOfRange)
    if chosen:
        asked = tuple(
            OffsetAsked(tp, out_of_range.timestamp(followed.state), followed.leader_epoch)
            for tp, followed, _ in chosen
        )
        sequence = sent_to(broker, fetcher, chosen)
        broker.do(SendListOffsets(fetcher.fetcher_id, sequence, asked))
    return bool(chosen)


def _send_fetch(broker: Broker, fetcher: ReplicaFetcher) -> bool:
    """A fetch reports this follower's log end offset to the leader: that is its fetch offset."""
    chosen = in_state(broker, fetcher, Fetching)
    if chosen:
        settings = broker.settings
        names_last_epoch = broker.rules.truncates_on_fetch
        asked = tuple(
            FetchedPartition(
                tp,
                fetch_offset=partition.log.end_offset,
                max_bytes=settings.replica_fetch_max_bytes,
                log_start_offset=partition.log.start_offset,
                current_leader_epoch=followed.leader_epoch,
                last_fetched_epoch=leader_epoch_file_cache.latest_epoch(partition.log.epochs)
                if names_last_epoch
                else UNDEFINED_EPOCH,
                topic_id=partition.topic_id,
            )
            for tp, followed, partition in chosen
        )
        broker.do(
            SendFetch(
                fetcher.fetcher_id,
                sent_to(broker, fetcher, chosen),
                max_wait_ms=settings.replica_fetch_wait_max_ms,
                min_bytes=settings.replica_fetch_min_bytes,
                max_bytes=settings.replica_fetch_response_max_bytes,
                partitions=asked,
                broker_epoch=_own_epoch(broker),
            )
        )
    return bool(chosen)


def _own_epoch(broker: Broker) -> int:
    """The registration that a fetch names (KIP-903)."""
    if not broker.rules.isr_names_broker_epochs or broker.broker_epoch is None:
        return UNKNOWN_BROKER_EPOCH
    return broker.broker_epoch


# --- answers -------------------------------------------------------------------------------------


@rule
def take_answer(broker: Broker, fetcher_id: FetcherId, sequence: int) -> InFlight | None:
    """Ends the request in flight; None where the answer is to one that is long forgotten."""
    fetcher = broker.fetchers.get(fetcher_id)
    if fetcher is None or fetcher.in_flight is None or fetcher.in_flight.sequence != sequence:
        return None
    in_flight = fetcher.in_flight
    broker.fetchers[fetcher_id] = replace(fetcher, in_flight=None)
    return in_flight


@rule
def still_meant(
    broker: Broker, fetcher_id: FetcherId, in_flight: InFlight, asked: TopicPartition, meant: Meant
) -> Partition | None:
    """The partition, if an answer about it still fits what it is now."""
    fetcher = broker.fetchers.get(fetcher_id)
    partition = broker.partitions.get(asked)
    if fetcher is None or partition is None:
        return None
    if asked not in in_flight.sent or asked not in fetcher.followed:
        return None
    sent, offset = in_flight.sent[asked]
    if partition.log.end_offset != offset or not isinstance(partition.role, Follower):
        return None
    return partition if meant(broker, sent, fetcher.followed[asked]) else None


# Whether the answer to what was asked in one state is taken in another.
Meant = Callable[[Broker, PartitionFetchState, PartitionFetchState], bool]


def _is_ready_for_fetch(_: Broker, sent: PartitionFetchState, now: PartitionFetchState) -> bool:
    """Whatever the leader epoch in which it asked: Kafka compares the offset alone."""
    return isinstance(now.state, Fetching)


def _truncates_still(broker: Broker, sent: PartitionFetchState, now: PartitionFetchState) -> bool:
    """Up to 2.0 in another leader epoch, too (KAFKA-7395)."""
    is_same_epoch = sent.leader_epoch == now.leader_epoch
    is_epoch_asked = broker.rules.fences_leader_epochs
    return isinstance(now.state, Truncating) and (is_same_epoch or not is_epoch_asked)


def _has_not_changed(_: Broker, sent: PartitionFetchState, now: PartitionFetchState) -> bool:
    return sent == now


def _set_state(
    broker: Broker, fetcher_id: FetcherId, topic_partition: TopicPartition, state: FetchState
) -> None:
    fetcher = broker.fetchers[fetcher_id]
    followed = replace(fetcher.followed[topic_partition], state=state)
    broker.fetchers[fetcher_id] = replica_fetcher.move_to_end(fetcher, topic_partition, followed)


def _delay(
    broker: Broker, fetcher_id: FetcherId, topic_partition: TopicPartition, now_ms: int
) -> None:
    until_ms = now_ms + broker.settings.replica_fetch_backoff_ms
    broker.fetchers[fetcher_id] = replica_fetcher.delay(
        broker.fetchers[fetcher_id], topic_partition, until_ms
    )


Take = Callable[[Broker, FetcherId, Partition, Any, PartitionFetchState, int], None]


def _on_responded(
    broker: Broker,
    event: FetchResponded | OffsetForLeaderEpochResponded | ListOffsetsResponded,
    meant: Meant,
    take: Take,
    now_ms: int,
) -> None:
    """Partition by partition: takes the answer, or reacts to the error; then the next request."""
    in_flight = take_answer(broker, event.fetcher, event.sequence)
    if in_flight is None:
        return
    for result in event.results:
        partition = still_meant(broker, event.fetcher, in_flight, result.partition, meant)
        if partition is None:
            continue
        sent, _ = in_flight.sent[result.partition]
        if result.error is Error.NONE:
            take(broker, event.fetcher, partition, result, sent, now_ms)
        else:
            _react(broker, event.fetcher, partition, result.error, sent.leader_epoch, now_ms)
    advance(broker, event.fetcher, now_ms)


def on_fetch_responded(broker: Broker, event: FetchResponded, now_ms: int) -> None:
    """Ends a fetch round: append or truncate, high watermark, and the next round."""
    _on_responded(broker, event, _is_ready_for_fetch, _take_records, now_ms)


def on_epochs_responded(broker: Broker, event: OffsetForLeaderEpochResponded, now_ms: int) -> None:
    """Truncates by what the leader says of this log's latest epoch (KIP-101, KIP-279)."""
    _on_responded(broker, event, _truncates_still, truncate_as_answered, now_ms)


def on_offsets_responded(broker: Broker, event: ListOffsetsResponded, now_ms: int) -> None:
    """Goes on by where the leader's log is, after OFFSET_OUT_OF_RANGE."""
    _on_responded(broker, event, _has_not_changed, _come_into_range, now_ms)


def _take_records(
    broker: Broker,
    fetcher_id: FetcherId,
    partition: Partition,
    result: FetchResult,
    _: PartitionFetchState,
    now_ms: int,
) -> None:
    if result.diverging_epoch is None:
        _append(broker, fetcher_id, partition, result, now_ms)
        return
    if broker.rules.takes_diverging_high_watermark:
        _append(broker, fetcher_id, partition, replace(result, batches=()), now_ms)
    truncate_on_fetch(broker, result.partition, result.diverging_epoch)


@rule
def truncate_on_fetch(broker: Broker, topic_partition: TopicPartition, diverging: EpochEnd) -> None:
    """Cuts the log where the leader's answer allows, and fetches on (KIP-595).

    Where the histories have not met by that, the next fetch names an earlier epoch.
    """
    answer = EpochEndOffset(topic_partition, Error.NONE, diverging.end_offset, diverging.epoch)
    truncate_for_leader(broker, broker.partitions[topic_partition], answer)


def _append(
    broker: Broker,
    fetcher_id: FetcherId,
    partition: Partition,
    result: FetchResult,
    now_ms: int,
) -> None:
    topic_partition = partition.topic_partition
    if any(batch.size > partition.settings.segment_bytes for batch in result.batches):
        mark_failed(broker, fetcher_id, topic_partition)
        return
    if broker.rules.starts_at_first_batch and unified_log.starts_inside(
        partition.log, result.batches
    ):
        partition = start_afresh(broker, partition, result.batches[0].base_offset)
    if not unified_log.follows(partition.log, result.batches):
        # F8: never an append. Above its end a log has gaps; below it there are records already.
        broker.note(
            f"{topic_partition}: the response begins at {result.batches[0].base_offset},"
            f" the log ends at {partition.log.end_offset}"
        )
        _delay(broker, fetcher_id, topic_partition, now_ms)
        return
    before, high_watermark = partition.log, partition.high_watermark
    partition = broker.put(
        partition_rules.append_as_follower(
            partition,
            result.batches,
            leader_high_watermark=result.high_watermark,
            leader_log_start_offset=result.log_start_offset,
            rules=broker.rules,
        )
    )
    if result.batches:
        aborted = transactions.aborted_by(before.transactions, result.batches)
        broker.do(AppendToLog(topic_partition, result.batches, assign=False, aborted=aborted))
        fetcher = broker.fetchers[fetcher_id]
        broker.fetchers[fetcher_id] = replica_fetcher.move_to_end(
            fetcher, topic_partition, fetcher.followed[topic_partition]
        )
    if partition.log.start_offset != before.start_offset:
        broker.do(AdvanceLogStartOffset(topic_partition, partition.log.start_offset))
    broker.write_epochs(partition, before.epochs)
    if partition.high_watermark != high_watermark:
        complete_delayed(broker, topic_partition, now_ms)  # of consumers that read here


@rule
def mark_failed(broker: Broker, fetcher_id: FetcherId, topic_partition: TopicPartition) -> None:
    """Its segments have been made smaller than a batch of its leader: until the next leader epoch
    it is not followed any more (KAFKA-17375, in every Kafka up to 4.4)."""
    broker.note(f"{topic_partition}: marked as failed, a batch is larger than a segment may be")
    followed = tuple(broker.fetchers[fetcher_id].followed)
    outlives = broker.rules.fetcher_outlives_failed_partition
    for failed in (topic_partition,) if outlives else followed:
        stop_following(broker, failed)
    close_idle_fetchers(broker)


def _react(
    broker: Broker,
    fetcher_id: FetcherId,
    partition: Partition,
    error: Error,
    sent_epoch: int,
    now_ms: int,
) -> None:
    topic_partition = partition.topic_partition
    broker.note(f"{topic_partition}: {fetcher_id.leader} answers {error.name}")
    followed = broker.fetchers[fetcher_id].followed[topic_partition]
    match replica_fetcher.reaction_to(error):
        case StopFollowing() if followed.leader_epoch == sent_epoch:
            stop_following(broker, topic_partition)
            close_idle_fetchers(broker)
        case RetryLater() | StopFollowing():  # or it asked in an earlier epoch than it is in now
            _delay(broker, fetcher_id, topic_partition, now_ms)
        case AskForOffsets():
            _set_state(broker, fetcher_id, topic_partition, OutOfRange(asks_earliest=False))


@rule
def truncate_as_answered(
    broker: Broker,
    fetcher_id: FetcherId,
    partition: Partition,
    result: EpochEndOffset,
    _: PartitionFetchState,
    now_ms: int,
) -> None:
    has_met = truncate_for_leader(broker, partition, result)
    state: FetchState = Fetching() if has_met else Truncating()
    _set_state(broker, fetcher_id, result.partition, state)


def _come_into_range(
    broker: Broker,
    fetcher_id: FetcherId,
    partition: Partition,
    result: ListedOffset,
    followed: PartitionFetchState,
    now_ms: int,
) -> None:
    asked_earliest = isinstance(followed.state, OutOfRange) and followed.state.asks_earliest
    state = out_of_range.next_state(
        broker, fetcher_id.leader, partition, result, asked_earliest=asked_earliest
    )
    if state is not None:
        _set_state(broker, fetcher_id, result.partition, state)


@rule
def on_request_failed(broker: Broker, event: FetcherRequestFailed, now_ms: int) -> None:
    """No answer, no truncation (E4): wait, and ask again whoever leads by then."""
    in_flight = take_answer(broker, event.fetcher, event.sequence)
    if in_flight is None:
        return
    fetcher = broker.fetchers[event.fetcher]
    for topic_partition in tuple(fetcher.followed):
        if not isinstance(broker.fetchers[event.fetcher].followed[topic_partition].state, Delayed):
            _delay(broker, event.fetcher, topic_partition, now_ms)
    advance(broker, event.fetcher, now_ms)


def on_backoff_over(broker: Broker, timer: FetcherBackoffOver, now_ms: int) -> None:
    advance(broker, timer.fetcher, now_ms)
