"""G3 in the simulation: what a group commits survives its coordinator, or is seen to be lost.

Every test has its twin: the same doings where the commit is on all replicas, or by a core with one
rule broken.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.model import TopicConfiguration, TopicPartition
from neaptide.clusters.simulation import committing, faults, producing
from neaptide.clusters.simulation.clients import GroupOperation
from neaptide.clusters.simulation.network import CLIENT
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import Scenario, ScenarioError, load_scenario, parse_scenario
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.explore import watched_world
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.mutants import BY_NAME, applied
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.regressed import commit_regressions
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import Schedule, replay
from neaptide.nemesis.search.targets import target_of
from neaptide.nemesis.search.worlds import ready_world
from tests.simulation.worlds import SETTINGS, A, B, C, run_for, spec, until

G = TopicPartition(OFFSETS_TOPIC, 0)
LOST = Path(__file__).parent / "scenarios" / "commit-lost.toml"
TWO = {"min.insync.replicas": "2"}


def _ready(generation: str = "2.1", **settings: Any) -> World:
    offsets = TopicConfiguration({0: (C, B, A)}, TWO)
    return ready_world(replace(spec(generation, **settings), offsets=offsets))


def _end(world: World, broker: int) -> int:
    return world.disks[broker].logs[G].end_offset


def _answered(world: World) -> GroupOperation:
    until(world, lambda: world.clients.asking is None)
    return world.clients.group_operations[-1]


def _position(world: World) -> int | None:
    committing.ask_position(world.clients, "g", 0, "main")
    return _answered(world).offset


@pytest.mark.parametrize("generation", GENERATIONS)
def test_g3_a_commit_survives_its_coordinator(generation: str) -> None:
    world = _ready(generation)
    assert _position(world) is None
    committing.commit(world.clients, "g", 0, 1)
    assert _answered(world).kind == "ok"
    assert _end(world, C) == 1
    faults.kill(world, C)
    assert _position(world) == 1
    assert world.service.states[G].leader == B


def test_g3_a_commit_that_a_dead_coordinator_did_not_replicate_is_committed_again() -> None:
    world = _ready()
    for other in (A, B):
        faults.cut(world, C, other, "replication", both=True)
    committing.commit(world.clients, "g", 0, 1)
    until(world, lambda: _end(world, C) == 1)
    assert world.clients.asking is not None  # nobody has acknowledged it
    faults.kill(world, C)
    until(world, lambda: world.clients.asking is None, within_ms=1_000)  # not the time-out's five
    assert world.clients.group_operations[-1].kind == "ok"
    assert _end(world, B) == 1


def test_g3_with_required_acks_of_one_it_is_lost() -> None:
    world = _ready(offsets_commit_required_acks="1")
    for other in (A, B):
        faults.cut(world, C, other, "replication", both=True)
    committing.commit(world.clients, "g", 0, 1)
    assert _answered(world).kind == "ok"
    faults.kill(world, C)
    assert _position(world) is None


def test_g3_an_answer_that_is_lost_with_its_connection_is_asked_for_again() -> None:
    world = _ready()
    faults.cut(world, C, CLIENT, "client", both=False)
    committing.commit(world.clients, "g", 0, 1)
    until(world, lambda: _end(world, A) == 1)
    run_for(world, 50)
    faults.heal(world, C, CLIENT)
    assert _answered(world).kind == "ok"
    assert _end(world, C) == 2  # the same position, twice
    assert _position(world) == 1


def test_g3_all_brokers_die_and_the_position_is_read_from_disk() -> None:
    world = _ready()
    committing.commit(world.clients, "g", 0, 1)
    _answered(world)
    for broker in (A, B, C):
        faults.kill(world, broker)
    for broker in (A, B, C):
        faults.restart(world, broker)
    assert _position(world) == 1


def test_a_power_failure_notifies_of_the_records_of_its_topic_alone() -> None:
    world = _ready()
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: "m1" in world.clients.acked)
    for offset in (1, 2, 3):
        committing.commit(world.clients, "g", 0, offset)
        _answered(world)
    assert faults.power_off(world, C, {}) == {0: 1}


# --- scenario files -------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [name for name in GENERATIONS if name != "4.0"])
def test_a_scenario_loses_a_commit(generation: str) -> None:
    played = simulate(load_scenario(LOST), GENERATIONS[generation])
    assert played.missed == ""
    assert played.judged.outcome == "duplicated"
    assert played.judged.anomalies == (("commit-regression", 1),)


def test_on_4_0_no_setting_has_the_coordinator_acknowledge_alone() -> None:
    played = simulate(load_scenario(LOST), GENERATIONS["4.0"])
    assert "the commit of the group g was not acknowledged" in played.missed
    assert played.judged.anomalies == ()


def _changed(*changes: tuple[str, str]) -> Scenario:
    text = LOST.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_scenario("changed", text, "changed.toml")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_where_all_must_have_it_the_commit_is_not_acknowledged(generation: str) -> None:
    scenario = _changed(('"offsets.commit.required.acks"   = 1', ""))
    played = simulate(scenario, GENERATIONS[generation])
    assert "the commit of the group g was not acknowledged" in played.missed
    assert played.judged.anomalies == ()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("topics.__consumer_offsets", "# ", "a group needs a topic for its positions"),
        ('group = "g"', 'group = "A"', "names neither a broker nor a record"),
        ("committed(g) == 2", "committed(h) == 2", "no step consumes as the group h"),
    ],
)
def test_a_file_that_speaks_of_groups_wrongly_is_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        _changed((old, new))


# --- the search -----------------------------------------------------------------------------------

PRODUCE, AGAIN = steps.Produce(("m1",)), steps.Produce(("m2",))
READ_ON, KILL = steps.Consume(0, "g"), steps.Kill("C", "discarded")
HOLD = steps.Hold.of("response", "fetch", "C", "B", rule="h")
STALE = steps.Hold.of(
    "response", "fetch", "C", "B", "high_watermark >= 1", topic=OFFSETS_TOPIC, rule="h"
)
# What shows each mutant, and leaves the unbroken core silent.
SHOWN = {
    "commits-acked-at-once": (PRODUCE, HOLD, READ_ON, KILL),
    "positions-not-read": (PRODUCE, READ_ON, KILL),
    "positions-read-to-high-watermark": (PRODUCE, STALE, READ_ON, KILL),
    "first-position-read": (PRODUCE, READ_ON, AGAIN, READ_ON, KILL),
    "first-position-known": (PRODUCE, READ_ON, AGAIN, READ_ON),
}


def _commits_of(schedule: Schedule, mutant: str | None = None) -> Judged | None:
    chosen = BY_NAME["positions-not-read"]
    target = target_of(
        chosen.rules, SETTINGS, chosen.topic_settings, ("all",), chosen.faults, watched=True
    )
    ready = watched_world(target)
    assert isinstance(ready, World)
    with nullcontext() if mutant is None else applied(BY_NAME[mutant]):
        return replay(target, ready, schedule)


@pytest.mark.parametrize("mutant", SHOWN)
def test_a_mutant_of_commits_is_shown(mutant: str) -> None:
    broken = _commits_of(SHOWN[mutant], mutant)
    assert broken is not None
    assert broken.anomalies == (("commit-regression", 1),)
    assert _commits_of(SHOWN[mutant]) == Judged("held", ())


def _search(**settings: str) -> Search:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    faults = ("kill", "hold", "cut", "wait", "commit")
    return Search(GENERATIONS["2.1"], ("all",), faults, {**SETTINGS, **named}, TWO, 300)


def test_a_lost_commit_is_found_from_nothing_and_its_file_says_so_again() -> None:
    loss = explore_seed(_search(offsets_commit_required_acks="1"), 1).loss
    assert loss is not None
    assert (loss.outcome, loss.portable) == ("duplicated", True)
    assert 'consume = { group = "g" }' in loss.document
    scenario = parse_scenario("found", loss.document, "found.toml")
    again = simulate(scenario, GENERATIONS["2.1"]).judged
    assert again.anomalies == (("commit-regression", 1),)


def test_where_all_must_have_it_nothing_is_found() -> None:
    explored = explore_seed(_search(), 1)
    assert (explored.schedules, explored.loss) == (300, None)


# --- the judge ------------------------------------------------------------------------------------


def _of(
    f: str,
    offset: int | None,
    group: str = "g",
    kind: str = "ok",
    invoked_us: int = 0,
    completed_us: int = 0,
) -> GroupOperation:
    return GroupOperation(f, group, 0, offset, "main", invoked_us, 1, kind, completed_us)


@pytest.mark.parametrize(
    ("operations", "found"),
    [
        ([_of("commit", 2), _of("commit", 1)], 1),
        ([_of("commit", 1), _of("commit", 2)], 0),
        ([_of("commit", 2), _of("committed", None)], 1),
        ([_of("committed", None), _of("commit", 2), _of("committed", 2)], 0),
        ([_of("commit", 2), _of("commit", 1, group="h")], 0),
        ([_of("commit", 2), _of("committed", None, kind="info")], 0),
        ([_of("commit", 4)], 1),
        ([_of("commit", 3)], 0),
        ([_of("commit", 2, completed_us=5), _of("committed", 1, invoked_us=4, completed_us=9)], 0),
        ([_of("commit", 2, completed_us=5), _of("committed", 1, invoked_us=5, completed_us=9)], 1),
        ([_of("commit", 2), _of("committed", 1, invoked_us=-1), _of("committed", 1)], 1),
    ],
    ids=[
        "goes back",
        "goes on",
        "is lost",
        "is kept",
        "two groups",
        "nobody said",
        "beyond the end",
        "at the end",
        "asked for before the commit was acknowledged",
        "asked for after it",
        "an answer that overlaps hides none that does not",
    ],
)
def test_the_positions_of_a_group(operations: list[GroupOperation], found: int) -> None:
    assert commit_regressions(operations, 3, is_complete=True) == found
