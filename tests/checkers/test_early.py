"""What is proved before the end of a run: each rule finds its tiny history, and not its twin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from neaptide.checkers.pipeline import early
from neaptide.checkers.pipeline.early import by_epoch, by_partition, by_writer
from neaptide.results.schema import FETCH_ROUNDS, OPERATIONS_READ
from tests.checkers.histories import (
    Op,
    answered,
    commit,
    committed,
    final,
    operation_rows,
    poll,
    reset,
    seek,
    send,
    txn,
)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class At:
    """An operation that is not where its turn is: its number, and its times."""

    op: Op
    number: int
    invoked: int
    completed: int | None = None


def rows_of(ops: Sequence[Op | At], *, first: int = 0, file: int = 0) -> Rows:
    rows: Rows = []
    for n, each in enumerate(ops, first):
        at = each if isinstance(each, At) else At(each, n, 10 * n)
        for row in operation_rows(at.number, at.op):
            times = {"invoked_ns": at.invoked, "completed_ns": at.completed or at.invoked + 5}
            known = {name: row.get(name) for name in OPERATIONS_READ.names} | times
            rows.append(known | {"file": file, "rebalanced": bool(known["rebalanced"])})
    return rows


def names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["anomaly"] for row in found]


def of_writer(*files: Sequence[Op | At]) -> list[dict[str, Any]]:
    """Each file in a look of its own."""
    state: dict[str, Any] = {}
    found, number = [], count()
    first = 0
    for ops in files:
        found += by_writer(state, rows_of(ops, first=first, file=next(number)))
        state = json.loads(json.dumps(state))
        first += len(ops)
    return found


def polls(*offsets: int, process: int = 1, phase: str = "main") -> Op:
    return poll(*((offset, f"v{offset}") for offset in offsets), process=process, phase=phase)


def unsure(op: Op, type: str = "info") -> Op:
    return replace(op, type=type)


def rebalanced(op: Op) -> Op:
    return replace(op, rows=tuple(row | {"rebalanced": True} for row in op.rows))


# --- a log that was cut --------------------------------------------------------------------------


def test_a_later_send_at_a_lower_offset_proves_that_the_log_was_cut() -> None:
    [found] = by_partition({}, rows_of([send("a", 0), send("b", 2), send("c", 1)]))
    assert (found["anomaly"], found["value"], found["offset"]) == ("G0-realtime", "c", 1)
    assert json.loads(found["evidence"])["other_value"] == "b"


@pytest.mark.parametrize(
    "later",
    [
        send("c", 2),
        send("c", 1),  # at the same offset: two claims about one place
        send("c", None),  # acknowledged without an offset
        send("c", 0, type="info"),  # nobody knows where it is
        send("c", 0, type="fail"),
        poll((0, "a")),  # a read from the beginning
    ],
)
def test_what_proves_no_cut(later: Op) -> None:
    assert by_partition({}, rows_of([send("a", 0), send("b", 1), later])) == []


@pytest.mark.parametrize(("invoked", "found"), [(15, []), (16, ["G0-realtime"])])
def test_sends_that_overlap_may_be_appended_in_either_order(invoked: int, found: list[str]) -> None:
    state: dict[str, Any] = {}
    assert by_partition(state, rows_of([At(send("a", 9), 1, 10)])) == []
    later = rows_of([At(send("b", 8), 2, invoked)])
    assert names(by_partition(json.loads(json.dumps(state)), later)) == found


def test_a_row_that_comes_late_accuses_nobody_and_is_not_accused() -> None:
    state: dict[str, Any] = {}
    by_partition(state, rows_of([At(send("b", 5), 9, 90)]))
    assert by_partition(state, rows_of([At(send("a", 4), 1, 10), At(send("c", 6), 12, 120)])) == []


def test_each_that_lies_below_is_named() -> None:
    state: dict[str, Any] = {}
    assert names(by_partition(state, rows_of([send("a", 9), send("b", 2)]))) == ["G0-realtime"]
    assert names(by_partition(state, rows_of([send("c", 3)], first=2))) == ["G0-realtime"]
    assert by_partition(state, rows_of([send("d", 10)], first=3)) == []


# --- the order of polls --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([[polls(0, 1)], [polls(1, 2)]], ["nonmonotonic-poll"]),
        ([[polls(0, 1)], [polls(2, 3)]], []),
        ([[polls(0, 1)], [polls(0, 1, process=2)]], []),
        ([[polls(0, 1), seek()], [polls(0, 1)]], []),
        ([[polls(0, 1)], [seek(), polls(0, 1)]], []),
        ([[polls(0, 1), seek(process=2)], [polls(0)]], ["nonmonotonic-poll"]),
        ([[polls(0, 1)], [polls(0, 1, phase="final")]], []),
        ([[final((0, "a"), (1, "b"), process=1)], [polls(2)], [polls(2)]], ["nonmonotonic-poll"]),
        # An operation that did not succeed may go back, and moves nobody.
        ([[polls(0, 1)], [unsure(polls(0))]], ["nonmonotonic-poll"]),
        ([[polls(0, 1)], [unsure(polls(7, 8))], [polls(2)]], []),
        ([[polls(0, 2, 1)]], ["int-nonmonotonic-poll"]),
        ([[polls(0, 1, 2)]], []),
        ([[rebalanced(polls(0, 2, 1))]], []),
    ],
)
def test_the_order_of_polls(files: list[list[Op | At]], found: list[str]) -> None:
    assert names(of_writer(*files)) == found


def test_a_poll_whose_rows_are_in_two_files_is_one() -> None:
    [first, second, third] = rows_of([polls(0, 2, 1)])
    state: dict[str, Any] = {}
    assert by_writer(state, [first, second]) == []
    assert names(by_writer(state, [third | {"file": 1}])) == ["int-nonmonotonic-poll"]


def test_where_a_file_is_missing_nothing_is_compared() -> None:
    before, after = rows_of([polls(0, 1)]), rows_of([polls(1, 2)], first=2)
    state: dict[str, Any] = {}
    assert by_writer(state, before) == []
    assert by_writer(state, [row | {"file": 2} for row in after]) == []
    # Nor with what comes too late: it was between.
    assert by_writer(state, [row | {"file": 1} for row in rows_of([seek()], first=1)]) == []
    again = rows_of([polls(2)], first=3, file=3)
    assert names(by_writer(state, again)) == ["nonmonotonic-poll"]


def test_files_that_come_together_are_looked_at_in_their_order() -> None:
    rows = rows_of([polls(2, 3)], first=1, file=1) + rows_of([polls(0, 1)], file=0)
    assert by_writer({}, rows) == []


# --- the order of sends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([[send("a", 5), send("b", 3)]], ["nonmonotonic-send"]),
        ([[send("a", 5)], [send("b", 3)]], ["nonmonotonic-send"]),
        ([[send("a", 5), send("b", 6)]], []),
        ([[send("a", 5), send("b", 3, process=2)]], []),
        ([[send("a", 5), send("b", 3, partition=1)]], []),
        # After a send of which nobody knows the end a client goes on as another.
        ([[send("a", 5), send("x", None, type="info"), send("b", 3)]], []),
        ([[send("a", 5), send("x", None, type="fail"), send("b", 3)]], ["nonmonotonic-send"]),
        ([[txn(("send", 5, "a"), ("send", 3, "b"))]], ["int-nonmonotonic-send"]),
        ([[txn(("send", 5, "a"), ("send", 6, "b"))]], []),
        ([[txn(("send", 5, "a"), ("send", 3, "b"), type="info")]], []),
    ],
)
def test_the_order_of_sends(files: list[list[Op | At]], found: list[str]) -> None:
    assert names(of_writer(*files)) == found


def test_a_send_that_is_still_under_way_between_two_others_may_end_as_unknown() -> None:
    ends = [At(send("a", 5), 1, 10), At(send("b", 3), 3, 30)]
    assert of_writer(ends) == []
    late = At(send("x", None, type="info"), 2, 20, 99)
    assert of_writer(ends, [late]) == []
    assert of_writer(ends, [late], [At(send("c", 4), 4, 100)]) == []
    other = At(send("x", 0, partition=1), 2, 20)
    assert names(of_writer([*ends, other])) == ["nonmonotonic-send"]


# --- the position of a group ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([[commit(10)], [commit(8)]], ["commit-regression"]),
        ([[commit(10)], [commit(10)], [commit(12)]], []),
        ([[commit(10)], [committed(8, process=2)]], ["commit-regression"]),
        ([[commit(10)], [committed(None)]], ["commit-regression"]),
        ([[commit(10)], [commit(None)]], []),  # it was not said what was committed
        ([[commit(10)], [commit(8, group="h")]], []),
        ([[commit(10)], [seek(), commit(8)]], []),
        ([[commit(10), seek(process=7)], [commit(8)]], []),
        ([[commit(10), reset(8), commit(8)]], []),
        ([[commit(10), reset(8)], [commit(8)]], []),
        ([[commit(10)], [reset(8)], [commit(8)], [commit(7)]], ["commit-regression"]),
        ([[commit(10)], [reset(8, group="h")], [commit(8)]], ["commit-regression"]),
        ([[commit(10)], [reset(8, type="fail")], [commit(8)]], ["commit-regression"]),
        # Where nobody knows whether it was reset nothing is compared, until the next one.
        ([[commit(10)], [reset(8, type="info")], [commit(9)], [commit(8)]], []),
        ([[reset(8, type="info")], [reset(9)], [commit(9)], [commit(8)]], ["commit-regression"]),
        # A reset [20, 90], and its commit [20, 80], behind 10 [0, 5].
        ([[At(commit(10), 0, 0, 5), At(reset(8), 1, 20, 90), At(commit(8), 2, 20, 80)]], []),
        # The same, and 10 [5, 30] was asked for before.
        (
            [
                [At(reset(8), 1, 20, 90), At(commit(8), 2, 20, 80), At(commit(10), 0, 5, 30)],
                [At(commit(9), 3, 100, 110)],
            ],
            [],
        ),
        ([[unsure(commit(10))], [commit(8)]], []),
        ([[commit(10)], [unsure(commit(8))]], []),
        # 10 [2, 10], 12 [5, 20], 8 [15, 25]: only the first was acknowledged before the last began.
        (
            [
                [At(commit(10), 0, 2, 10), At(commit(12, process=2), 1, 5, 20)],
                [At(commit(8, process=3), 2, 15, 25)],
            ],
            ["commit-regression"],
        ),
        ([[At(commit(12), 1, 5, 20), At(commit(8, process=3), 2, 15, 25)]], []),
    ],
)
def test_the_position_of_a_group(files: list[list[Op | At]], found: list[str]) -> None:
    assert names(of_writer(*files)) == found


def test_what_was_acknowledged_before_is_named() -> None:
    overlapping = [At(commit(10), 0, 2, 10), At(commit(12, process=2), 1, 5, 20)]
    [found] = of_writer([*overlapping, At(commit(8, process=3), 2, 15, 25)])
    assert json.loads(found["evidence"])["acknowledged_before"] == 10


# --- high watermarks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        ([[answered(5, at=10)], [answered(4, at=20, round=2)]], ["high-watermark-regression"]),
        ([[answered(5, at=10), answered(5, at=20, round=2)]], []),
        ([[answered(5, at=20, round=2)], [answered(4, at=10)]], []),  # it came late
        ([[answered(5, at=10), answered(4, at=10, round=2)]], []),  # at one moment
        ([[answered(5, at=10), answered(4, at=20, round=2, error=6)]], []),
        ([[answered(5, at=10), answered(-1, at=20, round=2)]], []),
        ([[answered(5, at=10, epoch=None), answered(4, at=20, epoch=None, round=2)]], []),
    ],
)
def test_high_watermarks_of_an_epoch(looks: list[Rows], found: list[str]) -> None:
    state: dict[str, Any] = {}
    named: list[str] = []
    for rounds in looks:
        whole = [{name: row.get(name) for name in FETCH_ROUNDS.names} for row in rounds]
        named += names(by_epoch(state, whole))
        state = json.loads(json.dumps(state))
    assert named == found


# --- what is kept --------------------------------------------------------------------------------


def test_what_is_kept_of_a_writer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "PLACES_MAX", 20)
    monkeypatch.setattr(early, "RANGES_MAX", 5)
    state: dict[str, Any] = {}
    for file in range(50):
        every_other = [
            At(poll((2 * n, "v"), process=n), 2 * (10 * file + n), 100 * file + n)
            for n in range(10 * file, 10 * file + 10)
        ]
        rows = rows_of([*every_other, commit(file, group=f"g{file}")], file=file)
        assert by_writer(state, rows) == []
    assert len(state["places"]) == 20
    assert len(state["operations"]) == 5


def test_what_is_kept_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "GROUPS_MAX", 3)
    monkeypatch.setattr(early, "STEPS_MAX", 4)
    state: dict[str, Any] = {}
    for n in range(60):
        rows = rows_of([commit(n, group=f"g{n % 6}")], first=n, file=n)
        assert by_writer(state, rows) == []
    [[_, groups]] = state["places"]
    assert sorted(groups) == ["g3", "g4", "g5"]
    assert max(len(steps) for steps in groups.values()) <= 4


def test_what_was_forgotten_makes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    back = [[polls(5)], [polls(5, process=2)], [polls(4)]]
    assert names(of_writer(*back)) == ["nonmonotonic-poll"]
    monkeypatch.setattr(early, "PLACES_MAX", 1)
    assert of_writer(*back) == []
