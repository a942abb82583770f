"""What is left of a schedule still loses, and nothing can be taken from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from neaptide.nemesis.acts import Schedule, length_s, smaller, without_calm
from neaptide.nemesis.drawn.schedule import draw_schedule
from neaptide.nemesis.minimise import Minimised, fewer, minimise

BROKERS = ("A", "B", "C")


def drawn(seed: int) -> Schedule:
    return draw_schedule(seed, ("kill", "pause", "restart"), BROKERS, 120.0, 1)


def shrink(
    schedule: Schedule, loses: Callable[[Schedule], bool], **more: Any
) -> Minimised[Schedule]:
    return minimise(schedule, smaller, loses, **more)


def kinds(schedule: Schedule) -> list[str]:
    return [act.verb for act in schedule]


@pytest.mark.parametrize("seed", range(5))
def test_only_what_loses_is_left(seed: int) -> None:
    schedule = drawn(seed)
    first = kinds(schedule)[0]
    shrunk = shrink(schedule, lambda one: first in kinds(one))
    assert kinds(shrunk.smallest) == [first]
    assert shrunk.complete
    assert len(schedule) > 3


def test_two_that_lose_together_stay_together() -> None:
    schedule = drawn(1)
    two = kinds(schedule)[:1] + kinds(schedule)[-1:]

    def loses(one: Schedule) -> bool:
        return all(kinds(one).count(kind) >= two.count(kind) for kind in two)

    assert sorted(kinds(shrink(schedule, loses).smallest)) == sorted(two)


def test_what_loses_nothing_smaller_stays_as_it_is_but_for_the_calm() -> None:
    schedule = without_calm(drawn(2))
    shrunk = shrink(schedule, lambda one: one == schedule)
    assert shrunk.smallest == schedule
    assert shrunk.complete


def test_a_candidate_that_loses_at_the_second_play_is_taken() -> None:
    schedule = without_calm(drawn(3))
    plays: list[Schedule] = []

    def now_and_then(one: Schedule) -> bool:
        plays.append(one)
        return plays.count(one) == 2

    assert len(shrink(schedule, now_and_then, attempts=2).smallest) < len(schedule)
    plays.clear()
    assert shrink(schedule, now_and_then, attempts=1).smallest == schedule


def test_each_smaller_one_is_kept_at_once() -> None:
    schedule, kept = drawn(6), list[Schedule]()
    first = kinds(schedule)[0]
    shrunk = shrink(schedule, lambda one: first in kinds(one), keep=kept.append)
    assert kept[-1] == shrunk.smallest
    assert all(first in kinds(one) for one in kept)
    shrink(schedule, lambda _: False, keep=lambda _: pytest.fail("it did not lose"))


def test_it_stops_when_there_were_enough_plays_and_says_so() -> None:
    shrunk = shrink(drawn(4), lambda _: False, plays_max=3)
    assert shrunk.plays == 3
    assert not shrunk.complete


def test_calm_goes_and_everything_else_stays() -> None:
    schedule = drawn(5)
    late = tuple(replace(act, at_s=2 * act.at_s + 500) for act in schedule)
    sooner = without_calm(late)
    assert [act.steps for act in sooner] == [act.steps for act in late]
    assert sooner[0].at_s == 2.0
    ends = [max(one.ends_s for one in sooner[: n + 1]) for n in range(len(sooner))]
    assert all(act.at_s <= end + 3.001 for end, act in zip(ends, sooner[1:], strict=False))
    assert length_s(sooner) < length_s(late) - 490
    assert length_s(()) == 5.0


def test_acts_that_overlap_do_so_without_calm_too() -> None:
    first, second = drawn(5)[0], drawn(5)[1]
    both = (replace(first, at_s=90.0, lasts_s=4.0), replace(second, at_s=91.5, lasts_s=1.0))
    assert [act.at_s for act in without_calm(both)] == [2.0, 3.5]


# --- any sequence --------------------------------------------------------------------------------


@pytest.mark.parametrize("overlapping", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 24])
def test_of_any_sequence_exactly_what_is_needed_is_left(size: int, overlapping: bool) -> None:
    items = tuple(range(size))
    for needed in combinations(items, min(2, size)):
        found = minimise(
            items,
            lambda some: fewer(some, overlapping=overlapping),
            lambda some, needed=needed: set(needed) <= set(some),  # type: ignore[misc]
        )
        assert found.smallest == needed
        assert found.complete


def test_halves_come_first_and_runs_begin_anywhere_only_where_plays_cost_little() -> None:
    assert [*fewer((1, 2, 3, 4), overlapping=False)][:2] == [(1, 2), (3, 4)]
    assert (1, 4) in [*fewer((1, 2, 3, 4), overlapping=True)]
    assert (1, 4) not in [*fewer((1, 2, 3, 4), overlapping=False)]
    assert [*fewer((1,), overlapping=True)] == []


def test_what_was_tried_before_a_success_is_tried_again_after_it() -> None:
    """3 can go only when 5 has gone, and 5 is tried after it."""

    def loses(some: tuple[int, ...]) -> bool:
        return 1 in some and (3 in some or 5 not in some)

    def one_less(some: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [tuple(one for one in some if one != gone) for gone in some]

    items: tuple[int, ...] = (1, 3, 5)
    assert minimise(items, one_less, loses).smallest == (1,)
