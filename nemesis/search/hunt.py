"""The hunt for mutants: each is searched by many seeds in a process of its own.

Here is how long is searched and what is reported of it. What is broken is in mutants, what is a
find is in explore and invariants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.nemesis.search.deliveries import (
    Counts,
    first_state,
    replayed,
    shortened,
    words,
)
from neaptide.nemesis.search.explore import Episode, Found, watched_world
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.mutants import BY_NAME, Mutant, applied
from neaptide.nemesis.search.priorities import Run, fetches_only
from neaptide.nemesis.search.priorities import run as run_once
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import replay, shrink
from neaptide.nemesis.search.swarm import FAULTS_OF_A_SWARM, drawn
from neaptide.nemesis.search.targets import OF_OPERATORS, Target, target_of
from neaptide.nemesis.search.workers import workers_of
from neaptide.nemesis.steps import in_line

SCHEDULES_PER_SEED: Final = 400
SCHEDULES_OF_STEPS: Final = 2_000  # … where they are all that is looked for
RUNS_PER_SEED: Final = 60
SCHEDULES_OF_A_SWARM: Final = 300  # each seed of it is another search: few of each
RUNS_OF_A_SWARM: Final = 10
BOUNDS: Final = Counts(produces=3, kills=3, restarts=3, timers=4, expiries=2)
BOUNDS_OF_A_SWARM: Final = BOUNDS._replace(reads=1)
OPERATIONS: Final = 3  # of operators, where those are among the faults
TRANSACTIONS: Final = 8  # of what producers of transactions do, where there are some
SHRINK_TRIALS: Final = 400  # where a mutant never comes to rest, each takes long


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a mutant is searched: a number of seeds or a time, whichever ends first."""

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
    while not _is_spent(effort, seed, started):
        target = _target(mutant, effort, seed)
        episode = Episode(target, seed)
        most = SCHEDULES_OF_STEPS if mutant.steps_only else SCHEDULES_PER_SEED
        runs, bounds = RUNS_PER_SEED, BOUNDS
        if mutant.swarm:
            most, runs, bounds = SCHEDULES_OF_A_SWARM, RUNS_OF_A_SWARM, BOUNDS_OF_A_SWARM
        with applied(mutant):
            found = episode.explore(most, partial(_is_spent, effort, seed, started))
        schedules += episode.schedules
        if found is not None and not is_of_the_unbroken(mutant, target, found):
            with applied(mutant):
                return _hunted(mutant, target, found, schedules, time.monotonic() - started)
        for other in () if mutant.steps_only else (fetches_only(target), target):
            with applied(mutant):
                run, tried = _by_priorities(other, seed, runs, bounds)
            schedules += tried
            if run is not None and not _is_run_of_the_unbroken(mutant, other, run):
                seconds = time.monotonic() - started
                with applied(mutant):
                    return _hunted_by_priorities(mutant, other, run, seed, schedules, seconds)
        seed += 1
    return Hunted(mutant.name, "", None, schedules, time.monotonic() - started, 0, 0, "")


def is_of_the_unbroken(mutant: Mutant, target: Target, found: Found) -> bool:
    """Whether the generation does the same with no rule broken: then it shows no mutant."""
    unbroken = replace(target, spec=replace(target.spec, rules=GENERATIONS[mutant.rules.name]))
    ready = watched_world(unbroken)
    if isinstance(ready, Judged):
        return False
    judged = replay(unbroken, ready, found.schedule)
    return judged is not None and judged.outcome == found.judged.outcome


def _is_run_of_the_unbroken(mutant: Mutant, target: Target, run: Run) -> bool:
    """The same of a path of deliveries."""
    rules = GENERATIONS[mutant.rules.name]
    unbroken = replace(target, spec=replace(target.spec, rules=rules))
    first = first_state(unbroken)
    if isinstance(first, Judged) or run.judged is None:
        return False
    judged = replayed(first, run.path, unbroken)
    return judged is not None and judged.outcome == run.judged.outcome


def _is_spent(effort: Effort, seed: int, started: float) -> bool:
    if effort.seeds is not None and seed >= effort.first_seed + effort.seeds:
        return True
    return effort.time_s is not None and time.monotonic() - started >= effort.time_s


def _target(mutant: Mutant, effort: Effort, seed: int) -> Target:
    settings = {**dict(effort.settings), **mutant.settings}
    if mutant.swarm:
        search = Search(
            mutant.rules,
            mutant.acks,
            FAULTS_OF_A_SWARM,
            settings,
            mutant.topic_settings,
            SCHEDULES_PER_SEED,
            watched=seed % 4 != 3,  # without invariants it is several times as fast
        )
        return drawn(search, seed).target()
    return target_of(
        mutant.rules,
        settings,
        mutant.topic_settings,
        mutant.acks,
        mutant.faults,
        watched=True,
        names=mutant.brokers,
        idempotence=mutant.idempotence,
    )


def _hunted(mutant: Mutant, target: Target, found: Found, schedules: int, seconds: float) -> Hunted:
    outcome = found.judged.outcome
    ready = watched_world(target)
    shrunk = found.schedule
    if not isinstance(ready, Judged):
        shrunk = shrink(target, ready, found.schedule, outcome, trials_max=SHRINK_TRIALS)
    return Hunted(
        mutant.name,
        outcome,
        found.seed,
        schedules,
        round(seconds, 2),
        len(found.schedule),
        len(shrunk),
        in_line(shrunk),
    )


def _by_priorities(target: Target, seed: int, runs: int, bounds: Counts) -> tuple[Run | None, int]:
    """Runs of another strategy: message by message, with sessions that end."""
    first = first_state(target)
    if isinstance(first, Judged):
        return Run((), first), 1
    if set(OF_OPERATORS) & set(target.faults):
        bounds = bounds._replace(operations=OPERATIONS)
    if target.spec.transactions is not None:
        bounds = bounds._replace(transactions=TRANSACTIONS)
    for number in range(runs):
        run = run_once(first, target, seed * RUNS_PER_SEED + number, bounds)
        if run.judged is not None:
            return run, number + 1
    return None, runs


def _hunted_by_priorities(
    mutant: Mutant, target: Target, run: Run, seed: int, schedules: int, seconds: float
) -> Hunted:
    assert run.judged is not None
    outcome, first = run.judged.outcome, first_state(target)
    path = run.path
    if not isinstance(first, Judged):
        path = shortened(first, path, target, outcome, SHRINK_TRIALS)
    line = ", ".join(words(path, target))
    return Hunted(
        mutant.name, outcome, seed, schedules, round(seconds, 2), len(run.path), len(path), line
    )


def hunt_all(
    effort: Effort,
    mutants: Sequence[Mutant],
    workers: int,
    report: Callable[[int, Hunted], None],
) -> tuple[Hunted, ...]:
    """Each, so many at a time; in this order."""
    hunted = {}
    for done, one in enumerate(_hunt_each(effort, mutants, workers), start=1):
        hunted[one.name] = one
        report(done, one)
    return tuple(hunted[mutant.name] for mutant in mutants)


def _hunt_each(effort: Effort, mutants: Sequence[Mutant], workers: int) -> Iterator[Hunted]:
    with workers_of(workers) as pool:
        futures = [pool.submit(_hunt_named, one.name, effort) for one in mutants]
        for future in as_completed(futures):
            yield future.result()


def _hunt_named(name: str, effort: Effort) -> Hunted:
    return hunt(BY_NAME[name], effort)
