"""What a controller knows and waits for, as frozen values. Most brokers are Standby."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    AlterPartitionReassignmentsRequested,
    ElectionType,
    PartitionResult,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    PartitionReassignmentFound,
)
from neaptide.clusters.broker.replication.interface.effects import (
    Effect,
    RespondAlterPartitionReassignments,
    RespondCreatePartitions,
    RespondCreateTopics,
    RespondDeleteTopics,
    RespondElectLeaders,
    TopicDeletionResult,
    TopicResult,
)
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    AlteredResult,
    TopicToDelete,
)
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicConfiguration,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Standby:
    """Not the controller. `registered`: this broker's session with the service is alive."""

    registered: bool = False


@dataclass(frozen=True, slots=True)
class Loading:
    """Elected; reads the cluster before it decides anything."""

    controller_epoch: int


Part = TypeVar("Part", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pending(ABC, Generic[Part, Result]):
    """A request, with what each of its parts came to (None: not known yet)."""

    request: int
    results: Mapping[Part, Result | None]

    @abstractmethod
    def failed(self, part: Part, error: Error) -> Result:
        """What is answered about a part that came to nothing."""

    @abstractmethod
    def response(self, results: tuple[Result, ...]) -> Effect: ...

    def refusal(self) -> Effect:
        """The answer of a broker that ceases to be the controller."""
        return self.with_unknown(Error.NOT_CONTROLLER)

    def with_unknown(self, error: Error) -> Effect:
        """The answer, with this error for all that is not known yet."""
        return self.response(
            tuple(
                self.failed(part, error) if known is None else known
                for part, known in self.results.items()
            )
        )


@dataclass(frozen=True, slots=True)
class _OfTopics(Pending[str, TopicResult]):
    def failed(self, part: str, error: Error) -> TopicResult:
        return TopicResult(part, error)


@dataclass(frozen=True, slots=True)
class TopicCreation(_OfTopics):
    """CreateTopics."""

    def response(self, results: tuple[TopicResult, ...]) -> Effect:
        return RespondCreateTopics(self.request, results)


@dataclass(frozen=True, slots=True)
class PartitionCreation(_OfTopics):
    """CreatePartitions; `added`: which partitions each topic gets, with their replicas."""

    added: Mapping[str, Mapping[int, tuple[int, ...]]]

    def response(self, results: tuple[TopicResult, ...]) -> Effect:
        return RespondCreatePartitions(self.request, results)


@dataclass(frozen=True, slots=True)
class TopicDeletion(Pending[TopicToDelete, TopicDeletionResult]):
    """DeleteTopics."""

    def failed(self, part: TopicToDelete, error: Error) -> TopicDeletionResult:
        return TopicDeletionResult(*part, error)

    def response(self, results: tuple[TopicDeletionResult, ...]) -> Effect:
        return RespondDeleteTopics(self.request, results)


@dataclass(frozen=True, slots=True)
class _OfPartitions(Pending[TopicPartition, PartitionResult]):
    def failed(self, part: TopicPartition, error: Error) -> PartitionResult:
        return PartitionResult(part, error)


@dataclass(frozen=True, slots=True)
class Election(_OfPartitions):
    """ElectLeaders."""

    election_type: ElectionType

    def response(self, results: tuple[PartitionResult, ...]) -> Effect:
        return RespondElectLeaders(self.request, Error.NONE, results)


@dataclass(frozen=True, slots=True)
class Reassignment(_OfPartitions):
    """AlterPartitionReassignments, which a broker that is no controller refuses as a whole."""

    def response(self, results: tuple[PartitionResult, ...]) -> Effect:
        return RespondAlterPartitionReassignments(self.request, Error.NONE, results)

    def refusal(self) -> Effect:
        return RespondAlterPartitionReassignments(self.request, Error.NOT_CONTROLLER)


@dataclass(frozen=True, slots=True)
class Alteration:
    """One partition of an AlterPartition request, and what it came to (None: not known yet).

    `is_written`: its write is under way. While it is not, it waits for the partition's turn.
    """

    request: int
    leader: int  # who asks
    asked: AlteredPartition
    result: AlteredResult | None = None
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Elections:
    """Elections that were asked for and are not decided yet.

    `wanted` says which of them the next decision about a partition makes. `of_znode` are those
    that `/admin/preferred_replica_election` names and that are not made yet; None: it is not there.
    """

    wanted: Mapping[TopicPartition, ElectionType] = field(default_factory=dict)
    of_znode: frozenset[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class ShutdownRequest:
    """A ControlledShutdown request; `partitions` of that broker are still to be decided."""

    request: int
    broker_id: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Reassignments:
    """`ongoing`: begun, and not over. `written`: the writes of assignments that have no answer yet,
    the last of each partition, and how many there are.

    `renewed` are to have a new leader epoch with their next state: all of their replicas must be
    informed. `unneeded` replicas are to be deleted when that state is written. `of_znode` is what
    `/admin/reassign_partitions` names and that is not over. `unread` are partitions whose state has
    changed while they were being reconsidered, perhaps by that: they are to be read once more.
    `postponed` was asked for while the reassignment of a partition was ending.
    """

    ongoing: Mapping[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    written: Mapping[TopicPartition, tuple[ReplicaAssignment, int]] = field(default_factory=dict)
    renewed: frozenset[TopicPartition] = frozenset()
    unneeded: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    of_znode: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    unread: frozenset[TopicPartition] = frozenset()
    postponed: tuple[AlterPartitionReassignmentsRequested | PartitionReassignmentFound, ...] = ()


@dataclass(frozen=True, slots=True)
class Deletions:
    """Topics that are to be deleted, and nobody's otherwise any more.

    `marked` wait for the end of a reassignment. Of those that are being deleted, `left` has the
    replicas that are not known to be deleted yet: who does not live is asked when it comes.
    """

    marked: frozenset[str] = frozenset()
    left: Mapping[str, frozenset[tuple[TopicPartition, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Active:
    """The controller.

    `states` is what it last wrote or read. `reconsidering` holds the partitions whose state is
    being read, or written, because something about their replicas changed; `again` those among
    them about which something changed once more meanwhile; `writing` those whose write has no
    answer yet, and `unsent` those that were written with them, `new` among them those that had no
    state before: brokers are informed of all of them in one request. `fallen` names replicas that
    went, be they back or not: they count as dead the next time their partition is decided.
    `unclean` names those that came back without a clean shutdown: they are neither in sync nor
    eligible then. `offline` names those whose broker lives, without the log directory of theirs.
    `alterations` are the ISR changes that leaders have asked for: one whose write is under way has
    its partition in `reconsidering` too, for nobody else may change it meanwhile.
    `shutting_down` has the brokers that have asked for a controlled shutdown, each with what it led
    then: they are to lead nothing, and be in no ISR that somebody else is in.
    """

    controller_epoch: int
    brokers: Mapping[int, BrokerRegistration]
    topics: Mapping[str, TopicConfiguration]
    states: Mapping[TopicPartition, LeaderAndIsr]
    reconsidering: frozenset[TopicPartition] = frozenset()
    again: frozenset[TopicPartition] = frozenset()
    writing: frozenset[TopicPartition] = frozenset()
    unsent: tuple[TopicPartition, ...] = ()
    new: frozenset[TopicPartition] = frozenset()
    fallen: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    unclean: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    offline: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    pending: Mapping[int, Pending[Any, Any]] = field(default_factory=dict)
    alterations: tuple[Alteration, ...] = ()
    elections: Elections = Elections()
    shutting_down: Mapping[int, frozenset[TopicPartition]] = field(default_factory=dict)
    shutdown_requests: tuple[ShutdownRequest, ...] = ()
    reassignments: Reassignments = Reassignments()
    deletions: Deletions = Deletions()

    def all_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition)
            for topic, configuration in sorted(self.topics.items())
            for partition in sorted(configuration.assignment)
        ]

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """The assigned replicas; while they change, those to be come first, then those that go."""
        return tuple(self.topics[topic_partition.topic].assignment[topic_partition.partition])

    def dead(self, topic_partition: TopicPartition) -> frozenset[int]:
        """Replicas that are not to be counted on, though their brokers may live."""
        nobody: frozenset[int] = frozenset()
        fallen = self.fallen.get(topic_partition, nobody)
        return fallen | self.offline.get(topic_partition, nobody)


def with_known_ids(
    known: Mapping[str, TopicConfiguration], read: Mapping[str, TopicConfiguration]
) -> dict[str, TopicConfiguration]:
    """A topic whose id somebody has removed from the coordination service keeps it for as long as
    this controller lives (KAFKA-14190)."""
    return {
        name: replace(one, topic_id=known[name].topic_id)
        if one.topic_id is None and name in known
        else one
        for name, one in read.items()
    }


ControllerState = Standby | Loading | Active
