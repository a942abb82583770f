"""Many seeds of a search, side by side in processes.

What a seed comes to does not depend on that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Final

from neaptide.nemesis.search.episode import Explored, Loss, explore_seed
from neaptide.nemesis.search.explore import BROKEN
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.workers import workers_of

GARBAGE_MAX: Final = 50_000  # objects that a worker keeps before it collects them


@dataclass(slots=True)
class Campaign:
    """What is known so far. `losses`: the shortest of each signature that can be replayed."""

    schedules: int = 0
    states: int = 0
    seeds: int = 0
    losses: dict[str, Loss] = field(default_factory=dict)
    unportable: dict[str, Loss] = field(default_factory=dict)
    broken: dict[str, Loss] = field(default_factory=dict)  # rules, by invariant and signature
    first_loss_s: float | None = None
    lowest: Loss | None = None  # of whichever kind, that of the lowest seed

    def add(self, explored: Explored, elapsed_s: float) -> None:
        self.schedules += explored.schedules
        self.states += explored.states
        self.seeds += 1
        loss = explored.loss
        if loss is None:
            return
        if self.lowest is None or loss.seed < self.lowest.seed:
            self.lowest = loss
        kept = self.losses if loss.portable else self.unportable
        if loss.outcome.startswith(BROKEN):
            kept = self.broken
        before = kept.get(loss.signature)
        if before is None or (len(loss.shrunk), loss.seed) < (len(before.shrunk), before.seed):
            kept[loss.signature] = loss
        if loss.portable and self.first_loss_s is None:
            self.first_loss_s = elapsed_s

    def shortest(self) -> list[Loss]:
        return sorted(self.losses.values(), key=lambda loss: (len(loss.shrunk), loss.seed))


@dataclass(frozen=True, slots=True)
class Until:
    """When a campaign ends: after a number of seeds, after a time, with the first find.

    `any_find`: a find that no scenario file can hold ends it too.
    """

    seeds: int | None = None
    time_s: float | None = None
    first: bool = False
    any_find: bool = False


class Clock:
    """How long a campaign has been going, and whether it is over."""

    def __init__(self, until: Until, campaign: Campaign) -> None:
        self._until, self._campaign = until, campaign
        self._started = time.monotonic()

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def left_s(self) -> float | None:
        """None: for as long as it takes."""
        time_s = self._until.time_s
        return None if time_s is None else max(0.0, time_s - self.elapsed_s())

    def end_s(self) -> float | None:
        """On the monotonic clock, which all processes of a machine share."""
        time_s = self._until.time_s
        return None if time_s is None else self._started + time_s

    def is_over(self) -> bool:
        campaign = self._campaign
        found = (campaign.losses, campaign.broken, campaign.unportable)
        has_found = any(found if self._until.any_find else found[:2])
        return self.left_s() == 0.0 or (self._until.first and has_found)


Explore = Callable[[Clock], Iterator[Explored]]
Report = Callable[[Campaign, float], None]


def collect(explore: Explore, until: Until, report: Report) -> tuple[Campaign, float]:
    """What all seeds came to, in the order in which they end, and how long it took."""
    campaign = Campaign()
    clock = Clock(until, campaign)
    for explored in explore(clock):
        campaign.add(explored, clock.elapsed_s())
        report(campaign, clock.elapsed_s())
    return campaign, clock.elapsed_s()


def run_campaign(
    search: Search, first_seed: int, until: Until, *, workers: int, report: Report
) -> tuple[Campaign, float]:
    """Seeds side by side in processes of this machine."""

    def explore(clock: Clock) -> Iterator[Explored]:
        with workers_of(workers) as pool:
            yield from as_they_end(
                lambda seed: pool.submit(_explore, search, seed, clock.end_s()),
                lambda: workers,
                first_seed,
                until.seeds,
                clock,
            )

    return collect(explore, until, report)


def as_they_end(
    start: Callable[[int], Future[Explored]],
    places: Callable[[], int],
    first_seed: int,
    seeds: int | None,
    clock: Clock,
) -> Iterator[Explored]:
    """Seeds in the order in which they end. In every place is one under way, and one more waits."""
    next_seed = first_seed
    last_seed = None if seeds is None else first_seed + seeds
    running: set[Future[Explored]] = set()
    while True:
        may_start = not clock.is_over() and (last_seed is None or next_seed < last_seed)
        if may_start and len(running) < places() + 1:
            running.add(start(next_seed))
            next_seed += 1
            continue
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda one: one.result().seed):
            yield future.result()


def _explore(search: Search, seed: int, end_s: float | None) -> Explored:
    time_s = None if end_s is None else max(0.0, end_s - time.monotonic())
    explored = explore_seed(search, seed, time_s)
    if gc.get_count()[0] > GARBAGE_MAX:
        gc.collect()
    return explored
