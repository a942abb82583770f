"""What a search is aimed at: a cluster, how records are sent, which faults there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.model import TopicConfiguration
from neaptide.clusters.producer import ProducerOptions, in_flight_of
from neaptide.clusters.simulation.network import CLIENTS
from neaptide.clusters.simulation.parts import WorldSpec
from neaptide.nemesis.search.worlds import world_spec

TOPIC: Final = "t"
ANOMALOUS: Final = "anomalous"  # the outcome of a broken promise that no word names
NAMES: Final[Mapping[str, int]] = {"A": 1, "B": 2, "C": 3}
FOUR: Final[Mapping[str, int]] = {**NAMES, "D": 4}
FIVE: Final[Mapping[str, int]] = {**FOUR, "E": 5}
BROKERS_MAX: Final = 9
REPLICAS_OF_FIVE: Final = 3
ALL: Final = -1  # acks
# Every record is a segment, and one is kept.
RETENTION: Final[Mapping[str, str]] = {"retention.bytes": "100", "segment.bytes": "100"}
RETENTION_CHECK: Final[Mapping[str, str]] = {"log.retention.check.interval.ms": "1000"}
# Not `duplicated`: a producer that is not idempotent may send again what was appended already.
BAD: Final = ("diverged", "lost", "reordered")
COMMITS: Final = "commit"  # the fault that has consumers of a group in it
TRANSACT: Final = "transact"  # the fault that has producers of transactions in it
LATE: Final = "late"  # … of which a write arrives late
DEPOSE: Final = "depose"  # the fault by which another controller is elected
OF_TRANSACTIONS: Final = (TRANSACT, LATE)
OF_OPERATORS: Final = ("reassign", "elect", DEPOSE)
REPLICAS_MIN: Final = 2  # that a reassignment leaves
COMMIT_ANOMALIES: Final = ("commit-regression",)
TRANSACTION_ANOMALIES: Final = ("G1a",)  # what was aborted is read
BAD_WITH_IDEMPOTENCE: Final = (*BAD, "duplicated")


@dataclass(frozen=True, slots=True)
class Target:
    spec: WorldSpec
    names: Mapping[str, int]
    acks: tuple[str, ...] = ("all",)
    faults: tuple[str, ...] = ("kill", "hold", "cut", "pause", "wait")
    outcomes: tuple[str, ...] = BAD
    anomalies: tuple[str, ...] = ()  # that are bad whatever the outcome
    watched: bool = False  # the invariants are asked after every event
    strict: bool = False  # … also those that the generation is known to break
    at_once: frozenset[str] = frozenset({CLIENTS})  # channels whose messages do not wait
    spares: bool = False  # no power failure takes the last copy of what was acknowledged


def names_of(brokers: int) -> Mapping[str, int]:
    """A, B, C…: 1, 2, 3…"""
    return {chr(ord("A") + number): number + 1 for number in range(brokers)}


def target_of(
    rules: Generation,
    settings: Mapping[str, str],
    topic_settings: Mapping[str, str],
    acks: tuple[str, ...],
    faults: tuple[str, ...],
    *,
    watched: bool,
    names: Mapping[str, int] = NAMES,
    idempotence: bool = False,
    partitions: int = 1,
    spares: bool = False,
    second_client: bool = False,
    linger_ms: int = 0,
) -> Target:
    """Brokers, and partitions that all of them replicate, or three of five and more.

    The first that starts, A, is controller and the last to lead. Where consumers commit,
    `__consumer_offsets` is replicated as the first partition is; where there are transactions,
    `__transaction_state` is, and another broker leads it. Where producers want several kinds of
    acknowledgements, those of acks=all alone are promises.
    """
    brokers = tuple(sorted(names.values()))
    commits = COMMITS in faults
    producer = ProducerOptions(True, in_flight_of(rules)) if idempotence else ProducerOptions()
    replicas = len(brokers) if len(brokers) < len(FIVE) else REPLICAS_OF_FIVE
    assignment = {
        number: tuple((brokers[number:] + brokers[:number])[::-1][:replicas])
        if len(brokers) >= len(FIVE)
        else brokers[::-1]
        for number in range(partitions)
    }
    of_internal = {k: v for k, v in topic_settings.items() if k not in RETENTION}
    offsets = TopicConfiguration({0: assignment[0]}, of_internal) if commits else None
    others = assignment[0][1:] + assignment[0][:1]
    has_transactions = TRANSACT in faults and rules.idempotence is not None
    transactions = TopicConfiguration({0: others}, of_internal) if has_transactions else None
    spec = world_spec(
        rules,
        settings,
        brokers,
        TOPIC,
        assignment,
        topic_settings,
        producer,
        offsets,
        transactions,
    )
    promised = frozenset({ALL}) if len(acks) > 1 else None
    spec = replace(
        spec, acks_promised=promised, second_client=second_client and commits, linger_ms=linger_ms
    )
    outcomes = BAD_WITH_IDEMPOTENCE if idempotence else BAD
    anomalies = (
        *(COMMIT_ANOMALIES if commits else ()),
        *(TRANSACTION_ANOMALIES if has_transactions else ()),
    )
    return Target(spec, names, acks, faults, outcomes, anomalies, watched=watched, spares=spares)
