"""Steps that operators ask of a cluster. Who refuses it, or is not there, makes the run miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from neaptide.nemesis.steps.language import Partition, Replicas, Step, step

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

    replicas: Replicas
    """Brokers, each once."""
    partition: Partition = 0

    def words(self) -> str:
        return f"asks for the replicas {', '.join(self.replicas)} of partition {self.partition}"


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


@step(FAMILY, "move_controller", "{ }", words="deletes /controller: a controller is elected again")
@dataclass(frozen=True, slots=True)
class MoveController(Step):
    """Deletes `/controller`, as operators do: the brokers elect a controller again. In KRaft there
    is no such znode; use `remove_voter = { controller = "active" }`."""
