"""Members of a share group: what they record and note, with a library that has its records in
memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.workloads.journal import Journal, recover
from neaptide.workloads.libraries.model import (
    Acquired,
    Library,
    LibraryError,
    Place,
    ShareConsumerAsked,
)
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.roles import sharing
from neaptide.workloads.roles.role import Desk, Task
from neaptide.workloads.roles.sharing import ShareMember

OPTIONS: Mapping[str, Any] = {
    "share_group": "s", "work_ms": 0, "releases": 0, "rejects": 0, "churn": "none",
}  # fmt: skip
FIRST = [Acquired("t", 0, 0, 1), Acquired("t", 1, 0, 1)]
Answer = Mapping[Place, str | None] | LibraryError


@dataclass
class Shared:
    """What each poll gives, and what each acknowledgement is answered; then nothing more comes, and
    the member is asked to stop."""

    polls: list[list[Acquired] | LibraryError]
    answers: list[Answer] = field(default_factory=list)
    member: ShareMember | None = None
    acknowledged: list[list[tuple[Acquired, str]]] = field(default_factory=list)
    joins: int = 0
    after_all: Any = None

    def consumer(self, asked: ShareConsumerAsked) -> Shared:
        assert (asked.bootstrap, asked.group) == ("nowhere:1", "s")
        self.joins += 1
        return self

    def subscribe(self, topics: Sequence[str]) -> None:
        assert tuple(topics) == ("t",)

    def poll(self, timeout_s: float) -> list[Acquired]:
        assert self.member is not None
        if not self.polls:
            if self.after_all is None or self.after_all():
                self.member.stop()
            return []
        given = self.polls.pop(0)
        if isinstance(given, LibraryError):
            raise given
        return given

    def acknowledge(
        self, records: Sequence[tuple[Acquired, str]], timeout_s: float
    ) -> Mapping[Place, str | None]:
        self.acknowledged.append(list(records))
        answer = self.answers.pop(0)
        if isinstance(answer, LibraryError):
            raise answer
        return answer

    def close(self) -> None:
        pass


def play(
    tmp_path: Path, shared: Shared, *, journal: Journal | None = None, **options: Any
) -> list[dict[str, Any]]:
    """The rows that one member has recorded."""
    recorder = Recorder(tmp_path / "run", 1, 0)
    library = Library(
        "memory", lambda _: None, lambda _: None, {}, frozenset(), share_consumer=shared.consumer
    )
    numbers = itertools.count(1)
    desk = Desk(recorder, journal, lambda: next(numbers), library, "nowhere:1", {}, {})
    task = Task("share-member", 0, 1, {"t": 2}, 1.0, "all", False, 7, {**OPTIONS, **options})
    shared.member = ShareMember(desk, task)
    shared.member.start()
    assert shared.member.wait(30)
    assert shared.member.failure is None
    recorder.close()
    files = sorted((tmp_path / "run" / "operations").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: (row["operation"], row["row"]))


def said(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["f"], r["type"], r["partition"], r["offset"], r["value"]) for r in rows]


def test_what_is_given_and_acknowledged_is_recorded(tmp_path: Path) -> None:
    shared = Shared([FIRST], [{("t", 0): None, ("t", 1): None}])
    rows = play(tmp_path, shared)
    assert said(rows) == [
        ("acquire", "ok", 0, 0, "1"),
        ("acquire", "ok", 1, 0, "1"),
        ("acknowledge", "ok", 0, 0, "accept"),
        ("acknowledge", "ok", 1, 0, "accept"),
    ]
    assert {row["key"] for row in rows} == {"s"}
    assert len({row["process"] for row in rows}) == 1


@pytest.mark.parametrize(
    "options", [{"releases": 1.0}, {"rejects": 1.0}], ids=["release", "reject"]
)
def test_a_record_is_released_or_rejected_by_chance(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    shared = Shared([FIRST], [{("t", 0): None, ("t", 1): None}])
    rows = play(tmp_path, shared, **options)
    how = "release" if "releases" in options else "reject"
    assert {row["value"] for row in rows if row["f"] == "acknowledge"} == {how}
    assert {of for _, of in shared.acknowledged[0]} == {how}


@pytest.mark.parametrize(
    ("answer", "types"),
    [
        ({("t", 0): None, ("t", 1): "INVALID_RECORD_STATE"}, ["ok", "info"]),
        ({("t", 0): None}, ["ok", "info"]),
        (LibraryError("_TIMED_OUT"), ["info", "info"]),
    ],
    ids=["an error", "no answer", "no answer at all"],
)
def test_what_is_not_acknowledged_has_an_unknown_end(
    tmp_path: Path, answer: Answer, types: list[str]
) -> None:
    rows = play(tmp_path, Shared([FIRST], [answer]))
    found = [row for row in rows if row["f"] == "acknowledge"]
    assert [row["type"] for row in found] == types


def test_who_fails_joins_again_as_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_PAUSE_S", 0)
    both = {("t", 0): None, ("t", 1): None}
    shared = Shared([FIRST, LibraryError("_TRANSPORT"), FIRST], [both, both])
    rows = play(tmp_path, shared)
    assert shared.joins == 2
    assert len({row["process"] for row in rows}) == 2


def test_who_comes_too_late_to_its_next_poll_joins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its library has still may be another's by then."""
    monkeypatch.setattr(sharing, "_PATIENCE_S", 0.05)
    both = {("t", 0): None, ("t", 1): None}
    slow = Shared([FIRST, FIRST], [both, both])
    play(tmp_path, slow, work_ms=100)
    quick = Shared([FIRST, FIRST], [both, both])
    monkeypatch.setattr(sharing, "_PATIENCE_S", 30)
    play(tmp_path / "quick", quick)
    assert (slow.joins, quick.joins) == (3, 1)


def test_who_polled_in_vain_for_long_enough_is_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_REST_S", 0.05)
    shared = Shared([FIRST], [{("t", 0): None, ("t", 1): None}])
    shared.after_all = lambda: shared.member is not None and shared.member.is_idle
    rows = play(tmp_path, shared)
    rests = [row for row in rows if row["f"] == "share-rest"]
    assert [(row["partition"], row["type"]) for row in rests] == [(0, "ok"), (1, "ok")]
    given = max(row["completed_ns"] for row in rows if row["f"] == "acquire")
    assert all(row["invoked_ns"] >= given for row in rests)
    assert all(row["completed_ns"] - row["invoked_ns"] > 0.05 * 1e9 for row in rests)


def test_who_could_not_join_is_not_at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_REST_S", 0.0)
    monkeypatch.setattr(sharing, "_PAUSE_S", 0)
    shared = Shared([LibraryError("_TRANSPORT")])

    def refused(asked: ShareConsumerAsked) -> Shared:
        assert shared.member is not None
        shared.joins += 1
        if shared.joins > 1:
            shared.member.stop()
        raise LibraryError("_TIMED_OUT")

    monkeypatch.setattr(shared, "consumer", refused)
    assert play(tmp_path, shared) == []


def test_who_polled_in_vain_and_then_failed_is_not_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_REST_S", 0.0)

    class Fails(Shared):
        def poll(self, timeout_s: float) -> list[Acquired]:
            if self.polls:
                return super().poll(timeout_s)
            assert self.member is not None
            self.member.stop()
            raise LibraryError("_TRANSPORT")

    assert play(tmp_path, Fails([[]])) == []


def test_an_acknowledgement_of_a_killed_member_is_known(tmp_path: Path) -> None:
    """It is noted before it is asked for: what is in no file of the recorder is found there."""
    run = tmp_path / "run"
    run.mkdir()
    noted: list[tuple[Any, ...]] = []

    class Dies(Shared):
        def acknowledge(
            self, records: Sequence[tuple[Acquired, str]], timeout_s: float
        ) -> Mapping[Place, str | None]:
            noted.extend(said(recover(run, 1)))
            return {("t", 0): None, ("t", 1): None}

    play(tmp_path, Dies([FIRST]), journal=Journal(run, 1))
    assert noted == [
        ("acknowledge", "invoke", 0, 0, "accept"),
        ("acknowledge", "invoke", 1, 0, "accept"),
    ]
