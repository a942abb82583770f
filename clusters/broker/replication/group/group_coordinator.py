"""What clients request of a group's coordinator: who it is, to commit, to read what is committed.

Not membership: see group_membership. A group may have no name here, which Kafka still takes.
Source: Kafka's GroupCoordinator (G1, G3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    answer_commit,
    append_records,
    coordinated,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondFindCoordinator,
    RespondOffsetFetch,
)
from neaptide.clusters.broker.replication.interface.events import (
    FindCoordinatorRequested,
    OffsetCommitRequested,
    OffsetFetchRequested,
)
from neaptide.clusters.broker.replication.leader import produce, purgatory
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition
from neaptide.clusters.broker.replication.replicas.metadata_cache import MetadataCache
from neaptide.clusters.broker.replication.rule import rule

NO_COORDINATOR = -1
NO_GENERATION = -1


def coordinator_of(metadata: MetadataCache, group: str) -> int | None:
    """Who leads the group's partition, as far as a broker knows; None: nobody, or it is not there.

    By all partitions that the topic has: of those that are known already the group's may be none.
    """
    partitions = metadata.topics.get(OFFSETS_TOPIC)
    if not partitions or not metadata.offsets_partitions:
        return None
    known = partitions.get(partition_for(group, metadata.offsets_partitions).partition)
    if known is None or known.state.leader == NO_LEADER:
        return None
    return known.state.leader


def on_find_coordinator(broker: Broker, event: FindCoordinatorRequested, now_ms: int) -> None:
    """The first who asks has the topic made; nobody coordinates before it is there."""
    if event.is_transaction:
        broker.note(f"FindCoordinator of {event.group!r}: there are no transactions here")
        broker.do(RespondFindCoordinator(event.request, Error.INVALID_REQUEST, NO_COORDINATOR))
        return
    coordinator = coordinator_of(broker.metadata, event.group)
    if coordinator is not None and coordinator in broker.metadata.brokers:
        broker.do(RespondFindCoordinator(event.request, Error.NONE, coordinator))
        return
    if OFFSETS_TOPIC not in broker.metadata.topics:
        topic_creation.create_offsets_topic(broker)
    unknown = Error.COORDINATOR_NOT_AVAILABLE
    broker.do(RespondFindCoordinator(event.request, unknown, NO_COORDINATOR))


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
    waiting = DelayedCommit(event.request, topic_partition, appended, event.committed)
    waiting = waiting.updated(broker)
    if waiting.is_complete(broker):
        waiting.complete(broker)
    else:
        purgatory.park(broker, waiting, broker.settings.offsets_commit_timeout_ms)


@dataclass(frozen=True, slots=True)
class DelayedCommit:
    """Offsets of a group whose record is not yet below the high watermark."""

    request: int
    partition: TopicPartition  # of `__consumer_offsets`
    appended: Appended
    committed: tuple[OffsetCommitRecord, ...]

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        return (self.partition,)

    def updated(self, broker: Broker) -> DelayedCommit:
        return replace(self, appended=produce.with_outcome(broker, self.partition, self.appended))

    def is_complete(self, broker: Broker) -> bool:
        return self.appended.error is not None

    @rule
    def complete(self, broker: Broker) -> None:
        """One that still waits has run out of time."""
        error = self.appended.error
        if error is None:
            error = Error.REQUEST_TIMED_OUT
        answer_commit(broker, self.request, self.partition, self.committed, error)


def on_offset_fetch(broker: Broker, event: OffsetFetchRequested, now_ms: int) -> None:
    topic_partition, error = coordinated(broker, event.group)
    known = broker.committed_offsets[topic_partition] if error is Error.NONE else {}
    wanted = event.partitions
    if wanted is None:
        wanted = tuple(sorted(tp for group, tp in known if group == event.group))
    none = OffsetAndMetadata(INVALID_OFFSET)
    results = tuple((tp, known.get((event.group, tp), none)) for tp in wanted)
    broker.do(RespondOffsetFetch(event.request, error, results))
