"""What a leader does about DeleteRecords (KIP-107): move its log start, and answer when all have.

As Kafka's ReplicaManager.deleteRecords and its DelayedDeleteRecords. Followers learn the log start
from the leader's responses, and say theirs with each fetch; the least of those that live is the
low watermark. Nothing above the high watermark goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import (
    AdvanceLogStartOffset,
    DeletedRecords,
    RespondDeleteRecords,
)
from neaptide.clusters.broker.replication.interface.events import DeleteRecordsRequested
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition import unified_log
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
)

TO_HIGH_WATERMARK = -1
UNKNOWN = -1


def on_delete_records(broker: Broker, event: DeleteRecordsRequested, now_ms: int) -> None:
    asked = {place: _delete(broker, place, offset, now_ms) for place, offset in event.partitions}
    waiting = DelayedDeleteRecords(event.request, asked)
    purgatory.complete_or_park(broker, waiting, event.timeout_ms)


@dataclass(frozen=True, slots=True)
class _Deletion:
    """One partition: done when the low watermark is at `before_offset`. `error` None: it waits."""

    error: Error | None
    before_offset: int = UNKNOWN
    low_watermark: int = UNKNOWN


def _delete(broker: Broker, topic_partition: TopicPartition, offset: int, now_ms: int) -> _Deletion:
    if topic_partition.topic in INTERNAL_TOPICS:
        return _Deletion(Error.INVALID_TOPIC_EXCEPTION)
    partition = broker.led(topic_partition)
    if partition is None:
        return _Deletion(leader_error(broker, topic_partition))
    before = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= before <= partition.high_watermark:
        return _Deletion(Error.OFFSET_OUT_OF_RANGE)
    epochs = partition.log.epochs
    log = unified_log.advance_start_offset(
        partition.log, before, forgets_producers=broker.rules.forgets_deleted_producers
    )
    if log is not partition.log:
        broker.do(AdvanceLogStartOffset(topic_partition, log.start_offset))
        broker.write_epochs(broker.put(replace(partition, log=log)), epochs)
        purgatory.complete_delayed(broker, topic_partition, now_ms)
    return _Deletion(None, before)


@dataclass(frozen=True, slots=True)
class DelayedDeleteRecords:
    """Waits until all replicas that live have deleted what is to go."""

    request: int
    asked: Mapping[TopicPartition, _Deletion]

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        return tuple(self.asked)

    def updated(self, broker: Broker) -> DelayedDeleteRecords:
        found = {place: _outcome(broker, place, one) for place, one in self.asked.items()}
        return replace(self, asked=found)

    def is_complete(self, broker: Broker) -> bool:
        return all(one.error is not None for one in self.asked.values())

    def complete(self, broker: Broker) -> None:
        """One that still waits has run out of time."""
        results = tuple(
            DeletedRecords(place, Error.NONE, one.low_watermark)
            if one.error is Error.NONE
            else DeletedRecords(place, one.error or Error.REQUEST_TIMED_OUT, UNKNOWN)
            for place, one in self.asked.items()
        )
        broker.do(RespondDeleteRecords(self.request, results))


def _outcome(broker: Broker, topic_partition: TopicPartition, asked: _Deletion) -> _Deletion:
    if asked.error is not None:
        return asked
    partition = broker.led(topic_partition)
    if partition is None:
        is_offline = topic_partition in broker.offline
        lost = Error.KAFKA_STORAGE_ERROR if is_offline else Error.NOT_LEADER_OR_FOLLOWER
        return replace(asked, error=lost)
    low = low_watermark(broker, partition)
    is_done = low >= asked.before_offset
    return replace(asked, low_watermark=low, error=Error.NONE if is_done else None)


@rule
def low_watermark(broker: Broker, partition: Partition) -> int:
    """The least log start of the replicas that live, as far as this leader knows."""
    assert isinstance(partition.role, Leader)
    live = broker.metadata.brokers
    others = (one.log_start_offset for i, one in partition.role.remotes.items() if i in live)
    return min((partition.log.start_offset, *others))
