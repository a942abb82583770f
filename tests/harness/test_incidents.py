"""What fails of a run's own means, without a fault, ends it, and the run says what it was."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts import zookeeper
from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE
from neaptide.clusters.observer_zookeeper import ZooKeeperObserver
from neaptide.clusters.producer import ProducerOptions
from neaptide.harness.live.account import Account
from neaptide.harness.live.stage import Stage
from neaptide.harness.play.random_asked import RandomRun
from neaptide.harness.play.random_run import run_random
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.harness.terminal.exits import Exit, status_of
from neaptide.results.errors import StoreError
from neaptide.results.run import Incident, Run, Written, read_run
from neaptide.results.tables import hidden_name, table_files
from neaptide.workloads import clients as clients_module
from neaptide.workloads.clients import Clients
from neaptide.workloads.errors import ClientsError
from tests.harness.command import neaptide
from tests.proof import proof_but

pytestmark = pytest.mark.live

UNKNOWN = 2
LONG_S = 3_600.0  # a run that nothing ends would not end in a test's time
GATE, CLIENTS, ZOOKEEPER = "neaptide.nemesis.gate", "neaptide.workloads.worker", "ZooKeeperServer"
BROKER = "neaptide.clusters.broker.server"
[SYSTEM] = parse_systems(["neaptide:2.1"])
ASKED = RandomRun("append", SYSTEM, (), LONG_S, 200, seed=1, partitions=2)
ONE_BROKER = ClusterSpec((0,), {"min.insync.replicas": "1"}, TopicSpec("t", {0: (0,)}, {}))

Mischief = Callable[[Path], None]


@pytest.fixture(autouse=True)
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))


def processes(what: str = "") -> list[psutil.Process]:
    """Those of runs that this process has started, by what they run."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):  # one that has just ended has neither
            if TOKEN_VARIABLE in process.environ() and what in " ".join(process.cmdline()):
                found.append(process)
    return found


def sends(number: signal.Signals, what: str) -> Mischief:
    def send(_: Path) -> None:
        os.kill(processes(what)[0].pid, number)

    return send


def played(tmp_path: Path, mischief: Mischief, asked: RandomRun = ASKED) -> tuple[Path, Run]:
    """A run to which somebody does something as soon as sends are acknowledged."""
    done: list[str] = []

    def progress(doing: str, _: float, counts: Mapping[str, int]) -> None:
        if counts.get("ok") and not done:
            done.append(doing)
            [run] = (tmp_path / "runs").glob("20*")
            mischief(run)

    directory = asyncio.run(run_random(asked, progress))
    assert done
    assert processes() == []
    return directory, read_run(directory)


def rows_there(directory: Path, table: str, writer: str) -> Written:
    files = [f for f in table_files(directory / table) if f.name.startswith(f"part-{writer}-")]
    return Written(len(files), sum(pq.read_metadata(file).num_rows for file in files))


@pytest.mark.parametrize(
    ("number", "what", "kind", "says"),
    proof_but(
        [
            (signal.SIGKILL, ZOOKEEPER, "coordination", "zookeeper (pid"),
            (signal.SIGSTOP, ZOOKEEPER, "coordination", "sent it a SIGSTOP"),
            (signal.SIGKILL, GATE, "process", "was ended by SIGKILL"),
            (signal.SIGSTOP, GATE, "process", "sent it a SIGSTOP"),
            (signal.SIGKILL, CLIENTS, "client", "was ended by SIGKILL"),
            (signal.SIGTERM, CLIENTS, "client", "was ended by SIGTERM"),
            (signal.SIGSTOP, CLIENTS, "client", "sent it a SIGSTOP"),
            (signal.SIGKILL, BROKER, "process", "ended by itself"),
            (signal.SIGSTOP, BROKER, "process", "stands still"),
        ],
        (signal.SIGSTOP, GATE, "process", "sent it a SIGSTOP"),
        (signal.SIGKILL, CLIENTS, "client", "was ended by SIGKILL"),
        (signal.SIGSTOP, BROKER, "process", "stands still"),
    ),
)
def test_a_process_that_no_fault_ended_ends_the_run(
    tmp_path: Path, number: signal.Signals, what: str, kind: str, says: str
) -> None:
    directory, run = played(tmp_path, sends(number, what))
    assert run.status == "interrupted"
    assert [(one.kind, says in one.why) for one in run.incidents] == [(kind, True)]
    assert run.written is not None
    assert run.written["operations"]["c2"] == rows_there(directory, "operations", "c2")
    assert run.assigned != ()


def test_a_run_to_which_nothing_happens_says_what_was_written_and_assigned(tmp_path: Path) -> None:
    short = replace(ASKED, time_s=2, min_acked=5)
    directory, run = played(tmp_path, lambda _: None, short)
    assert (run.status, run.incidents, run.min_acked) == ("finished", (), 5)
    assert "--min-acked 5" in run.repeat
    assert run.written == {
        "operations": {"all": rows_there(directory, "operations", "all")},
        "fetch_rounds": {"all": rows_there(directory, "fetch_rounds", "all")},
        "replicas": {"0": rows_there(directory, "replicas", "0")},
    }
    for table, writers in run.written.items():
        there = [pq.read_metadata(file).num_rows for file in table_files(directory / table)]
        assert sum(there) == sum(writer.rows for writer in writers.values()) > 0
    replicas = pq.read_table(directory / "replicas").to_pylist()
    found = {(row["topic"], row["partition"], row["broker"]) for row in replicas}
    assigned = {(one.topic, one.partition, b) for one in run.assigned for b in one.brokers}
    assert len(assigned) == 2 * 3
    assert assigned <= found


def obstruct(run: Path, table: str, writer: str) -> None:
    """What comes next cannot be opened; what comes after that could be."""
    files = rows_there(run, table, writer).files
    for number in range(files, files + 3):
        hidden_name(run / table / f"part-{writer}-{number:05d}.parquet").mkdir()


@pytest.mark.parametrize(
    ("table", "writer"),
    proof_but([("operations", "c2"), ("fetch_rounds", "gate")], ("operations", "c2")),
)
def test_a_process_that_could_not_write_for_a_moment_ends_the_run(
    tmp_path: Path, table: str, writer: str
) -> None:
    directory, run = played(tmp_path, lambda run: obstruct(run, table, writer))
    assert run.status == "interrupted"
    assert [incident.kind for incident in run.incidents] == ["recorder"]
    assert "Is a directory" in run.incidents[0].why
    assert run.written is not None
    assert run.written[table][writer] == rows_there(directory, table, writer)


def test_a_harness_that_cannot_write_what_it_saw_says_so(tmp_path: Path) -> None:
    with suppress(StoreError):  # it ends the run, or is found while it goes on
        played(tmp_path, lambda run: obstruct(run, "operations", "c0"), replace(ASKED, time_s=2))
    [directory] = (tmp_path / "runs").glob("20*")
    run = read_run(directory)
    assert run.status == "interrupted"
    assert [incident.kind for incident in run.incidents] == ["recorder"]
    assert run.written is not None
    assert run.written["operations"]["c0"] == rows_there(directory, "operations", "c0")
    assert processes() == []


@pytest.mark.spark
def test_the_command_says_at_once_what_ended_its_run(tmp_path: Path) -> None:
    """A scenario whose broker ends by itself: the run never comes to be."""
    scenario = """
title = "a broker that does not start"
[cluster]
brokers = ["A"]
topics.t = { assignment = [["A"]] }
settings = { "log.segment.bytes" = "many" }
[[step]]
produce = { record = "m1", acks = "1" }
until = "acked(m1)"
"""
    (tmp_path / "mine.toml").write_text(scenario, encoding="utf-8")
    done, verdict = neaptide(tmp_path, "run", "mine.toml", "--json")
    assert done.returncode == UNKNOWN
    assert verdict["verdict"] == "unknown"
    assert any("ended by itself" in reason for reason in verdict["reasons"]), verdict["reasons"]
    assert "the run can only be unknown: Broker 0 ended by itself" in done.stderr
    run = read_run(Path(verdict["run"]))
    assert run.status == "not started"
    assert [incident.kind for incident in run.incidents] == ["process"]


# --- a run that cannot start ---------------------------------------------------------------------


def test_a_zookeeper_that_does_not_start_is_one_sentence_and_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "_OPTIONS", ("-XX:+NoSuchOptionOfJava",))
    with pytest.raises(MissingPartError, match="ZooKeeper cannot be had") as raised:
        asyncio.run(run_random(ASKED, lambda *_: None))
    assert status_of(raised.value) is Exit.MISSING
    [directory] = (tmp_path / "runs").glob("20*")
    run = read_run(directory)
    assert run.status == "not started"
    assert run.aim is not None
    assert "ZooKeeper cannot be had" in run.aim.why
    assert processes() == []


def test_a_zookeeper_that_dies_while_a_run_starts_is_one_sentence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ZooKeeperObserver.create_topic

    async def create_without(observer: ZooKeeperObserver, *args: Any, **named: Any) -> str | None:
        processes(ZOOKEEPER)[0].kill()
        return await create(observer, *args, **named)

    monkeypatch.setattr(ZooKeeperObserver, "create_topic", create_without)
    with pytest.raises(MissingPartError, match="The run cannot start: The process zookeeper"):
        asyncio.run(run_random(ASKED, lambda *_: None))
    [directory] = (tmp_path / "runs").glob("20*")
    run = read_run(directory)
    assert run.status == "not started"
    assert [incident.kind for incident in run.incidents] == ["coordination"]
    assert processes() == []


# --- the process of clients ----------------------------------------------------------------------


def on_stage(
    tmp_path: Path, work: Callable[[Stage], Awaitable[None]], account: Account | None = None
) -> Account:
    """One broker and clients, without load."""
    account = account or Account()

    async def play() -> None:
        async with Stage(tmp_path / "run", SYSTEM, ONE_BROKER, account=account) as stage:
            await stage.start_clients(ProducerOptions())
            await work(stage)

    asyncio.run(play())
    return account


async def produce(stage: Stage, value: str) -> None:
    await stage.clients.do("produce", topic="t", partition=0, acks="all", values=[value])


def test_an_event_of_more_than_a_mebibyte_is_read(tmp_path: Path) -> None:
    large = "x" * 3_000_000

    async def work(stage: Stage) -> None:
        await produce(stage, large)  # refused by the client: there is an event all the same
        await stage.until(lambda: large in stage.sends.failed, 30, "it has failed")

    assert on_stage(tmp_path, work).incidents == ()


def test_an_event_that_is_too_long_ends_the_clients_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "_LINE_BYTES_MAX", 1_000)

    async def work(stage: Stage) -> None:
        await produce(stage, "x" * 100_000)
        await stage.clients.do("position", group="g", topic="t", partition=0, deadline_s=LONG_S)

    with pytest.raises(ClientsError, match="cannot be understood"):
        on_stage(tmp_path, work)


def test_a_command_that_is_not_answered_has_a_deadline_and_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "_ANSWER_WITHIN_S", 0.5)

    async def work(stage: Stage) -> None:
        await stage.clients.process.pause()
        await stage.clients.do("flush")

    account = Account()
    with pytest.raises(ClientsError, match="sent it a SIGSTOP"):
        on_stage(tmp_path, work, account)
    assert [incident.kind for incident in account.incidents] == ["client"]


def test_an_error_of_a_command_is_an_incident(tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        await stage.clients.do("produce", topic="t")

    account = Account()
    with pytest.raises(ClientsError, match="missing 3 required"):
        on_stage(tmp_path, work, account)
    assert [incident.kind for incident in account.incidents] == ["client"]


@pytest.mark.parametrize("left", [0, 3])
def test_sends_that_were_never_answered_are_an_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    async def answer(clients: Clients, verb: str, **_: object) -> object:
        assert verb == "stop_load"
        return {"left": left}

    async def work(stage: Stage) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Clients, "do", answer)
            await stage.stop_load()

    why = "3 sends were never answered, nor did they time out."
    assert on_stage(tmp_path, work).incidents == ((Incident("client", why),) if left else ())


def test_what_cannot_be_closed_leaves_nothing_else_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = Clients.close

    async def fail(clients: Clients) -> None:
        await closing(clients)
        raise ZeroDivisionError

    monkeypatch.setattr(Clients, "close", fail)

    async def work(stage: Stage) -> None:
        assert processes(GATE)
        assert processes(BROKER)

    with pytest.raises(ZeroDivisionError):
        on_stage(tmp_path, work)
    assert processes() == []
