"""Histories of Jepsen's Kafka workload, read and written by Spark, judged like any run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.histories.reader import import_history
from neaptide.checkers.histories.writer import export_history
from neaptide.results.errors import RunUnreadableError
from neaptide.results.schema import OPERATIONS_READ
from tests.checkers.histories import Op, Story, nemesis, poll, seek, send, txn
from tests.checkers.reading import Judged, judged

pytestmark = pytest.mark.spark

UTC_THEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))


def imported(spark: SparkSession, path: Path) -> Path:
    return import_history(spark, path, version="0.1.0", utc=UTC_THEN)


def judge_lines(spark: SparkSession, tmp_path: Path, *lines: str) -> Judged:
    path = tmp_path / "history.edn"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = imported(spark, path)
    (verdict,) = check_runs(spark, [run])
    return judged(verdict, run)


HISTORY = (
    "{:index 0, :type :invoke, :process 0, :time 1, :f :assign, :value [0 1]}",
    "{:index 1, :type :ok, :process 0, :time 2, :f :assign, :value [0 1]}",
    "{:index 2, :type :invoke, :process 1, :time 3, :f :send, :value [[:send 0 10]]}",
    "{:index 3, :type :ok, :process 1, :time 4, :f :send, :value [[:send 0 [0 10]]]}",
    "{:index 4, :type :invoke, :process 1, :time 5, :f :send, :value [[:send 0 11]]}",
    "{:index 5, :type :ok, :process 1, :time 6, :f :send, :value [[:send 0 [1 11]]]}",
    "{:index 6, :type :info, :process :nemesis, :time 6, :f :kill, :value :all}",
    "{:index 7, :type :invoke, :process 1, :time 7, :f :send, :value [[:send 0 12]]}",
    "{:index 8, :type :ok, :process 1, :time 8, :f :send, :value [[:send 0 [2 12]]]}",
    "{:index 9, :type :invoke, :process 0, :time 9, :f :poll, :value [[:poll]]}",
)


def test_a_valid_history(spark: SparkSession, tmp_path: Path) -> None:
    found = judge_lines(
        spark, tmp_path, *HISTORY,
        "{:index 10, :type :ok, :process 0, :time 10, :f :poll, "
        ":value [[:poll {0 [[0 10] [1 11] [2 12]]}]]}",
        "{:index 11, :type :invoke, :process 1, :time 11, :f :send, :value [[:send 0 13]]}",
    )  # fmt: skip
    assert (found.verdict.verdict, found.rows) == ("valid", ())
    assert found.verdict.operations == 6


def test_lost_and_unseen_follow_from_the_polls_alone(spark: SparkSession, tmp_path: Path) -> None:
    lost = judge_lines(
        spark, tmp_path, *HISTORY,
        "{:index 10, :type :ok, :process 0, :time 10, :f :poll, "
        ":value [[:poll {0 [[0 10] [2 12]]}]]}",
    )  # fmt: skip
    assert lost.found == {("lost-write", 1, "11"), ("int-poll-skip", 2, "12")}
    unseen = judge_lines(
        spark, tmp_path, *HISTORY,
        "{:index 10, :type :ok, :process 0, :time 10, :f :poll, :value [[:poll {0 [[0 10]]}]]}",
    )  # fmt: skip
    assert unseen.found == {("unseen", 1, "11"), ("unseen", 2, "12")}


def test_a_key_that_was_dropped_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    poll_all = (
        "{{:type :invoke, :process 0, :time {0}, :f :poll, :value [[:poll]]}}",
        "{{:type :ok, :process 0, :time {0}, :f :poll, "
        ":value [[:poll {{0 [[0 10] [1 11] [2 12]]}}]]}}",
    )
    lines = [line.split(", ", 1)[1] for line in HISTORY[:9]]
    lines = ["{" + line for line in lines]
    again = [line.format(20) for line in poll_all] + [line.format(21) for line in poll_all]
    twice = judge_lines(spark, tmp_path, *lines, *again)
    assert twice.found == {("nonmonotonic-poll", 0, "10")}
    drop = "{:type :ok, :process 0, :time 20, :f :assign, :value [1]}"
    assert not judge_lines(spark, tmp_path, *lines, *again[:2], drop, *again[2:]).rows


def test_a_syntax_error_is_refused_with_its_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RunUnreadableError, match=r"history\.edn line 6 cannot be read: '}' is"):
        judge_lines(spark, tmp_path, *HISTORY[:5], "{:type :ok, :f ", *HISTORY[5:])
    assert not list((tmp_path / "runs").glob("2*"))


ROUND_TRIP: tuple[Op, ...] = (
    send('a"\\\n', 0),
    send("b", 1, process=2),
    nemesis('{"kill":"A"}'),
    send("c", None, type="info", process=3),
    send("d", None, type="fail", process=4),
    poll((0, 'a"\\\n'), (1, "b")),
    seek(),
    poll((0, 'a"\\\n')),
    poll(),
    txn(("send", 2, "e"), ("poll", 1, "b"), ("send", 0, "f", 1), process=5),
    send("g", None, type="invoke", process=6),
)
KEPT = ("process", "f", "type", "offset", "value", "mop")
TIMES = ("invoked_ns", "completed_ns")


def kept(run: Path, *more: str) -> list[tuple[object, ...]]:
    """In the order of their invocations."""
    rows = pq.read_table(run / "operations", schema=OPERATIONS_READ).to_pylist()
    ordered = sorted(rows, key=lambda row: (row["invoked_ns"], row["operation"], row["row"]))
    return [
        tuple(row[name] for name in (*KEPT, *more))
        for row in ordered
        if row["f"] in ("send", "poll", "seek")
    ]


def test_a_run_written_as_edn_reads_back_the_same(spark: SparkSession, tmp_path: Path) -> None:
    run = Story(ROUND_TRIP).write(tmp_path / "run")
    path = tmp_path / "exported.edn"
    export_history(spark, run, path)
    back = imported(spark, path)
    wanted = [row for row in kept(run) if row[1] != "seek"]
    assert [row for row in kept(back) if row[1] != "seek"] == wanted
    assert [row[:2] for row in kept(back) if row[1] == "seek"] == [(1, "seek")]


def test_times_that_rise_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """A seek is several lines at one moment; without it each line has a moment of its own."""
    run = Story([op for op in ROUND_TRIP if op.f != "seek"]).write(tmp_path / "run")
    path = tmp_path / "exported.edn"
    export_history(spark, run, path)
    assert kept(imported(spark, path), *TIMES) == kept(run, *TIMES)
