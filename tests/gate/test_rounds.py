"""Fetch rounds are counted from 1 in each leader epoch."""

from __future__ import annotations

from neaptide.nemesis.gate.messages import LeaderEpoch
from neaptide.nemesis.gate.rounds import RoundCounter

_P = ("t", 0)


def test_rounds_are_counted_per_follower_leader_and_partition() -> None:
    counter = RoundCounter()
    assert [counter.next_round(1, 3, _P, 5)[1] for _ in range(3)] == [1, 2, 3]
    assert counter.next_round(2, 3, _P, 5) == (5, 1)
    assert counter.next_round(1, 3, ("t", 1), 5) == (5, 1)


def test_a_new_epoch_in_the_request_starts_again_at_one() -> None:
    counter = RoundCounter()
    counter.next_round(1, 3, _P, 5)
    counter.next_round(1, 3, _P, 5)
    assert counter.next_round(1, 3, _P, 6) == (6, 1)
    assert counter.next_round(1, 3, _P, 6) == (6, 2)


def test_the_epoch_is_what_the_follower_learned_not_what_others_were() -> None:
    counter = RoundCounter()
    counter.learn(1, {_P: LeaderEpoch(3, 5)})
    counter.learn(2, {_P: LeaderEpoch(3, 6)})
    assert counter.next_round(1, 3, _P, None) == (5, 1)
    assert counter.next_round(2, 3, _P, None) == (6, 1)


def test_a_late_fetch_to_the_old_leader_belongs_to_the_old_epoch() -> None:
    counter = RoundCounter()
    counter.learn(1, {_P: LeaderEpoch(3, 5)})
    counter.next_round(1, 3, _P, None)
    counter.learn(1, {_P: LeaderEpoch(2, 6)})
    assert counter.next_round(1, 3, _P, None) == (5, 2)
    assert counter.next_round(1, 2, _P, None) == (6, 1)


def test_an_epoch_is_news_once_and_never_goes_back() -> None:
    counter = RoundCounter()
    state = {_P: LeaderEpoch(3, 5)}
    assert counter.learn(1, state) == state
    assert counter.learn(1, state) == {}
    assert counter.learn(1, {_P: LeaderEpoch(3, 4)}) == {}


def test_an_epoch_that_nobody_reported_is_unknown() -> None:
    assert RoundCounter().next_round(1, 3, _P, None) == (None, 1)
