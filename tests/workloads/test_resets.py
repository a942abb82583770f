"""Resets of positions: where each kind leads, and what a member does, records and notes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.workloads.journal import Journal, recover
from neaptide.workloads.libraries.model import (
    Library,
    LibraryError,
    Listener,
    Place,
    Polled,
)
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.resets import KINDS, Known, Reset, draw, new_position
from neaptide.workloads.roles import groups
from neaptide.workloads.roles.groups import GroupMember
from neaptide.workloads.roles.role import Desk, Task

AT_5 = Known(5, 2, 9)
NOWHERE = Known(None, 2, 9)


@pytest.mark.parametrize(
    ("reset", "known", "position"),
    [
        (Reset("to-earliest"), AT_5, 2),
        (Reset("to-earliest"), NOWHERE, 2),
        (Reset("to-latest"), AT_5, 9),
        (Reset("to-latest"), NOWHERE, 9),
        (Reset("to-current"), AT_5, 5),
        (Reset("to-current"), Known(1, 2, 9), 1),  # the tool leaves it where it is
        (Reset("to-current"), NOWHERE, 9),
        (Reset("to-offset", 1), AT_5, 2),
        (Reset("to-offset", 2), AT_5, 2),
        (Reset("to-offset", 4), NOWHERE, 4),
        (Reset("to-offset", 9), AT_5, 9),
        (Reset("to-offset", 10), AT_5, 9),
        (Reset("shift-by", -3), AT_5, 2),
        (Reset("shift-by", -4), AT_5, 2),
        (Reset("shift-by", 0), AT_5, 5),
        (Reset("shift-by", 4), AT_5, 9),
        (Reset("shift-by", 5), AT_5, 9),
        (Reset("shift-by", 1), NOWHERE, None),  # the tool refuses it
        (Reset("shift-by", 0), Known(1, 2, 9), 2),
        (Reset("to-datetime", since_ms=1), Known(5, 2, 9, 3), 3),
        (Reset("to-datetime", since_ms=1), AT_5, 9),  # no record is that young
        (Reset("by-duration", since_ms=1), Known(5, 2, 9, 3), 3),
        (Reset("by-duration", since_ms=1), NOWHERE, 9),
        (Reset("to-offset", 4), Known(None, 3, 3), 3),  # an empty log
    ],
)
def test_where_a_reset_leads(reset: Reset, known: Known, position: int | None) -> None:
    assert new_position(reset, known) == position


def test_there_are_seven_kinds_and_no_other() -> None:
    assert len(KINDS) == len(set(KINDS)) == 7
    for kind in KINDS:
        assert new_position(draw(kind, random.Random(1), 10, 20), AT_5) is not None
    with pytest.raises(ValueError, match="no reset 'to-nowhere'"):
        new_position(Reset("to-nowhere"), AT_5)


def test_what_is_drawn_follows_from_the_seed_and_reaches_all() -> None:
    def drawn(kind: str) -> list[Reset]:
        chance = random.Random(7)
        return [draw(kind, chance, 1_000, 2_000) for _ in range(200)]

    assert drawn("shift-by") == drawn("shift-by")
    assert {reset.amount < 0 for reset in drawn("shift-by")} == {True, False}
    assert min(reset.amount for reset in drawn("to-offset")) >= 0
    assert all(1_000 <= (reset.since_ms or 0) < 2_000 for reset in drawn("to-datetime"))
    assert all((reset.since_ms or 0) <= 1_000 for reset in drawn("by-duration"))
    assert {(r.amount, r.since_ms) for kind in KINDS[:3] for r in drawn(kind)} == {(0, None)}


# --- members -------------------------------------------------------------------------------------

PLACES: tuple[Place, ...] = (("t", 0), ("t", 1))
REFUSED = LibraryError("REFUSED")


@dataclass
class FakeConsumer:
    """Assigns all at each poll. `refuses`: what fails once a member resets."""

    asked: Any
    refuses: str | None = None
    since: int | None = 40
    begins: list[Mapping[Place, int]] = field(default_factory=list)
    commits: list[Mapping[Place, int]] = field(default_factory=list)

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self.listener = listener

    def poll(self, most: int, timeout_s: float) -> Polled:
        self.begins.append(self.listener.assigned(PLACES))
        return Polled([], [])

    def committed(self, places: Collection[Place], timeout_s: float) -> dict[Place, int | None]:
        self._refuse("committed")
        return {place: (50, None)[place[1]] for place in places}

    def ends(self, place: Place, timeout_s: float) -> tuple[int, int]:
        self._refuse("ends")
        return 0, 100

    def starts_since(
        self, places: Collection[Place], since_ms: int, timeout_s: float
    ) -> dict[Place, int | None]:
        self._refuse("starts_since")
        return dict.fromkeys(places, self.since)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        self.commits.append(offsets)
        self._refuse("commit")

    def _refuse(self, what: str) -> None:
        if what == self.refuses:
            raise REFUSED

    def close(self) -> None: ...


@dataclass
class Played:
    """`memberships`: the consumer of each, in their order."""

    memberships: list[FakeConsumer]
    rows: list[dict[str, Any]]
    recovered: list[dict[str, Any]]
    finished: list[int]  # segments of the journal

    def of(self, f: str) -> list[tuple[Any, ...]]:
        names = ("partition", "offset", "value", "type", "error")
        return [tuple(row[name] for name in names) for row in self.rows if row["f"] == f]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A member that leaves after each poll, until the given number of memberships is over."""
    monkeypatch.setattr(groups, "_CHURN_S", (-1.0, -1.0))

    def played(
        kind: str,
        memberships: int = 2,
        refuses: str | None = None,
        since: int | None = 40,
        dies: bool = False,
        churn: str = "reset",
    ) -> Played:
        made: list[FakeConsumer] = []
        recorder, journal = Recorder(tmp_path, 1, 0), Journal(tmp_path, 1)
        numbers = itertools.count(1)

        def consumer(asked: Any) -> FakeConsumer:
            made.append(FakeConsumer(asked, refuses, since))
            if len(made) == memberships:
                member.stop_after_next_poll = True
            return made[-1]

        options = {
            "group": "g", "commit": "async", "assignor": "range", "protocol": "classic",
            "work_ms": 0, "reset": "earliest", "resets": kind, "churn": churn,
        }  # fmt: skip
        library = Library("fake", lambda _: None, consumer, {}, frozenset())
        desk = Desk(recorder, journal, lambda: next(numbers), library, "", {}, {})
        task = Task("member", 0, 1, {"t": 2}, 1.0, "all", False, 1, options)
        member = Stopping(desk, task)
        member.work()
        if not dies:
            recorder.close()
        finished = journal.turn()
        recovered = recover(tmp_path, 1)
        files = list((tmp_path / "operations").glob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return Played(made, rows, recovered, finished)

    return played


class Stopping(GroupMember):
    stop_after_next_poll = False

    def _poll(self) -> Polled:
        polled = super()._poll()
        if self.stop_after_next_poll:
            self.stop()
        return polled


def test_who_joins_again_resets_what_it_is_assigned_and_goes_on_there(play: Any) -> None:
    played = play("to-latest")
    first, second = played.memberships
    assert (first.begins, first.commits) == ([{}], [])  # it did not join again
    there = {("t", 0): 100, ("t", 1): 100}
    assert (second.begins, second.commits) == ([there], [there])
    assert played.of("committed") == [(0, 50, None, "ok", None), (1, None, None, "ok", None)]
    assert played.of("reset") == [(0, 100, "50", "ok", None), (1, 100, None, "ok", None)]
    assert played.of("commit") == [(0, 100, None, "ok", None), (1, 100, None, "ok", None)]
    assert {row["key"] for row in played.rows} == {"g"}
    assert (played.recovered, played.finished) == ([], [0])


def test_what_the_rules_need_of_the_order_of_a_reset(play: Any) -> None:
    """It begins where its commit does, before that in their numbers, and behind the answer."""
    rows = play("to-earliest").rows
    answer, reset, commit = (
        next(row for row in rows if row["f"] == f) for f in ("committed", "reset", "commit")
    )
    assert answer["completed_ns"] <= reset["invoked_ns"] == commit["invoked_ns"]
    assert answer["operation"] < reset["operation"] < commit["operation"]
    assert len({row["operation"] for row in rows if row["f"] == "reset"}) == 2
    order = [row["f"] for row in rows if row["f"] in ("reset", "commit")]
    assert order == ["reset", "reset", "commit", "commit"]


def test_what_has_no_position_is_not_shifted(play: Any) -> None:
    [(partition, _, before, _, _)] = play("shift-by").of("reset")
    assert (partition, before) == (0, "50")


@pytest.mark.parametrize(("since", "offset"), [(40, 40), (None, 100)])
@pytest.mark.parametrize("kind", ["to-datetime", "by-duration"])
def test_a_time_is_looked_up(play: Any, kind: str, since: int | None, offset: int) -> None:
    assert [row[1] for row in play(kind, since=since).of("reset")] == [offset, offset]


def test_a_commit_that_was_not_acknowledged_may_have_been_done(play: Any) -> None:
    played = play("to-earliest", refuses="commit")
    assert [row[3:] for row in played.of("reset")] == [("info", "REFUSED")] * 2
    assert [row[3:] for row in played.of("commit")] == [("info", "REFUSED")] * 2
    assert played.memberships[1].begins == [{}]  # the library asks where the group is


@pytest.mark.parametrize("what", ["committed", "ends", "starts_since"])
def test_who_does_not_learn_what_it_asks_for_resets_nothing(play: Any, what: str) -> None:
    played = play("by-duration", refuses=what)
    assert played.of("reset") == played.of("commit") == []
    assert played.memberships[1].begins == [{}]
    assert len(played.of("committed")) == (0 if what == "committed" else 2)


def test_a_reset_is_noted_before_it_is_done(play: Any) -> None:
    recovered = play("to-earliest", dies=True).recovered
    assert [(r["f"], r["type"], r["partition"], r["offset"], r["value"]) for r in recovered] == [
        ("reset", "invoke", 0, 0, "50"),
        ("reset", "invoke", 1, 0, None),
    ]


def test_a_member_resets_so_often_that_its_group_still_comes_to_the_end(play: Any) -> None:
    played = play("to-current", memberships=40, churn="leave+reset")
    assert len([one for one in played.memberships if one.commits]) == 4
    assert not played.memberships[0].commits


def test_what_is_assigned_again_is_not_reset_again(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConsumer, "poll", _polls_twice)
    [_, second] = play("to-earliest").memberships
    assert second.begins == [{("t", 0): 0, ("t", 1): 0}, {}]
    assert len(second.commits) == 1


def _polls_twice(consumer: FakeConsumer, most: int, timeout_s: float) -> Polled:
    for _ in range(2):
        consumer.begins.append(consumer.listener.assigned(PLACES))
    return Polled([], [])
