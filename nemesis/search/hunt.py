"""The hunt for mutants: each is searched by many seeds in a process of its own.

Here is how long is searched and what is told of it; what is broken is in mutants, what is a find in
explore and invariants.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from nemesis.search.explore import Episode, Found, watched_world
from nemesis.search.judge import Judged
from nemesis.search.mutants import BY_NAME, MUTANTS, Mutant, applied
from nemesis.search.shrink import shrink
from nemesis.search.targets import Target, target_of
from nemesis.search.words import told
from nemesis.search.workers import begin, is_orphan

SCHEDULES_PER_SEED = 400


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a mutant is searched: so many seeds, or for so long; whichever ends first."""

    first_seed: int
    seeds: int | None
    time_s: float | None
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hunted:
    """What became of one mutant. `outcome` is empty where nothing was found."""

    name: str
    outcome: str
    seed: int | None
    schedules: int
    seconds: float
    steps: int
    shrunk_steps: int
    schedule: str


def hunt(mutant: Mutant, effort: Effort) -> Hunted:
    """Searches until something is found, or the effort is spent. Shrinks what is found."""
    started = time.monotonic()
    schedules = 0
    seed = effort.first_seed
    with applied(mutant):
        target = _target(mutant, effort)
        while not _is_spent(effort, seed, started):
            episode = Episode(target, seed)
            found = episode.explore(SCHEDULES_PER_SEED)
            schedules += episode.schedules
            if found is not None:
                return _hunted(mutant, target, found, schedules, time.monotonic() - started)
            seed += 1
    return Hunted(mutant.name, "", None, schedules, time.monotonic() - started, 0, 0, "")


def _is_spent(effort: Effort, seed: int, started: float) -> bool:
    if effort.seeds is not None and seed >= effort.first_seed + effort.seeds:
        return True
    return effort.time_s is not None and time.monotonic() - started >= effort.time_s


def _target(mutant: Mutant, effort: Effort) -> Target:
    settings = {**dict(effort.settings), **mutant.settings}
    return target_of(
        mutant.rules, settings, mutant.topic_settings, mutant.acks, mutant.faults, watched=True
    )


def _hunted(mutant: Mutant, target: Target, found: Found, schedules: int, seconds: float) -> Hunted:
    outcome = found.judged.outcome
    ready = watched_world(target)
    shrunk = found.schedule
    if not isinstance(ready, Judged):
        shrunk = shrink(target, ready, found.schedule, outcome)
    return Hunted(
        mutant.name,
        outcome,
        found.seed,
        schedules,
        round(seconds, 2),
        len(found.schedule),
        len(shrunk),
        told(shrunk),
    )


def hunt_all(
    effort: Effort, workers: int, tell: Callable[[int, Hunted], None]
) -> tuple[Hunted, ...]:
    """Every mutant, so many at a time; in the order of the table."""
    hunted = {}
    for done, one in enumerate(_hunt_each(effort, workers), start=1):
        hunted[one.name] = one
        tell(done, one)
    return tuple(hunted[mutant.name] for mutant in MUTANTS)


def _hunt_each(effort: Effort, workers: int) -> Iterator[Hunted]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, begin, (os.getpid(),)) as pool:
        try:
            futures = [pool.submit(_hunt_named, one.name, effort) for one in MUTANTS]
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _hunt_named(name: str, effort: Effort) -> Hunted:
    if is_orphan():
        raise SystemExit(0)
    return hunt(BY_NAME[name], effort)
