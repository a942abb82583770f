"""Histories of Jepsen's Kafka workload, read and written by Spark, judged like any run."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.histories.reader import import_history
from neaptide.checkers.histories.writer import FINAL_PROCESSES, export_history
from neaptide.results.errors import RunUnreadableError
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.store import find_run
from tests.checkers.histories import Op, Story, final, nemesis, poll, seek, send, txn
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


def send_and_poll(*values: tuple[str, str]) -> list[str]:
    """Each is sent in one notation and read in another."""
    lines = []
    for offset, (sent, _) in enumerate(values):
        send = "{{:type :{}, :process 1, :f :send, :value [[:send 0 {}]]}}"
        lines += [send.format("invoke", sent), send.format("ok", f"[{offset} {sent}]")]
    polled = " ".join(f"[{offset} {read}]" for offset, (_, read) in enumerate(values) if read)
    lines += ["{:type :invoke, :process 0, :f :poll, :value [[:poll]]}"]
    return [*lines, f"{{:type :ok, :process 0, :f :poll, :value [[:poll {{0 [{polled}]}}]]}}"]


def test_values_are_equal_where_clojure_has_them_equal(spark: SparkSession, tmp_path: Path) -> None:
    equal = (
        ("0x10", "16"),
        ("2/4", "1/2"),
        ("{:a 1, :b #{2 3}}", "{:b #{3 2} :a 1}"),
        ("nil", "nil"),
    )
    found = judge_lines(spark, tmp_path, *send_and_poll(*equal, ("(1 2)", "[1 2]")))
    assert (found.verdict.verdict, found.rows) == ("valid", ())
    differ = ("16", '"16"'), ("1", "1")
    other = judge_lines(spark, tmp_path, *send_and_poll(*differ))
    assert {name for name, *_ in other.found} == {"lost-write", "phantom", "inconsistent-offsets"}


def test_a_nil_that_is_gone_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    found = judge_lines(spark, tmp_path, *send_and_poll(("nil", ""), ("1", "1")))
    assert found.found == {("lost-write", 0, "⟨null⟩")}


def test_a_send_that_succeeded_without_a_value_sent_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    sends = [
        line
        for value in ("", ", :value nil")
        for line in (
            "{:type :invoke, :process 2, :f :send, :value [[:send 0 7]]}",
            f"{{:type :ok, :process 2, :f :send{value}}}",
        )
    ]
    found = judge_lines(spark, tmp_path, *sends, *send_and_poll(("1", "1")))
    assert (found.verdict.reasons, found.verdict.verdict, found.rows) == ((), "valid", ())


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
    send(None, 3, process=7),
    poll((3, None), process=8),
    send("g", None, type="invoke", process=6),
)
UNKNOWN_END = {"invoke": "info"}  # Jepsen's histories complete each invocation
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


def _completed(row: tuple[object, ...]) -> tuple[object, ...]:
    process, f, kind, *others = row
    return process, f, UNKNOWN_END.get(str(kind), kind), *others


def test_a_run_written_as_edn_reads_back_the_same(spark: SparkSession, tmp_path: Path) -> None:
    run = Story(ROUND_TRIP).write(tmp_path / "run")
    path = tmp_path / "exported.edn"
    export_history(spark, run, path)
    back = imported(spark, path)
    wanted = [_completed(row) for row in kept(run) if row[1] != "seek"]
    assert [row for row in kept(back) if row[1] != "seek"] == wanted
    assert [row[:2] for row in kept(back) if row[1] == "seek"] == [(1, "seek")]


def exported(spark: SparkSession, tmp_path: Path, *ops: Op) -> list[str]:
    """Each line without its :time."""
    path = tmp_path / "exported.edn"
    export_history(spark, Story(ops).write(tmp_path / "run"), path)
    return [re.sub(r" :time \d+,", "", line) for line in path.read_text().splitlines()]


def test_a_transaction_is_one_operation_however_it_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Offsets 2 and 4 are of markers; what an aborted send was answered about its place is kept."""
    assert exported(
        spark,
        tmp_path,
        txn(("send", 0, "a"), ("poll", 1, "p", 1), ("poll", 0, "o"), ("send", 1, "b")),
        txn(("send", 3, "c"), ("poll", 1, "b"), ("send", None, "d", 1), type="fail"),
        txn(("send", 5, "e"), ("send", None, "f"), type="info"),
        txn(("send", None, "g"), process=2, type="invoke"),
        poll((0, "a"), (1, "b"), (5, "e")),
    ) == [
        '{:type :invoke, :f :txn, :value [[:send 0 "a"] [:poll] [:send 0 "b"]], :process 0}',
        '{:type :ok, :f :txn, :value [[:send 0 [0 "a"]] [:poll {1 [[1 "p"]], 0 [[0 "o"]]}]'
        ' [:send 0 [1 "b"]]], :process 0}',
        '{:type :invoke, :f :txn, :value [[:send 0 "c"] [:poll] [:send 1 "d"]], :process 0}',
        '{:type :fail, :f :txn, :value [[:send 0 [3 "c"]] [:poll {0 [[1 "b"]]}] [:send 1 "d"]],'
        " :process 0}",
        '{:type :invoke, :f :txn, :value [[:send 0 "e"] [:send 0 "f"]], :process 0}',
        '{:type :info, :f :txn, :value [[:send 0 [5 "e"]] [:send 0 "f"]], :process 0}',
        '{:type :invoke, :f :txn, :value [[:send 0 "g"]], :process 2}',
        '{:type :info, :f :txn, :value [[:send 0 "g"]], :process 2}',
        "{:type :invoke, :f :poll, :value [[:poll]], :process 1}",
        '{:type :ok, :f :poll, :value [[:poll {0 [[0 "a"] [1 "b"] [5 "e"]]}]], :process 1}',
    ]


def test_what_a_producer_sends_before_its_last_answer_is_of_further_processes(
    spark: SparkSession, tmp_path: Path
) -> None:
    def at(invoked: int, completed: int, op: Op) -> Op:
        return replace(op, at=(invoked, completed))

    lines = exported(
        spark,
        tmp_path,
        at(0, 30, send("a", 0)),
        at(0, 20, send("b", 1)),
        at(10, 40, send("c", type="info")),
        at(30, 50, send("d", 2)),  # "a" has ended, in the line before
        at(45, 60, send("e", 3)),  # "c" may never end
        at(61, 70, poll((0, "a"), process=7)),
        at(70, 80, final((0, "a"), process=7)),
    )
    of_sends = [re.search(r'"(.)".* :process (\d+)', line) for line in lines if ":send" in line]
    processes = {(match[1], int(match[2])) for match in of_sends if match}
    first = FINAL_PROCESSES + 7  # the highest one
    assert processes == {("a", 0), ("b", first + 1), ("c", first + 2), ("d", 0), ("e", first + 1)}
    reads = [line.rpartition(" ")[2] for line in lines if ":poll" in line]
    assert reads == ["7}", "7}", f"{first}}}", f"{first}}}"]
    back = imported(spark, tmp_path / "exported.edn")  # every completion finds its invocation
    assert {(row[4], row[2], row[3]) for row in kept(back) if row[1] == "send"} == {
        ("a", "ok", 0), ("b", "ok", 1), ("c", "info", None), ("d", "ok", 2), ("e", "ok", 3),
    }  # fmt: skip


def test_times_that_rise_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """A seek is several lines at one moment; without it each line has a moment of its own."""
    ended = [op for op in ROUND_TRIP if op.f != "seek" and op.type != "invoke"]
    run = Story(ended).write(tmp_path / "run")
    path = tmp_path / "exported.edn"
    export_history(spark, run, path)
    assert kept(imported(spark, path), *TIMES) == kept(run, *TIMES)


def test_a_history_that_is_refused_leaves_latest_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    no_spark: Any = None  # so small a history needs none
    utc = datetime(2025, 1, 1, tzinfo=UTC)
    bad, good = tmp_path / "bad.edn", tmp_path / "good.edn"
    bad.write_text("{:type :invoke", encoding="utf-8")
    good.write_text("{:type :invoke, :f :crash, :process 0, :time 1}\n", encoding="utf-8")
    with pytest.raises(RunUnreadableError):
        import_history(no_spark, bad, version="1", utc=utc)
    assert not (tmp_path / "runs" / "latest").is_symlink()
    run = import_history(no_spark, good, version="1", utc=utc)
    assert find_run("latest") == run
    with pytest.raises(RunUnreadableError):
        import_history(no_spark, bad, version="1", utc=utc)
    assert find_run("latest") == run
