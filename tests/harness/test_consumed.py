"""What an application's consumer does becomes operations of the history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.testing import consumed
from neaptide.harness.testing.consumed import Notebook, RecordedConsumer

Row = dict[str, Any]


def message(offset: int, error: Any = None) -> Any:
    said = {
        "error": error, "topic": "orders", "partition": 0, "offset": offset, "key": None,
        "value": f"order-{offset}".encode(), "headers": None, "leader_epoch": 3,
    }  # fmt: skip
    return SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})


def part(offset: int, error: Any = None) -> Any:
    return SimpleNamespace(topic="orders", partition=0, offset=offset, error=error)


class Fake:
    """In place of librdkafka's."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.messages: list[Any] = []

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def poll(self, timeout: float) -> Any:
        return self.messages.pop(0) if self.messages else None

    def consume(self, number: int, timeout: float) -> list[Any]:
        taken, self.messages = self.messages[:number], self.messages[number:]
        return taken

    def commit(self, asynchronous: bool, **_: Any) -> Any:
        return None if asynchronous else [part(1)]

    def assignment(self) -> Sequence[Any]:
        return ("as it is",)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    monkeypatch.setattr(consumed, "Consumer", Fake)
    return []


def made(rows: list[Row], **settings: Any) -> tuple[RecordedConsumer, Any]:
    notes = Notebook(
        lambda **row: rows.append(row),
        count(1).__next__,
        count(1).__next__,
        count(1).__next__,
        {"orders": 2},
    )
    consumer = RecordedConsumer({"group.id": "shipping", **settings}, notes)
    return consumer, consumer._consumer


def said(rows: list[Row], *f: str) -> list[tuple[Any, ...]]:
    return [(r["f"], r["type"], r.get("offset"), r.get("key")) for r in rows if r["f"] in f]


def test_what_its_group_promises_is_said_of_each_partition(rows: list[Row]) -> None:
    made(rows, **{"auto.offset.reset": "earliest"})
    settings = [(row["partition"], row["key"], row["value"]) for row in rows]
    for partition in (0, 1):
        assert (partition, "delivery", "at-least-once") in settings
        assert (partition, "auto.offset.reset", "earliest") in settings
    assert {row["f"] for row in rows} == {"setting"}


def test_polls_work_and_commits_are_recorded(rows: list[Row]) -> None:
    consumer, fake = made(rows)
    fake.messages = [message(0), message(1, error="end of partition"), message(2), message(3)]
    first = consumer.poll(1.0)
    assert first.offset() == 0
    assert consumer.poll(1.0).error() is not None  # no record
    assert len(consumer.consume(5, 1.0)) == 2
    assert consumer.poll(1.0) is None
    consumer.handled(first)
    assert consumer.commit(asynchronous=False)[0].offset == 1
    assert said(rows, "poll", "process", "commit") == [
        ("poll", "ok", 0, None), ("poll", "ok", 2, None), ("poll", "ok", 3, None),
        ("process", "ok", 0, "shipping"), ("commit", "ok", 1, "shipping"),
    ]  # fmt: skip
    polls = [row for row in rows if row["f"] == "poll"]
    assert [row["row"] for row in polls] == [0, 0, 1]
    assert polls[1]["operation"] == polls[2]["operation"] != polls[0]["operation"]
    assert consumer.assignment() == ("as it is",)


def test_a_commit_that_nobody_waits_for_is_recorded_when_it_is_answered(rows: list[Row]) -> None:
    seen: list[Any] = []
    consumer, fake = made(rows, on_commit=lambda error, parts: seen.append(parts))
    consumer.commit(asynchronous=True)
    assert said(rows, "commit") == []
    refused = SimpleNamespace(name=lambda: "ILLEGAL_GENERATION")
    fake.settings["on_commit"](None, [part(5), part(-1001)])  # of one there was nothing
    fake.settings["on_commit"](refused, [part(6)])
    assert said(rows, "commit") == [
        ("commit", "ok", 5, "shipping"),
        ("commit", "info", 6, "shipping"),
    ]
    assert len(seen) == 2


def test_who_is_assigned_partitions_is_another_process_and_callbacks_are_called(
    rows: list[Row],
) -> None:
    seen: list[Any] = []
    consumer, fake = made(rows)
    consumer.subscribe(["orders"], on_assign=lambda _, parts: seen.append(parts))
    fake.messages = [message(0)]
    consumer.poll(1.0)
    fake.callbacks["on_assign"](fake, [part(0)])
    fake.messages = [message(0)]
    consumer.poll(1.0)
    fake.callbacks["on_revoke"](fake, [part(0)])
    assert seen
    assert said(rows, "assigned", "revoked", "lost") == [
        ("assigned", "ok", None, "shipping"), ("revoked", "ok", None, "shipping"),
    ]  # fmt: skip
    first, second = (row["process"] for row in rows if row["f"] == "poll")
    assert first != second


def test_another_delivery_is_refused(rows: list[Row]) -> None:
    with pytest.raises(UsageError, match="delivery='twice' must be one of at-least-once"):
        RecordedConsumer({"group.id": "g"}, None, "twice")  # type: ignore[arg-type]
