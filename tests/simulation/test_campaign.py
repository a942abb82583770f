"""Many seeds side by side: who is free takes the next one, and nobody waits for the slowest."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from neaptide.nemesis.search.campaign import Campaign, Clock, Until, as_they_end
from neaptide.nemesis.search.episode import Explored


class _Seeds:
    """Seeds that are under way, and end when a test says so."""

    def __init__(self, on_start: Callable[[_Seeds], None]) -> None:
        self.futures: dict[int, Future[Explored]] = {}
        self._on_start = on_start

    def start(self, seed: int) -> Future[Explored]:
        future: Future[Explored] = Future()
        self.futures[seed] = future
        self._on_start(self)
        return future

    def running(self) -> list[int]:
        return [seed for seed, future in self.futures.items() if not future.done()]

    def end(self, seed: int) -> None:
        self.futures[seed].set_result(Explored(seed, 0, 0, None))


def _clock() -> Clock:
    return Clock(Until(), Campaign())


def test_the_others_go_on_while_one_seed_takes_long() -> None:
    def end_all_but_the_first(seeds: _Seeds) -> None:
        running = seeds.running()
        if len(running) == 3:
            seeds.end(running[1])
        if len(seeds.futures) == 20:
            seeds.end(0)
            for seed in seeds.running():
                seeds.end(seed)

    seeds = _Seeds(end_all_but_the_first)
    ended = [one.seed for one in as_they_end(seeds.start, lambda: 2, 0, 20, _clock())]
    assert sorted(ended) == list(range(20))
    assert ended.index(0) >= 17


def test_as_many_are_under_way_as_there_are_places_now_and_one_waits() -> None:
    places = 1
    most: list[int] = []

    def end_one_when_full(seeds: _Seeds) -> None:
        nonlocal places
        running = seeds.running()
        most.append(len(running))
        if len(seeds.futures) == 6:
            places = 4  # executors came
        if len(running) == places + 1 or len(seeds.futures) == 12:
            for seed in running:
                seeds.end(seed)

    seeds = _Seeds(end_one_when_full)
    ended = [one.seed for one in as_they_end(seeds.start, lambda: places, 0, 12, _clock())]
    assert sorted(ended) == list(range(12))
    assert max(most[:6]) == 2
    assert max(most[6:]) == 5
