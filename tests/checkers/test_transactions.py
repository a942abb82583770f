"""Anomalies of transactions, sends, commits: each in a tiny history, beside a twin that is silent.

Some of what is found is normal in Kafka and never counts; it is found all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.verdict import Options
from neaptide.results.run import FinalRead
from neaptide.results.schema import ANOMALIES, OPERATIONS
from neaptide.results.tables import write_table
from tests.checkers.conftest import Judge
from tests.checkers.histories import (
    Op,
    Story,
    commit,
    committed,
    final,
    nemesis,
    poll,
    reached,
    seek,
    send,
    txn,
)
from tests.checkers.reading import Judged, judged

pytestmark = pytest.mark.spark

THOROUGH = Options(thorough=True)

AB = final((0, "a"), (1, "b"))
ABC = final((0, "a"), (1, "b"), (2, "c"))
TWO = {"final_reads": (reached(), reached(partition=1))}


def story(*ops: Op, **run: Any) -> Story:
    return Story(ops, run=run)


# name -> (history, names of the anomalies found, verdict)
STORIES: dict[str, tuple[Story, set[str], str]] = {
    "a-process-sends-below-its-last": (
        story(send("a", 1), send("b", 0), final((0, "b"), (1, "a"))),
        {"nonmonotonic-send", "reordered", "G0-realtime"}, "anomalous",
    ),
    "a-process-sends-above-its-last": (story(send("a", 0), send("b", 1), AB), set(), "valid"),
    "an-indeterminate-send-was-read-below-the-last": (
        story(send("a", 1), send("b", type="info"), final((0, "b"), (1, "a"))),
        {"nonmonotonic-send"}, "anomalous",
    ),
    "a-failed-send-has-no-place": (
        story(send("a", 1), send("b", type="fail"), send("c", 2), final((1, "a"), (2, "c"))),
        set(), "valid",
    ),
    "one-transaction-sends-backwards": (
        story(txn(("send", 1, "a"), ("send", 0, "b")), final((0, "b"), (1, "a"))),
        {"int-nonmonotonic-send", "reordered"}, "anomalous",
    ),
    "one-transaction-sends-forwards": (
        story(txn(("send", 0, "a"), ("send", 1, "b")), AB), set(), "valid",
    ),
    "one-transaction-sends-around-another": (
        story(txn(("send", 0, "a"), ("send", 2, "c")), send("b", 1, process=2), ABC),
        {"int-send-skip", "G0", "G0-realtime"}, "valid",
    ),
    "one-transaction-sends-around-a-marker": (
        story(txn(("send", 0, "a"), ("send", 2, "c")), final((0, "a"), (2, "c"))), set(), "valid",
    ),
    "a-transaction-reads-its-own-send": (
        story(txn(("send", 0, "a"), ("poll", 0, "a")), final((0, "a"))),
        {"precommitted-read"}, "anomalous",
    ),
    "a-transaction-reads-the-send-of-another": (
        story(txn(("send", 0, "a")), txn(("poll", 0, "a"), ("send", 1, "b")), AB), set(), "valid",
    ),
    "an-aborted-transaction-is-read": (
        story(txn(("send", None, "a"), type="fail"), final((0, "a"))), {"G1a"}, "anomalous",
    ),
    "an-aborted-transaction-is-not-read": (
        story(txn(("send", None, "a"), type="fail"), send("b", 1), final((1, "b"))),
        set(), "valid",
    ),
    "an-aborted-transaction-is-read-by-one-that-aborts-too": (
        story(
            txn(("send", None, "a"), type="fail"), txn(("poll", 0, "a"), type="fail", process=2),
            send("b", 1), final((1, "b"), process=9),
        ),
        {"committed-then-lost"}, "anomalous",
    ),
    "two-transactions-read-each-other": (
        story(
            txn(("send", 0, "a"), ("poll", 0, "b", 1)),
            txn(("send", 0, "b", 1), ("poll", 0, "a"), process=2),
            final((0, "a")), final((0, "b"), partition=1), **TWO,
        ),
        {"G1c"}, "anomalous",
    ),
    "one-transaction-reads-the-other": (
        story(
            txn(("send", 0, "a")), txn(("send", 0, "b", 1), ("poll", 0, "a"), process=2),
            final((0, "a")), final((0, "b"), partition=1), **TWO,
        ),
        set(), "valid",
    ),
    "two-transactions-write-before-each-other": (
        story(
            txn(("send", 0, "a"), ("send", 1, "b", 1)),
            txn(("send", 1, "c"), ("send", 0, "d", 1), process=2),
            final((0, "a"), (1, "c")), final((0, "d"), (1, "b"), partition=1), **TWO,
        ),
        {"G0", "G0-realtime"}, "valid",
    ),
    "two-transactions-write-before-each-other-around-a-record-of-nobody": (
        story(
            txn(("send", 0, "a"), ("send", 1, "b", 1)),
            txn(("send", 2, "c"), ("send", 0, "d", 1), process=2),
            final((0, "a"), (1, "x"), (2, "c")), final((0, "d"), (1, "b"), partition=1), **TWO,
        ),
        {"phantom", "G0-realtime"}, "anomalous",
    ),
    "two-transactions-write-in-one-order": (
        story(
            txn(("send", 0, "a"), ("send", 0, "b", 1)),
            txn(("send", 1, "c"), ("send", 1, "d", 1), process=2),
            final((0, "a"), (1, "c")), final((0, "b"), (1, "d"), partition=1), **TWO,
        ),
        set(), "valid",
    ),
    "one-writes-before-whom-it-read": (
        story(
            txn(("send", 1, "c"), ("send", 0, "d", 1), process=2),
            txn(("send", 0, "a"), ("poll", 0, "d", 1)),
            final((0, "a"), (1, "c")), final((0, "d"), partition=1), **TWO,
        ),
        {"G1c-ww", "G0-realtime"}, "valid",
    ),
    "read-before-it-was-sent": (
        story(poll((0, "a")), send("a", 0), final((0, "a"))), {"G1c-realtime"}, "anomalous",
    ),
    "read-before-the-ack-but-after-the-send": (
        story(send("a", type="info"), poll((0, "a")), final((0, "a"))), set(), "unknown",
    ),
    "a-transaction-read-what-a-later-one-sent": (
        story(txn(("poll", 0, "a")), txn(("send", 0, "a"), process=2), final((0, "a"))),
        {"G1c-realtime"}, "anomalous",
    ),
    "a-process-read-what-itself-sent-later": (
        story(txn(("poll", 0, "a")), txn(("send", 0, "a")), final((0, "a"))),
        {"G1c-realtime"}, "anomalous",
    ),
    "commit-goes-back": (
        story(send("a", 0), send("b", 1), commit(2), commit(1), AB),
        {"commit-regression"}, "anomalous",
    ),
    "commit-goes-back-after-a-seek": (
        story(
            send("a", 0), send("b", 1), commit(2, group=""),
            Op("seek", 1, "ok", ({"topic": "t", "partition": 0, "offset": 0, "key": ""},)),
            commit(1, group=""), AB,
        ),
        set(), "valid",
    ),
    "commit-is-lost": (
        story(send("a", 0), send("b", 1), commit(2), committed(None), AB),
        {"commit-regression"}, "anomalous",
    ),
    "commit-is-kept": (
        story(send("a", 0), send("b", 1), committed(None), commit(1), committed(1), commit(2), AB),
        set(), "valid",
    ),
    "two-groups-commit": (
        story(send("a", 0), send("b", 1), commit(2), commit(1, group="h"), AB), set(), "valid",
    ),
    "commit-stands-beyond-the-end": (
        story(send("a", 0), commit(2), final((0, "a")), final_reads=(FinalRead("t", 0, 1, True),)),
        {"commit-regression"}, "anomalous",
    ),
    "commit-stands-at-the-end": (
        story(send("a", 0), commit(1), final((0, "a")), final_reads=(FinalRead("t", 0, 1, True),)),
        set(), "valid",
    ),
    "a-poll-that-failed-moves-nobody": (
        story(
            send("a", 0), send("b", 1), txn(("poll", 1, "b"), type="fail", process=3),
            txn(("poll", 0, "a"), ("poll", 1, "b"), process=3), AB,
        ),
        set(), "valid",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> dict[str, Judged]:
    return judge({name: reported for name, (reported, _, _) in STORIES.items()})


@pytest.mark.parametrize("name", STORIES)
def test_story(verdicts: dict[str, Judged], name: str) -> None:
    _, anomalies, verdict = STORIES[name]
    assert {row["anomaly"] for row in verdicts[name].rows} == anomalies
    assert verdicts[name].verdict.verdict == verdict, verdicts[name].verdict.reasons


def test_a_cycle_shows_its_steps(verdicts: dict[str, Judged]) -> None:
    steps = verdicts["two-transactions-read-each-other"].evidence("G1c")["steps"]
    assert [(s["source"], s["kind"], s["target"], s["value"]) for s in steps] == [
        (0, "wr", 1, "a"),
        (1, "wr", 0, "b"),
    ]


def test_what_is_normal_is_found_where_it_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    fork = story(
        send("x", 0), send("y", 0, partition=1),
        txn(("poll", 0, "x"), process=2), txn(("send", 1, "x2"), ("send", 1, "y2", 1), process=3),
        txn(("poll", 1, "x2"), ("poll", 0, "y", 1), process=4),
        send("z", 2), final((0, "x"), (1, "x2"), (2, "z")),
        final((0, "y"), (1, "y2"), partition=1), **TWO,
    ).write(tmp_path / "fork")  # fmt: skip
    (quiet,) = check_runs(spark, [fork])
    (asked,) = check_runs(spark, [fork], options=THOROUGH)
    assert (quiet.verdict, dict(quiet.anomalies)) == ("valid", {})
    assert asked.verdict == "valid"
    assert (dict(asked.anomalies), dict(asked.allowed)) == ({}, {"G-single": 1, "send-skip": 1})
    assert judged(asked, fork).evidence("send-skip")["skips"] == 1


@pytest.mark.proof
def test_too_many_edges_make_the_run_unknown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neaptide.checkers.pipeline.cycles.EDGES_MAX", 1)
    run = STORIES["two-transactions-read-each-other"][0].write(tmp_path / "many")
    (verdict,) = check_runs(spark, [run])
    assert verdict.verdict == "unknown"
    assert "more edges than a task can search" in verdict.reasons[0]


def test_what_is_trimmed_first_is_searched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More edges than a task may hold, of which few can lie on a cycle."""
    monkeypatch.setattr("neaptide.checkers.pipeline.cycles.EDGES_MAX", 2)
    first, both = STORIES["two-transactions-read-each-other"][0], Op("poll", 7, "ok", ())
    more = [txn(("send", 9, "z"), process=5), txn(("poll", 9, "z"), process=6), both]
    run = Story([*first.ops[:2], *more[:2], *first.ops[2:]], run=first.run).write(tmp_path / "run")
    (verdict,) = check_runs(spark, [run])
    assert verdict.anomalies.get("G1c") == 1, verdict.reasons


def measures_of(run: Path, name: str) -> list[dict[str, Any]]:
    import json

    rows = pq.read_table(run / "measures", schema=ANOMALIES).to_pylist()
    return [json.loads(row["evidence"]) for row in rows if row["anomaly"] == name]


def test_a_partition_without_acks_is_measured_by_fault(spark: SparkSession, tmp_path: Path) -> None:
    run = story(
        send("a", 0), nemesis('{"kill":"A"}'), send("b", type="fail"), send("c", type="info"),
        nemesis('{"restart":"A"}'), send("d", 1), final((0, "a"), (1, "d")),
    ).write(tmp_path / "run")  # fmt: skip
    (verdict,) = check_runs(spark, [run], options=THOROUGH)
    assert (verdict.verdict, dict(verdict.anomalies)) == ("valid", {})
    windows = sorted(measures_of(run, "availability"), key=lambda row: row["from_ns"])
    assert [(w.get("fault"), w["from_ns"], w["to_ns"]) for w in windows] == [
        (None, 0, 10),
        ('{"kill":"A"}', 10, 40),
        ('{"restart":"A"}', 40, 65),
    ]
    assert [(w["acked"], w["failed"], w["indeterminate"]) for w in windows] == [
        (1, 0, 0), (0, 1, 1), (1, 0, 0),
    ]  # fmt: skip
    assert [(w["longest_gap_ns"], w["gap_from_ns"]) for w in windows] == [
        (5, 0),
        (30, 10),
        (15, 40),
    ]


def test_unseen_records_are_reported_over_time(spark: SparkSession, tmp_path: Path) -> None:
    run = story(send("a", 0), send("b", 1), poll((0, "a")), AB).write(tmp_path / "run")
    check_runs(spark, [run], options=THOROUGH)
    points = sorted((p["at_ns"], p["unseen"]) for p in measures_of(run, "unseen-over-time"))
    assert points == [(5, 1), (15, 2), (25, 1), (35, 0)]


def test_a_table_without_the_columns_of_transactions_still_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = story(send("a", 0), final((0, "a"))).write(tmp_path / "old")
    table = pq.read_table(run / "operations").select(OPERATIONS.names)
    (run / "operations" / "part-0-00000.parquet").unlink()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    write_table(run / "operations", OPERATIONS, rows)
    (verdict,) = check_runs(spark, [run])
    assert verdict.verdict == "valid"


def test_a_consumer_that_seeks_is_not_judged_across(judge: Judge) -> None:
    found = judge({"s": story(send("a", 0), send("b", 1), poll((1, "b")), seek(), AB)})
    assert not found["s"].rows
