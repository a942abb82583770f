"""Which step matters: what a schedule comes to with each of its steps left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.nemesis.scenario import Scenario, load_scenario, parse_scenario, scenario_of
from neaptide.nemesis.search.ending import end
from neaptide.nemesis.search.judge import judge
from neaptide.nemesis.search.perform import Performer
from neaptide.nemesis.search.without import Weighed, weigh
from neaptide.nemesis.search.worlds import ready_world, spec_of

HEAD = """\
title  = "a test"
[cluster]
brokers = ["A", "B", "C"]
topics.t = { assignment = [["C", "B", "A"]], settings = { "min.insync.replicas" = 2 } }
settings = { "unclean.leader.election.enable" = false, "replica.lag.time.max.ms" = 30000 }
"""


def shipped(name: str) -> Scenario:
    return load_scenario(scenario_files()[name])


def lost(weighed: Weighed) -> list[int]:
    return [plays.outcomes.get("lost", 0) for plays in weighed.without]


def test_of_the_documented_loss_every_step_decides_but_the_read() -> None:
    weighed = weigh(shipped("hw-truncation-loss"), GENERATIONS["0.10"], plays=3, seed=1)
    assert weighed.whole.outcomes == {"lost": 3}
    assert (weighed.outcome, weighed.loses) == ("lost", True)
    assert lost(weighed) == [0, 0, 0, 0, 3, 0, 0]
    reported = [plays.in_vain for plays in weighed.without]
    assert reported == [3, 3, 3, 3, 0, 3, 0]
    why = "step 7: after 20 s this is still not true: leader is A; leader is C, isr is {A, C}"
    assert weighed.without[5].why == why


def test_where_timing_decides_some_plays_lose() -> None:
    """Without the hold of B's requests, B may have m2 when C dies, or not."""
    weighed = weigh(shipped("acks-1-loss"), GENERATIONS["2.1"], plays=20, seed=1)
    assert lost(weighed)[0] == 20
    assert 0 < lost(weighed)[2] < 20
    assert lost(weighed)[3:] == [0, 0]


def test_the_same_seed_comes_to_the_same_and_the_first_play_is_exact() -> None:
    scenario = shipped("acks-1-loss")
    first = weigh(scenario, GENERATIONS["2.1"], plays=8, seed=5)
    assert weigh(scenario, GENERATIONS["2.1"], plays=8, seed=5) == first
    exact = [weigh(scenario, GENERATIONS["2.1"], plays=1, seed=seed) for seed in (1, 2)]
    assert exact[0] == exact[1]


def test_where_nothing_is_lost_no_step_is_left_out() -> None:
    reported: list[int] = []
    scenario = shipped("hw-truncation-loss")
    weighed = weigh(scenario, GENERATIONS["0.11"], plays=2, seed=1, report=reported.append)
    assert (weighed.outcome, weighed.loses, weighed.without, reported) == ("held", False, (), [])


def test_a_step_that_cannot_be_done_any_more_is_passed_over() -> None:
    text = """
[[step]]
produce = { record = "m1", acks = "all" }
until = "acked(m1) and level"
[[step]]
hold = { request = "fetch", from = "B", to = "C", rule = "kept" }
[[step]]
hold = { request = "fetch", from = "A", to = "C" }
until = "held(B, C)"
[[step]]
produce = { record = "m2", acks = "1" }
until = "acked(m2)"
[[step]]
kill = { broker = "C", in_flight = "discarded" }
until = "leader is B"
[[step]]
discard = { rule = "kept" }
[[step]]
restart = { broker = "C" }
"""
    scenario = parse_scenario("test", HEAD + text, "test")
    weighed = weigh(scenario, GENERATIONS["2.1"], plays=1, seed=1)
    assert weighed.outcome == "lost"
    assert weighed.without[1].why.startswith("step 3: after 20 s")
    assert weighed.without[4].why.startswith("step 7: C is up already")
    assert weighed.without[5].why == ""


def test_a_scenario_is_read_from_its_document() -> None:
    scenario = shipped("hw-truncation-loss")
    again = scenario_of(scenario.name, scenario.document)
    assert [one.step for one in again.steps] == [one.step for one in scenario.steps]
    assert again.document == scenario.document


def test_a_record_that_only_the_leader_had_is_waited_for_at_the_end() -> None:
    """Where followers were is what their last rounds showed; the leader may have more."""
    scenario = shipped("acks-1-loss")
    world = ready_world(spec_of(scenario, GENERATIONS["2.1"]))
    performer = Performer(world, scenario.brokers)
    for scheduled in scenario.steps[:-1]:
        performer.do(scheduled.step)
        if scheduled.until is not None:
            performer.wait(scheduled.until, scheduled.within_s)
    ended = end(world)
    assert ended.final == ((0, "m1"), (1, "m2"))
    assert judge(world, ended).outcome == "held"


@pytest.mark.parametrize("file", ["kip-320-divergence", "hw-truncation-loss"])
def test_what_a_search_found_needs_most_of_its_steps(file: str) -> None:
    path = Path(str(scenario_files()["acks-1-loss"])).parent.parent / "found" / f"{file}.toml"
    rules = {"kip-320-divergence": "2.0", "hw-truncation-loss": "0.10"}[file]
    weighed = weigh(load_scenario(path), GENERATIONS[rules], plays=1, seed=1)
    assert weighed.loses
    same = [plays.outcomes.get(weighed.outcome, 0) for plays in weighed.without]
    assert sum(same) <= 1
