"""Which combinations a night tries: every pair of values first, then by swarm. Pure.

All-pairs: each two values of two axes that can go together are together in some cell; most faults
of a system are of one or two such choices. Swarm: then whatever is left of the night is drawn from
the seed, with a set of faults of its own for each cell. The same plan and seed give the same cells,
in the same order, for ever.

Not here: whether a combination can be; that is asked of whoever hands in the axes.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, Literal

from allpairspy import AllPairs

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.drawn.faults import FAULTS, NONE

Values = Mapping[str, str]
Axes = Mapping[str, tuple[str, ...]]
Refusal = Callable[[Values], str | None]  # why a combination cannot be; None: it can

FAULTS_AXIS: Final = "faults"
COMBINATIONS_MAX: Final = 50_000
_DRAWS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. `number` counts from 1 in a night; `seed` is that of its run."""

    number: int
    by: Literal["pairs", "swarm"]
    values: Values
    seed: int


@dataclass(frozen=True, slots=True)
class Space:
    """Axes, those with rules about what goes together (`bound`) and those without (`free`).

    `combos`: what can be, of the bound axes. `refused`: sentences, and how many combinations each
    leaves out.
    """

    bound: Axes
    free: Axes
    combos: tuple[tuple[str, ...], ...]
    refused: Mapping[str, int]

    @property
    def axes(self) -> Axes:
        return {**self.bound, **self.free}


def space_of(bound: Axes, free: Axes, refusal: Refusal) -> Space:
    """Raises UsageError where nothing goes together, or the plan is too large to look through."""
    size = 1
    for values in bound.values():
        size *= len(values)
    if size > COMBINATIONS_MAX:
        raise UsageError(
            f"The plan has {size} combinations of {', '.join(bound)}; name fewer of each:"
            f" at most {COMBINATIONS_MAX} are looked through."
        )
    refused: Counter[str] = Counter()
    combos = []
    for combo in product(*bound.values()):
        why = refusal(dict(zip(bound, combo, strict=True)))
        if why is None:
            combos.append(combo)
        else:
            refused[why] += 1
    if not combos:
        reasons = "; ".join(why.rstrip(".") for why, _ in refused.most_common(2))
        raise UsageError(f"Nothing in the plan goes together: {reasons}.")
    return Space(bound, free, tuple(combos), dict(refused.most_common()))


def cells(space: Space, seed: int, refusal: Refusal) -> Iterator[Cell]:
    """Without end: whoever runs them has a budget."""
    number = 0
    for values in pairs(space, seed):
        number += 1
        yield Cell(number, "pairs", values, _seed(seed, number))
    while True:
        number += 1
        yield Cell(number, "swarm", swarm(space, seed, number, refusal), _seed(seed, number))


def _seed(seed: int, number: int) -> int:
    """As a run takes it: below 2^31."""
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 2**31


# --- pairs ---------------------------------------------------------------------------------------

Pair = tuple[tuple[str, str], tuple[str, str]]


def pairs_of(values: Values) -> Iterator[Pair]:
    """Of one combination: each two axes with their values, in the order of the axes."""
    yield from combinations(values.items(), 2)


def possible_pairs(space: Space) -> set[Pair]:
    """Every two values that are together in some combination that can be."""
    found: set[Pair] = set()
    seen: dict[str, set[str]] = {axis: set() for axis in space.bound}
    for combo in space.combos:
        values = dict(zip(space.bound, combo, strict=True))
        found.update(pairs_of(values))
        for axis, value in values.items():
            seen[axis].add(value)
    of_bound = [(axis, value) for axis in space.bound for value in sorted(seen[axis])]
    of_free = [(axis, value) for axis in space.free for value in space.free[axis]]
    found.update((one, other) for one in of_bound for other in of_free)
    found.update((one, other) for one, other in combinations(of_free, 2) if one[0] != other[0])
    return found


def pairs(space: Space, seed: int) -> list[dict[str, str]]:
    """Combinations that cover every possible pair; the seed says in which order values come."""
    rng = random.Random(f"{seed}/pairs")
    axes = OrderedDict(
        (axis, rng.sample(values, len(values))) for axis, values in space.axes.items()
    )
    prefixes = {combo[:length] for combo in space.combos for length in range(len(space.bound) + 1)}
    width = len(space.bound)
    rows = [
        dict(zip(axes, row, strict=True))
        for row in AllPairs(
            list(axes.values()), filter_func=lambda row: tuple(row[:width]) in prefixes
        )
    ]
    missing = possible_pairs(space).difference(*map(pairs_of, rows))
    for pair in sorted(missing):
        if any(pair in set(pairs_of(row)) for row in rows[-len(missing) :]):
            continue  # one that was added for another pair has it, too
        rows.append(_with(space, dict(pair), rng))
    return rows


def _with(space: Space, wanted: Values, rng: random.Random) -> dict[str, str]:
    """Some combination that has these values; there is one."""
    at = {axis: n for n, axis in enumerate(space.bound)}
    fitting = [
        combo
        for combo in space.combos
        if all(combo[at[axis]] == value for axis, value in wanted.items() if axis in at)
    ]
    bound = dict(zip(space.bound, rng.choice(fitting), strict=True))
    free = {axis: wanted.get(axis) or rng.choice(values) for axis, values in space.free.items()}
    return {**bound, **free}


# --- swarm ---------------------------------------------------------------------------------------


def swarm(space: Space, seed: int, number: int, refusal: Refusal) -> dict[str, str]:
    """A combination that can be, with faults of its own out of all that the plan names."""
    rng = random.Random(f"{seed}/swarm/{number}")
    combo = rng.choice(space.combos)
    values = dict(zip(space.bound, combo, strict=True))
    free = {axis: rng.choice(choices) for axis, choices in space.free.items()}
    named = fault_names(space.bound.get(FAULTS_AXIS, ()))
    for _ in range(_DRAWS_MAX if named else 0):
        drawn = rng.sample(named, rng.randint(1, len(named)))
        changed = {**values, FAULTS_AXIS: ",".join(name for name in FAULTS if name in drawn)}
        if refusal(changed) is None:
            return {**changed, **free}
    return {**values, **free}


def fault_names(sets: Sequence[str]) -> list[str]:
    """All faults of several sets such as `rounds,kill`; in the order of the table."""
    named = {name.strip() for one in sets for name in one.split(",")} - {NONE}
    return [name for name in FAULTS if name in named]
