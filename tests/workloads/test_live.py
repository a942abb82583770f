"""Small live runs on the own broker: the clients of each library; one is killed and replaced."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from neaptide.harness.play.random_asked import RandomRun
from neaptide.harness.play.random_run import run_random
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.nemesis.acts import Act
from neaptide.results.run import read_run
from neaptide.workloads.journal import JOURNALS
from neaptide.workloads.pool import FIRST_NUMBER
from neaptide.workloads.worker import PROCESSES_PER_WORKER
from tests.proof import proof_but

pytestmark = pytest.mark.live

[SYSTEM] = parse_systems(["neaptide:2.1"])


@pytest.fixture(autouse=True)
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))


def played(time_s: float, faults: tuple[str, ...] = (), **more: Any) -> tuple[Path, list[Any]]:
    asked = RandomRun(
        "append", SYSTEM, faults, time_s, 300.0, seed=1, brokers=1, partitions=2,
        settings={"min.insync.replicas": "1"}, **more,
    )  # fmt: skip
    directory = asyncio.run(run_random(asked, lambda *_: None))
    run = read_run(directory)
    assert (run.status, run.incidents) == ("finished", ())
    return directory, ds.dataset(directory / "operations").to_table().to_pylist()


def values(rows: list[Any], f: str, **more: str) -> set[str]:
    return {r["value"] for r in rows if r["f"] == f and more.items() <= r.items()} - {None}


@pytest.mark.parametrize("client", proof_but(["kafka-python", "aiokafka"], "kafka-python"))
def test_what_a_librarys_clients_sent_is_read_at_the_end(client: str) -> None:
    _, rows = played(1.0, client=client)
    acknowledged = values(rows, "send", type="ok")
    assert acknowledged
    assert acknowledged <= values(rows, "poll", phase="final") <= values(rows, "send")


def test_a_client_that_is_killed_leaves_no_phantom_and_is_replaced() -> None:
    directory, rows = played(8.0, ("client",), producers=2, consumers=1, topics=2)
    steps = Counter(next(iter(json.loads(row["value"]))) for row in rows if row["f"] == "nemesis")
    assert steps["kill_client"] == steps["start_client"] >= 1
    assert values(rows, "poll") <= values(rows, "send")
    assert {row["topic"] for row in rows if row["f"] == "send"} == {"t", "t1"}
    workers = {
        row["process"] // PROCESSES_PER_WORKER + 1 for row in rows if row["f"] in ("send", "poll")
    }
    assert max(workers) >= FIRST_NUMBER + 3  # beside the three that began
    assert list((directory / JOURNALS).iterdir()) == []


# A leader that stands still while much is sent to it: the batches of its clients are full.
FILLS_BATCHES = Act(1.0, 4.0, ({"pause": {"broker": "leader(0)"}},))


@pytest.mark.parametrize(
    "client", proof_but(["confluent-kafka", "kafka-python", "aiokafka", "java"])
)
def test_each_library_keeps_the_order_that_it_promises_when_batches_are_full(
    tmp_path: Path, client: str
) -> None:
    file = tmp_path / "fills-batches.toml"
    topic = "t", [["A"]]
    document = saved_schedule.document_of(
        "t", "neaptide run append", ["A"], topic, (FILLS_BATCHES,)
    )
    saved_schedule.save(document, file)
    asked = RandomRun(
        "append", SYSTEM, (), 9.0, 6_000.0, seed=1, brokers=1, partitions=1, idempotence=True,
        settings={"min.insync.replicas": "1", "zookeeper.session.timeout.ms": "10000"},
        saved=file, client=client,
    )  # fmt: skip
    directory = asyncio.run(run_random(asked, lambda *_: None))
    run = read_run(directory)
    assert (run.status, run.incidents, run.missed) == ("finished", (), ())
    rows = ds.dataset(directory / "operations").to_table().to_pylist()
    sent = [row for row in rows if (row["f"], row["type"]) == ("send", "ok")]
    by_process: dict[int, list[int]] = {}
    for row in sorted(sent, key=lambda row: row["operation"]):
        by_process.setdefault(row["process"], []).append(row["offset"])
    assert sum(map(len, by_process.values())) > 1_000
    for offsets in by_process.values():
        assert offsets == sorted(offsets)
