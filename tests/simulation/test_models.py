"""Rows of docs/simulation-results.md: what the TLA+ models of Kafka's replication say, seen here"""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.nemesis import steps
from neaptide.nemesis.search.deliveries import Counts
from neaptide.nemesis.search.explore import Episode, played, watched_world
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.mutants import BY_NAME
from neaptide.nemesis.search.shrink import replay
from neaptide.nemesis.search.targets import Target, target_of
from tests.simulation.searches import ONE_ON_AN_OLDER_EPOCH, SETTINGS, searched, target

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


def _asked(generation: str) -> Target:
    rules, topic = GENERATIONS[generation], {"min.insync.replicas": "1"}
    asked = target_of(rules, SETTINGS, topic, ("all",), ("kill", "hold"), watched=True)
    return replace(asked, strict=True)


# A has m1 of epoch 0, which B never had. B leads, writes m2 and dies before A is cut; so A leads
# with m1, and B, who returns, is answered where epoch 1 ends in A's log: nowhere before m2's end.
FAST_ELECTIONS = (
    steps.Hold.of("response", "fetch", "C", "B", rule="m1 for B"),
    steps.Produce(("m1",)),
    steps.Hold.of("response", "offset_for_leader_epoch", "B", "A", rule="A's question"),
    steps.Kill("C", "discarded"),
    steps.Produce(("m2",)),
    steps.Kill("B", "discarded"),
    steps.Produce(("m3",)),
    steps.Restart("B"),
)


@pytest.mark.parametrize(
    ("model", "generation", "outcome"),
    [
        ("Kip101", "0.11", "broken: fetched-is-prefix"),
        ("Kip279", "2.0", None),
        ("Kip320", "2.1", None),
    ],
)
def test_consecutive_fast_elections_break_kip_101_alone(
    model: str, generation: str, outcome: str | None
) -> None:
    asked = _asked(generation)
    world = watched_world(asked)
    assert not isinstance(world, Judged)
    broken = played(world, asked.names, FAST_ELECTIONS)
    assert (broken and broken.outcome) == outcome


@pytest.mark.slow
def test_a_search_from_nothing_breaks_kip_101_and_finds_what_kip_279_survives() -> None:
    found = Episode(_asked("0.11"), 1).explore(1_200)
    assert found is not None
    assert found.judged.outcome == "broken: fetched-is-prefix"
    asked = _asked("2.0")
    ready = watched_world(asked)
    assert not isinstance(ready, Judged)
    survived = replay(asked, ready, found.schedule)
    assert survived is not None
    assert survived.outcome == "held"
