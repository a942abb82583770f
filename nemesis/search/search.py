"""What is searched for, as data: everything that a worker must know, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.nemesis.search.priorities import ByMessages
from neaptide.nemesis.search.targets import BAD, BAD_WITH_IDEMPOTENCE, NAMES, Target, target_of


@dataclass(frozen=True, slots=True)
class Search:
    """`rules`: of a generation, or of a mutant."""

    rules: Generation
    acks: tuple[str, ...]
    faults: tuple[str, ...]
    settings: Mapping[str, str]
    topic_settings: Mapping[str, str]
    schedules_max: int  # of steps, in one episode
    watched: bool = False  # with invariants
    outcomes: tuple[str, ...] = BAD  # what counts as a find
    idempotence: bool = False  # of its producers
    swarm: bool = False  # every seed draws its own (swarm)
    asked: Search | None = None  # of what is drawn for a seed: what was searched
    names: Mapping[str, int] = field(default_factory=lambda: NAMES)  # of its brokers
    partitions: int = 1
    spares: bool = False  # no power failure takes a last copy
    second_client: bool = False  # of the groups that commit
    linger_ms: int = 0  # of its producers
    messages: ByMessages | None = None  # what is tried after the steps, message by message

    def target(self) -> Target:
        target = target_of(
            self.rules,
            self.settings,
            self.topic_settings,
            self.acks,
            self.faults,
            watched=self.watched,
            idempotence=self.idempotence,
            names=self.names,
            partitions=self.partitions,
            spares=self.spares,
            second_client=self.second_client,
            linger_ms=self.linger_ms,
        )
        if self.outcomes in (BAD, BAD_WITH_IDEMPOTENCE):
            return target
        return replace(target, outcomes=self.outcomes, anomalies=())
