"""A run is followed while it is written: what is proved is reported before its end, and no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.pipeline import follow as following_module
from neaptide.checkers.pipeline.follow import follow
from neaptide.harness.following import Followed, follow_run
from neaptide.results.compaction import compact
from neaptide.results.run import read_run
from neaptide.results.schema import FETCH_ROUNDS, OPERATIONS_READ
from neaptide.results.stop import ask_to_stop, asked_to_stop
from neaptide.results.store import write_run
from neaptide.results.tables import TableWriter
from tests.checkers.histories import (
    Op,
    answered,
    commit,
    final,
    operation_rows,
    poll,
    reached,
    run_of,
    send,
)

pytestmark = pytest.mark.spark

WAIT_S = 120.0
MINUTE_NS = 60_000_000_000
BEFORE = [send("a", 0), send("b", 1), send("c", 2), poll((0, "a"), (1, "b"), (2, "c"))]
# The log was cut behind a, and went on: d is acknowledged where b was.
LOSING = [send("d", 1), send("e", 2)]
HOLDING = [send("d", 3), send("e", 4)]


@dataclass
class Growing:
    """A run that is being written: operation by operation, file by file, by several writers."""

    directory: Path
    count: int = 0
    run: Any = field(default_factory=lambda: run_of(status="running", converged=None))
    writers: dict[str, TableWriter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir()
        write_run(self.directory, self.run)

    def write(self, ops: Sequence[Op], *, writer: str = "c1", later_ns: int = 0) -> None:
        table = self._table("operations", writer, OPERATIONS_READ)
        for op in ops:
            for row in operation_rows(self.count, op):
                moved = {name: row[name] + later_ns for name in ("invoked_ns", "completed_ns")}
                whole = row | moved
                table.append(tuple(whole.get(name) for name in OPERATIONS_READ.names))
            self.count += 1
        table.flush()

    def write_rounds(self, *rounds: dict[str, Any]) -> None:
        table = self._table("fetch_rounds", "gate", FETCH_ROUNDS)
        table.extend(tuple(row.get(name) for name in FETCH_ROUNDS.names) for row in rounds)
        table.flush()

    def _table(self, name: str, writer: str, columns: Any) -> TableWriter:
        if writer not in self.writers:
            self.writers[writer] = TableWriter(self.directory / name, columns, writer=writer)
        return self.writers[writer]

    def finish(self, *, compacted: bool = False) -> None:
        written: dict[str, dict[str, Any]] = {}
        for label, writer in self.writers.items():
            writer.close()
            table = "fetch_rounds" if label == "gate" else "operations"
            written.setdefault(table, {})[label] = writer.written
        if compacted:
            written = compact(self.directory, written)
        done = {"status": "finished", "final_reads": (reached(),), "written": written}
        write_run(self.directory, replace(self.run, system="jepsen", **done))


class Following:
    """Somebody who follows, on a thread of its own."""

    def __init__(self, spark: SparkSession, run: Path, *, stop: bool = False) -> None:
        self.said: list[str] = []
        self.reported: list[Any] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, args=(spark, run, stop), daemon=True)
        self._thread.start()

    def _follow(self, spark: SparkSession, run: Path, stop: bool) -> None:
        self.reported = follow_run(spark, run, stop=stop, say=self._say)

    def _say(self, text: str) -> None:
        with self._changed:
            self.said.append(text)
            self._changed.notify_all()

    def await_said(self, *beginnings: str) -> None:
        """Until something was said that begins so, of each."""

        def all_said() -> bool:
            failed = any(said.startswith("It can be followed no further") for said in self.said)
            return failed or all(
                any(said.startswith(one) for said in self.said) for one in beginnings
            )

        with self._changed:
            assert self._changed.wait_for(all_said, WAIT_S), self.said
            assert "no further" not in " ".join(self.said), self.said

    def end(self) -> list[str]:
        """Waits for the end of the run; the names of what was reported."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return sorted(row["anomaly"] for row in self.reported)


@pytest.fixture
def followed(spark: SparkSession) -> Callable[[Path], list[dict[str, Any]]]:
    """What is reported of a run that is over by now."""

    def look(run: Path) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []
        follow(spark, run, is_over=lambda: True, report=reported.append)
        return reported

    return look


def places(reported: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["anomaly"], row["offset"], row["value"]) for row in reported)


def test_a_loss_is_reported_before_the_run_ends_and_stops_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Growing(tmp_path / "losing")
    following = Following(spark, run.directory, stop=True)
    run.write(BEFORE)
    assert asked_to_stop(run.directory) is None
    run.write(LOSING)
    following.await_said("G0-realtime: 'd' in t-0 at offset 1")
    assert read_run(run.directory).status == "running"
    assert asked_to_stop(run.directory) is not None
    run.write([final((0, "a"), (1, "d"), (2, "e"))])
    run.finish()
    assert "G0-realtime" in following.end()
    (verdict,) = check_runs(spark, [run.directory])
    assert (verdict.verdict, verdict.outcome) == ("anomalous", "lost")
    assert verdict.anomalies["lost-write"] == 2
    assert set(following.end()) <= {*verdict.anomalies, *verdict.allowed}, verdict


def test_its_twin_that_loses_nothing_stays_silent(spark: SparkSession, tmp_path: Path) -> None:
    run = Growing(tmp_path / "holding")
    following = Following(spark, run.directory, stop=True)
    run.write(BEFORE)
    run.write(HOLDING)
    run.write([final((0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"))])
    run.finish(compacted=True)
    assert following.end() == []
    assert asked_to_stop(run.directory) is None
    (verdict,) = check_runs(spark, [run.directory])
    assert (verdict.verdict, verdict.reasons) == ("valid", ())


def test_each_anomaly_is_reported_while_the_run_is_going_also_of_tables_that_come_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Growing(tmp_path / "bad")
    following = Following(spark, run.directory)
    run.write(BEFORE)
    run.write([poll((0, "a"), process=3), commit(10), poll((7, "b"), process=2)])
    run.write([poll((0, "a"), process=3), commit(8)])
    following.await_said("duplicate: 'b'", "nonmonotonic-poll: 'a'", "commit-regression")
    run.write([poll((1, "x"), process=4)], writer="c2")
    following.await_said("inconsistent-offsets: in t-0 at offset 1")
    run.write_rounds(answered(5, at=10))
    run.write_rounds(answered(4, at=20, round=2))
    following.await_said("high-watermark-regression: in t-0")
    run.finish()
    names = [
        "commit-regression", "duplicate", "high-watermark-regression", "inconsistent-offsets",
        "nonmonotonic-poll",
    ]  # fmt: skip
    assert following.end() == names
    (verdict,) = check_runs(spark, [run.directory])
    assert set(names) <= set(verdict.anomalies)


def test_the_twin_of_each_is_silent(
    tmp_path: Path, followed: Callable[[Path], list[dict[str, Any]]]
) -> None:
    run = Growing(tmp_path / "good")
    run.write([*BEFORE, *HOLDING])
    run.write([poll((0, "a"), process=3), commit(8)])
    run.write([poll((1, "b"), process=3), commit(10), poll((1, "b"), (2, "c"), process=2)])
    run.write([poll((1, "b"), process=4), send("f", 0, partition=1)], writer="c2")
    run.write_rounds(answered(4, at=10), answered(5, at=20, round=2))
    assert followed(run.directory) == []


@pytest.mark.parametrize(
    ("offset", "names"),
    [
        (1, ["G0-realtime", "inconsistent-offsets", "nonmonotonic-poll", "nonmonotonic-send"]),
        (3, []),
    ],
)
def test_a_record_without_a_value_is_one_like_others(
    tmp_path: Path,
    followed: Callable[[Path], list[dict[str, Any]]],
    offset: int,
    names: Sequence[str],
) -> None:
    """Two that delete the same key are no duplicate; one in the place of another is seen."""
    run = Growing(tmp_path / "nulls")
    run.write([*BEFORE, send(None, offset, key="k"), poll((offset, None, "k"))])
    run.write([send(None, offset + 1, key="k"), poll((offset + 1, None, "k"))])
    assert sorted({row["anomaly"] for row in followed(run.directory)}) == names


def test_what_could_be_taken_back_is_not_reported(
    tmp_path: Path, followed: Callable[[Path], list[dict[str, Any]]]
) -> None:
    run = Growing(tmp_path / "unproven")
    # Read although nobody has sent it yet; read elsewhere than it was acknowledged; unsure.
    run.write([poll((0, "x")), send("a", 1), poll((2, "a")), send("b", 1, type="info")])
    assert followed(run.directory) == []


def test_what_does_not_count_in_a_run_is_not_reported(
    tmp_path: Path, followed: Callable[[Path], list[dict[str, Any]]]
) -> None:
    jumping = [poll((5, "a")), poll((3, "b"))]
    repeated = [poll((6, "a"), process=2)]
    plain = Growing(tmp_path / "plain")
    plain.write([*jumping, *repeated])
    assert places(followed(plain.directory)) == [
        ("duplicate", 6, "a"),
        ("nonmonotonic-poll", 3, "b"),
    ]
    clients = {"subscribe": True, "idempotence": False}
    excused = Growing(tmp_path / "excused", run=run_of(status="running", clients=clients))
    excused.write([*jumping, *repeated])
    assert followed(excused.directory) == []


def test_rows_of_another_writer_that_come_late_are_compared_and_accuse_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Growing(tmp_path / "late")
    following = Following(spark, run.directory)
    run.write([send("a", 5)], later_ns=500)
    run.write([poll((7, "z"))], writer="c3", later_ns=600)
    run.write([poll((7, "y"))], writer="c4", later_ns=700)
    following.await_said(
        "inconsistent-offsets: in t-0 at offset 7"
    )  # what was before it has been looked at
    run.write([send("b", 4), poll((4, "b"), (5, "a"), (7, "y"))], writer="c2")
    run.write([poll((4, "q"))], writer="c2")
    following.await_said("inconsistent-offsets: in t-0 at offset 4")
    run.finish()
    assert following.end() == ["inconsistent-offsets", "inconsistent-offsets", "nonmonotonic-poll"]


@pytest.mark.proof
def test_the_state_of_claims_is_bounded_by_the_window(spark: SparkSession, tmp_path: Path) -> None:
    """A quarter of an hour of it is as many rows as half an hour."""
    run = Growing(tmp_path / "long")
    totals: list[int] = []

    def is_over() -> bool:
        claims = next((one for one in spark.streams.active if one.name == "claims"), None)
        if claims is None:
            run.write([send("v0", 0)])
            return False
        for _ in range(6):
            minute = run.count
            run.write([send(f"v{minute}", minute)], later_ns=minute * MINUTE_NS)
        claims.processAllAvailable()
        progress = claims.lastProgress
        assert progress is not None
        totals.append(progress.stateOperators[0].numRowsTotal)
        return len(totals) == 6

    reported: list[Any] = []
    follow(spark, run.directory, is_over=is_over, report=reported.append)
    assert reported == []
    # An offset and a value a minute, of the window and of what may be late; and the last six
    # minutes were there before the time had passed. What is over leaves by a batch of its own,
    # which may still be to come: so no two of these numbers need be the same.
    assert max(totals[-3:]) <= 2 * (2 + 1 + 6)


def test_a_great_many_findings_are_reported_in_part(
    tmp_path: Path,
    followed: Callable[[Path], list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following_module, "REPORTED_MAX", 3)
    run = Growing(tmp_path / "many")
    run.write([poll((n, f"a{n}"), process=n) for n in range(9)])
    run.write([poll((n, f"b{n}"), process=n + 9) for n in range(9)])
    assert [row["anomaly"] for row in followed(run.directory)] == ["inconsistent-offsets"] * 3


def test_a_run_that_was_killed_is_given_up_once_it_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Growing(tmp_path / "killed")
    run.write(BEFORE)
    followed = Followed(run.directory)
    assert not followed.is_over()
    monkeypatch.setattr("neaptide.harness.following.QUIET_S", -1.0)
    assert followed.is_over()


def test_who_follows_a_run_that_was_killed_says_that_it_is_taken_for_dead(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Growing(tmp_path / "killed")
    run.write([*BEFORE, *LOSING])
    following = Following(spark, run.directory)
    following.await_said("G0-realtime")
    monkeypatch.setattr("neaptide.harness.following.QUIET_S", -1.0)
    assert "G0-realtime" in following.end()
    assert "seems to have died" in following.said[-1]


def test_a_request_to_stop_needs_no_reason(tmp_path: Path) -> None:
    assert asked_to_stop(tmp_path) is None
    ask_to_stop(tmp_path, "enough")
    assert asked_to_stop(tmp_path) == "enough"
    (tmp_path / "stop.json").write_text("")
    assert "without a reason" in str(asked_to_stop(tmp_path))


def test_settings_of_the_session_are_put_back(
    spark: SparkSession, tmp_path: Path, followed: Callable[[Path], list[dict[str, Any]]]
) -> None:
    names = list(following_module.SETTINGS)
    before = {name: spark.conf.get(name, None) for name in names}
    run = Growing(tmp_path / "short")
    run.write(BEFORE)
    assert followed(run.directory) == []
    assert {name: spark.conf.get(name, None) for name in names} == before
