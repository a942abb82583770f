"""How long clients may take to come to the end of their work, once nothing is sent any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from neaptide.workloads import pool as pools
from neaptide.workloads.pool import ClientPool


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
