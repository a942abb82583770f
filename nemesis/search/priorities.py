"""PCT: each link has a priority drawn by chance, and the first message of the highest arrives.

At a few points, drawn before, the link that is about to be served falls below all others: a
mistake that needs d such points is found with a known probability, however long the run is. Rule:
Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (2010).
Finds are paths of deliveries, for the invariants and the judge; they are no scenario files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from neaptide.clusters.simulation.network import Link
from neaptide.nemesis.search.deliveries import (
    Counts,
    Deliver,
    Expire,
    Fire,
    Kill,
    Move,
    Path,
    PowerOff,
    Produce,
    Read,
    Register,
    Restart,
    State,
    Stop,
    deaths,
    judged_at,
    may_be,
    operations,
    try_move,
)
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.targets import Target

LENGTH: Final = 80  # of a run, in moves
_FAULTS: Final[Mapping[str, type[Kill | Restart | Expire | Register]]] = {
    "kill": Kill,
    "restart": Restart,
    "expire": Expire,
    "register": Register,
}


Death = Kill | Stop | PowerOff


@dataclass(frozen=True, slots=True)
class Run:
    path: Path
    judged: Judged | None  # where something is wrong


class Scheduler:
    """Draws everything when it is made, but the priorities of links that are not known yet."""

    def __init__(
        self,
        rng: Random,
        bounds: Counts,
        changes: int,
        target: Target,
    ) -> None:
        self._target = target
        self._deaths = deaths(target)
        self._rng = rng
        self._priorities: dict[Link, float] = {}
        self._lowest = 0.0
        self._changes = {rng.randrange(LENGTH) for _ in range(changes)}
        kinds = ["produce"] * bounds.produces + ["kill"] * bounds.kills
        kinds += ["restart"] * bounds.restarts
        kinds += ["expire", "register"] * bounds.expiries + ["read"] * bounds.reads
        kinds += ["operate"] * bounds.operations
        self._doings = {rng.randrange(LENGTH): kind for kind in rng.sample(kinds, len(kinds))}
        self._timers = bounds.timers

    def move(self, state: State, number: int) -> Move | None:
        """What is next; None: this turn is passed, or nothing is left to do."""
        kind = self._doings.get(number)
        if kind is not None:
            return self._doing(state, kind)
        heads = tuple(state.world.heads())
        if heads:
            return Deliver(self._choose(heads, number))
        return Fire() if state.spent.timers < self._timers else None

    def _doing(self, state: State, kind: str) -> Move | None:
        if kind == "produce":
            return Produce(f"m{state.spent.produces + 1}")
        if kind == "read":
            numbers = tuple(state.world.spec.configuration.assignment)
            return Read(self._rng.choice(numbers) if len(numbers) > 1 else 0)
        if kind == "operate":
            asked = operations(state.world, self._target)
            return self._rng.choice(asked) if asked else None
        fault: type[Death | Restart | Expire | Register] = _FAULTS[kind]
        if kind == "kill" and len(self._deaths) > 1:
            fault = self._rng.choice(self._deaths)
        elif kind == "kill":
            fault = self._deaths[0]
        meant = may_be(fault, state.world)
        return fault(self._rng.choice(meant)) if meant else None

    def _choose(self, links: tuple[Link, ...], number: int) -> Link:
        for link in links:
            if link not in self._priorities:
                self._priorities[link] = self._rng.random()
        chosen = max(links, key=lambda link: self._priorities[link])
        if number in self._changes:
            self._lowest -= 1.0
            self._priorities[chosen] = self._lowest
            chosen = max(links, key=lambda link: self._priorities[link])
        return chosen


def run(first: State, target: Target, seed: int, bounds: Counts, changes: int) -> Run:
    """One run, from a cluster at rest to its end. The same seed is the same run."""
    scheduler = Scheduler(Random(seed), bounds, changes, target)
    state, path = first, []
    for number in range(LENGTH):
        move = scheduler.move(state, number)
        if move is None:
            continue
        after, broken = try_move(state, move, target)
        path.append(move)
        if broken is not None:
            return Run(tuple(path), broken)
        if after is None:
            path.pop()
            continue
        state = after
    return Run(tuple(path), judged_at(state, target))
