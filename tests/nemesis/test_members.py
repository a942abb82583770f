"""Members: where a broker's replicas go, and that every change is drawn and can be saved."""

from __future__ import annotations

import random

import pytest

from neaptide.nemesis.drawn.members import MembersFault, draw_members, without

ASSIGNED = {0: (0, 1, 2), 1: (1, 2, 0)}


def test_where_all_have_a_replica_there_is_one_less() -> None:
    assert without(1, ASSIGNED, (0, 1, 2)) == {0: (0, 2), 1: (2, 0)}


def test_who_has_none_gets_the_place_of_who_gives_it_away() -> None:
    assert without(1, ASSIGNED, (3, 0, 1, 2)) == {0: (0, 3, 2), 1: (3, 2, 0)}


def test_only_what_changes_is_asked_for_and_nothing_is_left_without_a_replica() -> None:
    assert without(3, ASSIGNED, (0, 1, 2, 3)) == {}
    assert without(0, {0: (0,)}, (0,)) == {}
    assert without(0, {0: (0,), 1: (1,)}, (0, 1)) == {0: (1,)}


def test_every_change_is_drawn_and_is_the_same_again_when_it_was_saved() -> None:
    rng = random.Random(5)
    drawn = [draw_members(rng, (0, 1, 2), 4, voters=True) for _ in range(200)]
    everywhere = {"reassign", "remove", "elect", "controller", "partitions", "settings", "topic"}
    assert {one.action for one in drawn} == {*everywhere, "voter"}
    without_voters = [draw_members(rng, (0, 1, 2), 4) for _ in range(200)]
    assert {one.action for one in without_voters} == everywhere
    assert [MembersFault.from_json(one.to_json()) for one in drawn] == drawn
    with pytest.raises(ValueError, match="'explode' must be one of reassign"):
        MembersFault.from_json({**drawn[0].to_json(), "action": "explode"})
