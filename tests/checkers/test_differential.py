"""The makers of histories: what they make is what they say, and every way to break one does so."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import islice
from random import Random

import pytest

from tests.checkers.clojure_sets import first_of
from tests.differential import compare, generate, history, mutate, rows, runs
from tests.differential.mutate import MUTATIONS

SEEDS = range(120)
CHANGED = 4  # histories that a mutation must change
made = cache(generate.history)


def test_a_number_stands_for_one_history() -> None:
    assert [generate.history(n) for n in range(5)] == [generate.history(n) for n in range(5)]
    assert generate.history(1) != generate.history(2)


def test_generated_histories_are_valid() -> None:
    assert [n for n in SEEDS if compare.invalid(made(n))] == []


def test_generated_histories_have_all_that_a_history_can_have() -> None:
    seen = Counter(
        word
        for n in SEEDS
        for entry in made(n)
        for word in (entry.f, entry.type, *(("rebalanced",) if entry.rebalanced else ()))
    )
    words = "send poll txn assign subscribe crash kill invoke ok fail info rebalanced"
    assert set(words.split()) <= set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_changes_some_histories(name: str) -> None:
    broken = (MUTATIONS[name](Random(n), made(n)) for n in SEEDS)
    changed = list(islice((one for n, one in enumerate(broken) if one and one != made(n)), CHANGED))
    assert len(changed) == CHANGED
    for one in changed:
        assert history.parse(history.text(one)) == one
        compare.reported(one)


@pytest.mark.slow
def test_mutations_make_every_anomaly_that_jepsen_has() -> None:
    wanted = """
        lost-write unseen duplicate moved inconsistent-offsets G1a phantom precommitted-read
        poll-skip nonmonotonic-poll int-poll-skip int-nonmonotonic-poll nonmonotonic-send
        int-nonmonotonic-send int-send-skip G1c G1c-realtime G0 G1c-ww reordered
    """
    left = set(wanted.split())
    for n in range(600):
        left -= {name for name, *_ in compare.reported(mutate.mutated(n, generate.history(n))[0])}
        if not left:
            break
    assert not left


def test_times_increase_from_line_to_line() -> None:
    equal = history.parse(
        "{:type :invoke, :process 0, :f :poll, :value [[:poll]], :time 7}\n"
        "{:type :ok, :process 0, :f :poll, :value [[:poll {}]], :time 7}\n"
        "{:type :invoke, :process 1, :f :poll, :value [[:poll]], :time 3}\n"
    )
    assert [entry.time for entry in rows.ordered(equal)] == [7, 8, 9]


@pytest.mark.slow
def test_generated_runs_have_what_histories_of_jepsens_cannot_have() -> None:
    found = {name for n in range(200) for name, _, _ in runs.generated(n).expected()}
    wanted = """
        committed-then-lost commit-regression replica-hole replica-divergence unproven-difference
        unproven-loss lost-write unseen
    """
    assert set(wanted.split()) <= found


def test_of_two_values_the_one_that_clojure_has_first() -> None:
    # what `(first #{1 2})` and so on print in Clojure
    first = {(1, 2): 1, (2, 4): 4, (1, 2, 3): 1, (5, 9): 9, (10, 11, 12): 12, (3, 900): 3}
    assert {values: int(first_of(map(str, values))) for values in first} == first
