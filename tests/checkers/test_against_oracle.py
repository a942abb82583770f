"""Spark and the plain oracle find the same anomalies in histories that nobody thought of.

All of an example, or of a test, are checked in one Spark job, each a run: histories of single sends
and polls by Hypothesis, and those of `tests.differential`: transactions, rebalances, crashes,
indeterminate and failed operations, missing final polls, as runs of our own and as imported ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.checkers import oracle
from tests.checkers.conftest import Judge
from tests.checkers.histories import Op, Story, final, poll, reached, seek, send
from tests.checkers.reading import differences
from tests.differential import runs

pytestmark = pytest.mark.spark

GENERATED = 60  # tests/benchmarks/generated_histories.py takes thousands
VALUES = tuple("abcde")
OFFSETS = st.integers(0, 5)
RECORDS = st.lists(st.tuples(OFFSETS, st.sampled_from((*VALUES, "ghost"))), max_size=5)
LOG = st.lists(st.sampled_from(VALUES), max_size=6).map(lambda log: list(enumerate(log)))


def sends() -> st.SearchStrategy[list[Op]]:
    """At most one send a value; acknowledged ones mostly with an offset."""
    one = st.tuples(
        st.sampled_from(("ok", "ok", "ok", "info", "fail")),
        st.one_of(OFFSETS, OFFSETS, st.none()),
        st.integers(0, 1),
    )
    return st.dictionaries(st.sampled_from(VALUES), one).map(
        lambda chosen: [
            send(value, offset if type == "ok" else None, type=type, process=process)
            for value, (type, offset, process) in chosen.items()
        ]
    )


def polls() -> st.SearchStrategy[list[Op]]:
    process = st.integers(2, 3)
    one = st.one_of(
        st.builds(lambda records, p: poll(*records, process=p), st.one_of(RECORDS, LOG), process),
        st.builds(lambda p: seek(process=p), process),
    )
    return st.lists(one, max_size=4)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    ops = draw(st.permutations(draw(sends()) + draw(polls())))
    read = draw(st.one_of(RECORDS, LOG, LOG))
    run = {"final_reads": (reached(len(read), yes=draw(st.integers(0, 4)) > 0),)}
    if not read:
        run = {"final_reads": (reached(1),)}  # claims an end but has no record: not believed
    return Story([*ops, final(*read)], run=run)


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    # A failure names its story; to shrink whole batches would take minutes.
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batch=st.lists(stories(), min_size=60, max_size=80))
def test_spark_finds_what_the_oracle_finds(judge: Judge, batch: list[Story]) -> None:
    named = {f"story{n:03d}": story for n, story in enumerate(batch)}
    by_spark = judge(named)
    for name, story in named.items():
        expected = oracle.judge(story)
        more, fewer = differences(by_spark[name], expected, transactions=False)
        assert (more, fewer) == (Counter(), Counter()), story


@pytest.mark.parametrize("make", [runs.generated, runs.imported])
def test_spark_finds_what_the_oracle_finds_in_generated_runs(
    judge: Judge, make: Callable[[int], runs.Generated]
) -> None:
    named = {f"run{n:04d}": make(n) for n in range(GENERATED)}
    for name, found in judge(named).items():
        made = named[name]
        more, fewer = differences(found, made.expected(), transactions=made.transactions)
        assert (more, fewer) == (Counter(), Counter()), name
