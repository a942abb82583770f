"""Sends of an application: what is recorded of them is what a broker's log will show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.harness.scenarios.systems import keeps_headers, parse_system
from neaptide.harness.testing.recorded import RECORDER, History, RecordedProducer
from neaptide.results.record_texts import record_text, text_of
from neaptide.results.schema import OPERATIONS_READ
from neaptide.workloads.recorder import Recorder


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Log:
    """In place of a producer: what it is given is in the log at once."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, Any]] = []

    def produce(self, topic: str, *, value: Any, on_delivery: Any, **more: Any) -> None:
        raw = value.encode() if isinstance(value, str) else value
        self.records.append((raw, more.get("headers")))
        on_delivery(None, Message(len(self.records) - 1))

    def flush(self) -> int:
        return 0


def history(run: Path, *, marks: bool) -> History:
    return History(Recorder(run, RECORDER, 0), marks=marks)


def sent(run: Path, history: History) -> list[dict[str, Any]]:
    history.close()
    rows: list[dict[str, Any]] = pq.read_table(
        run / "operations", schema=OPERATIONS_READ
    ).to_pylist()
    return rows


VALUES: tuple[Any, ...] = (
    "paid", "paid", None, None, "", b"\xff", rb"\xff", "hex:ff", "paid ⟨1⟩", "null", "⟨null⟩",
)  # fmt: skip


@pytest.mark.parametrize("marks", [True, False])
def test_what_is_recorded_of_a_send_is_what_will_be_read(tmp_path: Path, marks: bool) -> None:
    log, made = Log(), history(tmp_path, marks=marks)
    producer: Any = RecordedProducer(log, made, "all")  # type: ignore[arg-type]
    for value in VALUES:
        producer.produce("t", value=value, key=b"\xfe")
    rows = sent(tmp_path, made)
    assert [row["value"] for row in rows] == [record_text(*record) for record in log.records]
    assert {row["key"] for row in rows} == {"hex:fe"}
    assert len({row["value"] for row in rows}) == len(VALUES if marks else set(VALUES))
    assert (rows[2]["value"] is None) is not marks


def test_headers_of_the_application_stay_and_a_foreign_mark_goes(tmp_path: Path) -> None:
    log, made = Log(), history(tmp_path, marks=True)
    producer: Any = RecordedProducer(log, made, "all")  # type: ignore[arg-type]
    producer.produce("t", value="a", headers={"trace": b"7", "neaptide-mark": b"99"})
    producer.produce("t", value="b", headers=[("trace", b"7"), ("trace", None)])
    assert [headers for _, headers in log.records] == [
        [("trace", b"7"), ("neaptide-mark", b"1")],
        [("trace", b"7"), ("trace", None), ("neaptide-mark", b"2")],
    ]


def test_another_client_has_a_mark_if_it_takes_the_headers(tmp_path: Path) -> None:
    made = history(tmp_path, marks=True)
    client = made.client()
    plain, marked = (made.begin(client, "t", None, "k", "all") for _ in range(2))
    [header] = marked.headers
    plain.ok(0, 0)
    marked.ok(0, 1)
    assert [row["value"] for row in sent(tmp_path, made)] == [None, record_text(None, [header])]


def test_where_headers_are_not_kept_there_is_none(tmp_path: Path) -> None:
    made = history(tmp_path, marks=False)
    send = made.begin(made.client(), "t", "a", None, "all")
    assert send.headers == []
    send.ok(0, 0)
    assert [row["value"] for row in sent(tmp_path, made)] == [text_of("a")]


@pytest.mark.parametrize(
    ("system", "settings", "keeps"),
    [
        ("neaptide:0.10", {}, True),  # its log has the record format of 0.11
        ("kafka:0.10.2.2", {}, False),
        ("kafka:0.11.0.3", {}, True),
        ("kafka:3.9.1", {}, True),
        ("kafka:4.1.0", {}, True),
        ("kafka:2.8.2", {"log.message.format.version": "0.10.2-IV0"}, False),
        ("kafka:2.8.2", {"message.format.version": "0.10.0"}, False),
        ("kafka:2.8.2", {"message.format.version": "2.8-IV1"}, True),
    ],
)
def test_marks_are_where_headers_are(system: str, settings: dict[str, str], keeps: bool) -> None:
    assert keeps_headers(parse_system(system), settings) is keeps
