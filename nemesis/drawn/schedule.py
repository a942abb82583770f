"""A random schedule, drawn whole from one seed before the run begins, and saved with it.

It is a row of *phases* with calm between them: in each a mix of faults, drawn anew, some at the
same time, all undone when it ends. Each seed has its own set of faults out of those that were asked
for, and its own weights (swarm testing). What is drawn are acts (`nemesis.acts`): steps of a
scenario file, with their times. The same seed, faults, brokers, partitions and length give the same
schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.acts import CHAIN_S, FIRST_S, Act, Schedule
from neaptide.nemesis.drawn.aims import draw_weights
from neaptide.nemesis.drawn.faults import ALL, FAULTS, NONE, Given, faults_of

_QUIET_S: Final = (2.0, 5.0)
_AT_ONCE: Final = ((1, 5.0), (2, 3.0), (3, 1.5))  # how many faults a phase has, and how often
_ROUNDS: Final = "rounds"
_FEW: Final = 3
_KEPT: Final = 0.7  # how likely a seed keeps a fault that was asked for
_Phase = tuple[Act, ...]


# --- names ---------------------------------------------------------------------------------------


def parse_faults(text: str, can: Callable[[str], bool] = lambda name: True) -> tuple[str, ...]:
    """`kill,pause,cut`, `all`, or `none`. Raises UsageError.

    `can`: whether the system can do it; `all` is all that it can.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == (NONE,):
        return ()
    known = ", ".join((*FAULTS, ALL))
    for name in names:
        if name not in (*FAULTS, ALL):
            raise UsageError(f"There is no fault {name!r}; it must be one of {known}, or none.")
    if not names:
        raise UsageError(f"Name faults, as in kill,pause; there are {known}, or none.")
    return tuple(filter(can, FAULTS)) if ALL in names else names


# --- drawing -------------------------------------------------------------------------------------


def draw_schedule(
    seed: int,
    faults: Sequence[str],
    brokers: Sequence[str],
    time_s: float,
    partitions: int = 1,
    *,
    coordinated: bool = False,
    voters: bool = False,
) -> Schedule:
    """Phases until the time is over; the last one ends before it.

    `coordinated`: the workload has a group, or transactions, whose coordinator can be a target.
    `voters`: the cluster has a quorum that voters can leave.
    """
    rng = random.Random(seed)
    given = Given(tuple(brokers), partitions, tuple(faults), draw_weights(rng), coordinated, voters)
    weights = _swarm(rng, faults)
    phases: list[_Phase] = []
    at_s = FIRST_S
    while weights:
        phase = _draw_phase(rng, given, weights, at_s)
        if _ends_s(phase) > time_s:
            break
        phases.append(phase)
        at_s = _ends_s(phase) + rng.uniform(*_QUIET_S)
    all_of_them = _with_each(phases, given, random.Random(f"{seed}/each"))
    return tuple(act for phase in all_of_them for act in sorted(phase, key=lambda act: act.at_s))


def never_drawn(faults: Sequence[str], schedule: Sequence[Act]) -> tuple[str, ...]:
    """What was asked for and is in no phase: the run is too short for it."""
    drawn = faults_of(schedule)
    return tuple(name for name in faults if name not in drawn)


def _ends_s(phase: _Phase) -> float:
    return max(act.ends_s for act in phase)


def _with_each(phases: list[_Phase], given: Given, rng: random.Random) -> list[_Phase]:
    """Each fault that was asked for has a phase, if there is one of which all else is in others,
    and which lasts as long as the fault does."""
    for name in never_drawn(given.faults, [act for phase in phases for act in phase]):
        if FAULTS[name].alone:
            continue
        for index in rng.sample(range(len(phases)), len(phases)):
            others = [act for phase in (*phases[:index], *phases[index + 1 :]) for act in phase]
            phase = phases[index]
            at_s, room_s = phase[0].at_s, _ends_s(phase) - phase[0].at_s
            least, most = FAULTS[name].lasts_s
            if room_s >= least and not set(faults_of(phase)) - set(faults_of(others)):
                lasts_s = round(min(rng.uniform(least, most), room_s), 3)
                phases[index] = tuple(FAULTS[name].draw(rng, given, at_s, lasts_s))
                break
    return phases


def _swarm(rng: random.Random, faults: Sequence[str]) -> dict[str, float]:
    """The faults of one seed, and how likely each is; those that are aimed are never left out."""
    kept = [name for name in faults if rng.random() < _KEPT or name == _ROUNDS]
    left = [name for name in faults if name not in kept]
    least = 2 if len(faults) > 2 else min(1, len(faults))
    kept += rng.sample(left, max(0, least - len(kept)))
    weights = {name: rng.uniform(0.3, 1.0) for name in kept}
    if _ROUNDS in weights:  # twice as much as one or two others; of many, less than half
        others = sum(weights.values()) - weights[_ROUNDS]
        weights[_ROUNDS] += others * (2 if len(weights) <= _FEW else 0.6)
    return weights


def _draw_phase(
    rng: random.Random, given: Given, weights: Mapping[str, float], at_s: float
) -> _Phase:
    at_s = round(at_s, 3)
    first = rng.choices(list(weights), list(weights.values()))[0]
    if FAULTS[first].alone:
        return tuple(FAULTS[first].draw(rng, given, at_s, CHAIN_S))
    others = {name: weight for name, weight in weights.items() if not FAULTS[name].alone}
    more = rng.choices([count - 1 for count, _ in _AT_ONCE], [odds for _, odds in _AT_ONCE])[0]
    names = [first, *rng.choices(list(others), list(others.values()), k=more)]
    return tuple(act for name in _at_once(names) for act in _timed(rng, given, name, at_s))


def _at_once(names: list[str]) -> list[str]:
    """Each kind once. One network partition at a time: its end would heal what another one cut."""
    names = list(dict.fromkeys(names))
    cuts = [name for name in names if name in ("cut", "partition")]
    return [name for name in names if name not in cuts] + cuts[:1]


def _timed(rng: random.Random, given: Given, name: str, at_s: float) -> _Phase:
    after_s, lasts_s = rng.uniform(0.0, 2.0), rng.uniform(*FAULTS[name].lasts_s)
    return tuple(FAULTS[name].draw(rng, given, at_s + after_s, lasts_s))
