"""Many seeds of a search, side by side in processes. What a seed comes to does not depend on that.

Workers end with their harness: after every seed they look whether it still lives.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from nemesis.search.episode import Explored, Loss, Search, explore_seed
from nemesis.search.explore import BROKEN
from nemesis.search.workers import begin, is_orphan


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

    def add(self, explored: Explored, elapsed_s: float) -> None:
        self.schedules += explored.schedules
        self.states += explored.states
        self.seeds += 1
        loss = explored.loss
        if loss is None:
            return
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


def run_campaign(
    search: Search,
    first_seed: int,
    *,
    seeds: int | None,
    time_s: float | None,
    workers: int,
    stop_at_first: bool,
    tell: Callable[[Campaign, float], None],
) -> tuple[Campaign, float]:
    """So many seeds, or for so long. Returns what was found, and how long it took."""
    campaign = Campaign()
    started = time.monotonic()

    def is_over() -> bool:
        out_of_time = time_s is not None and time.monotonic() - started >= time_s
        return out_of_time or (stop_at_first and bool(campaign.losses or campaign.broken))

    for explored in _explore_all(search, first_seed, seeds, workers, is_over):
        elapsed_s = time.monotonic() - started
        campaign.add(explored, elapsed_s)
        tell(campaign, elapsed_s)
    return campaign, time.monotonic() - started


def _explore_all(
    search: Search,
    first_seed: int,
    seeds: int | None,
    workers: int,
    is_over: Callable[[], bool],
) -> Iterator[Explored]:
    """In the order in which they end."""
    next_seed = first_seed
    last_seed = None if seeds is None else first_seed + seeds
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, begin, (os.getpid(),)) as pool:
        running: set[Future[Explored]] = set()
        try:
            while True:
                may_start = not is_over() and (last_seed is None or next_seed < last_seed)
                if may_start and len(running) < workers + 1:
                    running.add(pool.submit(_explore, search, next_seed))
                    next_seed += 1
                    continue
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda one: one.result().seed):
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _explore(search: Search, seed: int) -> Explored:
    if is_orphan():
        sys.exit(0)
    explored = explore_seed(search, seed)
    gc.collect()
    return explored
