"""Searches, and what they are made of."""

from __future__ import annotations

from pathlib import Path

from neaptide import harness
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.nemesis import steps
from neaptide.nemesis.search import exhaustive, priorities
from neaptide.nemesis.search.deliveries import (
    Counts,
)
from neaptide.nemesis.search.exhaustive import Limits, Searched
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.targets import (
    Target,
    target_of,
)
from tests.simulation import worlds

SETTINGS = {
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.backoff.ms": "100",
}


def search(generation: str, schedules: int = 3_000, *, acks: str = "all", isr: str = "2") -> Search:
    return Search(
        GENERATIONS[generation],
        (acks,),
        ("kill", "hold", "cut", "pause", "wait"),
        SETTINGS,
        {"min.insync.replicas": isr},
        schedules,
    )


def target(generation: str, *, fetches_only: bool = True) -> Target:
    made = target_of(
        GENERATIONS[generation],
        worlds.SETTINGS,
        {"min.insync.replicas": "1"},
        ("all",),
        ("kill",),
        watched=True,
    )
    return priorities.fetches_only(made) if fetches_only else made


def searched(aimed: Target, bounds: Counts, states_max: int = 5_000) -> Searched:
    return exhaustive.run(aimed, Limits(bounds, states_max))


# B does not learn that its session is over, so not of new epochs either. It has m1, which C's
# successor A never had; when C leads again, B goes on fetching from it as if nothing had been.
ONE_ON_AN_OLDER_EPOCH = (
    steps.Cut("B", "coordination", "coordination", both=True),
    steps.Await(),
    steps.Hold.of("response", "fetch", "C", "A", rule="m1 for A"),
    steps.Produce(("m1",)),
    steps.Kill("C", "discarded"),
    steps.Restart("C"),
    steps.Produce(("m2",)),
    steps.Kill("A", "discarded"),
    steps.Produce(("m3",)),
)
SCENARIO = """
title = "moves"
[cluster]
brokers = ["A", "B", "C", "D"]
topics.t = { assignment = [["C", "B", "A"]], settings = { "min.insync.replicas" = 2 } }
[[step]]
produce = { record = "m1" }
until = "acked(m1) and level"
[[step]]
reassign = { replicas = ["D", "B", "A"] }
until = "replicas is {A, B, D} and preferred is D and isr is {A, B, D}"
[[step]]
reassign = { replicas = ["A", "D", "B"] }
until = "preferred is A"
[[step]]
elect = { }
until = "leader is A"
[[step]]
move_controller = { }
until = "controller_epoch >= 2 and controller is not nobody"
[[step]]
produce = { record = "m2" }
until = "acked(m2) and level"
"""
FOUND = {path.stem: path for path in (Path(harness.__path__[0]) / "found").glob("*.toml")}
