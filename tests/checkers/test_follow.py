"""A run is followed while it is written: what is proved is reported before its end, and no more."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers import follow as following_module
from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.check import check_runs
from neaptide.checkers.follow import follow
from neaptide.harness.checking.following import Followed, follow_run
from neaptide.results.compaction import compact
from neaptide.results.run import read_run
from neaptide.results.schema import FETCH_ROUNDS, OPERATIONS_READ
from neaptide.results.stop import ask_to_stop, asked_to_stop
from neaptide.results.store import write_run
from neaptide.results.tables import TableWriter
from tests.checkers import oracle
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
from tests.checkers.oracle_history import of_rows
from tests.differential import runs

pytestmark = pytest.mark.spark

WAIT_S = 60.0
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

    def __init__(self, run: Path, *, stop: bool = False) -> None:
        self.said: list[str] = []
        self.reported: list[Any] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, args=(run, stop), daemon=True)
        self._thread.start()

    def _follow(self, run: Path, stop: bool) -> None:
        self.reported = follow_run(run, stop=stop, say=self._say)

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
def followed() -> Callable[..., list[dict[str, Any]]]:
    """What is reported of a run that is over by now."""

    def look(run: Path, is_over: Callable[[], bool] = lambda: True) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []
        follow(run, is_over=is_over, report=reported.append)
        return reported

    return look


def places(reported: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["anomaly"], row["offset"], row["value"]) for row in reported)


def test_a_loss_is_reported_before_the_run_ends_and_stops_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Growing(tmp_path / "losing")
    following = Following(run.directory, stop=True)
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
    following = Following(run.directory, stop=True)
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
    following = Following(run.directory)
    run.write(BEFORE)
    run.write([poll((0, "a"), process=3), commit(10), poll((7, "b"), process=2)])
    run.write([poll((0, "a"), process=3), commit(8)])
    following.await_said("duplicate: 'b'", "nonmonotonic-poll: 'a'")
    run.write([poll((1, "x"), process=4)], writer="c2")
    following.await_said("inconsistent-offsets: 'b' in t-0 at offset 1")
    run.write_rounds(answered(5, at=10))
    run.write_rounds(answered(4, at=20, round=2))
    following.await_said("high-watermark-regression: in t-0")
    run.finish()
    names = [
        "duplicate", "high-watermark-regression", "inconsistent-offsets", "nonmonotonic-poll",
    ]  # fmt: skip
    assert following.end() == names
    (verdict,) = check_runs(spark, [run.directory])
    assert set(names) <= set(verdict.anomalies)


def test_the_twin_of_each_is_silent(
    tmp_path: Path, followed: Callable[..., list[dict[str, Any]]]
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
    followed: Callable[..., list[dict[str, Any]]],
    offset: int,
    names: Sequence[str],
) -> None:
    """Two that delete the same key are no duplicate; one in the place of another is seen."""
    run = Growing(tmp_path / "nulls")
    run.write([*BEFORE, send(None, offset, key="k"), poll((offset, None, "k"))])
    run.write([send(None, offset + 1, key="k"), poll((offset + 1, None, "k"))])
    assert sorted({row["anomaly"] for row in followed(run.directory)}) == names


def test_what_could_be_taken_back_is_not_reported(
    tmp_path: Path, followed: Callable[..., list[dict[str, Any]]]
) -> None:
    run = Growing(tmp_path / "unproven")
    # Read although nobody has sent it yet; read elsewhere than it was acknowledged; unsure.
    run.write([poll((0, "x")), send("a", 1), poll((2, "a")), send("b", 1, type="info")])
    assert followed(run.directory) == []


def test_what_does_not_count_in_a_run_is_not_reported(
    tmp_path: Path, followed: Callable[..., list[dict[str, Any]]]
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
    following = Following(run.directory)
    run.write([send("a", 5)], later_ns=500)
    run.write([poll((7, "z"), process=3)], writer="c3", later_ns=600)
    run.write([poll((7, "y"), process=4)], writer="c4", later_ns=700)
    # What was before it has been looked at.
    following.await_said("inconsistent-offsets: 'y' in t-0 at offset 7")
    run.write([send("b", 4), poll((4, "b"), (5, "a"), (7, "y"))], writer="c2")
    run.write([poll((4, "q"))], writer="c2")
    following.await_said("inconsistent-offsets: 'b' in t-0 at offset 4")
    run.finish()
    assert following.end() == ["inconsistent-offsets", "inconsistent-offsets", "nonmonotonic-poll"]


GONE_BACK = (("a", 9), ("b", 0), ("c", 1), ("d", 2), ("e", 3), ("f", 4), ("g", 4))


def test_a_look_is_no_longer_than_what_is_kept_and_what_is_new(
    tmp_path: Path,
    followed: Callable[..., list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is in no look together is left to the verdict; what is missed is said."""
    monkeypatch.setattr(following_module, "ROWS_KEPT", 4)
    monkeypatch.setattr(following_module, "ROWS_MAX", 4)
    run = Growing(tmp_path / "long")
    sends = [send(value, offset, process=n) for n, (value, offset) in enumerate(GONE_BACK)]
    more = iter([sends[2:3], sends[3:4], sends[4:5], sends[5:]])
    run.write(sends[:1])
    run.write(sends[1:2])

    def is_over() -> bool:
        ops = next(more, None)
        if ops is not None:
            run.write(ops)
        return ops is None

    assert places(followed(run.directory, is_over)) == [
        *(("G0-realtime", offset, value) for value, offset in GONE_BACK[1:5]),
        ("inconsistent-offsets", 4, "f"),  # by then nobody remembers a
    ]


def test_what_comes_too_fast_is_left_out_and_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_module, "ROWS_MAX", 2)
    run = Growing(tmp_path / "fast")
    for n, offset in enumerate((9, 0, 1, 2)):
        run.write([send(f"v{n}", offset)])
    reported: list[dict[str, Any]] = []
    assert follow(run.directory, is_over=lambda: True, report=reported.append) == 2
    assert reported == []


def test_a_great_many_findings_are_reported_in_part(
    tmp_path: Path,
    followed: Callable[..., list[dict[str, Any]]],
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
    monkeypatch.setattr("neaptide.harness.checking.following.QUIET_S", -1.0)
    assert followed.is_over()


def test_who_follows_a_run_that_was_killed_says_that_it_is_taken_for_dead(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Growing(tmp_path / "killed")
    run.write([*BEFORE, *LOSING])
    following = Following(run.directory)
    following.await_said("G0-realtime")
    monkeypatch.setattr("neaptide.harness.checking.following.QUIET_S", -1.0)
    assert "G0-realtime" in following.end()
    assert "seems to have died" in following.said[-1]


def test_a_request_to_stop_needs_no_reason(tmp_path: Path) -> None:
    assert asked_to_stop(tmp_path) is None
    ask_to_stop(tmp_path, "enough")
    assert asked_to_stop(tmp_path) == "enough"
    (tmp_path / "stop.json").write_text("")
    assert "without a reason" in str(asked_to_stop(tmp_path))


def test_what_some_rows_show_all_rows_show() -> None:
    """By the plain oracle, in runs that nobody thought of: of all that is reported early, nothing
    is taken back by rows that came before, or come later."""
    early = {name for name, anomaly in ANOMALIES.items() if anomaly.early}
    seen = Counter[str]()
    for seed in range(300):
        made, chance = runs.generated(seed), Random(seed)
        whole = {_place(found) for found in _found(made, made.rows, made.run.final_reads)}
        rows = [row for row in made.rows if row.get("phase") != "final"]
        written = sorted({row["operation"]: _written_ns(row, chance) for row in rows}.items())
        in_order = [operation for operation, _ in sorted(written, key=lambda one: one[1])]
        if not in_order:
            continue
        for _ in range(4):
            first = chance.randrange(len(in_order))
            some = {*in_order[first : chance.randrange(first, len(in_order)) + 1]}
            part = [row for row in rows if row["operation"] in some]
            found = [one for one in _found(made, part, ()) if one[0] in early]
            assert {_place(one) for one in found} <= whole, seed
            seen.update(one[0] for one in found)
    assert set(seen) == early - {"high-watermark-regression"}  # the oracle does not know rounds


def _found(made: runs.Generated, rows: Any, final_reads: Any) -> list[oracle.Reported]:
    run = replace(made.run, final_reads=final_reads)
    logs = made.replicas if final_reads else ()
    return oracle.reported(of_rows(rows, run, logs, by_jepsen=run.system == "jepsen"))


def _place(found: oracle.Reported) -> tuple[Any, ...]:
    """What two finds have in common that are one."""
    name, part, offset, value = found
    match name:
        case "inconsistent-offsets":
            return name, part, offset
        case "duplicate" | "G1a":
            return name, part, value
    return found


def _written_ns(row: Any, chance: Random) -> int:
    """A row is written when its operation ends; that of one that ends as unknown, late."""
    ended = row["completed_ns"] or row["invoked_ns"]
    return int(ended + (chance.randrange(10**9) if row["type"] == "info" else 0))
