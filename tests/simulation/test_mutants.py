"""A broken rule is found, the unbroken core is silent, and the rule comes back afterwards."""

from __future__ import annotations

import inspect

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import (
    maybe_increment_high_watermark,
)
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.hunt import Effort, hunt
from neaptide.nemesis.search.mutants import BY_NAME, MUTANTS, Mutant, applied
from neaptide.nemesis.search.search import Search
from tests.proof import proof_but
from tests.simulation.worlds import SETTINGS

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ONE_SEED = Effort(0, 1, None, tuple(SETTINGS.items()))
QUICK = {
    "hw-is-log-end": "broken: weak-isr",
    "hw-goes-back": "broken: monotonic-high-watermark",
    "joins-one-short": "broken: strong-isr",
    "followers-note-no-epochs": "broken: epochs-of-the-log",
    "diverging-epoch-ignored": "broken: truncation-gets-on",
    "diverging-fetch-served": "broken: fetched-is-prefix",
    "diverging-fetch-counted": "broken: strong-isr",
    "diverging-truncates-to-high-watermark": "broken: strong-isr",
    "epochs-not-written": "broken: core-and-disk-agree",
    "stays-parked": "broken: answered-once",
    "parks-unwatched": "broken: core-raises",
    "sequences-not-checked": "duplicated",
    "remembers-what-was-cut": "broken: producers-of-the-log",
    "positions-not-read": "duplicated",
    "hands-over-to-anyone": "broken: strong-isr",
    "reassigned-before-in-sync": "broken: strong-isr",
    "led-from-outside-the-target": "broken: leader-in-isr",
    "prefers-out-of-sync": "broken: strong-isr",
    "deletes-before-it-leaves-the-isr": "broken: weak-isr",
    "assigns-the-target-at-once": "broken: replicas-that-lead",
    "hw-moves-under-min-isr": "broken: moves-by-the-written-isr",
    "takes-all-to-be-level": "broken: knows-by-fetches",
    "follows-the-first": "broken: fetches-from-the-leader",
    "waits-for-all-assigned": "broken: moves-as-far-as-it-may",
    "wakes-nobody": "broken: waits-for-something",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_found(name: str) -> None:
    hunted = hunt(BY_NAME[name], ONE_SEED)
    assert hunted.outcome == QUICK[name]
    assert hunted.shrunk_steps <= hunted.steps


@pytest.mark.slow
@pytest.mark.parametrize("generation", proof_but(["2.1", "2.8", "4.0"], "4.0"))
@pytest.mark.parametrize("more", [(), ("commit",)], ids=["records", "and commits"])
def test_the_unbroken_core_is_silent(generation: str, more: tuple[str, ...]) -> None:
    search = Search(
        GENERATIONS[generation],
        ("all",),
        ("kill", "hold", "cut", "pause", "wait", *more),
        SETTINGS,
        {"min.insync.replicas": "2"},
        150,
        watched=True,
    )
    assert explore_seed(search, 1).loss is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutants_rule_takes_what_the_rule_takes(mutant: Mutant) -> None:
    """Or it would break everything, and what finds it would show nothing."""
    for rule, by in mutant.replaced:
        asked = inspect.signature(rule.own).parameters.values()
        plain = [one for one in asked if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        named = {one.name: None for one in asked if one.kind is inspect.Parameter.KEYWORD_ONLY}
        inspect.signature(by).bind(*plain, **named)
        own = [one for one in inspect.signature(by).parameters.values() if one.kind in POSITIONAL]
        for takes, given in zip(own, plain, strict=False):  # what is left may be taken as *rest
            is_same = takes.name == given.name or takes.annotation == given.annotation
            assert is_same or given.name == "self", f"{rule.own}: {takes} for {given}"


def test_a_mutants_rule_is_the_rule_however_it_was_imported_until_its_search_is_over() -> None:
    own = maybe_increment_high_watermark
    with applied(BY_NAME["hw-is-log-end"]):
        assert own.now is not own.own
        assert partition_rules.maybe_increment_high_watermark is own
    assert own.now is own.own


def test_there_are_forty_mutants_and_each_breaks_something() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.sentence for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert mutant.sentence.endswith(".")
        assert mutant.replaced or mutant.rules not in GENERATIONS.values()
