"""A broken rule is found, the unbroken core is silent, and the rule comes back afterwards."""

from __future__ import annotations

import pytest

from clusters.broker.replication import partition
from clusters.broker.replication.generation import GENERATIONS
from nemesis import steps
from nemesis.scenario import load_scenario
from nemesis.search.episode import Search, explore_seed
from nemesis.search.hunt import Effort, hunt
from nemesis.search.mutants import BY_NAME, MUTANTS, applied
from nemesis.search.play import simulate
from nemesis.search.shrink import replay
from nemesis.search.targets import target_of
from nemesis.search.worlds import ready_world
from tests.simulation.test_found import FOUND
from tests.simulation.worlds import SETTINGS

ONE_SEED = Effort(0, 1, None, tuple(SETTINGS.items()))
QUICK = {
    "hw-is-log-end": "broken: weak-isr",
    "hw-goes-back": "broken: monotonic-high-watermark",
    "joins-one-short": "broken: strong-isr",
    "followers-note-no-epochs": "broken: strong-isr",
    "epochs-not-written": "broken: core-and-disk-agree",
    "stays-parked": "broken: answered-once",
    "parks-unwatched": "broken: core-raises",
    "sequences-not-checked": "duplicated",
    "remembers-what-was-cut": "lost",
}


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_found(name: str) -> None:
    hunted = hunt(BY_NAME[name], ONE_SEED)
    assert hunted.outcome == QUICK[name]
    assert hunted.shrunk_steps <= hunted.steps


@pytest.mark.parametrize("generation", ["2.1", "4.0"])
def test_the_unbroken_core_is_silent(generation: str) -> None:
    search = Search(
        GENERATIONS[generation],
        ("all",),
        ("kill", "hold", "cut", "pause", "wait"),
        SETTINGS,
        {"min.insync.replicas": "2"},
        150,
        watched=True,
    )
    assert explore_seed(search, 1).loss is None


# Not found within minutes from nothing; the schedules by which others were found show them.
SHOWN_BY = {"kip-101-only": "kip-279-divergence", "unfenced": "kip-320-divergence"}
# All that had m1 shut down cleanly, but the last one, which has lost it: who leads?
ONE_IS_TORN = (
    steps.Stop("A"),
    steps.Produce(("m1",)),
    steps.Stop("C"),
    steps.PowerOff("B"),
)


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_found_schedule_shows_the_mutant(name: str) -> None:
    mutant, scenario = BY_NAME[name], load_scenario(FOUND[SHOWN_BY[name]])
    with applied(mutant):
        assert simulate(scenario, mutant.rules).judged.outcome == "diverged"
    assert simulate(scenario, GENERATIONS["2.1"]).judged.outcome != "diverged"


@pytest.mark.parametrize("name", ["torn-not-seen-by-a-new-controller", "prefers-the-last-leader"])
def test_a_power_failure_among_clean_shutdowns_shows_the_mutant(name: str) -> None:
    mutant = BY_NAME[name]
    target = target_of(
        mutant.rules, SETTINGS, mutant.topic_settings, mutant.acks, mutant.faults, watched=False
    )
    ready = ready_world(target.spec)
    with applied(mutant):
        broken = replay(target, ready, ONE_IS_TORN)
    unbroken = replay(target, ready, ONE_IS_TORN)
    assert broken is not None
    assert unbroken is not None
    assert (broken.outcome, unbroken.outcome) == ("lost", "held")


# B has m1 alone, A has m2 too, and nobody has acknowledged any; A is cut, and then leads.
M2_IS_CUT = (
    steps.Hold("B", "request", "fetch", "B", "C", "fetch_offset >= 1"),
    steps.Produce(("m1",)),
    steps.Produce(("m2",)),
    steps.Hold("A", "request", "fetch", "A", "B"),
    steps.Kill("C", "discarded"),
    steps.Kill("B", "discarded"),
)


def test_p4_a_follower_that_is_cut_and_elected_shows_what_it_has_forgotten() -> None:
    mutant = BY_NAME["forgets-all-when-cut"]
    target = target_of(
        mutant.rules,
        SETTINGS,
        mutant.topic_settings,
        mutant.acks,
        mutant.faults,
        watched=False,
        idempotence=True,
    )
    ready = ready_world(target.spec)
    with applied(mutant):
        broken = replay(target, ready, M2_IS_CUT)
    unbroken = replay(target, ready, M2_IS_CUT)
    assert broken is not None
    assert unbroken is not None
    assert (broken.outcome, unbroken.outcome) == ("duplicated", "held")


def test_a_mutant_is_over_when_its_search_is() -> None:
    rule = partition.maybe_increment_high_watermark
    with applied(BY_NAME["hw-is-log-end"]):
        assert partition.maybe_increment_high_watermark is not rule
    assert partition.maybe_increment_high_watermark is rule


def test_there_are_forty_mutants_and_each_breaks_something() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.sentence for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutant.sentence.endswith(".")
        assert mutant.replaced or mutant.rules not in GENERATIONS.values()
