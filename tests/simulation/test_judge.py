"""The judge of the search and the Spark checks say the same of the same runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.clusters.simulation import faults, producing
from neaptide.clusters.simulation.clients import Poll
from neaptide.nemesis.search.ending import end, read_to_end
from neaptide.nemesis.search.judge import judge
from neaptide.nemesis.search.moved import poll_anomalies
from neaptide.nemesis.search.targets import LATE, TRANSACT
from tests.proof import proof_but
from tests.simulation.judging import compare
from tests.simulation.worlds import A, B, C, ready, run_for, until

# Seeds, and those of runs with transactions.
FEW = range(5, 19), range(30, 38)
ALL = range(30), range(30, 50)
REGRESSES = 165  # a committed position goes back, which few do


@pytest.mark.spark
@pytest.mark.parametrize(("runs", "in_transactions"), proof_but([FEW, ALL], FEW))
def test_the_fast_judge_agrees_with_spark(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: range,
    in_transactions: range,
) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    reported = compare(spark, [*runs, REGRESSES])
    reported += compare(spark, in_transactions, (TRANSACT, LATE))
    assert [one for one in reported if one.by_spark != one.fast] == []
    assert {"lost", "held"} <= {one.fast[0] for one in reported}
    assert any("commit-regression" in one.fast[1] for one in reported)


def _poll(*offsets: int, read: int = 1, phase: str = "main") -> Poll:
    return Poll(read, phase, tuple((offset, f"m{offset}") for offset in offsets))


@pytest.mark.parametrize(
    ("polls", "known", "start_offset", "found"),
    [
        ((_poll(0, 1), _poll(1, 2)), {0, 1, 2}, 0, {"nonmonotonic-poll": 1}),
        ((_poll(0, 1), _poll(2)), {0, 1, 2}, 0, {}),
        ((_poll(0, 1), _poll(0, 1, read=2)), {0, 1}, 0, {}),
        ((_poll(0, 1), _poll(0, 1, phase="final")), {0, 1}, 0, {}),
        ((_poll(0, 2, 1),), {0, 1, 2}, 0, {"int-poll-skip": 1, "int-nonmonotonic-poll": 1}),
        ((_poll(0), _poll(2)), {0, 1, 2}, 0, {"poll-skip": 1}),
        ((_poll(0), _poll(2)), {0, 2}, 0, {}),
        ((_poll(0), _poll(2)), {0, 1, 2}, 2, {}),
    ],
    ids=[
        "goes back",
        "goes on",
        "another reader begins anew",
        "the final reads begin anew",
        "inside a poll",
        "skips what is known",
        "a gap in which nothing is known to be",
        "a gap of what was deleted",
    ],
)
def test_the_moves_of_a_consumer(
    polls: tuple[Poll, ...], known: set[int], start_offset: int, found: dict[str, int]
) -> None:
    assert poll_anomalies(polls, known, start_offset) == found


def test_where_nothing_was_sent_nothing_is_known() -> None:
    world = ready()
    assert judge(world, end(world)).outcome == "unknown"


def test_what_was_not_level_or_not_read_to_its_end_is_not_held() -> None:
    world = ready()
    producing.produce(world.clients, "m1", -1)
    run_for(world, 1_000)
    ended = end(world)
    assert judge(world, ended).outcome == "held"
    assert judge(world, replace(ended, level=False)).outcome == "unknown"
    assert judge(world, replace(ended, final=None)).outcome == "unknown"


@pytest.mark.parametrize("generation", ["0.10", "2.1", "2.8"])
def test_a_leader_that_leads_on_is_read_when_its_followers_have_fetched_again(
    generation: str,
) -> None:
    """Nobody sees it die. Back in the same epoch, it knows of no high watermark."""
    world = ready(generation)
    producing.produce(world.clients, "m1", -1)
    until(world, lambda: "m1" in world.clients.acked)
    run_for(world, 600)
    for follower in (A, B):
        faults.expire(world, follower)
    epoch = world.service.states[world.partition].leader_epoch
    faults.kill(world, C)
    for follower in (A, B):
        faults.register(world, follower)
    ended = end(world)
    assert world.service.states[world.partition].leader_epoch == epoch
    assert [value for _, value in ended.final or ()] == ["m1"]
    assert judge(world, ended).outcome == "held"


def test_a_reader_asks_a_leader_where_the_log_starts() -> None:
    """Not whom it takes for one: a log of its own may have lost more to retention."""
    world = ready()
    producing.produce(world.clients, "m1", -1)
    until(world, lambda: "m1" in world.clients.acked)
    faults.kill(world, C)
    until(world, lambda: world.service.states[world.partition].leader == B)
    faults.restart(world, C)
    until(world, lambda: C in world.service.states[world.partition].isr)
    world.disks[C].logs[world.partition].advance_start(1)
    world.clients.leaders[(0, None)] = C
    assert read_to_end(world) == ((0, "m1"),)
