"""How long clients may take to come to the end of their work; who does not is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.workloads import pool as pools
from neaptide.workloads.journal import Journal
from neaptide.workloads.pool import ClientPool, Member
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.roles.role import Task


class Clock:
    """A loop's time, which passes by the sleeps of who waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    seen = SimpleNamespace(sleep=clock.sleep, get_running_loop=lambda: clock, gather=asyncio.gather)
    monkeypatch.setattr(pools, "asyncio", seen)
    return clock


def finished(counts: Iterator[dict[str, int]], **limits: float) -> ClientPool:
    class Pool(ClientPool):
        async def counts(self) -> dict[str, int]:
            return next(counts)

    pool = Pool(Any, Any, Any)  # type: ignore[arg-type]
    within: dict[str, float] = {"idle_within_s": 60, "at_most_s": 600, "within_s": 1, **limits}

    async def play() -> None:
        await pool.finish(**within)

    asyncio.run(play())
    return pool


def working(for_s: float, clock: Clock, every_s: float) -> Iterator[dict[str, int]]:
    """Counts of a client that does something every so often, and is idle after a while."""
    while True:
        yield {"busy": int(clock.now < for_s), "ok": int(clock.now / every_s)}


def test_who_does_something_now_and_then_may_go_on(clock: Clock) -> None:
    assert finished(working(400, clock, every_s=50), idle_within_s=60).problems == []
    assert clock.now == pytest.approx(400, abs=1)


def test_who_does_nothing_any_more_is_a_problem(clock: Clock) -> None:
    [problem] = finished(working(400, clock, every_s=70), idle_within_s=60).problems
    assert problem == "not all clients came to the end of their work within 60 s"


def test_nobody_may_go_on_for_ever(clock: Clock) -> None:
    [problem] = finished(working(9_999, clock, every_s=1), at_most_s=600).problems
    assert problem == "not all clients came to the end of their work within 600 s"


def test_who_is_idle_at_once_is_not_waited_for(clock: Clock) -> None:
    assert finished(working(0, clock, every_s=1)).problems == []
    assert clock.now == 0


# --- who does not stop ---------------------------------------------------------------------------

TASK = Task("producer", 4, 5, {"t": 1}, 1.0, "all", False, 1, {})
NUMBER = 7


class Stopping:
    """A process of clients that answers so when it is to finish."""

    def __init__(self, run: Path, answer: dict[str, int]) -> None:
        self.run_directory, self.number, self.answer = run, NUMBER, answer
        self.process = SimpleNamespace(pid=1)
        self.done: list[str] = []

    async def do(self, verb: str, **_: Any) -> Any:
        self.done.append(verb)
        return self.answer

    async def kill(self) -> None:
        self.done.append("kill")


@pytest.mark.parametrize(
    ("late", "left", "error"),
    [
        (1, 0, "the client was cut off: producer 4 did not stop within 60 s"),
        (0, 2, "the client was cut off: producer 4 2 sends had no answer"),
        (0, 0, None),
    ],
)
def test_who_does_not_stop_is_cut_off_and_what_it_had_begun_has_no_known_end(
    tmp_path: Path, late: int, left: int, error: str | None
) -> None:
    Journal(tmp_path, NUMBER).note(
        [(1, 0, 9, "send", "invoke", 5, None, "t", 0, None, None, "v", "all", None)], 1
    )
    clients = Stopping(tmp_path, {"late": late, "left": left})
    ended: list[Any] = []

    async def start(_: int) -> Any:
        raise AssertionError("nobody follows one that was cut off")

    recorder = Recorder(tmp_path, 0, 0)
    pool = ClientPool(start, ended.append, recorder, [Member(TASK, True, clients)])  # type: ignore[arg-type]

    async def play() -> None:
        await pool.stop_senders(60.0)
        await pool.replace(0)

    asyncio.run(play())
    recorder.close()
    rows = [
        row
        for file in (tmp_path / "operations").glob("part-c0-*")
        for row in pq.read_table(file).to_pylist()
    ]
    assert [(row["value"], row["type"], row["error"]) for row in rows] == (
        [] if error is None else [("v", "info", error)]
    )
    assert ended == ([] if error is None else [clients])
    assert clients.done == ["stop", "finish", *([] if error is None else ["flush", "kill"])]
    assert pool.problems == []
