"""Steps that operators ask of a cluster. Who refuses it, or is not there, makes the run miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from neaptide.clusters.settings import problem_of
from neaptide.nemesis.steps.language import Broker, Count, Names, Partition, Replicas, Step, step

FAMILY: Final = "Operators"
Election = Literal["preferred", "unclean"]


@step(
    FAMILY,
    "reassign",
    '{ replicas = ["B", "A"] }',
    '{ replicas = ["A", "B", "C"], partition = 0 }',
)
@dataclass(frozen=True, slots=True)
class Reassign(Step):
    """Gives a partition these replicas, in this order: the first is the preferred leader. The step
    asks for it. Before Kafka 2.4 it does so by `/admin/reassign_partitions`, and waits 10 seconds
    for the end of another one; since then it does so by AlterPartitionReassignments (KIP-455),
    which replaces another one. It is over when `replicas is {…}`. At the end of the run every
    partition gets back the replicas that it began with."""

    passes: ClassVar[bool] = True
    replicas: Replicas
    """Brokers, each once."""
    partition: Partition = 0

    def words(self) -> str:
        return f"asks for the replicas {', '.join(self.replicas)} of partition {self.partition}"

    def brief(self) -> str:
        where = f" of {self.partition}" if self.partition else ""
        return f"reassign{where} to {' '.join(self.replicas)}"


@step(FAMILY, "elect", "{ }", '{ partition = 0, election = "unclean" }')
@dataclass(frozen=True, slots=True)
class Elect(Step):
    """Asks for an election of a partition's leader. Preferred: the first of its replicas leads, if
    it is in the ISR. Unclean: any replica that lives leads, if nobody of the ISR lives (KIP-460:
    Kafka 2.4 and later)."""

    partition: Partition = 0
    election: Election = "preferred"
    """Which election."""

    def words(self) -> str:
        which = "a preferred" if self.election == "preferred" else "an unclean"
        return f"asks for {which} election for partition {self.partition}"

    def brief(self) -> str:
        what = "elect" if self.election == "preferred" else "elect uncleanly"
        return f"{what} in {self.partition}" if self.partition else what


@step(FAMILY, "move_controller", "{ }", words="deletes /controller: a controller is elected again")
@dataclass(frozen=True, slots=True)
class MoveController(Step):
    """Deletes `/controller`, as operators do: the brokers elect a controller again. In KRaft there
    is no such znode; use `remove_voter = { controller = "active" }`."""

    def brief(self) -> str:
        return "move the controller"


@step(
    FAMILY,
    "remove_broker",
    '{ broker = "B" }',
    words="gives the replicas of {0.broker} away, and shuts it down",
)
@dataclass(frozen=True, slots=True)
class RemoveBroker(Step):
    """Gives the replicas of a broker to others, or to nobody if all have one, and shuts the broker
    down when the cluster's metadata says so."""

    passes: ClassVar[bool] = True
    broker: Broker


@step(FAMILY, "add_partition", "{ }", words="asks for one more partition of the topic")
@dataclass(frozen=True, slots=True)
class AddPartition(Step):
    """The topic gets one partition more, to which nobody sends."""


@step(
    FAMILY,
    "set_topic",
    '{ name = "segment.ms", value = "2000" }',
    words="sets {0.name} = {0.value} for the topic",
)
@dataclass(frozen=True, slots=True)
class SetTopic(Step):
    """Changes a setting of the topic."""

    passes: ClassVar[bool] = True
    name: str
    """As Kafka names it."""
    value: str
    """The new value."""

    def check(self, names: Names) -> None:
        problem = problem_of({self.name: self.value})
        if problem is not None:
            raise ValueError(problem)


@step(FAMILY, "delete_records", "{ before = 3 }", "{ before = 3, partition = 0 }")
@dataclass(frozen=True, slots=True)
class DeleteRecords(Step):
    """Deletes the records of a partition below an offset (KIP-107: Kafka 0.11 and later; not our
    own broker). They are deleted on purpose: none of them counts as lost."""

    passes: ClassVar[bool] = True
    before: Count
    """The offset of the first record that stays."""
    partition: Partition = 0

    def words(self) -> str:
        return f"deletes the records of partition {self.partition} below offset {self.before}"


@step(FAMILY, "create_topic", "{ }", words="creates another topic")
@dataclass(frozen=True, slots=True)
class CreateTopic(Step):
    """Creates another topic, of two partitions, to which nobody sends; it is deleted when the step
    is undone."""

    passes: ClassVar[bool] = True
