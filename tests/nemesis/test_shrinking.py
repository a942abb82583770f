"""What is left of a schedule still loses, and nothing can be taken from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from neaptide.nemesis.drawn.schedule import Schedule, draw_schedule
from neaptide.nemesis.drawn.shrinking import length_s, shrink, without_calm

BROKERS = (0, 1, 2)


def drawn(seed: int) -> Schedule:
    return draw_schedule(seed, ("kill", "pause", "restart"), BROKERS, 120.0, 1)


def kinds(schedule: Schedule) -> list[str]:
    return [timed.fault.kind for phase in schedule for timed in phase.faults]


@pytest.mark.parametrize("seed", range(5))
def test_only_what_loses_is_left(seed: int) -> None:
    schedule = drawn(seed)
    first = kinds(schedule)[0]
    shrunk = shrink(schedule, lambda one: first in kinds(one), plays_max=10_000)
    assert kinds(shrunk.schedule) == [first]
    assert shrunk.complete
    assert len(schedule) > 3


def test_two_that_lose_together_stay_together() -> None:
    schedule = drawn(1)
    two = kinds(schedule)[:1] + kinds(schedule)[-1:]

    def loses(one: Schedule) -> bool:
        return all(kinds(one).count(kind) >= two.count(kind) for kind in two)

    assert sorted(kinds(shrink(schedule, loses, 10_000).schedule)) == sorted(two)


def test_what_loses_nothing_smaller_stays_as_it_is_but_for_the_calm() -> None:
    schedule = without_calm(drawn(2))
    shrunk = shrink(schedule, lambda one: one == schedule, 10_000)
    assert shrunk.schedule == schedule
    assert shrunk.complete


def test_a_candidate_that_loses_at_the_second_play_is_taken() -> None:
    schedule = without_calm(drawn(3))
    plays: list[Schedule] = []

    def now_and_then(one: Schedule) -> bool:
        plays.append(one)
        return plays.count(one) == 2

    assert len(shrink(schedule, now_and_then, 10_000, attempts=2).schedule) < len(schedule)
    plays.clear()
    assert shrink(schedule, now_and_then, 10_000, attempts=1).schedule == schedule


def test_each_smaller_one_is_kept_at_once() -> None:
    schedule, kept = drawn(6), list[Schedule]()
    first = kinds(schedule)[0]
    shrunk = shrink(schedule, lambda one: first in kinds(one), 10_000, keep=kept.append)
    assert kept[-1] == shrunk.schedule
    assert all(first in kinds(one) for one in kept)
    shrink(schedule, lambda _: False, 10_000, keep=lambda _: pytest.fail("it did not lose"))


def test_it_stops_when_there_were_enough_plays_and_says_so() -> None:
    shrunk = shrink(drawn(4), lambda _: False, plays_max=3)
    assert shrunk.plays == 3
    assert not shrunk.complete


def test_calm_goes_and_everything_else_stays() -> None:
    schedule = drawn(5)
    late = tuple(replace(phase, at_s=phase.at_s + 500) for phase in schedule)
    sooner = without_calm(late)
    assert [phase.faults for phase in sooner] == [phase.faults for phase in late]
    assert sooner[0].at_s == 2.0
    assert all(before.at_s + before.lasts_s < after.at_s for before, after in pairwise(sooner))
    assert length_s(sooner) < length_s(late) - 490
    assert length_s(()) == 5.0
