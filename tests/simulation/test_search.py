"""The search finds what the documents know, from nothing; and nothing where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search.document import Cluster, document_of
from neaptide.nemesis.search.episode import Explored, explore_seed
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import renamed_brokers, replay, shrink, signature
from neaptide.nemesis.search.worlds import ready_world
from tests.proof import proof_but
from tests.simulation.searches import SETTINGS, search

pytestmark = pytest.mark.slow

KIP_101 = (
    steps.Produce(("m1",)),
    steps.Kill("A", "discarded"),
    steps.Restart("A"),
    steps.Hold.of("response", "fetch", "C", "A", "high_watermark >= 2", rule="one"),
    steps.Hold.of("request", "any", "A", "B", rule="two"),
    steps.Produce(("m2",)),
    steps.Kill("C", "discarded"),
    steps.Kill("B", "discarded"),
)


def _first_found(asked: Search, seeds: range) -> Explored:
    for seed in seeds:
        explored = explore_seed(asked, seed)
        if explored.loss is not None and explored.loss.portable:
            return explored
    raise AssertionError(f"nothing was found in {len(seeds)} seeds")


def test_the_loss_of_kip_101_is_found_from_nothing_and_its_file_loses_again() -> None:
    explored = _first_found(search("0.10"), range(12))
    loss = explored.loss
    assert loss is not None
    assert loss.outcome == "lost"
    assert len(loss.shrunk) <= 10
    scenario = parse_scenario("found", loss.document, "found.toml")
    outcomes = {
        name: simulate(scenario, rules).judged.outcome for name, rules in GENERATIONS.items()
    }
    assert outcomes["0.10"] == "lost"
    assert outcomes["2.1"] == "held"
    assert 'lost = ["neaptide:' in loss.document


def test_acks_1_loses_on_every_generation() -> None:
    loss = _first_found(search("2.1", acks="1"), range(4)).loss
    assert loss is not None
    assert loss.outcome == "lost"
    assert len(loss.shrunk) <= 3


def test_a_client_that_believes_in_a_zombie_loses_what_only_that_one_has() -> None:
    asked = replace(search("2.1", acks="1", isr="1"), faults=("zombie", "stale"))
    loss = explore_seed(asked, 3).loss
    assert loss is not None
    assert loss.shrunk[-1] == steps.Produce(("m1",), "1", to="C")
    scenario = parse_scenario("found", loss.document, "found.toml")
    assert scenario.steps[-1].step == loss.shrunk[-1]
    assert simulate(scenario, GENERATIONS["2.1"]).judged.outcome == "lost"


@pytest.mark.parametrize("generation", proof_but(["2.1", "4.0"], "4.0"))
def test_nothing_is_found_where_the_rules_hold(generation: str) -> None:
    found = [explore_seed(search(generation, 500), seed) for seed in range(4)]
    assert [explored.loss for explored in found] == [None] * 4
    assert sum(explored.schedules for explored in found) == 2_000


def test_one_seed_is_one_search() -> None:
    first, second = (explore_seed(search("0.10", 300), 5) for _ in range(2))
    assert first == second
    assert first != explore_seed(search("0.10", 300), 6)


def test_what_is_shrunk_has_no_step_too_many() -> None:
    target = search("0.10").target()
    ready = ready_world(target.spec)
    judged = replay(target, ready, KIP_101)
    assert judged is not None
    assert judged.outcome == "lost"
    shrunk = shrink(target, ready, KIP_101, "lost")
    assert len(shrunk) == 5
    for left_out in range(len(shrunk)):
        fewer = shrunk[:left_out] + shrunk[left_out + 1 :]
        judged = replay(target, ready, fewer)
        assert judged is None or judged.outcome != "lost"


def test_a_schedule_that_cannot_be_played_is_no_loss() -> None:
    target = search("0.10").target()
    ready = ready_world(target.spec)
    assert replay(target, ready, (steps.Restart("A"),)) is None
    assert replay(target, ready, (steps.Release("nothing"),)) is None


def test_schedules_that_differ_in_brokers_alone_are_one() -> None:
    other = renamed_brokers(KIP_101, {"A": "B", "B": "C", "C": "A"})
    assert other != KIP_101
    assert signature(other) == signature(KIP_101)
    fewer = (replace(KIP_101[0], acks="1"), *KIP_101[1:])
    assert signature(fewer) != signature(KIP_101)


def test_a_found_schedule_reads_as_a_scenario() -> None:
    target = search("0.10").target()
    text = document_of(
        target,
        ready_world(target.spec),
        KIP_101,
        Cluster(SETTINGS, {"min.insync.replicas": "2"}),
        title="found",
        source="here",
        expect={"neaptide:0.10": "lost"},
    )
    scenario = parse_scenario("found", text, "found.toml")
    assert [type(scheduled.step) for scheduled in scenario.steps] == [type(s) for s in KIP_101]
    assert scenario.expect == {"lost": ("neaptide:0.10",)}
    assert "held(C, A)" in text
