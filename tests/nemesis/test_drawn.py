"""Faults of random runs: drawn as steps that can be read, for all whom they may be for, and nothing
that loses by right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, get_args

import pytest

from neaptide.clusters.hosts.toxiproxy import TOXICS, Stream
from neaptide.nemesis.acts import Act
from neaptide.nemesis.drawn.faults import FAULTS, Given, Scope
from neaptide.nemesis.drawn.machines import draw_moves
from neaptide.nemesis.drawn.members import draw_members
from neaptide.nemesis.roles import read_anyhow
from neaptide.nemesis.steps import Names, ScenarioError, read_step
from neaptide.nemesis.steps.machines import SURVIVED

BROKERS = ("A", "B", "C")
SEEDS = range(400)
HOUR_MS = 3_600_000
GIVEN = Given(BROKERS, 4, aims={"chain": 1.0, "late-follower": 1.0}, coordinated=True)


def drawn(name: str, given: Given = GIVEN) -> list[list[Act]]:
    rngs = map(random.Random, SEEDS)
    return [list(FAULTS[name].draw(rng, given, 2.0, 5.0)) for rng in rngs]


def tables(name: str, verb: str) -> list[dict[str, Any]]:
    return [act.steps[0][verb] for acts in drawn(name) for act in acts if act.verb == verb]


@pytest.mark.parametrize("name", FAULTS)
def test_the_same_seed_draws_the_same_steps_and_all_can_be_read(name: str) -> None:
    first = drawn(name)
    assert first == drawn(name)
    assert {act.verb for acts in first for act in acts} <= set(FAULTS[name].verbs)
    for act in (act for acts in first for act in acts):
        names = Names(brokers={"A": 0, "B": 1, "C": 2}, is_timed=True, partitions=4)
        read_step(act.verb, act.steps[0][act.verb], names, ScenarioError)
        read_anyhow(act.steps[1:])


def test_every_verb_of_the_table_is_drawn_some_time() -> None:
    for name, kind in FAULTS.items():
        given = (GIVEN, Given(BROKERS, 4, voters=True, aims={"chain": 1.0}))
        verbs = {act.verb for one in given for acts in drawn(name, one) for act in acts}
        assert verbs == set(kind.verbs)


# --- whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "is_meant"),
    [
        ("one", lambda whom: len(whom) == 1 and set(whom) <= set("ABCDE")),
        ("minority", lambda whom: len(set(whom)) == 2),
        ("majority", lambda whom: len(set(whom)) == 3),
        ("all", lambda whom: len(set(whom)) == 5),
        ("leader", lambda whom: whom[0] in {f"leader({n})" for n in range(4)}),
        ("follower", lambda whom: whom[0] in {f"follower({n})" for n in range(4)}),
        ("controller", lambda whom: whom == ("controller",)),
        ("coordinator", lambda whom: whom == ("coordinator",)),
    ],
)
def test_a_fault_is_for_so_many_or_for_a_role(
    scope: Scope, is_meant: Callable[[tuple[str, ...]], bool]
) -> None:
    given = Given(tuple("ABCDE"), 4, coordinated=True)
    assert all(is_meant(given.whom(random.Random(seed), (scope,))) for seed in SEEDS)


def test_of_one_broker_a_minority_is_that_one() -> None:
    for scope in ("one", "minority", "majority", "all"):
        assert Given(("A",), 1).whom(random.Random(1), (scope,)) == ("A",)


def test_a_coordinator_is_meant_only_where_there_is_one() -> None:
    def all_of_them(given: Given) -> set[tuple[str, ...]]:
        return {given.whom(random.Random(seed)) for seed in SEEDS}

    assert ("coordinator",) in all_of_them(GIVEN)
    assert ("coordinator",) not in all_of_them(Given(BROKERS, 4))
    assert {("controller",), ("leader(3)",), ("B",)} < all_of_them(Given(BROKERS, 4))


# --- links, clocks and disks ---------------------------------------------------------------------


def test_every_toxic_is_drawn_on_every_link_each_way() -> None:
    toxics = tables("slow", "toxic")
    assert {one["type"] for one in toxics} == set(TOXICS)
    assert {one["purpose"] for one in toxics} == {"client", "replication", "coordination"}
    assert {one["stream"] for one in toxics} == set(get_args(Stream))
    assert {one["broker"] for one in toxics} == set(BROKERS)


def test_no_clock_is_wrong_by_as_much_as_anything_is_kept() -> None:
    ahead = [one["ahead_ms"] for one in tables("clock", "set_clock")]
    assert -HOUR_MS < min(ahead) < 0 < max(ahead) < HOUR_MS


def test_a_clock_jumps_goes_there_and_back_or_further_and_further_and_is_right_at_the_end() -> None:
    shapes = set()
    for seed in SEEDS:
        moves = list(draw_moves(random.Random(seed), 6.0))
        ends = [after_s + lasts_s for after_s, lasts_s, _ in moves]
        ahead = [ahead_ms for _, _, ahead_ms in moves]
        assert moves[0][0] == 0
        assert max(ends) <= 6.0 + 1e-9
        if len(moves) == 1:
            shapes.add("jump")
        elif len(set(ahead)) == 1:
            shapes.add("strobe")
            assert all(end < begin[0] for end, begin in zip(ends, moves[1:], strict=False))
        else:
            shapes.add("drift")
            assert ahead == [ahead[0] * (n + 1) for n in range(len(ahead))]
    assert shapes == {"jump", "strobe", "drift"}


def test_disks_fail_in_every_way_and_of_one_broker_at_a_time() -> None:
    calls = tables("disk", "inject")
    assert {one.get("error") for one in calls} == {"EIO", "ENOSPC", None}
    assert {one["call"] for one in calls} == {"write", "fsync"}
    assert {one["nth"] > 1 for one in calls} == {True, False}
    assert all(("error" in one) != ("delay_ms" in one) for one in calls)
    damaged = tables("disk", "damage")
    assert {(one["kind"], one["file"]) for one in damaged} == set(SURVIVED)
    whom = {(one["broker"], one["partition"]) for one in calls + damaged}
    assert {who.rstrip("(0123)") for who, _ in whom} == {*BROKERS, "leader", "follower"}
    assert all(who == f"{who[:-3]}({at})" for who, at in whom if who not in BROKERS)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("flipped-bit", "segment"),  # the base offset is in no checksum
        ("lost-directory", "segment"),
        ("lost-file", "epochs"),
        ("lost-file", "high-watermarks"),
    ],
)
def test_what_may_lose_by_right_is_neither_drawn_nor_read(kind: str, file: str) -> None:
    table = {"broker": "A", "kind": kind, "file": file}
    timed, scripted = Names(brokers={"A": 0}, is_timed=True), Names(brokers={"A": 0})
    with pytest.raises(ScenarioError, match="need not survive"):
        read_step("damage", table, timed, ScenarioError)
    read_step("damage", table, scripted, ScenarioError)  # a scenario may do all of it


# --- members -------------------------------------------------------------------------------------


def test_voters_leave_only_where_they_can_and_then_the_controller_moves_so() -> None:
    def all_of_them(*, voters: bool) -> list[tuple[str, dict[str, Any]]]:
        rng = random.Random(5)
        return [draw_members(rng, BROKERS, 4, voters=voters) for _ in range(300)]

    with_voters, without = all_of_them(voters=True), all_of_them(voters=False)
    left = [table for verb, table in with_voters if verb == "remove_voter"]
    assert {"controller": "active"} in left
    assert {"broker": "standby"} in left
    assert "move_controller" not in dict(with_voters)
    assert "remove_voter" not in dict(without)
    assert "move_controller" in dict(without)


def test_a_partition_is_left_with_one_replica_less_and_one_at_least() -> None:
    for brokers, count in ((("A",), 1), (("A", "B"), 1), (BROKERS, 2), (tuple("ABCDE"), 2)):
        rng = random.Random(5)
        drawn_ = [draw_members(rng, brokers, 4) for _ in range(100)]
        replicas = [table["replicas"] for verb, table in drawn_ if verb == "reassign"]
        assert {len(set(one)) for one in replicas} == {count}
