"""What a client sends after an indeterminate send is of a process that nobody else has."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.workloads import sending
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.sending import Sender


class FakeProducer:
    """Completes what it was given when it is asked to."""

    def __init__(self) -> None:
        self.deliver: dict[str, Callable[..., None]] = {}

    def produce(
        self, topic: str, *, value: str, key: str | None, partition: int, on_delivery: Any
    ) -> None:
        assert key == ("k" if value.startswith("b") else None)
        self.deliver[value] = on_delivery

    def poll(self, _: float) -> None: ...

    def purge(self) -> None: ...

    def ok(self, value: str, offset: int) -> None:
        self.deliver[value](None, SimpleNamespace(offset=lambda: offset))

    def lose(self, value: str, error: str) -> None:
        self.deliver[value](SimpleNamespace(name=lambda: error), None)


def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Any) -> dict[str, int]:
    """By value, of what two clients have sent."""
    producers: list[FakeProducer] = []

    def made(*_: object) -> FakeProducer:
        producers.append(FakeProducer())
        return producers[-1]

    monkeypatch.setattr(sending, "producer", made)
    recorder = Recorder(tmp_path, 1, 0)
    numbers = itertools.count(1)
    senders = [
        Sender(recorder, lambda: next(numbers), "", "all", {}, lambda *_: None) for _ in range(2)
    ]
    for sender, name in zip(senders, "ab", strict=True):
        for number in range(4):
            sender.send("t", 0, f"{name}{number}", key="k" if name == "b" else None)
    act(*producers)
    for sender in senders:
        sender.close()
    recorder.close()
    rows = pq.read_table(tmp_path / "operations").to_pylist()
    assert all(row["key"] == ("k" if row["value"].startswith("b") else None) for row in rows)
    return {row["value"]: row["process"] for row in rows}


def test_what_completes_after_a_send_without_an_answer_is_of_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(a: FakeProducer, b: FakeProducer) -> None:
        a.ok("a0", 0)
        a.lose("a1", "_MSG_TIMED_OUT")
        a.ok("a2", 1)
        b.ok("b0", 2)
        a.lose("a3", "REQUEST_TIMED_OUT")

    seen = processes(tmp_path, monkeypatch, act)
    assert seen == {"a0": 1, "a1": 1, "a2": 3, "b0": 2, "a3": 3}


def test_what_surely_did_not_happen_leaves_the_process_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(a: FakeProducer, b: FakeProducer) -> None:
        a.ok("a0", 0)
        a.lose("a1", "MSG_SIZE_TOO_LARGE")
        a.ok("a2", 1)

    assert processes(tmp_path, monkeypatch, act) == {"a0": 1, "a1": 1, "a2": 1}
