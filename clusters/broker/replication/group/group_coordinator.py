"""What clients request of a group's coordinator: who it is, to commit, to read what is committed.

FindCoordinator of transactional ids is here, too.

Not membership: see group_membership. A group may have no name here, which Kafka still takes.
Source: Kafka's GroupCoordinator (G1, G3).
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import topic_creation
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    INVALID_OFFSET,
    OFFSETS_TOPIC,
    OffsetAndMetadata,
    OffsetCommitRecord,
    partition_for,
)
from neaptide.clusters.broker.replication.group.group_membership import commit_error
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    add_pending,
    answer_commit,
    answer_to,
    append_records,
    coordinated,
    forget_pending,
)
from neaptide.clusters.broker.replication.interface.effects import (
    FetchedOffsets,
    FoundCoordinator,
    RespondFindCoordinator,
    RespondOffsetFetch,
    RespondTxnOffsetCommit,
)
from neaptide.clusters.broker.replication.interface.events import (
    FindCoordinatorRequested,
    OffsetCommitRequested,
    OffsetFetchRequested,
    TxnOffsetCommitRequested,
    WantedOffsets,
)
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.leader.produce import DelayedRecord
from neaptide.clusters.broker.replication.model import NO_LEADER, ProducerSequence
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
)

NO_COORDINATOR = -1
NO_GENERATION = -1


def coordinator_of(metadata: MetadataCache, name: str, topic: str = OFFSETS_TOPIC) -> int | None:
    """Who leads the partition of a group, or, in `__transaction_state`, of a transactional id, as
    far as a broker knows; None: nobody, or it is not there.

    By all partitions that the topic has: of those that are known already its own may be none.
    """
    partitions, count = metadata.topics.get(topic), metadata.partition_counts.get(topic)
    if not partitions or not count:
        return None
    known = partitions.get(partition_for(name, count).partition)
    if known is None or known.state.leader == NO_LEADER:
        return None
    return known.state.leader


def on_find_coordinator(broker: Broker, event: FindCoordinatorRequested, now_ms: int) -> None:
    """The first who asks has the topic made; nobody coordinates before it is there."""
    topic = TRANSACTIONS_TOPIC if event.is_transaction else OFFSETS_TOPIC
    if event.is_transaction and broker.rules.idempotence is None:
        broker.note(f"FindCoordinator of {event.names!r}: there are no transactions here")
        error = Error.INVALID_REQUEST
        found = tuple(FoundCoordinator(name, error, NO_COORDINATOR) for name in event.names)
    else:
        found = tuple(_found(broker.metadata, name, topic) for name in event.names)
        if event.names and topic not in broker.metadata.topics:
            topic_creation.create_internal_topic(broker, topic)
    broker.do(RespondFindCoordinator(event.request, found))


def _found(metadata: MetadataCache, name: str, topic: str) -> FoundCoordinator:
    coordinator = coordinator_of(metadata, name, topic)
    if coordinator is not None and coordinator in metadata.brokers:
        return FoundCoordinator(name, Error.NONE, coordinator)
    return FoundCoordinator(name, Error.COORDINATOR_NOT_AVAILABLE, NO_COORDINATOR)


@rule
def on_offset_commit(broker: Broker, event: OffsetCommitRequested, now_ms: int) -> None:
    """Appends the offsets, and answers when they are as safe as is asked for."""
    topic_partition, error = coordinated(broker, event.group)
    if error is Error.NONE:
        error = commit_error(
            broker, event.group, event.member_id, event.group_instance_id, event.generation_id
        )
    if error is not Error.NONE:
        answer_commit(broker, event.request, topic_partition, event.committed, error)
        return
    if not event.committed:
        answer_commit(broker, event.request, topic_partition, (), Error.NONE)
        return
    appended = append_records(broker, topic_partition, event.committed, now_ms)
    forget_pending(broker, topic_partition, event.committed)
    waiting = DelayedCommit(event.request, topic_partition, appended, event.committed)
    purgatory.complete_or_park(broker, waiting, broker.settings.offsets_commit_timeout_ms)


@rule
def on_txn_offset_commit(broker: Broker, event: TxnOffsetCommitRequested, now_ms: int) -> None:
    """Appends the offsets in the producer's transaction. They are committed with it, not before."""
    topic_partition, error = coordinated(broker, event.group)
    is_of_member = event.generation_id >= 0 or event.member_id or event.group_instance_id
    if error is Error.NONE and is_of_member:
        error = commit_error(
            broker, event.group, event.member_id, event.group_instance_id, event.generation_id
        )
    if error is Error.STALE_MEMBER_EPOCH:
        error = Error.ILLEGAL_GENERATION  # TxnOffsetCommit has no other word for it
    if error is not Error.NONE:
        failed = tuple((one.partition, error) for one in event.committed)
        broker.do(RespondTxnOffsetCommit(event.request, failed))
        return
    if not event.committed:
        broker.do(RespondTxnOffsetCommit(event.request, ()))
        return
    producer = ProducerSequence(event.producer_id, event.producer_epoch, 0, is_transactional=True)
    records = event.committed
    appended = append_records(broker, topic_partition, records, now_ms, producer)
    if appended.error in (None, Error.NONE):
        add_pending(broker, topic_partition, event.producer_id, records)
    waiting = DelayedCommit(event.request, topic_partition, appended, records, is_pending=True)
    purgatory.complete_or_park(broker, waiting, broker.settings.offsets_commit_timeout_ms)


@dataclass(frozen=True, slots=True)
class DelayedCommit(DelayedRecord):
    """Offsets of a group, in `__consumer_offsets`."""

    committed: tuple[OffsetCommitRecord, ...]
    is_pending: bool = False  # in a transaction: committed once that is

    @rule
    def complete(self, broker: Broker) -> None:
        error = self.outcome
        if self.is_pending:
            answer = answer_to(error)
            results = tuple((one.partition, answer) for one in self.committed)
            broker.do(RespondTxnOffsetCommit(self.request, results))
            return
        answer_commit(broker, self.request, self.partition, self.committed, error)


def on_offset_fetch(broker: Broker, event: OffsetFetchRequested, now_ms: int) -> None:
    fetched = (_fetched(broker, one, is_stable=event.is_stable) for one in event.groups)
    broker.do(RespondOffsetFetch(event.request, tuple(fetched)))


def _fetched(broker: Broker, asked: WantedOffsets, *, is_stable: bool) -> FetchedOffsets:
    topic_partition, error = coordinated(broker, asked.group)
    group = broker.consumer_groups.get(asked.group)
    is_of_member = asked.member_id or asked.member_epoch >= 0
    if error is Error.NONE and group is not None and is_of_member:
        error = group.epoch_error(asked.member_id, asked.member_epoch)
    known = broker.committed_offsets[topic_partition] if error is Error.NONE else {}
    wanted = asked.partitions
    if wanted is None:
        wanted = tuple(sorted(tp for name, tp in known if name == asked.group))
    none = OffsetAndMetadata(INVALID_OFFSET)
    pending = broker.pending_offsets.get(topic_partition, {}) if is_stable else {}
    decided_later = {(one.group, one.partition) for of in pending.values() for one in of}
    unstable = tuple(tp for tp in wanted if (asked.group, tp) in decided_later)
    results = tuple((tp, known.get((asked.group, tp), none)) for tp in wanted)
    return FetchedOffsets(asked.group, error, results, unstable)
