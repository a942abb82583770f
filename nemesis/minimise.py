"""Makes what loses smaller: what is left still loses. Pure: whoever plays hands that in.

One delta debugging for all that is found: steps of a search, deliveries of messages, phases of a
random run. What smaller ones there are says who knows the items (`fewer` is of any sequence); here
is in which order they are tried, how often, and when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Minimised(Generic[T]):
    """`plays`: how many there were. `complete`: nothing more can be taken away."""

    smallest: T
    plays: int
    complete: bool


def minimise(
    whole: T,
    smaller: Callable[[T], Iterable[T]],
    loses: Callable[[T], bool],
    *,
    plays_max: int | None = None,
    attempts: int = 1,
    keep: Callable[[T], None] = lambda _: None,
) -> Minimised[T]:
    """`loses` plays a candidate once. Each is played up to `attempts` times, as plays need not be
    exact repetitions, and taken as soon as one loses; at most `plays_max` plays in all.

    After a success it goes on where it was: what was tried before that is tried once more at the
    end. `keep` is given each smaller one that loses, as soon as it is known to.
    """
    plays, first = 0, 0
    while True:
        rotated = chain(
            islice(enumerate(smaller(whole)), first, None),
            islice(enumerate(smaller(whole)), first),
        )
        for number, candidate in rotated:
            for _ in range(attempts):
                if plays == plays_max:
                    return Minimised(whole, plays, complete=False)
                plays += 1
                if loses(candidate):
                    break
            else:
                continue
            whole, first = candidate, number
            keep(whole)
            break
        else:
            return Minimised(whole, plays, complete=True)


def fewer(items: tuple[Item, ...], *, overlapping: bool) -> Iterator[tuple[Item, ...]]:
    """With a run of the items left out: halves first, then quarters, twos, and each alone.

    `overlapping`: a run may begin anywhere, where plays cost little; else each is in one run of a
    length. Never nothing.
    """
    size = len(items)
    for length in dict.fromkeys((size // 2, size // 4, 2, 1)):
        if not 0 < length < size:
            continue
        for start in range(size - length, -1, -1 if overlapping else -length):
            yield items[:start] + items[start + length :]
