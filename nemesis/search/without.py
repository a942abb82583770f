"""Which step matters: a scenario in the simulation with each of its steps left out, many times.

Every play is from a cluster at rest. The first is exact; in each further one messages are late by a
little, drawn from a seed, so that a count says whether a step decides or only the timing did. What
a step that is left out would have made true does not come true: a wait is then waited to its end,
a step that cannot be done is passed over, and both are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.simulation import producing
from neaptide.clusters.simulation.network import Noise
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.scenario import Scenario
from neaptide.nemesis.search.ending import end
from neaptide.nemesis.search.judge import judge
from neaptide.nemesis.search.perform import Performer
from neaptide.nemesis.search.worlds import ready_world, spec_of

JITTER_US: Final = 2_000  # four times the latency of the simulation's network
FINE: Final = ("held", "unavailable", "unknown")  # outcomes by which nothing was lost


@dataclass(frozen=True, slots=True)
class Plays:
    """What a number of plays came to.

    `in_vain`: in how many a wait was not met or a step could not be done, and what it was the first
    time; empty where all went as written.
    """

    outcomes: Mapping[str, int]
    in_vain: int = 0
    why: str = ""

    @property
    def worst(self) -> str:
        """The outcome that most plays came to."""
        return max(self.outcomes, key=lambda outcome: self.outcomes[outcome])


@dataclass(frozen=True, slots=True)
class Weighed:
    """`whole`: with all steps. `without`: with one left out, in the order of the steps."""

    whole: Plays
    without: tuple[Plays, ...]

    @property
    def outcome(self) -> str:
        return self.whole.worst

    @property
    def loses(self) -> bool:
        """Whether there is anything that a step could matter for."""
        return self.outcome not in FINE


def weigh(
    scenario: Scenario,
    rules: Generation,
    plays: int,
    seed: int,
    report: Callable[[int], None] = lambda done: None,
) -> Weighed:
    """Steps are left out only where the whole schedule loses. `report` gets how many were."""
    ready = tuple(_worlds(scenario, rules, plays, seed))
    whole = Weighed(_plays(scenario, ready, None), ())
    if not whole.loses:
        return whole
    without = []
    for number in range(len(scenario.steps)):
        report(number)
        without.append(_plays(scenario, ready, number))
    return replace(whole, without=tuple(without))


def _worlds(scenario: Scenario, rules: Generation, plays: int, seed: int) -> Iterator[World]:
    """Clusters at rest; the first without noise."""
    spec = spec_of(scenario, rules)
    for number in range(plays):
        noise = Noise(seed + number, jitter_us=JITTER_US) if number else None
        yield ready_world(replace(spec, noise=noise))


def _plays(scenario: Scenario, ready: tuple[World, ...], left_out: int | None) -> Plays:
    outcomes: Counter[str] = Counter()
    in_vain, first = 0, ""
    for world in ready:
        outcome, why = _play(scenario, world.copy(), left_out)
        outcomes[outcome] += 1
        if why:
            in_vain, first = in_vain + 1, first or why
    return Plays(dict(outcomes.most_common()), in_vain, first)


def _play(scenario: Scenario, world: World, left_out: int | None) -> tuple[str, str]:
    """The outcome, and the first thing that did not go as written."""
    performer = Performer(world, scenario.brokers)
    first = ""
    for number, scheduled in enumerate(scenario.steps):
        if number == left_out:
            continue
        try:
            performer.do(scheduled.step)
            if scheduled.until is not None:
                performer.wait(scheduled.until, scheduled.within_s)
        except MissedError as missed:
            first = first or f"step {number + 1}: {missed}"
    producing.stop_load(world.clients)
    return judge(world, end(world)).outcome, first
