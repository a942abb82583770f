"""The schedule of a random run, as data: acts, each a few steps of a scenario file. Pure.

An *act* begins with a step that has an `at`, in seconds since the load began, and is undone when
it has lasted. It has one step, or a `cast` and the steps that name its roles. Acts may overlap;
between those that do not there is calm. What steps mean is read by `nemesis.scenario`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from neaptide.clusters.duration import read_duration_s
from neaptide.nemesis.minimise import fewer
from neaptide.nemesis.roles import is_readable
from neaptide.nemesis.steps import VERBS

Document = Mapping[str, Any]  # a `[[step]]` as the file has it
FIRST_S: Final = 2.0
CHAIN_S: Final = 8.0  # at most; it is over as soon as it has hit
_CALM_S: Final = 3.0  # between two acts, when those between them were taken away
_AFTER_S: Final = 5.0  # of load after the last one


@dataclass(frozen=True, slots=True)
class Act:
    """`lasts_s` 0: there is nothing to undo. `steps`: without their times."""

    at_s: float
    lasts_s: float
    steps: tuple[Document, ...]

    @property
    def verb(self) -> str:
        """Of its first step."""
        return next(key for key in self.steps[0] if key in VERBS)

    @property
    def ends_s(self) -> float:
        return self.at_s + (CHAIN_S if self.verb == "cast" else self.lasts_s)


Schedule = tuple[Act, ...]


def acts_of(documents: Iterable[Document]) -> Schedule:
    """Of the steps of a file with `run`, which was read before. In the order of their times."""
    acts: list[Act] = []
    for document in documents:
        if "at" in document:
            step = {key: value for key, value in document.items() if key not in ("at", "lasts")}
            at_s, lasts_s = (float(read_duration_s(document.get(k, 0.0))) for k in ("at", "lasts"))
            acts.append(Act(at_s, lasts_s, (step,)))
        else:
            acts[-1] = replace(acts[-1], steps=(*acts[-1].steps, document))
    return tuple(sorted(acts, key=lambda act: act.at_s))


def documents_of(schedule: Schedule) -> Iterator[dict[str, Any]]:
    for act in schedule:
        first, *more = act.steps
        yield {"at": act.at_s, **({"lasts": act.lasts_s} if act.lasts_s else {}), **first}
        yield from map(dict, more)


# --- what is smaller -----------------------------------------------------------------------------


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """What a schedule becomes with less in it, the most taken away first: without calm, acts less,
    one step of a chain less.

    Each begins at once and has no long calm in it: a play takes as long as its schedule.
    """
    if without_calm(schedule) != schedule:
        yield without_calm(schedule)
    for less in fewer(schedule, overlapping=False):
        yield without_calm(less)
    for index, act in enumerate(schedule):
        cast, *chain = act.steps
        for steps in fewer(tuple(chain), overlapping=False) if len(chain) > 1 else ():
            if is_readable(steps):  # a release without its hold is not
                shorter = replace(act, steps=(cast, *steps))
                yield without_calm((*schedule[:index], shorter, *schedule[index + 1 :]))


def without_calm(schedule: Schedule) -> Schedule:
    """The same acts, the first at once; those that followed each other do so soon."""
    earlier_s, from_s = 0.0, FIRST_S
    acts = []
    for act in schedule:
        earlier_s = max(earlier_s, act.at_s - from_s)
        acts.append(replace(act, at_s=round(act.at_s - earlier_s, 3)))
        from_s = max(from_s, acts[-1].ends_s + _CALM_S)
    return tuple(acts)


def length_s(schedule: Schedule) -> float:
    """How long a load has to be for all of it."""
    return max((act.ends_s for act in schedule), default=0.0) + _AFTER_S
