"""What a leader does about Fetch: take a follower's offset into account, and read, now or later.

As Kafka's ReplicaManager.fetchMessages and its DelayedFetch. The shell reads the bytes: an answer
says from which offset to which. A consumer that names its rack is also answered by followers, and
the leader sends it to one where that is configured (KIP-392).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import FetchOfOthers
from neaptide.clusters.broker.replication.interface.effects import (
    FetchedResult,
    LogSlice,
    RespondFetch,
)
from neaptide.clusters.broker.replication.interface.events import (
    FetchedPartition,
    FetchRequested,
    is_consumer,
)
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.leader.in_sync_replicas import maybe_expand_isr
from neaptide.clusters.broker.replication.model import (
    UNDEFINED_EPOCH,
    UNKNOWN_BROKER_EPOCH,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import (
    UNKNOWN_END,
    EpochEnd,
    largest_epoch_up_to,
)
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Leader,
    Partition,
    isr_of,
    last_stable_offset,
)
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.rule import rule

UNKNOWN = -1


def on_fetch(broker: Broker, event: FetchRequested, now_ms: int) -> None:
    """Takes a follower's offset into account, then answers, now or later (F6).

    In this order (seed 003): the leader's copy of the follower's LEO, the ISR, the high watermark.
    An answer that is due at once carries the high watermark of before all that, as Kafka reads the
    log first (ReplicaManager.fetchMessages); one that waited, that of when it is given.
    """
    others = broker.rules.fetch_of_others
    if others is FetchOfOthers.ALL_FAILS and _is_of_a_stranger(broker, event):
        _fail(broker, event)
        return
    high_watermarks = {
        asked.partition: partition.high_watermark
        for asked in event.partitions
        if (partition := _reading(broker, event, asked)) is not None
    }
    if not is_consumer(event.replica_id):
        for asked in event.partitions:
            record_follower_fetch(broker, event, asked, now_ms)
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
    if event.max_wait_ms <= 0 or waiting.is_complete(broker):
        respond(broker, event, high_watermarks)
    else:
        purgatory.park(broker, waiting, event.max_wait_ms)


def _is_of_a_stranger(broker: Broker, event: FetchRequested) -> bool:
    """Whether a broker asks for a partition of which it is no replica."""
    led = [broker.led(asked.partition) for asked in event.partitions]
    return any(partition and not _may_fetch(partition, event.replica_id) for partition in led)


def _fail(broker: Broker, event: FetchRequested) -> None:
    """All of it, whatever it asks for besides (F12): nobody has caught the exception in Kafka."""
    error = Error.UNKNOWN_SERVER_ERROR
    results = [
        FetchedResult(asked.partition, error, UNKNOWN, UNKNOWN, None) for asked in event.partitions
    ]
    broker.do(RespondFetch(event.request, tuple(results)))


def _reading(broker: Broker, event: FetchRequested, asked: FetchedPartition) -> Partition | None:
    """The replica that is read, if it is here."""
    return broker.served(asked.partition, or_follower=event.rack is not None)


@rule
def record_follower_fetch(
    broker: Broker, event: FetchRequested, asked: FetchedPartition, now_ms: int
) -> None:
    replica_id = event.replica_id
    partition = broker.led(asked.partition)
    if partition is None or fetch_error(broker, event, asked) is not Error.NONE:
        return
    if not shows_log_end_offset(partition.log, asked):
        return
    if not isinstance(partition.role, Leader) or replica_id not in partition.role.remotes:
        broker.note(f"{replica_id} fetches {asked.partition} but is not one of its replicas")
        return
    before = partition.high_watermark
    started = partition.role.remotes[replica_id].log_start_offset
    partition = broker.put(
        partition_rules.record_follower_fetch(
            partition,
            replica_id,
            fetch_offset=asked.fetch_offset,
            log_start_offset=asked.log_start_offset,
            now_ms=now_ms,
            rules=broker.rules,
            broker_epoch=event.broker_epoch,
        )
    )
    maybe_expand_isr(broker, partition, replica_id)
    partition = broker.increment_high_watermark(broker.partitions[asked.partition], now_ms)
    has_moved = partition.high_watermark != before or asked.log_start_offset != started
    if has_moved or broker.rules.acks_above_one:
        purgatory.complete_delayed(broker, asked.partition, now_ms)


@rule
def fetch_error(broker: Broker, event: FetchRequested, asked: FetchedPartition) -> Error:
    held = broker.partitions.get(asked.partition)
    topic_id = held.topic_id if held is not None else None
    if None not in (asked.topic_id, topic_id) and asked.topic_id != topic_id:
        return Error.INCONSISTENT_TOPIC_ID
    error = leader_error(
        broker,
        asked.partition,
        asked.current_leader_epoch,
        or_follower=event.rack is not None,
    )
    if error is not Error.NONE:
        return error
    if _is_of_an_earlier_registration(broker, event):
        return Error.NOT_LEADER_OR_FOLLOWER
    partition = broker.partitions[asked.partition]
    others = broker.rules.fetch_of_others
    if others is FetchOfOthers.REFUSED and not _may_fetch(partition, event.replica_id):
        # A leader that has not learned of a new replica yet: the follower tries again.
        names_epoch = asked.current_leader_epoch != UNDEFINED_EPOCH
        return Error.UNKNOWN_LEADER_EPOCH if names_epoch else Error.NOT_LEADER_OR_FOLLOWER
    return _range_error(partition.log, asked)


def _may_fetch(partition: Partition, replica_id: int) -> bool:
    """Consumers may; of brokers, those alone that have the partition."""
    if is_consumer(replica_id):
        return True
    assert isinstance(partition.role, Leader)
    return replica_id in partition.role.remotes


def _range_error(log: UnifiedLog, asked: FetchedPartition) -> Error:
    """A follower that diverges may be longer than its leader: it learns where to cut."""
    if asked.last_fetched_epoch != UNDEFINED_EPOCH and _end_of_last_fetched(log, asked) is None:
        return Error.OFFSET_OUT_OF_RANGE
    if asked.fetch_offset < log.start_offset:
        return Error.OFFSET_OUT_OF_RANGE
    if asked.fetch_offset > log.end_offset and diverging_epoch(log, asked) is None:
        return Error.OFFSET_OUT_OF_RANGE
    return Error.NONE


def _is_of_an_earlier_registration(broker: Broker, event: FetchRequested) -> bool:
    """A follower that has registered again since: what it had then says nothing (KIP-903)."""
    if not broker.rules.isr_names_broker_epochs or event.broker_epoch == UNKNOWN_BROKER_EPOCH:
        return False
    registration = broker.metadata.brokers.get(event.replica_id)
    return registration is not None and event.broker_epoch < registration.epoch


@rule
def diverging_epoch(log: UnifiedLog, asked: FetchedPartition) -> EpochEnd | None:
    """Where whoever fetches has another history than this leader; None: nothing shows that.

    Rule (KIP-595): it names the epoch of its last record. This leader must know that epoch, and
    have it up to the fetch offset at least.
    """
    if asked.last_fetched_epoch == UNDEFINED_EPOCH:
        return None
    end = _end_of_last_fetched(log, asked)
    if end is None:
        return None
    diverges = end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset
    return end if diverges else None


@rule
def shows_log_end_offset(log: UnifiedLog, asked: FetchedPartition) -> bool:
    """Whether a fetch offset shows how much of this log a follower has (KAFKA-13141).

    One that diverges has another log, however long that is.
    """
    return diverging_epoch(log, asked) is None


def _end_of_last_fetched(log: UnifiedLog, asked: FetchedPartition) -> EpochEnd | None:
    """None: this leader cannot say, because the epoch is after all that it knows."""
    end = largest_epoch_up_to(log.epochs, asked.last_fetched_epoch, log.end_offset)
    return None if end == UNKNOWN_END else end


@rule
def readable_end(partition: Partition, replica_id: int, *, is_committed: bool = False) -> int:
    """Followers read to the log end offset, consumers to the high watermark (F7), or, where they
    want committed records alone, to the last stable offset."""
    if is_consumer(replica_id):
        return last_stable_offset(partition) if is_committed else partition.high_watermark
    assert isinstance(partition.role, Leader)
    # A broker that is no assigned replica gets nothing (F12); later ones refuse it before this.
    return partition.log.end_offset if replica_id in partition.role.remotes else 0


def _is_held_back(led: Partition, event: FetchRequested, asked: FetchedPartition) -> bool:
    """So that nobody leaves the ISR for it, who is in sync is not throttled."""
    return asked.partition in event.throttled and event.replica_id not in isr_of(led)


@rule
def preferred_read_replica(
    broker: Broker, event: FetchRequested, asked: FetchedPartition
) -> int | None:
    """The follower to which this leader sends a consumer, as Kafka's RackAwareReplicaSelector.

    Rule (KIP-392): one in the consumer's rack that has the offset; of several the one with the
    longest log, then the one that caught up last. None: the leader serves the consumer itself.
    """
    led = broker.led(asked.partition)
    if not (broker.settings.replica_selector_class and event.rack and led is not None):
        return None
    assert isinstance(led.role, Leader)

    def is_near(replica_id: int) -> bool:
        registration = broker.metadata.brokers.get(replica_id)
        return registration is not None and registration.rack == event.rack

    in_isr = isr_of(led)
    found = [
        (remote.log_end_offset, remote.last_caught_up_time_ms, replica_id)
        for replica_id, remote in led.role.remotes.items()
        if is_near(replica_id)
        and remote.log_start_offset <= asked.fetch_offset <= remote.log_end_offset
        and (replica_id in in_isr or not broker.rules.prefers_in_sync_replicas)
    ]
    return None if is_near(broker.broker_id) or not found else max(found)[-1]


@rule
def shown_log_start(led: Partition) -> int:
    return led.log.start_offset


@rule
def respond(
    broker: Broker,
    message: FetchRequested,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
) -> None:
    """`high_watermarks`: those that the answer carries; None: those of now."""
    results = []
    for asked in message.partitions:
        error = fetch_error(broker, message, asked)
        partition = _reading(broker, message, asked)
        if partition is None:
            results.append(FetchedResult(asked.partition, error, UNKNOWN, UNKNOWN, None))
            continue
        preferred = preferred_read_replica(broker, message, asked)
        end = readable_end(partition, message.replica_id, is_committed=message.is_committed)
        diverging = diverging_epoch(partition.log, asked) if error is Error.NONE else None
        is_here = error is Error.NONE and diverging is None and preferred is None
        is_here = is_here and not _is_held_back(partition, message, asked)
        readable = is_here and asked.fetch_offset < end
        results.append(
            FetchedResult(
                asked.partition,
                error,
                partition.high_watermark
                if high_watermarks is None
                else high_watermarks[asked.partition],
                shown_log_start(partition),
                LogSlice(asked.fetch_offset, end, asked.max_bytes) if readable else None,
                diverging,
                last_stable_offset(partition),
                UNKNOWN if preferred is None or error is not Error.NONE else preferred,
            )
        )
    broker.do(RespondFetch(message.request, tuple(results)))


# --- waiting for records -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchBaseline:
    """What a fetch could have read of a partition when it was parked."""

    bytes_available: int
    appended_bytes: int


@dataclass(frozen=True, slots=True)
class DelayedFetch:
    """A fetch that found too little to read."""

    message: FetchRequested
    baselines: Mapping[TopicPartition, FetchBaseline]

    @property
    def request(self) -> int:
        return self.message.request

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        return tuple(self.baselines)

    def updated(self, broker: Broker) -> DelayedFetch:
        return self

    def is_complete(self, broker: Broker) -> bool:
        """Whether an answer is due: nothing was asked for, an error or a diverging epoch shows,
        another replica is to be asked, or enough is there."""
        readable = 0
        for asked in self.message.partitions:
            partition = _reading(broker, self.message, asked)
            error = fetch_error(broker, self.message, asked)
            if partition is None or error is not Error.NONE:
                return True
            if preferred_read_replica(broker, self.message, asked) is not None:
                return True
            if diverging_epoch(partition.log, asked) is not None:
                return True
            if _is_held_back(partition, self.message, asked):
                continue
            readable += bytes_readable(
                partition,
                fetch_offset=asked.fetch_offset,
                end=readable_end(
                    partition, self.message.replica_id, is_committed=self.message.is_committed
                ),
                baseline=self.baselines[asked.partition],
            )
        return not self.message.partitions or readable >= self.message.min_bytes

    def complete(self, broker: Broker) -> None:
        respond(broker, self.message)


def bytes_readable(
    partition: Partition, *, fetch_offset: int, end: int, baseline: FetchBaseline
) -> int:
    """How much a fetch could read now; 0 where nothing lies between its offset and `end`.

    Above the high watermark a consumer reads nothing; what lies below it is not measured apart
    from what lies above, so this can be too large by what is not yet committed.
    """
    if fetch_offset >= end:
        return 0
    arrived = partition.log.appended_bytes - baseline.appended_bytes
    return max(1, baseline.bytes_available + arrived)
