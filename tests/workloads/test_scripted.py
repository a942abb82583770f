"""What clients that are driven say becomes rows of the history."""

from __future__ import annotations

import io
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition

from neaptide.workloads.recorder import Recorder
from neaptide.workloads.scripted import ClientConfig, Consumer, ScriptedClients, cooperates

Row = dict[str, Any]
STARTED: Row = {"id": 1, "problem": ""}
ENDS: Row = {"invoked_ns": 5, "completed_ns": 9}


class Asked(io.StringIO):
    """Standard input; `first` once something has been asked."""

    def __init__(self) -> None:
        super().__init__()
        self.first = threading.Event()

    def flush(self) -> None:
        self.first.set()


class Said:
    """In place of the process of a client: asked for something, it says all, and ends."""

    def __init__(self, lines: list[Row]) -> None:
        self.stdin = Asked()
        self.stdout = self._say(lines)

    def _say(self, lines: list[Row]) -> Iterator[str]:
        self.stdin.first.wait()
        for line in lines:
            yield json.dumps(line) + "\n"

    def kill(self) -> None:
        """It has ended."""

    def wait(self) -> int:
        return -9


def rows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *clients: tuple[ClientConfig, list[Row]]
) -> tuple[list[Row], list[Mapping[str, Any]]]:
    """The rows that are recorded, and what the harness gets."""
    (tmp_path / "logs").mkdir()
    lines = iter([said for _, said in clients])
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Said(next(lines)))
    reported: list[Mapping[str, Any]] = []
    recorder = Recorder(tmp_path, 1, 0)
    scripted = ScriptedClients(recorder, count(1).__next__, tmp_path, reported.append)
    for config, _ in clients:
        assert scripted.open(config, 5.0) == ""
        scripted.wait_until_silent(config.name)
    scripted.close()
    recorder.close()
    rows: list[Row] = []
    for file in sorted((tmp_path / "operations").glob("*.parquet")):
        rows += pq.read_table(file).to_pylist()
    return rows, reported


def client(name: str, kind: str, **more: str) -> ClientConfig:
    return ClientConfig(name, kind, "localhost:1", "t", 0, **more)  # type: ignore[arg-type]


def sent(value: str, offset: int | None, error: str | None = None) -> list[Row]:
    where: Row = {"value": value, "partition": 0, "key": f"key of {value}"}
    return [
        {"event": "sending", **where},
        {"event": "sent", **where, "offset": offset, "error": error} | ENDS,
    ]


def ended(commits: bool, error: str | None = None) -> Row:
    return {"event": "ended", "commits": commits, "error": error, "completed_ns": 20}


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ([ended(True)], "ok"),
        ([ended(False)], "fail"),
        ([ended(True, "_TIMED_OUT")], "info"),
        ([], "info"),  # it was killed
    ],
)
def test_a_transaction_is_one_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: list[Row], kind: str
) -> None:
    begun: list[Row] = [STARTED, {"event": "began", "at_ns": 1}]
    late: Row = {"event": "sending", "value": "m3", "partition": 0, "key": None}
    said = [*begun, *sent("m1", 0), *sent("m2", 1), late, *end]
    rows, reported = rows_of(tmp_path, monkeypatch, (client("p", "producer"), said))
    assert [(row["value"], row["type"], row["row"], row["offset"]) for row in rows] == [
        ("m1", kind, 0, 0),
        ("m2", kind, 1, 1),
        ("m3", kind, 2, None),
    ]
    assert [row["key"] for row in rows] == ["key of m1", "key of m2", None]
    assert len({row["operation"] for row in rows}) == 1
    assert [row["value"] for row in reported if row["event"] == "sent"] == ["m1", "m2"]


def test_a_send_of_no_transaction_is_an_operation_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [STARTED, *sent("m1", 0), *sent("m2", None, "_MSG_TIMED_OUT"), *sent("m3", 2)]
    rows, _ = rows_of(tmp_path, monkeypatch, (client("p", "producer"), said))
    assert [(row["value"], row["type"], row["process"]) for row in rows] == [
        ("m1", "ok", 1),
        ("m2", "info", 1),
        ("m3", "ok", 2),  # nobody knows the end of what came before it
    ]


@pytest.mark.parametrize(
    ("error", "transactional_id", "kind"),
    [
        ("INVALID_PRODUCER_EPOCH", "id", "fail"),
        ("PRODUCER_FENCED", "id", "fail"),
        ("_NOT_SENT", None, "fail"),
        ("INVALID_PRODUCER_EPOCH", None, "info"),  # an earlier attempt may be in the log
        ("REQUEST_TIMED_OUT", "id", "info"),
    ],
)
def test_what_a_fenced_producer_sends_has_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    transactional_id: str | None,
    kind: str,
) -> None:
    named = {} if transactional_id is None else {"transactional_id": transactional_id}
    late = client("late", "raw_producer", **named)
    rows, reported = rows_of(tmp_path, monkeypatch, (late, [STARTED, *sent("m2", None, error)]))
    assert [row["type"] for row in rows] == [kind]
    assert [row["type"] for row in reported if row["event"] == "sent"] == [kind]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"group.protocol": "consumer"}, True),
        ({"partition.assignment.strategy": "cooperative-sticky"}, True),
        ({"partition.assignment.strategy": "range,roundrobin"}, False),
        ({"group.protocol": "classic"}, False),
        ({}, False),
    ],
)
def test_which_groups_take_and_give_single_partitions(
    settings: dict[str, str], expected: bool
) -> None:
    assert cooperates(settings) is expected


class Assigning:
    """What a consumer was asked for, of librdkafka."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []

    def _asked(self, name: str, parts: Sequence[TopicPartition]) -> None:
        self.asked.append((name, [part.partition for part in parts]))

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        self._asked("assign", parts)

    def incremental_assign(self, parts: Sequence[TopicPartition]) -> None:
        self._asked("incremental_assign", parts)

    def pause(self, parts: Sequence[TopicPartition]) -> None:
        self._asked("pause", parts)


@pytest.mark.parametrize(
    ("settings", "assigns", "counts"),
    [
        ({"group.protocol": "consumer"}, "incremental_assign", [2, 3, 2, 0]),
        ({}, "assign", [2, 1, 0, 0]),
    ],
)
def test_a_member_has_what_it_was_given_and_what_it_gave_up(
    settings: dict[str, str], assigns: str, counts: list[int]
) -> None:
    said: list[Mapping[str, Any]] = []
    config = client("x", "consumer", group="g")
    member = Consumer(replace(config, settings=settings), said.append)
    of = Assigning()
    parts = [TopicPartition("t", number) for number in range(3)]
    member._assigned(of, parts[:2])
    member._assigned(of, parts[2:])
    member._revoked(of, parts[:1])
    member._revoked(of, parts[1:])
    assert [row["count"] for row in said if row["event"] == "assigned"] == counts
    assert [name for name, _ in of.asked] == [assigns, "pause"] * 2


def test_a_client_that_has_ended_is_said_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Said([STARTED]))
    scripted = ScriptedClients(Recorder(tmp_path, 1, 0), count(1).__next__, tmp_path, print)
    scripted.open(client("x", "consumer"), 5.0)
    scripted.wait_until_silent("x")
    log = tmp_path / "logs" / "client-x.log"
    log.write_text("Erroneous state\n")
    assert scripted.do("x", "poll", 5.0) == (
        f"the client has ended; its log {log} says last: Erroneous state"
    )


def test_members_of_a_group_are_one_process_that_polls_what_they_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handled(*offsets: int) -> Row:
        rows = [
            {"value": f"m{n}", "offset": n, "partition": 0, "leader_epoch": None} for n in offsets
        ]
        return {"event": "handled", "rows": rows} | ENDS

    asked: Row = {"event": "committing", "partition": 0, "offset": 1, "at_ns": 3}
    answered: Row = {"event": "commit", "partition": 0, "offset": 1, "error": None, "at_ns": 4}
    refused = answered | {"offset": 2, "error": "ILLEGAL_GENERATION"}
    first = [STARTED, {"event": "polled", "value": "m0", "offset": 0}, handled(0), asked, answered]
    rows, reported = rows_of(
        tmp_path,
        monkeypatch,
        (client("x", "consumer", group="g"), first),
        (client("y", "consumer", group="g"), [STARTED, handled(0, 1), refused]),
        (client("z", "consumer"), [STARTED, handled(0)]),
    )
    polls = [(row["process"], row["offset"]) for row in rows if row["f"] == "poll"]
    assert polls == [(1, 0), (1, 0), (1, 1), (3, 0)]
    commits = [row for row in rows if row["f"] == "commit"]
    assert [(c["type"], c["offset"], c["key"], c["error"]) for c in commits] == [
        ("ok", 1, "g", None),
        ("info", 2, "g", "ILLEGAL_GENERATION"),
    ]
    assert [event for event in reported if event["event"] == "committed"] == [
        {"event": "committed", "group": "g", "partition": 0, "offset": 1}
    ]
    handled_ones = [event["value"] for event in reported if event["event"] == "handled"]
    assert handled_ones == ["m0", "m0", "m1", "m0"]


def test_a_client_that_has_ended_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Said([]))
    recorder = Recorder(tmp_path, 1, 0)
    scripted = ScriptedClients(recorder, count(1).__next__, tmp_path, lambda _: None)
    assert scripted.open(client("p", "producer"), 5.0).startswith("the client has ended; its log ")
    recorder.close()
