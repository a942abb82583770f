"""Chains of steps with roles: drawn, read when somebody has them, or refused."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.nemesis import steps
from neaptide.nemesis.drawn.aims import SHAPES, draw_chain, draw_weights
from neaptide.nemesis.roles import (
    AimedStep,
    Cast,
    NotKnownError,
    cast,
    is_readable,
    needed,
    read_anyhow,
    read_steps,
)

WHO = Cast({"old_leader": 2, "next_leader": 0, "follower": 1, "old_controller": 1}, (0, 1))


Chain = tuple[dict[str, Any], ...]


@dataclass
class Seen:
    """As much of an Observed as is asked for here."""

    mark: int | None = 7

    def high_watermark(self, broker: int) -> int | None:
        return None if self.mark is None else self.mark + broker


def read(*one: dict[str, Any], seen: Any = None) -> list[AimedStep]:
    return [step for _, step in read_steps(one, WHO, seen)]


def drawn(count: int = 400, power_off: bool = False) -> list[Chain]:
    rng = random.Random(3)
    return [draw_chain(rng, 4, draw_weights(rng), power_off=power_off) for _ in range(count)]


def test_all_that_is_drawn_can_be_read_and_every_shape_is_drawn() -> None:
    chains = drawn()
    for _, *chain in chains:
        assert read_anyhow(chain)
    assert {first["why"] for first, *_ in chains} == set(SHAPES)
    assert all("cast" in first for first, *_ in chains)


def test_chains_have_one_to_three_rules() -> None:
    rules = Counter(
        sum(verb in step for step in chain for verb in ("hold", "drop", "delay"))
        for first, *chain in drawn()
        if first["why"] == "chain"
    )
    assert set(rules) == {1, 2, 3}


def test_nobody_loses_what_was_not_flushed_unless_that_was_asked_for() -> None:
    assert not any("power_off" in step for one in drawn() for step in one)
    assert any("power_off" in step for one in drawn(power_off=True) for step in one)


def test_two_seeds_have_different_weights() -> None:
    assert draw_weights(random.Random(1)) != draw_weights(random.Random(2))


def test_roles_are_those_of_the_moment_in_the_order_of_the_assignment() -> None:
    who = cast(leader=2, isr=(0, 1, 2), assigned=(2, 1, 0), controller=100)
    assert who is not None
    assert who.followers == (1, 0)
    assert who.roles == {"old_leader": 2, "next_leader": 1, "follower": 0, "old_controller": 100}


def test_where_one_alone_follows_it_is_next_and_the_follower() -> None:
    who = cast(leader=0, isr=(0, 2), assigned=(1, 0, 2), controller=None)
    assert who is not None
    assert who.roles == {"old_leader": 0, "next_leader": 2, "follower": 2}
    assert cast(leader=0, isr=(0,), assigned=(0, 1), controller=None) is None
    assert cast(leader=None, isr=(0, 1), assigned=(0, 1), controller=None) is None


def test_how_many_it_needs_in_the_isr() -> None:
    kill = {"kill": {"broker": "old_leader", "in_flight": "discarded"}}
    assert needed([kill, {"until": "leader is next_leader"}]) == 2
    assert needed([kill, {"until": "held(follower, next_leader)"}]) == 3


def test_a_relative_where_has_the_number_of_its_moment() -> None:
    hold = {"response": "fetch", "from": "old_leader", "to": "follower"}
    where = "high_watermark > HW(follower) + 3 and fetch_offset >= 2"
    [step] = read({"hold": {**hold, "where": where}}, seen=Seen())
    assert isinstance(step.step, steps.Hold)
    assert step.step.where == "high_watermark > 11 and fetch_offset >= 2"


def test_what_is_not_known_cannot_be_aimed_at() -> None:
    hold = {"response": "fetch", "from": "old_leader", "to": "follower"}
    aimed = {"hold": {**hold, "where": "high_watermark > HW(follower)"}}
    with pytest.raises(NotKnownError, match=r"HW\(follower\) is not known"):
        read(aimed, seen=Seen(None))


def test_all_followers_have_a_rule_each_and_the_condition_comes_after_the_last() -> None:
    hold = {"request": "fetch", "from": "followers", "to": "old_leader"}
    read_ = read({"hold": hold, "until": "held(follower, old_leader)"})
    sources = [one.step.source for one in read_ if isinstance(one.step, steps.Hold)]
    assert sources == ["next_leader", "follower"]
    assert [one.until is None for one in read_] == [True, False]


def test_a_delay_and_an_election_are_steps_too() -> None:
    delay = {"request": "any", "from": "follower", "to": "old_leader", "delay_ms": 40}
    first, second = read({"delay": delay}, {"elect": {}})
    assert isinstance(first.step, steps.Delay)
    assert (first.step.delay_ms, first.step.api) == (40, "any")
    assert isinstance(second.step, steps.Elect)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"boom": {}}, "no step"),
        ({"kill": {"broker": "A", "in_flight": "discarded"}}, "'A' is no broker"),
        ({"release": {"rule": "nobody's"}}, "no earlier step has the rule"),
        ({"until": "leader is nobodys"}, "cannot read"),
        ({"until": "HW(other) > 1"}, "other is no broker"),
        ({"kill": {"broker": "follower", "in_flight": "discarded"}, "elect": {}}, "one thing"),
        ({"hold": {"request": "fetch", "from": "follower", "to": "old_leader", "x": 1}}, "'x'"),
        (
            {"hold": {"request": "fetch", "from": "follower", "to": "old_leader", "where": "a"}},
            "comparison",
        ),
    ],
)
def test_a_step_that_cannot_be_read_is_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_anyhow([document])
    assert not is_readable([document])
