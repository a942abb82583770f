"""Kafka's requests, as kio decodes them, to events of the core. Pure functions.

Records of a produce request stay with the shell: the event names them by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    TopicPartition,
    is_topic_name,
)
from neaptide.clusters.broker.server.produced import produced_batch
from neaptide.clusters.broker.storage import offset_commits
from neaptide.clusters.broker.storage.record_writer import record_batch
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import MalformedMessageError


def milliseconds(duration: Any) -> int:
    return int(duration.total_seconds() * 1000)


def produce(
    request: int,
    entity: Any,
    version: int,
    append_time_ms: Callable[[TopicPartition], int | None],
    *,
    names_invalid_records: bool,
    at_once: bool = False,
) -> events.ProduceRequested:
    """`append_time_ms`: which time the records of a partition get; None: they have their own.

    Raises TooMuchAtOnceError where validating it would take long, and that is not wanted.
    """

    def batch(topic_partition: TopicPartition, records: bytes) -> events.ProducedBatch:
        return produced_batch(
            records,
            version,
            append_time_ms(topic_partition),
            names_invalid_records=names_invalid_records,
            at_once=at_once,
        )

    partitions = (
        (TopicPartition(str(topic.name), int(partition.index)), bytes(partition.records or b""))
        for topic in entity.topic_data
        for partition in topic.partition_data
    )
    return events.ProduceRequested(
        request,
        int(entity.acks),
        milliseconds(entity.timeout),
        tuple((one, (batch(one, records),)) for one, records in partitions),
    )


def init_producer_id(request: int, entity: Any) -> events.InitProducerIdRequested:
    """The id that a producer has had already (v3) counts only for transactions."""
    return events.InitProducerIdRequested(
        request, None if entity.transactional_id is None else str(entity.transactional_id)
    )


def find_coordinator(request: int, entity: Any) -> events.FindCoordinatorRequested:
    return events.FindCoordinatorRequested(
        request, str(entity.key), is_transaction=bool(getattr(entity, "key_type", 0))
    )


def offset_commit(
    request: int, entity: Any, now_ms: int, *, with_epoch: bool
) -> events.OffsetCommitRequested:
    """The record batch of `__consumer_offsets` is made here: the core knows no bytes."""
    group = str(entity.group_id)
    committed = tuple(
        OffsetCommitRecord(
            group,
            TopicPartition(str(topic.name), int(partition.partition_index)),
            OffsetAndMetadata(
                int(partition.committed_offset),
                int(getattr(partition, "committed_leader_epoch", -1)),
                str(partition.committed_metadata or ""),
            ),
        )
        for topic in entity.topics
        for partition in topic.partitions
    )
    batch = events.ProducedBatch(0, 0, b"", Error.CORRUPT_MESSAGE)
    if committed:
        encoded = [offset_commits.encode(one, now_ms, with_epoch=with_epoch) for one in committed]
        data = record_batch(encoded, now_ms)
        batch = events.ProducedBatch(len(committed), len(data), data)
    return events.OffsetCommitRequested(
        request, group, int(entity.generation_id_or_member_epoch), committed, batch
    )


def offset_fetch(request: int, entity: Any) -> events.OffsetFetchRequested:
    partitions = None
    if entity.topics is not None:
        partitions = tuple(
            TopicPartition(str(topic.name), int(partition))
            for topic in entity.topics
            for partition in topic.partition_indexes
        )
    return events.OffsetFetchRequested(request, str(entity.group_id), partitions)


def fetch(
    request: int, entity: Any, bytes_available: Callable[[TopicPartition, int], int]
) -> events.FetchRequested:
    min_bytes = int(entity.min_bytes)
    asked = []
    for topic in entity.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(str(topic.topic), int(partition.partition))
            offset = int(partition.fetch_offset)
            # Measured only where it matters: one byte is there, or nothing is.
            available = bytes_available(topic_partition, offset) if min_bytes > 1 else 0
            asked.append(
                events.FetchedPartition(
                    topic_partition,
                    offset,
                    int(partition.partition_max_bytes),
                    bytes_available=available,
                    log_start_offset=int(getattr(partition, "log_start_offset", -1)),
                    current_leader_epoch=int(getattr(partition, "current_leader_epoch", -1)),
                )
            )
    return events.FetchRequested(
        request,
        int(entity.replica_id),
        milliseconds(entity.max_wait),
        min_bytes,
        tuple(asked),
    )


def list_offsets(request: int, entity: Any) -> events.ListOffsetsRequested:
    return events.ListOffsetsRequested(
        request,
        int(entity.replica_id),
        tuple(
            events.OffsetAsked(
                TopicPartition(str(topic.name), int(partition.partition_index)),
                int(partition.timestamp),
                int(getattr(partition, "current_leader_epoch", -1)),
            )
            for topic in entity.topics
            for partition in topic.partitions
        ),
    )


def offset_for_leader_epoch(request: int, entity: Any) -> events.OffsetForLeaderEpochRequested:
    return events.OffsetForLeaderEpochRequested(
        request,
        tuple(
            events.EpochAsked(
                TopicPartition(str(topic.topic), int(partition.partition)),
                int(partition.leader_epoch),
                int(partition.current_leader_epoch),
            )
            for topic in entity.topics
            for partition in topic.partitions
        ),
    )


def create_topics(request: int, entity: Any) -> events.CreateTopicsRequested:
    return events.CreateTopicsRequested(
        request,
        tuple(
            events.NewTopic(
                str(topic.name),
                int(topic.num_partitions),
                int(topic.replication_factor),
                {
                    int(given.partition_index): tuple(int(b) for b in given.broker_ids)
                    for given in topic.assignments
                },
                {str(given.name): str(given.value or "") for given in topic.configs},
            )
            for topic in entity.topics
        ),
        milliseconds(entity.timeout),
        bool(entity.validate_only),
    )


# --- of the controller ---------------------------------------------------------------------------


def leader_and_isr(request: int, entity: Any, listener: str) -> events.LeaderAndIsrRequested:
    """Without the topics' settings, which the request does not have."""
    return events.LeaderAndIsrRequested(
        request,
        int(entity.controller_id),
        int(entity.controller_epoch),
        _partition_states(entity.topic_states),
        tuple(
            BrokerRegistration(
                int(live.broker_id), (Endpoint(listener, str(live.host), int(live.port)),)
            )
            for live in entity.live_leaders
        ),
        broker_epoch=int(entity.broker_epoch),
    )


def update_metadata(request: int, entity: Any) -> events.UpdateMetadataRequested:
    return events.UpdateMetadataRequested(
        request,
        int(entity.controller_id),
        int(entity.controller_epoch),
        _partition_states(entity.topic_states),
        tuple(
            BrokerRegistration(
                int(live.broker_id),
                tuple(
                    Endpoint(str(end.listener), str(end.host), int(end.port))
                    for end in live.endpoints
                ),
                live.rack,
            )
            for live in entity.live_brokers
        ),
        broker_epoch=int(entity.broker_epoch),
    )


def stop_replica(request: int, entity: Any) -> events.StopReplicaRequested:
    return events.StopReplicaRequested(
        request,
        int(entity.controller_id),
        int(entity.controller_epoch),
        bool(entity.delete_partitions),
        tuple(
            _replica(topic.topic, partition)
            for topic in entity.topics
            for partition in topic.partitions
        ),
        broker_epoch=int(entity.broker_epoch),
    )


def _replica(topic: Any, partition: Any) -> TopicPartition:
    """A replica has a directory of its name: what is no topic's name must not become one."""
    if not is_topic_name(str(topic)) or int(partition) < 0:
        raise MalformedMessageError(f"no partition is called {topic}-{partition}")
    return TopicPartition(str(topic), int(partition))


def _partition_states(topic_states: Iterable[Any]) -> tuple[events.PartitionState, ...]:
    return tuple(
        events.PartitionState(
            _replica(topic.topic, partition.partition),
            LeaderAndIsr(
                int(partition.leader),
                int(partition.leader_epoch),
                tuple(int(b) for b in partition.isr),
                int(partition.controller_epoch),
                int(partition.zk_version),
            ),
            tuple(int(b) for b in partition.replicas),
            {},
        )
        for topic in topic_states
        for partition in topic.partitions
    )


# Requests of which nothing else need be known.
PLAIN: Final[Mapping[Api, Callable[[int, Any], object]]] = {
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.OFFSET_FETCH: offset_fetch,
    Api.LIST_OFFSETS: list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.CREATE_TOPICS: create_topics,
    Api.UPDATE_METADATA: update_metadata,
    Api.STOP_REPLICA: stop_replica,
}
