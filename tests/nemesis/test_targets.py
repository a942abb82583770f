"""Whom a fault is for: so many, or whoever has the role when it begins."""

from __future__ import annotations

import random

import pytest

from neaptide.nemesis.drawn.targets import Scope, Seen, Target, draw_target, resolve

SEEN = Seen(leader=1, isr=(0, 1, 3), controller=100)


@pytest.mark.parametrize(
    ("scope", "meant"),
    [
        ("one", (4,)),
        ("minority", (4, 3)),
        ("majority", (4, 3, 2)),
        ("all", (4, 3, 2, 1, 0)),
        ("leader", (1,)),
        ("follower", (3,)),
        ("controller", (100,)),
    ],
)
def test_a_target_is_who_is_meant_now(scope: Scope, meant: tuple[int, ...]) -> None:
    assert resolve(Target(scope, (4, 3, 2, 1, 0)), SEEN) == meant


def test_where_nobody_has_the_role_nobody_is_meant() -> None:
    nobody = Seen(None, (), None)
    for scope in ("leader", "follower", "controller"):
        assert resolve(Target(scope, (0, 1, 2)), nobody) == ()


def test_every_target_is_drawn_some_time() -> None:
    rng = random.Random(1)
    drawn = {draw_target(rng, (0, 1, 2), 4).scope for _ in range(300)}
    assert drawn == {"one", "minority", "majority", "all", "leader", "follower", "controller"}


def test_of_one_broker_a_minority_is_that_one() -> None:
    for scope in ("one", "minority", "majority", "all"):
        assert resolve(Target(scope, (0,)), SEEN) == (0,)


def test_a_coordinator_is_a_target_only_where_there_is_one() -> None:
    def scopes(*, coordinated: bool) -> set[str]:
        rng = random.Random(3)
        return {draw_target(rng, (0, 1, 2), 4, coordinated=coordinated).scope for _ in range(300)}

    assert "coordinator" in scopes(coordinated=True)
    assert "coordinator" not in scopes(coordinated=False)
    assert {"leader", "controller", "one"} < scopes(coordinated=False)


def test_the_coordinator_is_who_the_brokers_name_and_nobody_where_they_do_not() -> None:
    target = Target("coordinator", (0, 1, 2))
    assert resolve(target, Seen(0, (0, 1, 2), 1, 2)) == (2,)
    assert resolve(target, Seen(0, (0, 1, 2), 1)) == ()
    assert Target.from_json(target.to_json()) == target
