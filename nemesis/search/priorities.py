"""PCT: each link has a priority drawn by chance, and the first message of the highest arrives.

At a few points, drawn before, the link that is about to be served falls below all others: a
mistake that needs d such points is found with a known probability, however long the run is. Rule:
Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (2010).
Finds are paths of deliveries, for the invariants and the judge; they are no scenario files. Which
runs a seed of a search makes is here too: `ByMessages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from neaptide.clusters.simulation.network import CLIENTS, CONTROL, COORDINATION, Link
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
    first_state,
    judged_at,
    may_be,
    operations,
    transactions,
    try_move,
)
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.targets import OF_OPERATORS, Target

LENGTH: Final = 80  # of a run, in moves
CHANGES: Final = 3  # of priorities, in a run
_FAULTS: Final[Mapping[str, type[Kill | Restart | Expire | Register]]] = {
    "kill": Kill,
    "restart": Restart,
    "expire": Expire,
    "register": Register,
}


Death = Kill | Stop | PowerOff


@dataclass(frozen=True, slots=True)
class ByMessages:
    """The runs that a seed of a search makes. `bounds` None: each seed draws its own.

    `fetches_only`: all but fetches arrive at once; None: half of the runs are of this kind.
    """

    runs: int
    bounds: Counts | None = None
    fetches_only: bool | None = False


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
        kinds += ["operate"] * bounds.operations + ["transact"] * bounds.transactions
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
        if kind == "transact":
            able = transactions(state)
            return self._rng.choice(able) if able else None
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


def run(
    first: State, target: Target, seed: int | str, bounds: Counts, changes: int = CHANGES
) -> Run:
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


# --- the runs of a seed --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tried:
    """`found`: the first run in which something is wrong; `target`: what it was aimed at."""

    runs: int
    target: Target
    found: Run | None = None


def try_runs(
    target: Target, seed: int, wanted: ByMessages, is_over: Callable[[], bool] = lambda: False
) -> Tried:
    """One after the other, until something is wrong in one. A single run has its seed's number."""
    bounds = wanted.bounds or drawn_bounds(target, seed)
    kinds = (True, False) if wanted.fetches_only is None else (wanted.fetches_only,)
    done = 0
    for number, kind in enumerate(kinds):
        aimed = fetches_only(target) if kind else target
        first = first_state(aimed)
        if isinstance(first, Judged):
            return Tried(done + 1, aimed, Run((), first))
        for turn in range(number, wanted.runs, len(kinds)):
            if is_over():
                return Tried(done, target)
            made = run(first, aimed, seed if wanted.runs == 1 else f"{seed} {turn}", bounds)
            done += 1
            if made.judged is not None:
                return Tried(done, aimed, made)
    return Tried(done, target)


def fetches_only(target: Target) -> Target:
    """All messages except fetches arrive at once."""
    return replace(target, at_once=frozenset({CLIENTS, CONTROL, COORDINATION}))


def drawn_bounds(target: Target, seed: int) -> Counts:
    """As many deaths as returns; operators and producers of transactions only where they are among
    the faults."""
    rng = Random(f"bounds {seed}")
    deaths_ = rng.randint(1, 3)
    return Counts(
        produces=rng.randint(2, 4),
        kills=deaths_,
        restarts=deaths_,
        timers=rng.randint(2, 6),
        expiries=rng.randint(0, 2),
        reads=rng.randint(0, 1),
        operations=rng.randint(1, 3) if set(OF_OPERATORS) & set(target.faults) else 0,
        transactions=rng.randint(4, 10) if target.spec.transactions is not None else 0,
    )
