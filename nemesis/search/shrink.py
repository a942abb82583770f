"""The fewest steps that still do it: takes steps away, and simplifies what is left, while the
schedule, played from the start, still comes to the same outcome.

Every trial is a whole play from a cluster at rest: nothing of the search's own state is in it, so
what is left does it again whenever it is played.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from typing import Any, Final

from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.minimise import fewer, minimise
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.search.explore import end_and_judge, is_bad, played
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.spared import loses_by_design
from neaptide.nemesis.search.targets import NAMES, Target

Schedule = tuple[steps.Step, ...]
ROLES_TRIED_UP_TO: Final = 9  # steps: beyond, there are too many ways to cast them
CAST_UP_TO: Final = 4  # brokers: the same


def replay(target: Target, ready: World, schedule: Schedule) -> Judged | None:
    """What a schedule comes to; None where it cannot be played."""
    world = ready.copy()
    parts = [(step,) for step in schedule] if target.spares else [schedule]
    try:
        for number, part in enumerate(parts):
            # What is not drawn must not come of leaving steps out either.
            if target.spares and loses_by_design(part[0], world, schedule[:number], target.names):
                return None
            broken = played(world, target.names, part)
            if broken is not None:
                return broken
    except MissedError:
        return None
    return end_and_judge(world)


def shrink(
    target: Target,
    ready: World,
    schedule: Schedule,
    outcome: str,
    is_meant: Callable[[Schedule], bool] = lambda schedule: True,
    trials_max: int | None = None,
) -> Schedule:
    """A schedule from which no step, and no pair of steps, can be taken away, if trials suffice.

    `is_meant`: what must hold of it besides coming to the outcome.
    """

    def still_does(candidate: Schedule) -> bool:
        judged = replay(target, ready, candidate)
        return (
            judged is not None
            and judged.outcome == outcome
            and is_bad(target, judged)
            and is_meant(candidate)
        )

    found = minimise(schedule, partial(_smaller, target), still_does, plays_max=trials_max)
    return renamed(found.smallest)


def _smaller(target: Target, schedule: Schedule) -> Iterator[Schedule]:
    """Shorter ones first, then pairs, then simpler ones."""
    size = len(schedule)
    yield from fewer(schedule, overlapping=True)
    for first in range(size):
        for second in range(first + 1, size):
            yield tuple(s for i, s in enumerate(schedule) if i not in (first, second))
    for index, step in enumerate(schedule):
        if isinstance(step, steps.Produce):
            yield tuple(_one_record_less(s) for i, s in enumerate(schedule) if i != index)
    if size <= ROLES_TRIED_UP_TO:
        yield from _shorter_for_others(target, schedule)
    for index, step in enumerate(schedule):
        for simpler in _simpler(step):
            yield (*schedule[:index], simpler, *schedule[index + 1 :])


def _one_record_less(step: steps.Step) -> steps.Step:
    """A hold's condition where there is one record less before it."""
    if not isinstance(step, steps.Hold):
        return step
    where = re.sub(r"(offset|watermark) >= (\d+)", _one_less, step.where)
    return replace(step, where=where)


def _one_less(found: re.Match[str]) -> str:
    return f"{found[1]} >= {max(1, int(found[2]) - 1)}"


def _shorter_for_others(target: Target, schedule: Schedule) -> Iterator[Schedule]:
    """With one or two steps less, other brokers in the roles of these may do.

    A schedule that first makes B the leader is shorter where C, which leads anyway, takes B's part.
    """
    names = tuple(target.names)
    if len(names) > CAST_UP_TO:
        return
    for count in (2, 1):
        for left_out in combinations(range(len(schedule)), count):
            rest = tuple(step for i, step in enumerate(schedule) if i not in left_out)
            for others in tuple(permutations(names))[1:]:
                yield renamed_brokers(rest, dict(zip(names, others, strict=True)))


def renamed_brokers(schedule: Schedule, others: Mapping[str, str]) -> Schedule:
    """The same schedule with other brokers; the names of rules stay, they are only names."""

    def recast_one(step: Any) -> Any:
        named = {
            name: getattr(step, name, "") for name in ("broker", "source", "destination", "to")
        }
        recast = replace(step, **{n: others[who] for n, who in named.items() if who in others})
        if isinstance(recast, steps.Reassign):
            return replace(recast, replicas=tuple(others[one] for one in recast.replicas))
        return recast

    return tuple(recast_one(step) for step in schedule)


def _simpler(step: steps.Step) -> Iterator[steps.Step]:
    match step:
        case steps.Hold(where=where) if where:
            yield replace(step, where="", topic=None)
        case steps.PowerOff(broker, survives):
            yield steps.Kill(broker, "discarded")
            if survives is not None:
                yield replace(step, survives=None)
        case steps.Produce(to=str()):
            yield replace(step, to=None)
        case steps.Cut(both=True):
            yield replace(step, both=False)


def renamed(schedule: Schedule) -> Schedule:
    """Records and rules get the numbers that they have in what is left."""
    records: dict[str, str] = {}
    rules: dict[str, str] = {}
    for step in schedule:
        if isinstance(step, steps.Produce):
            for record in step.records:
                records[record] = f"m{len(records) + 1}"
        elif isinstance(step, steps.Hold):
            rules[step.name] = f"{step.message} {step.source}→{step.destination}"
    if len(set(rules.values())) < len(rules):
        rules = {old: f"{new} ({n})" for n, (old, new) in enumerate(rules.items(), start=1)}
    return tuple(_with_names(step, records, rules) for step in schedule)


def _with_names(step: steps.Step, records: dict[str, str], rules: dict[str, str]) -> steps.Step:
    match step:
        case steps.Produce():
            return replace(step, records=tuple(records[record] for record in step.records))
        case steps.PowerOff(survives=str(survives)):
            return replace(step, survives=records[survives])
        case steps.Hold():
            return replace(step, rule=rules[step.name])
        case steps.Release() | steps.Discard():
            return replace(step, rule=rules[step.rule])
    return step


def signature(schedule: Schedule) -> str:
    """The same for schedules that differ in the brokers' names alone."""
    renaming: dict[str, str] = {}
    line = steps.in_line(schedule)
    for letter in line:
        if letter in NAMES and letter not in renaming:
            renaming[letter] = f"{len(renaming) + 1}"
    return "".join(renaming.get(letter, letter) for letter in line)
