"""A run is followed while it is written: a loss is told before its end, its twin stays silent."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from neaptide.checkers.frames import spark_schema
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.pipeline.follow import follow, judged
from neaptide.harness.following import Followed, follow_run
from neaptide.results.run import read_run
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.stop import ask_to_stop, asked_to_stop
from neaptide.results.store import write_run
from neaptide.results.tables import TableWriter
from tests.checkers.histories import Op, final, operation_rows, poll, reached, run_of, send

pytestmark = pytest.mark.spark

WAIT_S = 240.0
BEFORE = [send("a", 0), send("b", 1), send("c", 2), poll((0, "a"), (1, "b"), (2, "c"))]
# The log was cut behind a, and went on: d is acknowledged where b was.
LOSING = [send("d", 1), send("e", 2)]
HOLDING = [send("d", 3), send("e", 4)]


@dataclass
class Growing:
    """A run that is being written: operation by operation, file by file."""

    directory: Path
    count: int = 0
    run: Any = field(default_factory=lambda: run_of(status="running", converged=None))

    def __post_init__(self) -> None:
        self.directory.mkdir()
        write_run(self.directory, self.run)
        self.writer = TableWriter(self.directory / "operations", OPERATIONS_READ)

    def write(self, ops: Sequence[Op]) -> None:
        for op in ops:
            for row in operation_rows(self.count, op):
                self.writer.append(tuple(row.get(name) for name in OPERATIONS_READ.names))
            self.count += 1
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()
        write_run(self.directory, replace(self.run, status="finished", final_reads=(reached(),)))


class Following:
    """Somebody who follows, on a thread of its own."""

    def __init__(self, spark: SparkSession, run: Path, *, stop: bool = False) -> None:
        self.said: list[str] = []
        self.told: list[Any] = []
        self.seen = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(spark, run, stop), daemon=True)
        self._thread.start()

    def _follow(self, spark: SparkSession, run: Path, stop: bool) -> None:
        self.told = follow_run(spark, run, stop=stop, say=self._say)

    def _say(self, text: str) -> None:
        self.said.append(text)
        if text.startswith("lost-write"):
            self.seen.set()

    def end(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def test_a_loss_is_told_before_the_run_ends_and_stops_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Growing(tmp_path / "losing")
    following = Following(spark, run.directory, stop=True)
    run.write(BEFORE)
    assert asked_to_stop(run.directory) is None
    run.write(LOSING)
    assert following.seen.wait(WAIT_S)
    assert read_run(run.directory).status == "running"
    reason = asked_to_stop(run.directory)
    assert reason is not None
    assert "lost-write: 'c' in t-0 at offset 2" in reason
    run.write([final((0, "a"), (1, "d"), (2, "e"))])
    run.finish()
    following.end()
    [told] = following.told
    assert (told["anomaly"], told["value"], told["offset"]) == ("lost-write", "c", 2)
    (verdict,) = check_runs(spark, [run.directory])
    assert (verdict.verdict, verdict.outcome) == ("anomalous", "lost")
    assert verdict.anomalies["lost-write"] == 2


def test_its_twin_that_loses_nothing_stays_silent(spark: SparkSession, tmp_path: Path) -> None:
    run = Growing(tmp_path / "holding")
    following = Following(spark, run.directory, stop=True)
    run.write(BEFORE)
    run.write(HOLDING)
    run.write([final((0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"))])
    run.finish()
    following.end()
    assert following.told == []
    assert asked_to_stop(run.directory) is None
    (verdict,) = check_runs(spark, [run.directory])
    assert verdict.verdict == "valid"


def look(spark: SparkSession, ops: Sequence[Op], *, first: int = 0, kept: Any = ()) -> list[Any]:
    rows = [
        tuple(row.get(name) for name in OPERATIONS_READ.names)
        for n, op in enumerate(ops)
        for row in operation_rows(first + n, op)
    ]
    batch = spark.createDataFrame(rows, spark_schema(OPERATIONS_READ))
    return judged(batch, list(kept)).collect()


@pytest.mark.parametrize(
    "later",
    [
        send("d", 2, partition=1),  # of another partition
        send("d", None),  # acknowledged without an offset
        send("d", 0, type="info"),  # nobody knows where it is
        poll((0, "a")),  # a read from the beginning
    ],
)
def test_what_proves_nothing_is_not_told(spark: SparkSession, later: Op) -> None:
    assert [row["count"] for row in look(spark, [*BEFORE, later]) if row["count"]] == []


def test_sends_that_overlap_may_be_appended_in_either_order(spark: SparkSession) -> None:
    kept = {"topic": "t", "partition": 0, "offset": 9, "value": "x", "operation": 1, "at_ns": 20}
    [silent] = look(spark, [send("d", 8)], first=2, kept=[kept])  # invoked at 20
    assert silent["count"] == 0
    [loud] = look(spark, [send("d", 8)], first=2, kept=[kept | {"at_ns": 19}])
    assert loud["count"] == 1
    assert loud["first"]["before"]["value"] == "x"


def test_a_run_that_was_killed_is_given_up_once_it_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Growing(tmp_path / "killed")
    run.write(BEFORE)
    followed = Followed(run.directory)
    assert not followed.is_over()
    monkeypatch.setattr("neaptide.harness.following.QUIET_S", -1.0)
    assert followed.is_over()


def test_a_request_to_stop_needs_no_reason(tmp_path: Path) -> None:
    assert asked_to_stop(tmp_path) is None
    ask_to_stop(tmp_path, "enough")
    assert asked_to_stop(tmp_path) == "enough"
    (tmp_path / "stop.json").write_text("")
    assert "without a reason" in str(asked_to_stop(tmp_path))


def test_following_ends_with_the_run_also_when_nothing_was_written_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Growing(tmp_path / "short")
    run.write(BEFORE)
    told: list[Any] = []
    follow(spark, run.directory, is_over=lambda: True, tell=told.append)
    assert told == []
