"""Makes a schedule that loses smaller: what is left still loses.

Pure: whoever plays the schedules hands that in. Live runs are not exact repetitions, so each
candidate is played up to `attempts` times, and kept as soon as one play loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from neaptide.nemesis.drawn.schedule import FIRST_S, Schedule, smaller

_CALM_S: Final = 3.0  # between two phases, when those between them were taken away
_AFTER_S: Final = 5.0  # of load after the last fault

Loses = Callable[[Schedule], bool]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """`plays`: how many there were. `complete`: nothing more can be taken away."""

    schedule: Schedule
    plays: int
    complete: bool


def shrink(
    schedule: Schedule,
    loses: Loses,
    plays_max: int,
    attempts: int = 2,
    keep: Callable[[Schedule], None] = lambda _: None,
) -> Shrunk:
    """`loses` plays a schedule once. At most `plays_max` plays.

    `keep` is given each smaller schedule that loses, as soon as it is known to.
    """
    plays = 0
    found = True
    while found:
        found = False
        for candidate in _candidates(schedule):
            for _ in range(attempts):
                if plays == plays_max:
                    return Shrunk(schedule, plays, complete=False)
                plays += 1
                if loses(candidate):
                    found = True
                    break
            if found:
                schedule = candidate
                keep(schedule)
                break
    return Shrunk(schedule, plays, complete=True)


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Each begins at once and has no long calm in it: a play takes as long as its schedule."""
    sooner = without_calm(schedule)
    if sooner != schedule:
        yield sooner
    for less in smaller(schedule):
        yield without_calm(less)


def without_calm(schedule: Schedule) -> Schedule:
    """The same phases, the first at once, and each soon after the one before it."""
    at_s, phases = FIRST_S, []
    for phase in schedule:
        moved = replace(phase, at_s=round(min(phase.at_s, at_s), 3))
        phases.append(moved)
        at_s = moved.at_s + moved.lasts_s + _CALM_S
    return tuple(phases)


def length_s(schedule: Schedule) -> float:
    """How long a load has to be for all of it."""
    return max((phase.at_s + phase.lasts_s for phase in schedule), default=0.0) + _AFTER_S
