"""The judge of the search and the Spark checks say the same of the same runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from checkers.check import check_runs
from clusters.broker.replication.generation import GENERATIONS
from clusters.hosts.place import parse_place
from harness.play import play
from harness.systems import parse_systems
from nemesis import steps
from nemesis.scenario import Scenario, parse_scenario
from nemesis.search.document import Cluster, document_of
from nemesis.search.episode import Search
from nemesis.search.explore import play_moves
from nemesis.search.moves import FAULTS, Drawing, draw_moves
from nemesis.search.perform import MissedError
from nemesis.search.play import simulate
from nemesis.search.targets import Target
from nemesis.search.worlds import ready_world
from tests.simulation.test_search import SETTINGS

RUNS = 60
TOPIC = {"min.insync.replicas": "1"}


def _random_scenario(target: Target, search: Search, seed: int) -> Scenario:
    """Whatever chance makes of eight moves, with acks of every kind and power failures."""
    rng = Random(seed)
    weights = {"produce": 4.0}
    for moves in FAULTS.values():
        weights.update(moves)
    drawing = Drawing(target.names, ("0", "1", "all"), weights, 0.4)
    ready = ready_world(target.spec)
    world = ready.copy()
    schedule: tuple[steps.Step, ...] = ()
    while len(schedule) < 8:
        drawn: tuple[steps.Step, ...] = draw_moves(rng, world, schedule, drawing)
        trial = world.copy()
        try:
            play_moves(trial, target.names, drawn)
        except MissedError:
            continue
        world, schedule = trial, schedule + drawn
    cluster = Cluster(SETTINGS, TOPIC)
    text = document_of(target, ready, schedule, cluster, title="t", source="s", expect={})
    return parse_scenario("random", text, "random.toml")


@pytest.mark.spark
def test_the_fast_judge_agrees_with_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    runs, quick = [], []
    names, place = list(GENERATIONS), parse_place("simulation")
    for seed in range(RUNS):
        rules = GENERATIONS[names[seed % len(names)]]
        search = Search(rules, ("all",), (), SETTINGS, TOPIC, 0)
        scenario = _random_scenario(search.target(), search, seed)
        [system] = parse_systems([f"neaptide:{rules.name}"])
        played = asyncio.run(play(scenario, system, seed, "x.toml", lambda line: None, place))
        runs.append(played.run)
        quick.append(simulate(scenario, rules).judged.outcome)
    verdicts = check_runs(spark, runs)
    told = [
        (seed, verdict.outcome, fast)
        for seed, (verdict, fast) in enumerate(zip(verdicts, quick, strict=True))
    ]
    assert [entry for entry in told if entry[1] != entry[2]] == []
    assert {"lost", "held"} <= {fast for _, _, fast in told}
