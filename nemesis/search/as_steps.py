"""A path of deliveries as steps of a scenario file, where a few holds do what the path did.

A path keeps messages up one by one; between steps all arrives that is not held. So what was done to
the world on the path is done in steps, and each message that passes then is tried as a hold, at
most two of them, until the steps come to the same outcome. Not every path can be said so: None
says that no such holds were found.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice
from typing import Final

from neaptide.clusters.simulation.network import CONTROL, FETCH
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.search import deliveries
from neaptide.nemesis.search.explore import play_moves
from neaptide.nemesis.search.passed import Passed, Trace, conditions_of, ends_of
from neaptide.nemesis.search.shrink import Schedule, replay
from neaptide.nemesis.search.targets import Target

HOLDS_MAX: Final = 2
TRIALS_MAX: Final = 5_000
Placed = tuple[int, steps.Hold]  # before which of the steps


def as_schedule(
    path: deliveries.Path, target: Target, ready: World, outcome: str
) -> Schedule | None:
    """Steps that come to the outcome of a path. `ready`: a cluster at rest, to play them in."""
    done = tuple(step for move in path for step in deliveries.steps_of(move, target))
    tried = tuple(_placed(done, target, ready))
    some = chain.from_iterable(combinations(tried, count) for count in range(HOLDS_MAX + 1))
    for holds in islice(some, TRIALS_MAX):
        schedule = _with_holds(done, holds)
        judged = replay(target, ready, schedule)
        if judged is not None and judged.outcome == outcome:
            return schedule
    return None


def _placed(done: Schedule, target: Target, ready: World) -> Iterator[Placed]:
    """A hold of each message that passes, from the step on in which it does."""
    world = ready.copy()
    channels = (FETCH, CONTROL) if "control" in target.faults else (FETCH,)
    for place, step in enumerate(done):
        trace = Trace(world.partition, channels=channels)
        world.network.recorder = trace
        try:
            play_moves(world, target.names, (step,))
        except MissedError:
            return
        holds = (hold for passed in trace.passed for hold in _holds(passed, target))
        yield from ((place, hold) for hold in dict.fromkeys(holds))


def _holds(passed: Passed, target: Target) -> Iterator[steps.Hold]:
    source, to = ends_of(passed, target.names)
    for where in conditions_of(passed):
        name = f"{passed.message} {source}→{to} {passed.api} {where}".strip()
        yield steps.Hold.of(passed.message, passed.api, source, to, where, rule=name)


def _with_holds(done: Schedule, holds: tuple[Placed, ...]) -> Schedule:
    schedule: list[steps.Step] = []
    for number, step in enumerate(done):
        schedule += [hold for place, hold in holds if place == number]
        schedule.append(step)
    return tuple(schedule)
