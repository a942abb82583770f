"""A random schedule, drawn whole from one seed before the run begins, and saved with it.

It is a row of *phases* with calm between them: in each a mix of faults, drawn anew, some at the
same time, all undone when it ends. Each seed has its own set of faults out of those that were asked
for, and its own weights (swarm testing). Times are seconds: of a phase since the load began, of a
fault since its phase began. The same seed, faults, brokers, partitions and length give the same
schedule.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.drawn.aims import draw_weights
from neaptide.nemesis.drawn.episodes import Episode
from neaptide.nemesis.drawn.faults import (
    ALL,
    FAULTS,
    NONE,
    Fault,
    Given,
    PartitionFault,
    read_fault,
)
from neaptide.nemesis.drawn.machines import CallsFault, DamageFault
from neaptide.nemesis.drawn.members import MembersFault

FIRST_S: Final = 2.0
_QUIET_S: Final = (2.0, 5.0)
_EPISODE_S: Final = 8.0  # at most; it is over as soon as it has hit
_AT_ONCE: Final = ((1, 5.0), (2, 3.0), (3, 1.5))  # how many faults a phase has, and how often
_ROUNDS: Final = "rounds"
_FEW: Final = 3
_KEPT: Final = 0.7  # how likely a seed keeps a fault that was asked for


@dataclass(frozen=True, slots=True)
class TimedFault:
    after_s: float
    lasts_s: float
    fault: Fault

    def to_json(self) -> dict[str, Any]:
        return {"after_s": self.after_s, "lasts_s": self.lasts_s, **self.fault.to_json()}


@dataclass(frozen=True, slots=True)
class Phase:
    at_s: float
    faults: tuple[TimedFault, ...]

    @property
    def lasts_s(self) -> float:
        return max(timed.after_s + timed.lasts_s for timed in self.faults)

    @property
    def doing(self) -> str:
        return ", ".join(dict.fromkeys(timed.fault.kind for timed in self.faults))

    def to_json(self) -> dict[str, Any]:
        return {"at_s": self.at_s, "faults": [timed.to_json() for timed in self.faults]}


Schedule = tuple[Phase, ...]


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
    brokers: Sequence[int],
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
    phases: list[Phase] = []
    at_s = FIRST_S
    while weights:
        phase = _draw_phase(rng, given, weights, round(at_s, 3))
        if phase.at_s + phase.lasts_s > time_s:
            break
        phases.append(phase)
        at_s = phase.at_s + phase.lasts_s + rng.uniform(*_QUIET_S)
    return _with_each(tuple(phases), given, random.Random(f"{seed}/each"))


def never_drawn(faults: Sequence[str], schedule: Schedule) -> tuple[str, ...]:
    """What was asked for and is in no phase: the run is too short for it."""
    drawn = faults_of(schedule)
    return tuple(name for name in faults if name not in drawn)


def _with_each(schedule: Schedule, given: Given, rng: random.Random) -> Schedule:
    """Each fault that was asked for has a phase, if there is one of which all else is in others,
    and which lasts as long as the fault does."""
    for name in never_drawn(given.faults, schedule):
        if FAULTS[name].alone:
            continue
        for index in rng.sample(range(len(schedule)), len(schedule)):
            others = (*schedule[:index], *schedule[index + 1 :])
            phase = schedule[index]
            fits = phase.lasts_s >= FAULTS[name].lasts_s[0]
            if fits and not set(faults_of((phase,))) - set(faults_of(others)):
                timed = _timed(rng, given, name)
                lasts_s = min(timed.lasts_s, phase.lasts_s)
                only = replace(timed, after_s=0.0, lasts_s=lasts_s)
                schedule = (*schedule[:index], Phase(phase.at_s, (only,)), *schedule[index + 1 :])
                break
    return schedule


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
) -> Phase:
    first = rng.choices(list(weights), list(weights.values()))[0]
    if FAULTS[first].alone:
        return Phase(at_s, (TimedFault(0.0, _EPISODE_S, FAULTS[first].draw(rng, given)),))
    others = {name: weight for name, weight in weights.items() if not FAULTS[name].alone}
    more = rng.choices([count - 1 for count, _ in _AT_ONCE], [odds for _, odds in _AT_ONCE])[0]
    names = [first, *rng.choices(list(others), list(others.values()), k=more)]
    return Phase(at_s, tuple(_timed(rng, given, name) for name in _at_once(names)))


def _at_once(names: list[str]) -> list[str]:
    """Each kind once. One network partition at a time: its end would heal what another one cut."""
    names = list(dict.fromkeys(names))
    cuts = [name for name in names if name in ("cut", "partition")]
    return [name for name in names if name not in cuts] + cuts[:1]


def _timed(rng: random.Random, given: Given, name: str) -> TimedFault:
    after_s = round(rng.uniform(0.0, 2.0), 3)
    lasts_s = round(rng.uniform(*FAULTS[name].lasts_s), 3)
    return TimedFault(after_s, lasts_s, FAULTS[name].draw(rng, given))


# --- saved schedules -----------------------------------------------------------------------------


def load_schedule(path: Path, brokers: Sequence[int], partitions: int) -> Schedule:
    """The schedule of a run directory, of its `run.json`, or of a file that is nothing else.

    Raises UsageError: one sentence.
    """
    file = path / "run.json" if path.is_dir() else path
    schedule = read_schedule(file)
    for phase in schedule:
        for timed in phase.faults:
            _check_fits(file, timed.fault, brokers, partitions)
    return schedule


def read_schedule(file: Path) -> Schedule:
    """The schedule in a JSON file, whatever cluster it is for. Raises UsageError: one sentence."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        raw = raw["schedule"] if isinstance(raw, dict) else raw
        return tuple(_read_phase(one) for one in raw)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}.") from None
    except KeyError as missing:
        raise UsageError(
            f"{file}: has no schedule of a random run: {missing} is missing."
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: has no schedule of a random run: {error}.") from None


def _read_phase(raw: Mapping[str, Any]) -> Phase:
    faults = tuple(
        TimedFault(float(one["after_s"]), float(one["lasts_s"]), read_fault(one))
        for one in raw["faults"]
    )
    if not faults:
        raise ValueError("a phase without faults")
    return Phase(float(raw["at_s"]), faults)


def _check_fits(file: Path, fault: Fault, brokers: Sequence[int], partitions: int) -> None:
    for named in _brokers_of(fault):
        if named not in brokers:
            raise UsageError(f"{file}: names broker {named}; raise --brokers.")
    if isinstance(fault, Episode | CallsFault | DamageFault) and fault.partition >= partitions:
        raise UsageError(f"{file}: names partition {fault.partition}; raise --partitions.")


def _brokers_of(fault: Fault) -> list[int]:
    if isinstance(fault, PartitionFault | MembersFault):
        return list(fault.brokers)
    ends = [getattr(fault, end, None) for end in ("source", "destination", "broker")]
    target = getattr(fault, "target", None)
    named = [] if target is None else list(target.brokers)
    return [*named, *(end for end in ends if isinstance(end, int))]


def faults_of(schedule: Schedule) -> tuple[str, ...]:
    """The names of its faults, in the order of the table."""
    kinds = {timed.fault.kind for phase in schedule for timed in phase.faults}
    return tuple(name for name in FAULTS if name in kinds)


# --- shrinking -----------------------------------------------------------------------------------


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """What a schedule becomes with less in it, the most taken away first.

    Halves of it, then one phase less, one fault of a phase less, one step of an episode less.
    """
    half = len(schedule) // 2
    if half:
        yield schedule[:half]
        yield schedule[half:]
    for index, phase in enumerate(schedule):
        rest = (*schedule[:index], *schedule[index + 1 :])
        if rest and len(schedule) > 2:
            yield rest
        for less in _smaller_phases(phase):
            yield (*schedule[:index], less, *schedule[index + 1 :])


def _smaller_phases(phase: Phase) -> Iterator[Phase]:
    for index, timed in enumerate(phase.faults):
        before, after = phase.faults[:index], phase.faults[index + 1 :]
        if before or after:
            yield replace(phase, faults=(*before, *after))
        if isinstance(timed.fault, Episode):
            for less in _smaller_episodes(timed.fault):
                yield replace(phase, faults=(*before, replace(timed, fault=less), *after))


def _smaller_episodes(episode: Episode) -> Iterator[Episode]:
    for index in range(len(episode.steps)):
        steps = (*episode.steps[:index], *episode.steps[index + 1 :])
        less = replace(episode, steps=steps)
        if not steps:
            continue
        try:
            Episode.from_json(less.to_json())  # a release without its hold cannot be read
        except UsageError:
            continue
        yield less
