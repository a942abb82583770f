"""CreatePartitions: a topic gets more of them. Answered when the new ones have leaders (KIP-195).

As Kafka's AdminManager.createPartitions: what of a topic there is stays as it is, and the new
partitions have as many replicas. Each is a write of the topic's assignment; from its answer on the
controller decides about the partition as about any other that has no state yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    PartitionCreation,
)
from neaptide.clusters.broker.replication.controller.replica_assignment import assign_replicas
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AssignmentWritten,
    WriteAssignment,
)
from neaptide.clusters.broker.replication.interface.effects import (
    RespondCreatePartitions,
    TopicResult,
)
from neaptide.clusters.broker.replication.interface.events import (
    CreatePartitionsRequested,
    NewPartitions,
)
from neaptide.clusters.broker.replication.model import (
    ReplicaAssignment,
    TopicPartition,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    INTERNAL_TOPICS,
)

Added = Mapping[int, tuple[int, ...]]
# Each is a write of the whole topic's assignment: for more of them all others would wait.
ADDED_MAX: Final = 1_000


class _InvalidPartitionsError(Exception):
    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.error = error


def on_create_partitions(broker: Broker, event: CreatePartitionsRequested, now_ms: int) -> None:
    """Each topic is refused or begun by itself; one answer waits for all of them."""
    controller = broker.controller
    if not isinstance(controller, Active):
        refused = (TopicResult(new.topic, Error.NOT_CONTROLLER) for new in event.topics)
        broker.do(RespondCreatePartitions(event.request, tuple(refused)))
        return
    named = Counter(new.topic for new in event.topics)
    results: dict[str, TopicResult | None] = {}
    added: dict[str, Added] = {}
    for new in event.topics:
        try:
            if named[new.topic] > 1:
                raise _InvalidPartitionsError(
                    Error.INVALID_REQUEST, "the request names the topic twice"
                )
            wanted = _added(broker, controller, new)
        except _InvalidPartitionsError as invalid:
            results[new.topic] = TopicResult(new.topic, invalid.error, str(invalid))
            continue
        results[new.topic] = TopicResult(new.topic, Error.NONE) if event.validate_only else None
        if not event.validate_only:
            added[new.topic] = wanted
    creation = PartitionCreation(event.request, results, added)
    pending.begin(broker, creation, event.timeout_ms)
    for topic, partitions in added.items():
        for number, replicas in partitions.items():
            _write(broker, controller, TopicPartition(topic, number), replicas)


def _write(
    broker: Broker, controller: Active, place: TopicPartition, replicas: tuple[int, ...]
) -> None:
    rules = broker.rules
    broker.coordinate(
        WriteAssignment(
            place,
            ReplicaAssignment(replicas),
            controller.controller_epoch,
            rules.keeps_reassignments_in_topics,
            rules.fences_controller_writes,
        )
    )


def _added(broker: Broker, controller: Active, new: NewPartitions) -> Added:
    """The new partitions with their replicas. Raises _InvalidPartitionsError with Kafka's error."""
    known = controller.topics.get(new.topic)
    if known is None:
        raise _InvalidPartitionsError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {new.topic}")
    if new.topic in INTERNAL_TOPICS:
        # A group, or a transactional id, would have another coordinator from then on.
        raise _InvalidPartitionsError(
            Error.INVALID_TOPIC_EXCEPTION, f"{new.topic} keeps the partitions that it has"
        )
    if any(new.topic in one.added for one in pending.waiting(broker, PartitionCreation)):
        raise _InvalidPartitionsError(Error.INVALID_REQUEST, "partitions of it are being created")
    if any(place.topic == new.topic for place in controller.reassignments.ongoing):
        raise _InvalidPartitionsError(
            Error.REASSIGNMENT_IN_PROGRESS, f"a partition of {new.topic} is being reassigned"
        )
    count = len(known.assignment)
    if new.total_count <= count:
        raise _InvalidPartitionsError(
            Error.INVALID_PARTITIONS,
            f"{new.topic} has {count} partitions, {new.total_count} are wanted",
        )
    if new.total_count - count > ADDED_MAX:
        raise _InvalidPartitionsError(
            Error.POLICY_VIOLATION, f"at most {ADDED_MAX} partitions are added at a time"
        )
    replicas = len(known.assignment[0])
    if new.assignments is not None:
        return _checked(controller, new, count, replicas)
    if replicas > len(controller.brokers):
        raise _InvalidPartitionsError(
            Error.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas}, but {len(controller.brokers)} brokers live",
        )
    racks = {broker_id: one.rack for broker_id, one in controller.brokers.items()}
    brokers = tuple(controller.brokers)
    assignment = assign_replicas(new.topic, brokers, new.total_count, replicas, racks)
    return {number: assignment[number] for number in range(count, new.total_count)}


def _checked(controller: Active, new: NewPartitions, count: int, replicas: int) -> Added:
    assert new.assignments is not None
    if len(new.assignments) != new.total_count - count:
        raise _InvalidPartitionsError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{new.total_count - count} partitions are added, {len(new.assignments)} are assigned",
        )
    for assigned in new.assignments:
        if len(assigned) != replicas or len(set(assigned)) != replicas:
            raise _InvalidPartitionsError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"each partition of {new.topic} has {replicas} replicas, on different brokers",
            )
        if not controller.brokers.keys() >= set(assigned):
            raise _InvalidPartitionsError(
                Error.INVALID_REPLICA_ASSIGNMENT, "a broker that is named does not live"
            )
    return dict(enumerate(new.assignments, start=count))


def on_assignment_written(broker: Broker, event: AssignmentWritten) -> bool:
    """Whether it was the write of a partition that is being created, also where nobody waits for
    that any more."""
    controller = broker.active_controller
    topic, number = event.partition
    known = controller.topics.get(topic) if controller is not None else None
    if controller is None or event.partition in controller.reassignments.written:
        return False
    if event.error is not Error.NONE:
        _fail(broker, event)
        return True
    if known is None or number in known.assignment:
        return False
    assignment = {**known.assignment, number: event.assignment.replicas}
    topics = {**controller.topics, topic: replace(known, assignment=assignment)}
    broker.controller = replace(controller, topics=topics)
    return True


def _fail(broker: Broker, event: AssignmentWritten) -> None:
    controller = broker.active_controller
    assert controller is not None
    topic, number = event.partition
    failed = TopicResult(topic, event.error)
    for one in pending.waiting(broker, PartitionCreation):
        if number in one.added.get(topic, {}):
            pending.give(broker, one.request, topic, failed)
    complete_growths(broker)


def complete_growths(broker: Broker) -> None:
    """Answers the requests whose new partitions all have leaders, or whose topics have errors."""

    def added(creation: PartitionCreation, topic: str) -> TopicResult | None:
        have_leaders = broker.metadata.have_leaders(topic, creation.added[topic])
        return TopicResult(topic, Error.NONE) if have_leaders else None

    pending.settle(broker, PartitionCreation, added)
