"""A play: a story in a world of its own, and the rows of its fetch rounds afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from neaptide.results.schema import FETCH_ROUNDS
from tests.gate.fakes import World, world

Play = Callable[[Callable[[World], Awaitable[None]]], list[dict[str, Any]]]
# Of a follower that asks three times, and gets one record each time.
THREE_ROUNDS: Final = [(1, 0, 0), (2, 1, 1), (3, 2, 2)]


def of_rounds(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Rows of fetch rounds as (round, fetch offset, high watermark)."""
    return [(row["round"], row["fetch_offset"], row["high_watermark"]) for row in rows]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a play in a world of its own; returns the rows of its fetch rounds."""
    return player(tmp_path, monkeypatch, shared=False)


@pytest.fixture
def play_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """As `play`; clients and replicas come to the leader by one listener."""
    return player(tmp_path, monkeypatch, shared=True)


def player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool) -> Play:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))

    async def stage(story: Callable[[World], Awaitable[None]]) -> None:
        async with asyncio.timeout(120), world(tmp_path / "run", shared=shared) as w:
            await story(w)

    def run(story: Callable[[World], Awaitable[None]]) -> list[dict[str, Any]]:
        asyncio.run(stage(story))
        files = sorted((tmp_path / "run" / "fetch_rounds").iterdir())
        assert all(file.suffix == ".parquet" for file in files)
        rows: list[dict[str, Any]] = []
        for file in files:
            assert pq.read_schema(file).equals(FETCH_ROUNDS)
            rows += pq.read_table(file).to_pylist()
        return sorted(rows, key=lambda row: (row["requested_ns"], row["partition"]))

    return run
