"""What a search is aimed at: a cluster, how records are sent, which faults there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.model import TopicConfiguration
from neaptide.clusters.producer import ProducerOptions, in_flight_of
from neaptide.clusters.simulation.network import CLIENTS
from neaptide.clusters.simulation.parts import WorldSpec
from neaptide.nemesis.search.worlds import world_spec

TOPIC: Final = "t"
NAMES: Final[Mapping[str, int]] = {"A": 1, "B": 2, "C": 3}
FOUR: Final[Mapping[str, int]] = {**NAMES, "D": 4}
# Not `duplicated`: a producer that is not idempotent may send again what was appended already.
BAD: Final = ("diverged", "lost", "reordered")
COMMITS: Final = "commit"  # the fault that has consumers of a group in it
COMMIT_ANOMALIES: Final = ("commit-regression",)
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
) -> Target:
    """Brokers, and one partition that all of them replicate.

    The first that starts, A, is controller and the last to lead. Where consumers commit,
    `__consumer_offsets` is replicated just so.
    """
    brokers = tuple(sorted(names.values()))
    commits = COMMITS in faults
    producer = ProducerOptions(True, in_flight_of(rules)) if idempotence else ProducerOptions()
    assignment = {0: brokers[::-1]}
    offsets = TopicConfiguration(assignment, dict(topic_settings)) if commits else None
    spec = world_spec(
        rules, settings, brokers, TOPIC, assignment, topic_settings, producer, offsets
    )
    outcomes = BAD_WITH_IDEMPOTENCE if idempotence else BAD
    anomalies = COMMIT_ANOMALIES if commits else ()
    return Target(spec, names, acks, faults, outcomes, anomalies, watched=watched)
