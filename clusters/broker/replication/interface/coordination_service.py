"""What the core requests of the coordination service (effects), and what it answers (events).

Paths, JSON, watches and sessions belong to the driver (ZooKeeper by kazoo, or the simulation's
service in memory). The core speaks in the terms of Kafka's controller: every request names its
condition (an expected version, a controller epoch), every answer says whether it held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicConfiguration,
    TopicPartition,
)

# --- asked by the core (effects) ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TryBecomeController:
    """Create the ephemeral `/controller`; the winner then increments `/controller_epoch`.

    Answered by ControllerElected (won) or ControllerChanged (another one holds it).
    """


@dataclass(frozen=True, slots=True)
class ResignController:
    """Delete `/controller` where it is still this broker's, and stop the controller's watches."""


@dataclass(frozen=True, slots=True)
class LoadCluster:
    """Read all that a new controller must know, with watches set; answered by ClusterLoaded.

    `gives_topic_ids`: a topic without an id gets one before it is reported, now and whenever a new
    one is found in this controller epoch.
    """

    controller_epoch: int
    gives_topic_ids: bool = False


@dataclass(frozen=True, slots=True)
class ReadLeaderAndIsr:
    """Read partition states; answered by LeaderAndIsrRead.

    `is_watched`: the next change of each is reported once (LeaderAndIsrChanged).
    """

    partitions: tuple[TopicPartition, ...]
    is_watched: bool = False


@dataclass(frozen=True, slots=True)
class WriteLeaderAndIsr:
    """Write a partition's state if its version is still `state.version` (-1: create it).

    Written by a controller (`by_controller`), or by a leader that changes its ISR. One that
    `is_fenced` also requires that `/controller_epoch` still is `state.controller_epoch`.
    Answered by LeaderAndIsrWritten or LeaderAndIsrConflict.
    """

    partition: TopicPartition
    state: LeaderAndIsr
    by_controller: bool
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class NotifyIsrChange:
    """Create a sequential `/isr_change_notification/isr_change_` that names these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteIsrChangeNotifications:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotifyLogDirEvent:
    """Create a sequential `/log_dir_event_notification/log_dir_event_` that names this broker: one
    of its log directories has failed (KIP-112)."""


@dataclass(frozen=True, slots=True)
class DeleteLogDirEventNotifications:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create `/config/topics/T` and `/brokers/topics/T`; answered by TopicCreated.

    `gives_topic_id`: with a new id.
    """

    request: int  # the core's own handle, returned in the answer
    topic: str
    configuration: TopicConfiguration
    gives_topic_id: bool = False


@dataclass(frozen=True, slots=True)
class DeletePreferredReplicaElection:
    """Delete `/admin/preferred_replica_election`: what it asked for is done, or cannot be.

    One that `is_fenced` requires that `/controller_epoch` still is `controller_epoch`.
    """

    controller_epoch: int
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write a partition's replicas into `/brokers/topics/T`; answered by AssignmentWritten.

    `names_moves`: the znode says which come and go. One that `is_fenced` requires that
    `/controller_epoch` still is `controller_epoch`.
    """

    partition: TopicPartition
    assignment: ReplicaAssignment
    controller_epoch: int
    names_moves: bool
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class SetPartitionReassignment:
    """Write what is left to be done of `/admin/reassign_partitions`; nothing: delete it.

    One that `is_fenced` requires that `/controller_epoch` still is `controller_epoch`.
    """

    targets: Mapping[TopicPartition, tuple[int, ...]]
    controller_epoch: int
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class MarkTopicForDeletion:
    """Create `/admin/delete_topics/T`."""

    topic: str


@dataclass(frozen=True, slots=True)
class UnmarkTopics:
    """Delete these from `/admin/delete_topics`: there are no such topics, or none is deleted.

    One that `is_fenced` requires that `/controller_epoch` still is `controller_epoch`.
    """

    topics: tuple[str, ...]
    controller_epoch: int
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic's znodes, its settings and its mark; answered by TopicDeleted.

    One that `is_fenced` requires that `/controller_epoch` still is `controller_epoch`.
    """

    topic: str
    controller_epoch: int
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Take the next block of `/latest_producer_id_block`; answered by ProducerIdsAllocated."""


FencedRequest = (
    DeletePreferredReplicaElection
    | WriteAssignment
    | SetPartitionReassignment
    | UnmarkTopics
    | DeleteTopic
)
AdministrationRequest = FencedRequest | MarkTopicForDeletion
NotificationRequest = (
    NotifyIsrChange
    | DeleteIsrChangeNotifications
    | NotifyLogDirEvent
    | DeleteLogDirEventNotifications
)
CoordinationRequest = (
    TryBecomeController
    | ResignController
    | LoadCluster
    | ReadLeaderAndIsr
    | WriteLeaderAndIsr
    | NotificationRequest
    | CreateTopic
    | AdministrationRequest
    | AllocateProducerIds
)

# --- received by the core (events) -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """This broker is registered under `/brokers/ids`, by a new session."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The session is over: all of its ephemeral znodes are gone. A new one is being made."""


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker created `/controller`; `controller_epoch` is the one it incremented to."""

    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """`/controller` names another broker, or nobody (None): then every broker tries to be it."""

    controller_id: int | None


@dataclass(frozen=True, slots=True)
class ClusterLoaded:
    """`marked`: the topics that are to be deleted."""

    controller_epoch: int
    brokers: Mapping[int, BrokerRegistration]
    topics: Mapping[str, TopicConfiguration]
    states: Mapping[TopicPartition, LeaderAndIsr]
    marked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The children of `/brokers/ids` changed; only the controller is notified."""

    brokers: Mapping[int, BrokerRegistration]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The children of `/brokers/topics` changed; only the controller is notified."""

    topics: Mapping[str, TopicConfiguration]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRead:
    """`states` lacks the partitions that have no state yet."""

    partitions: tuple[TopicPartition, ...]
    states: Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrWritten:
    """The write succeeded; `state.version` is the new version."""

    partition: TopicPartition
    state: LeaderAndIsr
    by_controller: bool


@dataclass(frozen=True, slots=True)
class LeaderAndIsrConflict:
    """The version (or the controller epoch) was no longer the expected one: nothing was written."""

    partition: TopicPartition
    state: LeaderAndIsr
    by_controller: bool


@dataclass(frozen=True, slots=True)
class IsrChangeNotified:
    names: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LogDirEventNotified:
    names: tuple[str, ...]
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """`error` is a Kafka error name (TOPIC_ALREADY_EXISTS, POLICY_VIOLATION), or None."""

    request: int
    topic: str
    error: str | None


@dataclass(frozen=True, slots=True)
class PreferredReplicaElectionFound:
    """Somebody has written `/admin/preferred_replica_election`; only the controller is notified."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionReassignmentFound:
    """What `/admin/reassign_partitions` says now; only the controller is notified."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """Of WriteAssignment.

    Not written: UNKNOWN_TOPIC_OR_PARTITION (the topic is gone), NOT_CONTROLLER (there is a later
    one, and the write is fenced).
    """

    partition: TopicPartition
    assignment: ReplicaAssignment
    error: Error = Error.NONE


@dataclass(frozen=True, slots=True)
class TopicsMarkedForDeletion:
    """What `/admin/delete_topics` names now; only the controller is notified."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """Of DeleteTopic: all of it is gone. Where there is a later controller nothing is answered."""

    topic: str


@dataclass(frozen=True, slots=True)
class LeaderAndIsrChanged:
    """States that were read with a watch are others now, whoever wrote them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """The ids from `first` to before `end` are this broker's: no other ever gets them."""

    first: int
    end: int


CoordinationEvent = (
    SessionStarted
    | SessionExpired
    | ControllerElected
    | ControllerChanged
    | ClusterLoaded
    | BrokersChanged
    | TopicsChanged
    | LeaderAndIsrRead
    | LeaderAndIsrWritten
    | LeaderAndIsrConflict
    | IsrChangeNotified
    | LogDirEventNotified
    | TopicCreated
    | PreferredReplicaElectionFound
    | PartitionReassignmentFound
    | AssignmentWritten
    | LeaderAndIsrChanged
    | TopicsMarkedForDeletion
    | TopicDeleted
    | ProducerIdsAllocated
)
