"""Programs that a scenario drives: what they say becomes rows of the history."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from neaptide.workloads.adapters import confluent, table
from neaptide.workloads.adapters.confluent import ConfluentConsumer, ConfluentProducer, cooperates
from neaptide.workloads.adapters.lines import Client
from neaptide.workloads.driven import ClientConfig, DrivenClients, describe
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.recorder import Recorder

Row = dict[str, Any]
# A program that says, for each request, what a test wants; then answers it, unless it is to end.
PROGRAM: Final = """
import json, sys
for rows, line in zip(json.loads(sys.argv[1]), sys.stdin):
    answer = {"id": json.loads(line)["id"]}
    for row in rows:
        if "event" in row:
            print(json.dumps(row), flush=True)
        else:
            answer |= row
    print(json.dumps(answer), flush=True)
sys.stderr.write("Erroneous state\\n")
"""


def program(*said: Sequence[Row]) -> list[str]:
    return [sys.executable, "-c", PROGRAM, json.dumps(said)]


@dataclass
class Driven:
    clients: DrivenClients
    recorder: Recorder
    path: Path
    reported: list[Mapping[str, Any]]

    def open(self, config: ClientConfig, *said: Sequence[Row]) -> str:
        return self.clients.open(config, program([], *said), 5.0)

    def reports(self, event: str) -> list[Mapping[str, Any]]:
        return [row for row in self.reported if row["event"] == event]

    def rows(self) -> list[Row]:
        """All that is recorded, when every client is dead."""
        self.clients.close()
        self.recorder.close()
        files = sorted((self.path / "operations").glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    (tmp_path / "logs").mkdir()
    reported: list[Mapping[str, Any]] = []
    recorder = Recorder(tmp_path, 1, 0)
    clients = DrivenClients(recorder, count(1).__next__, tmp_path, reported.append)
    yield Driven(clients, recorder, tmp_path, reported)
    clients.close()


def client(name: str, kind: str, **more: str) -> ClientConfig:
    return ClientConfig(name, kind, "localhost:1", "t", **more)  # type: ignore[arg-type]


def sent(value: str, offset: int | None, error: str | None = None, **more: Any) -> Row:
    return {"event": "sent", "value": value, "offset": offset, "error": error, **more}


def polled(offset: int) -> Row:
    return {"event": "polled", "value": f"m{offset}", "offset": offset}


def send(driven: Driven, *records: str, by: str = "p") -> str:
    one = {"records": list(records), "partition": 0, "key": "k", "waits": True}
    return driven.clients.do(by, "send", 5.0, **one)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (("commit_transaction", []), "ok"),
        (("abort_transaction", []), "fail"),
        (("commit_transaction", [{"error": "_TIMED_OUT"}]), "info"),
        (("commit_transaction", [{"problem": "it gave up"}]), "info"),
        (None, "info"),  # it was killed
    ],
)
def test_a_transaction_is_one_operation(
    driven: Driven, end: tuple[str, list[Row]] | None, kind: str
) -> None:
    last = [] if end is None else [end[1]]
    driven.open(client("p", "producer"), [], [sent("m1", 0), sent("m2", 1)], *last)
    assert driven.clients.do("p", "begin_transaction", 5.0) == ""
    assert send(driven, "m1", "m2", "m3") == ""
    if end is not None:
        driven.clients.do("p", end[0], 5.0)
    rows = driven.rows()
    assert [(row["value"], row["type"], row["row"], row["offset"]) for row in rows] == [
        ("m1", kind, 0, 0),
        ("m2", kind, 1, 1),
        ("m3", kind, 2, None),
    ]
    assert {row["key"] for row in rows} == {"k"}
    assert len({row["operation"] for row in rows}) == 1
    assert all(row["invoked_ns"] <= row["completed_ns"] for row in rows)
    assert [row["value"] for row in driven.reports("sent")] == ["m1", "m2"]
    errors = [row["error"] for row in driven.reports("notified")]
    assert errors == (["_TIMED_OUT"] if end and end[1] == [{"error": "_TIMED_OUT"}] else [])


def test_a_send_may_end_after_its_transaction(driven: Driven) -> None:
    """Some clients report so what they have given up."""
    late = [sent("m1", None, "_PURGE_INFLIGHT")]
    driven.open(client("p", "producer"), [], [], [], late)
    driven.clients.do("p", "begin_transaction", 5.0)
    send(driven, "m1")
    driven.clients.do("p", "abort_transaction", 5.0)
    assert driven.clients.do("p", "begin_transaction", 5.0) == ""
    assert [(row["value"], row["type"]) for row in driven.rows()] == [("m1", "fail")]


def test_a_send_of_no_transaction_is_an_operation_of_its_own(driven: Driven) -> None:
    ends = [sent("m1", 0), sent("m2", None, "_MSG_TIMED_OUT"), sent("m3", 2)]
    driven.open(client("p", "producer"), ends)
    send(driven, "m1", "m2", "m3", "m4")
    assert [(row["value"], row["type"], row["process"]) for row in driven.rows()] == [
        ("m1", "ok", 1),
        ("m2", "info", 1),
        ("m3", "ok", 2),  # nobody knows the end of what came before it
        ("m4", "info", 2),  # nor of what was never answered
    ]


@pytest.mark.parametrize(("appended", "kind"), [(False, "fail"), (None, "info"), (True, "info")])
def test_what_was_surely_not_appended_has_failed(
    driven: Driven, appended: bool | None, kind: str
) -> None:
    refused = sent("m2", None, "PRODUCER_FENCED", appended=appended)
    driven.open(client("p", "producer"), [refused])
    send(driven, "m2")
    assert [row["type"] for row in driven.reports("sent")] == [kind]
    assert [row["type"] for row in driven.rows()] == [kind]


def test_with_acks_0_no_broker_sent_an_offset(driven: Driven) -> None:
    config = ClientConfig("p", "producer", "localhost:1", "t", settings={"acks": "0"})
    driven.open(config, [sent("m1", 7)])
    send(driven, "m1")
    assert [(row["offset"], row["acks"]) for row in driven.rows()] == [(None, "0")]


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
    config = asdict(client("x", "consumer", group="g")) | {"settings": settings}
    member = ConfluentConsumer(config, said.append)
    of = Assigning()
    parts = [TopicPartition("t", number) for number in range(3)]
    member._assigned(of, parts[:2])
    member._assigned(of, parts[2:])
    member._revoked(of, parts[:1])
    member._revoked(of, parts[1:])
    assert [len(row["partitions"]) for row in said if row["event"] == "assigned"] == counts
    assert [name for name, _ in of.asked] == [assigns, "pause"] * 2


class Fenced:
    """Of librdkafka: it is polled once before it is fenced, as a producer or as a consumer."""

    polled = 0

    def poll(self, timeout_s: float) -> None:
        self.polled += 1
        if self.polled == 2:
            raise KafkaException(KafkaError(KafkaError._FENCED, "by a newer instance", True))


@pytest.mark.parametrize(
    ("kind", "made"), [(ConfluentProducer, "producer"), (ConfluentConsumer, "consumer")]
)
def test_a_fatal_error_is_reported_and_ends_no_program(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client], made: str
) -> None:
    monkeypatch.setattr(confluent, made, lambda *_: Fenced())
    said: list[Mapping[str, Any]] = []
    one = kind(asdict(client("x", "producer", group="g")), said.append)
    for _ in range(3):
        one.idle()
    assert said == [{"event": "notified", "error": "_FENCED"}]


def test_a_client_that_has_ended_is_named_with_its_log(driven: Driven) -> None:
    driven.open(client("x", "consumer"))
    driven.clients.wait_until_silent("x")
    log = driven.path / "logs" / "client-x.log"
    assert driven.clients.do("x", "poll", 5.0, records=1) == (
        f"the client has ended; its log {log} says last: Erroneous state"
    )


def test_a_client_that_ends_at_once_answers_nothing(driven: Driven) -> None:
    ended = driven.clients.open(client("p", "producer"), program(), 5.0)
    assert ended.startswith("the client has ended; its log ")


def test_a_program_that_is_not_there_cannot_be_started(driven: Driven) -> None:
    problem = driven.clients.open(client("p", "producer"), ["/no/such/program"], 5.0)
    assert problem == "/no/such/program cannot be started: No such file or directory"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"event": "sent"}, "sent.value: Field required"),
        ({"event": "sent", "value": "m1", "offset": -1}, "offset"),
        ({"event": "read", "value": "m1"}, "does not match any of the expected tags"),
        ({"event": "sent", "value": "m9", "offset": 0}, "nobody asked it to send 'm9'"),
        ({"id": 17}, "nobody asked 17"),
    ],
)
def test_what_cannot_be_understood_ends_what_is_read_of_a_client(
    driven: Driven, said: Row, why: str
) -> None:
    driven.open(client("p", "producer"), [said])
    problem = send(driven, "m1")
    assert "what the client said cannot be understood" in problem
    assert why in problem
    assert [(row["value"], row["type"]) for row in driven.rows()] == [("m1", "info")]


@pytest.mark.parametrize("line", ["started", "[]", "7", '"id"', "{"])
def test_a_line_that_is_no_object_is_refused(driven: Driven, line: str) -> None:
    prints = [sys.executable, "-c", f"print({line!r})"]
    problem = driven.clients.open(client("p", "producer"), prints, 5.0)
    assert f"{line!r} is no JSON object with an id or an event" in problem


def test_a_killed_client_is_killed_with_what_it_has_started(driven: Driven) -> None:
    """As where the program is a script, or `go run`."""
    starts = 'import os, subprocess\nos.write(2, b"%d\\n" % subprocess.Popen(["sleep", "600"]).pid)'
    argv = [sys.executable, "-c", f"{starts}\n{PROGRAM}", json.dumps([[], []])]
    assert driven.clients.open(client("x", "consumer"), argv, 5.0) == ""
    log = driven.path / "logs" / "client-x.log"
    started = psutil.Process(int(log.read_text().split()[0]))
    assert started.is_running()
    driven.clients.die("x")
    assert psutil.wait_procs([started], 5)[1] == []


def test_members_of_a_group_are_one_process_that_polls_what_they_handle(driven: Driven) -> None:
    committed: Row = {"event": "committed", "offset": 1}
    refused: Row = {"event": "committed", "offset": 2, "error": "ILLEGAL_GENERATION"}
    driven.open(client("x", "consumer", group="g"), [polled(0)], [committed])
    driven.open(client("y", "consumer", group="g"), [polled(0), polled(1)], [refused])
    driven.open(client("z", "consumer"), [polled(0)])
    for name in "xyz":
        assert driven.clients.do(name, "poll", 5.0, records=1) == ""
        assert driven.clients.do(name, "handle", 5.0) == ""
        if name != "z":
            assert driven.clients.do(name, "commit", 5.0, offset=None, waits=True) == ""
    rows = driven.rows()
    polls = [(row["process"], row["offset"]) for row in rows if row["f"] == "poll"]
    assert polls == [(1, 0), (1, 0), (1, 1), (3, 0)]
    commits = [row for row in rows if row["f"] == "commit"]
    assert [(c["type"], c["offset"], c["key"], c["error"]) for c in commits] == [
        ("ok", 1, "g", None),
        ("info", 2, "g", "ILLEGAL_GENERATION"),
    ]
    assert all(row["invoked_ns"] < row["completed_ns"] for row in rows)
    assert driven.reports("committed") == [
        {"event": "committed", "group": "g", "partition": 0, "offset": 1}
    ]
    assert [row["value"] for row in driven.reports("handled")] == ["m0", "m0", "m1", "m0"]
    assert [row["error"] for row in driven.reports("notified")] == ["ILLEGAL_GENERATION"]


def test_what_was_taken_and_not_handled_is_no_poll(driven: Driven) -> None:
    driven.open(client("x", "consumer", group="g"), [polled(0)])
    driven.clients.do("x", "poll", 5.0, records=1)
    assert driven.rows() == []


@pytest.mark.parametrize(
    ("taken", "offset", "asked"),
    [
        ([], None, None),
        ([polled(0), polled(1)], None, [{"partition": 0, "offset": 2}]),
        ([polled(0), polled(1)], 1, [{"partition": 0, "offset": 1}]),
        ([], 1, [{"partition": 0, "offset": 1}]),
        (
            [polled(3), {**polled(5), "partition": 2}],
            None,
            [{"partition": 0, "offset": 4}, {"partition": 2, "offset": 6}],
        ),
    ],
)
def test_a_commit_is_behind_what_was_taken(
    driven: Driven, taken: list[Row], offset: int | None, asked: list[Row] | None
) -> None:
    """The program repeats what it is asked for in its log."""
    echo = PROGRAM.replace(
        'answer = {"id"', 'sys.stderr.write(line); sys.stderr.flush(); answer = {"id"'
    )
    said = json.dumps([[], taken, []])
    driven.clients.open(client("x", "consumer", group="g"), [sys.executable, "-c", echo, said], 5.0)
    driven.clients.do("x", "poll", 5.0, records=1)
    assert driven.clients.do("x", "commit", 5.0, offset=offset, waits=False) == ""
    lines = (driven.path / "logs" / "client-x.log").read_text().splitlines()
    requests = [json.loads(line) for line in lines if line.startswith("{")]
    commits = [row for row in requests if row["do"] == "commit"]
    assert [row["offsets"] for row in commits] == ([] if asked is None else [asked])
    assert requests[0] == {
        "id": 1, "do": "start", "deadline_s": 5.0, "kind": "consumer", "bootstrap": "localhost:1",
        "topic": "t", "group": "g", "transactional_id": None, "settings": {},
    }  # fmt: skip


# --- what a program says of itself ---------------------------------------------------------------


def test_a_program_describes_itself() -> None:
    said = describe(program([{"client": "mine", "version": "1.2", "can": ["groups"]}]), 5.0)
    assert (said.client, said.version, said.can) == ("mine", "1.2", ("groups",))


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["/no/such/program"], "/no/such/program cannot be started: No such file or directory."),
        (program(), "has ended; it says last: Erroneous state."),
        (program([{}]), "answered to `describe` without the name of its `client`."),
        (program([{"event": "notified", "error": "E"}]), "without the name of its `client`."),
        ([sys.executable, "-c", "print('hello')"], "is no JSON object with an id or an event"),
        (
            [sys.executable, "-c", "import sys; sys.stdin.read()"],
            "did not answer to `describe` within 0.5 s",
        ),
    ],
)
def test_a_program_that_does_not_describe_itself_is_refused(argv: list[str], why: str) -> None:
    with pytest.raises(ClientsError) as refused:
        describe(argv, 0.5 if "within 0.5 s" in why else 20.0)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("name", "version"),
    [("java", "4.4.0"), ("java:3.9.1", "3.9.1"), ("java:x", None), ("go", None)],
)
def test_kafkas_own_client_comes_in_the_version_that_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str | None
) -> None:
    monkeypatch.setattr(table, "class_path", lambda *jars: "+".join(jars))
    monkeypatch.setattr(table, "find_java", lambda: Path("/usr/bin/java"))
    words = table.shipped(name)
    if version is None:
        assert words is None
        return
    assert words is not None
    assert (words[0], words[-1]) == ("/usr/bin/java", version)
    assert f"org.apache.kafka:kafka-clients:{version}+" in words[words.index("-cp") + 1]
    assert Path(words[-2]).is_file()
