"""Mutants of a leader's promises: what it appends, acknowledges, shows and keeps waiting.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.leader import fetch, produce, purgatory
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition
from neaptide.nemesis.search.mutants.mutant import POWER, READS, Mutant, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_refusal = produce.refusal.own
_produce_outcome = produce.produce_outcome.own


def acks_at_append(
    broker: Broker, waiting: Appended, led: Partition | None, acks: int
) -> Error | None:
    outcome = _produce_outcome(broker, waiting, led, acks)
    return Error.NONE if outcome is None else outcome


def acks_at_min_insync(
    broker: Broker, waiting: Appended, led: Partition | None, acks: int
) -> Error | None:
    outcome = _produce_outcome(broker, waiting, led, acks)
    if outcome is not None or led is None or not isinstance(led.role, Leader):
        return outcome
    ends = (one.log_end_offset for one in led.role.remotes.values())
    copies = 1 + sum(end >= waiting.required_offset for end in ends)
    return Error.NONE if copies >= led.settings.min_insync_replicas else None


def acks_whatever_the_isr(
    broker: Broker, waiting: Appended, led: Partition | None, acks: int
) -> Error | None:
    outcome = _produce_outcome(broker, waiting, led, acks)
    return Error.NONE if outcome is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND else outcome


def acks_on_stepping_down(
    broker: Broker, waiting: Appended, led: Partition | None, acks: int
) -> Error | None:
    outcome = _produce_outcome(broker, waiting, led, acks)
    stepped_down = waiting.error is None and outcome is Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE if stepped_down else outcome


def appends_under_min_isr(
    broker: Broker, topic_partition: TopicPartition, produced: Any, acks: int
) -> Error:
    error = _refusal(broker, topic_partition, produced, acks)
    return Error.NONE if error is Error.NOT_ENOUGH_REPLICAS else error


def appends_as_follower(
    broker: Broker, topic_partition: TopicPartition, produced: Any, acks: int
) -> Error:
    error = _refusal(broker, topic_partition, produced, acks)
    is_here = topic_partition in broker.partitions
    return Error.NONE if error is Error.NOT_LEADER_OR_FOLLOWER and is_here else error


def reads_to_log_end(led: Partition, replica_id: int, *, is_committed: bool = False) -> int:
    return led.log.end_offset


def parks_unwatched(broker: Broker, operation: Any, timeout_ms: int) -> None:
    broker.delayed[operation.request] = operation


def stays_parked(broker: Broker, operation: Any) -> None:
    """In place of `_unpark`."""


MUTANTS: Final = (
    rule(
        "acks-at-append",
        produce.produce_outcome,
        acks_at_append,
        "acks=all is acknowledged when the leader has it.",
    ),
    rule(
        "acks-at-min-insync",
        produce.produce_outcome,
        acks_at_min_insync,
        "acks=all is acknowledged when min.insync.replicas have it, not the ISR.",
    ),
    rule(
        "acks-whatever-the-isr",
        produce.produce_outcome,
        acks_whatever_the_isr,
        "An ISR that became too small after the append does not keep the acknowledgement back.",
        faults=POWER,
    ),
    Mutant(
        "min-insync-not-checked",
        "min.insync.replicas is checked neither before nor after the append.",
        replaced=(
            (produce.refusal, appends_under_min_isr),
            (produce.produce_outcome, acks_whatever_the_isr),
        ),
        faults=POWER,
    ),
    rule(
        "appends-under-min-isr",
        produce.refusal,
        appends_under_min_isr,
        "min.insync.replicas is not checked before the append.",
        hidden="it is checked again before the acknowledgement, which is not given",
    ),
    rule(
        "acks-on-stepping-down",
        produce.produce_outcome,
        acks_on_stepping_down,
        "A leader that steps down acknowledges what it was still waiting for.",
    ),
    rule(
        "appends-as-follower",
        produce.refusal,
        appends_as_follower,
        "A follower appends what a client sends it.",
    ),
    rule(
        "reads-to-log-end",
        fetch.readable_end,
        reads_to_log_end,
        "Consumers read what is not committed.",
        faults=READS,
        steps_only=True,
    ),
    rule(
        "parks-unwatched",
        purgatory.park,
        parks_unwatched,
        "A parked request is not found by what completes it.",
    ),
    rule(
        "stays-parked",
        purgatory.unpark,
        stays_parked,
        "A parked request that is answered stays parked.",
    ),
)
