"""Rows of docs/simulation.md: what the TLA+ models of Kafka's replication say, seen here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusters.broker.replication.generation import GENERATIONS, Generation
from nemesis import steps
from nemesis.search.deliveries import Counts
from nemesis.search.explore import played, watched_world
from nemesis.search.judge import Judged
from nemesis.search.mutants import BY_NAME
from nemesis.search.targets import target_of
from tests.simulation.test_exhaustive import searched, target
from tests.simulation.test_search import SETTINGS

# Model, the generation that it is, what breaks first with all invariants asked.
ROWS = [
    ("KafkaTruncateToHighWatermark", "0.10", "broken: strong-isr"),
    ("Kip320", "2.1", ""),
]


@pytest.mark.parametrize(("model", "generation", "outcome"), ROWS)
def test_a_model_and_its_generation_break_the_same(
    model: str, generation: str, outcome: str
) -> None:
    found = searched(replace(target(generation), strict=True), Counts(produces=1, kills=1))
    assert found.outcome == outcome
    assert found.exhausted is not bool(outcome)


# B does not hear that its session is over, so not of new epochs either. It has m1, which C's
# successor A never had; when C leads again, B goes on fetching from it as if nothing had been.
ONE_ON_AN_OLDER_EPOCH = (
    steps.Cut("B", "coordination", "coordination", both=True),
    steps.Await(),
    steps.Hold("m1 for A", "response", "fetch", "C", "A"),
    steps.Produce(("m1",)),
    steps.Kill("C", "discarded"),
    steps.Restart("C"),
    steps.Produce(("m2",)),
    steps.Kill("A", "discarded"),
    steps.Produce(("m3",)),
)
UNFENCED = BY_NAME["unfenced"].rules  # 2.1, but fetches do not name the current epoch


@pytest.mark.parametrize(
    ("model", "rules", "outcome"),
    [
        ("Kip279", GENERATIONS["2.0"], "broken: strong-isr"),
        ("Kip320FirstTry", UNFENCED, "broken: strong-isr"),
        ("Kip320", GENERATIONS["2.1"], None),
    ],
)
def test_a_follower_on_an_older_epoch_is_counted_unless_fetches_name_the_epoch(
    model: str, rules: Generation, outcome: str | None
) -> None:
    """Why Kip279 and Kip320FirstTry do not keep StrongIsr, by the latter's own comment."""
    topic = {"min.insync.replicas": "2"}
    faults = ("kill", "hold", "zombie")
    asked = replace(target_of(rules, SETTINGS, topic, ("all",), faults, watched=True), strict=True)
    world = watched_world(asked)
    assert not isinstance(world, Judged)
    broken = played(world, asked.names, ONE_ON_AN_OLDER_EPOCH)
    assert (broken and broken.outcome) == outcome
