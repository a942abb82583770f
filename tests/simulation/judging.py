"""Random runs of the simulation through both judges: the fast one of the search, and Spark.

`python -m tests.simulation.judging --runs 2000` compares so many, in batches under one Spark
session, and prints one JSON document: how many there were, and which the judges disagree about.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.check import check_runs
from neaptide.checkers.pipeline.session import local_session
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.hosts.place import parse_place
from neaptide.harness.play.scenario import play
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.nemesis import steps
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.scenario import Scenario, parse_scenario
from neaptide.nemesis.search.document import Cluster, document_of
from neaptide.nemesis.search.explore import play_moves
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.moves import FAULTS, HELD, Drawing, draw_moves
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.targets import COMMITS, LATE, TRANSACT, Target
from neaptide.nemesis.search.worlds import ready_world
from tests.simulation.searches import SETTINGS

TOPIC = {"min.insync.replicas": "1"}
COMMITTING = {**SETTINGS, "offsets.commit.required.acks": "1"}  # so that commits are lost
MOVES = 8
WITH_TOPICS = (COMMITS, TRANSACT, LATE)  # faults that need internal topics
BATCH = 200


@dataclass(frozen=True, slots=True)
class Compared:
    """What the two judges say of one run: the outcome, and what counts, how often."""

    seed: int
    by_spark: tuple[str, dict[str, int]]
    fast: tuple[str, dict[str, int]]


def random_scenario(target: Target, search: Search, seed: int) -> Scenario:
    """Whatever chance makes of eight moves, with acks of every kind and power failures."""
    rng = Random(seed)
    weights = {"produce": 4.0}
    for fault, moves in FAULTS.items():
        if fault not in WITH_TOPICS or fault in search.faults:
            weights.update(moves)
    # Beside `control` power failures take no last copy: half of the runs go without.
    held = tuple(HELD.values()) if seed % 2 else (HELD["hold"],)
    drawing = Drawing(target.names, ("0", "1", "all"), weights, held)
    ready = ready_world(target.spec)
    world = ready.copy()
    schedule: tuple[steps.Step, ...] = ()
    while len(schedule) < MOVES:
        drawn: tuple[steps.Step, ...] = draw_moves(rng, world, schedule, drawing)
        trial = world.copy()
        try:
            play_moves(trial, target.names, drawn)
        except MissedError:
            continue
        world, schedule = trial, schedule + drawn
    cluster = Cluster(COMMITTING, TOPIC)
    text = document_of(target, ready, schedule, cluster, title="t", source="s", expect={})
    return parse_scenario(f"random-{seed}", text, "random.toml")


def compare(
    spark: SparkSession, seeds: Iterable[int], faults: tuple[str, ...] = (COMMITS,)
) -> list[Compared]:
    """Plays each seed on one of the generations, in turn; the runs are where runs are kept."""
    names, place = list(GENERATIONS), parse_place("simulation")
    seeds = list(seeds)
    runs: list[Path] = []
    quick: list[Judged] = []
    for seed in seeds:
        rules = GENERATIONS[names[seed % len(names)]]
        search = Search(rules, ("all",), faults, COMMITTING, TOPIC, 0)
        scenario = random_scenario(search.target(), search, seed)
        [system] = parse_systems([f"neaptide:{rules.name}"])
        played = asyncio.run(play(scenario, system, seed, "x.toml", lambda line: None, place))
        runs.append(played.run)
        quick.append(simulate(scenario, rules).judged)
    return [
        Compared(
            seed,
            (verdict.outcome, _counting(dict(verdict.anomalies))),
            (fast.outcome, _counting(dict(fast.anomalies))),
        )
        for seed, verdict, fast in zip(seeds, check_runs(spark, runs), quick, strict=True)
    ]


def _counting(found: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(found.items()) if ANOMALIES[name].counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-commits", action="store_true", help="no groups, no commits")
    parser.add_argument("--transactions", action="store_true", help="transactions, and late writes")
    asked = parser.parse_args()
    faults: tuple[str, ...] = () if asked.without_commits else (COMMITS,)
    faults += (TRANSACT, LATE) if asked.transactions else ()
    started = time.monotonic()
    outcomes: Counter[str] = Counter()
    disagree: list[Compared] = []
    spark = local_session()
    last = asked.seed + asked.runs
    for first in range(asked.seed, last, BATCH):
        with tempfile.TemporaryDirectory() as directory:
            os.environ["NEAPTIDE_RUNS"] = directory
            for one in compare(spark, range(first, min(first + BATCH, last)), faults):
                outcomes[one.fast[0]] += 1
                if one.by_spark != one.fast:
                    disagree.append(one)
        print(f"{outcomes.total()} runs, {len(disagree)} disagree", file=sys.stderr)
    spark.stop()
    print(
        json.dumps(
            {
                "runs": asked.runs,
                "disagreements": len(disagree),
                "outcomes": dict(sorted(outcomes.items())),
                "seconds": round(time.monotonic() - started, 1),
                "of": [(one.seed, one.by_spark, one.fast) for one in disagree[:20]],
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
