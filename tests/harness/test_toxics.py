"""Links with toxics in a run: the load goes on, the rounds are late, and all ends well."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pyarrow.parquet as pq
import pytest

from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.ledger import TOKEN_VARIABLE
from neaptide.clusters.hosts.toxiproxy import Toxic
from neaptide.harness.live.faults import Faults
from tests.harness.command import COMMAND, neaptide

pytestmark = pytest.mark.live

HEAD = """
title = "a test"
source = ["a test"]
[cluster]
brokers = ["A", "B", "C"]
start_order = ["C", "A", "B"]
topics.t = { assignment = [["A", "B"]], settings = { "min.insync.replicas" = 2 } }
settings = { "replica.lag.time.max.ms" = 30000, "replica.fetch.wait.max.ms" = 100 }
"""
LATE = (
    HEAD
    + """
[[step]]
load = { rate = 100, acks = "all" }
until = "LEO(B) >= was(LEO(B)) + 50"

[[step]]
why = "what B is answered by A comes at least 400 ms later"
until = "round(B) >= was(round(B)) + 4"
[step.toxic]
broker = "A"
purpose = "replication"
stream = "downstream"
type = "latency"
latency_ms = 400

[[step]]
produce = { record = "m1", acks = "all" }
until = "acked(m1) and HW(B) >= was(HW(B)) + 50"

[[step]]
end_toxic = { name = "latency A replication downstream" }
until = "round(B) >= was(round(B)) + 20 and isr is {A, B}"
"""
)
WAITS = HEAD + '[[step]]\nuntil = "leader is C"\nwithin = 600\n'
TOXIC = """
[[step]]
toxic = { broker = "A", purpose = "client", stream = "upstream", type = "timeout" }
"""


def written(directory: Path, text: str) -> str:
    (directory / "one.toml").write_text(text, encoding="utf-8")
    return "one.toml"


def rows(run: Path, table: str) -> list[Any]:
    found: list[Any] = pq.read_table(run / table).to_pylist()
    return found


@pytest.mark.needs("toxiproxy")
def test_fetch_rounds_are_as_late_as_the_link_while_the_load_goes_on(tmp_path: Path) -> None:
    done, verdict = neaptide(
        tmp_path, "run", written(tmp_path, LATE), "--system", "neaptide:2.1", "--json"
    )
    assert verdict is not None, done.stderr
    run = tmp_path / "runs" / "latest"
    assert json.loads((run / "run.json").read_text())["aim"] == {"hit": True, "why": ""}
    assert (verdict["verdict"], verdict["outcome"]) == ("valid", "held")
    operations = rows(run, "operations")
    nemesis = [
        (json.loads(row["value"]), row["completed_ns"], row["invoked_ns"])
        for row in operations
        if row["f"] == "nemesis"
    ]
    [begun_ns] = [at for what, at, _ in nemesis if "toxic" in what]
    [ended] = [(what["end_toxic"], at) for what, _, at in nemesis if "end_toxic" in what]
    assert ended[0]["connections"] >= 1
    took_ms = [
        ((row["responded_ns"] - row["requested_ns"]) / 1e6, row["requested_ns"])
        for row in rows(run, "fetch_rounds")
        if row["leader"] == 0 and row["responded_ns"] is not None
    ]
    late = [took for took, at in took_ms if begun_ns < at and at + took * 1e6 < ended[1]]
    assert len(late) >= 3
    assert min(late) >= 400
    assert any(took < 400 for took, at in took_ms if at < begun_ns)
    assert any(took < 400 for took, at in took_ms if at > ended[1])
    meanwhile = [
        row
        for row in operations
        if row["f"] == "send" and row["type"] == "ok" and begun_ns < row["completed_ns"] < ended[1]
    ]
    assert len(meanwhile) >= 50


@pytest.mark.proof
@pytest.mark.needs("toxiproxy")
def test_a_toxic_that_no_connection_has_is_a_missed_aim(tmp_path: Path) -> None:
    """Nobody fetches from B, which leads nothing."""
    toxic = TOXIC.replace('"A"', '"B"').replace("client", "replication")
    text = HEAD + toxic + '[[step]]\nproduce = { record = "m1" }\nuntil = "acked(m1)"\n'
    neaptide(tmp_path, "run", written(tmp_path, text), "--system", "neaptide:2.1", "--json")
    aim = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text())["aim"]
    assert not aim["hit"]
    assert "no connection had the toxic 'timeout B replication upstream'" in aim["why"]


@pytest.mark.proof
@pytest.mark.needs("toxiproxy")
def test_a_server_that_dies_ends_the_run_and_is_named(tmp_path: Path) -> None:
    text = WAITS + TOXIC
    stores = {"NEAPTIDE_RUNS": str(tmp_path / "runs"), "NEAPTIDE_STATE": str(tmp_path / "state")}
    command = [*COMMAND, "run", written(tmp_path, text), "--system", "neaptide:2.1", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **stores}, stdout=subprocess.DEVNULL
    ) as process:
        try:
            server = server_of(process.pid)
            progress = tmp_path / "runs"
            while len(list(progress.glob("20*/logs/broker-*.log"))) < 3:  # the run is under way
                assert process.poll() is None
                time.sleep(0.05)
            os.kill(server.pid, signal.SIGKILL)
            assert process.wait(120) == 2
        finally:
            process.terminate()  # else a failure would wait for as long as the scenario does
    [incident] = json.loads((progress / "latest" / "run.json").read_text())["incidents"]
    assert "toxiproxy" in incident["why"]
    assert "was ended by SIGKILL" in incident["why"]
    assert not [one for one in psutil.process_iter() if is_of(one, progress)]


def server_of(pid: int) -> psutil.Process:
    while True:
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):  # one that has just ended has neither
                if "-port" in process.cmdline() and TOKEN_VARIABLE in process.environ():
                    return process
        time.sleep(0.05)


def is_of(process: psutil.Process, directory: Path) -> bool:
    try:
        return bool(process.cwd().startswith(str(directory)))
    except psutil.Error:
        return False


def test_without_the_server_nothing_is_started(tmp_path: Path) -> None:
    done, _ = neaptide(
        tmp_path,
        "run",
        written(tmp_path, HEAD + TOXIC),
        "--system",
        "neaptide:2.1",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PATH=str(tmp_path),
        JAVA_HOME=str(find_java().resolve().parent.parent),
    )
    assert done.returncode == 69
    assert "Toxics need the server of Toxiproxy: GOBIN=" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("host", "says"),
    [("netns", "puts toxics on links: that needs --host local"), ("simulation", "cannot do all")],
)
def test_a_host_that_cannot_says_so_before_anything_starts(
    tmp_path: Path, host: str, says: str
) -> None:
    done, _ = neaptide(tmp_path, "run", written(tmp_path, HEAD + TOXIC), "--host", host)
    assert done.returncode == 64, done.stderr
    assert says in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()


class Links:
    """A stage of which only the links are there, and what was done to them."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.noted: list[dict[str, Any]] = []
        self.connections = {"client-0": 5, "controller-1": 0, "controller-2": 0}
        self.paused: set[int] = set()
        self.names = {0: "A"}
        self.recorder = SimpleNamespace(now_ns=lambda: 0)
        self.toxics = SimpleNamespace(begin=self._doing("begin"), end=self._doing("end"))
        self.gate = SimpleNamespace(sever=self._doing("sever"), bury=self._doing("bury"))
        self.cluster = SimpleNamespace(kill=self._doing("kill"), forget_session=self._doing("gone"))

    def _doing(self, what: str) -> Any:
        async def do(*given: Any) -> None:
            self.done.append((what, *given))

        return do

    def links_of(self, broker: int, purpose: str) -> tuple[str, ...]:
        return ("controller-1", "controller-2") if purpose == "coordination" else ("client-0",)

    def sever(self, broker: int) -> None:
        """It is about to die."""

    def note_nemesis(self, value: dict[str, Any], _: int) -> None:
        self.noted.append(value)


SLOW = Toxic("latency", "upstream", {"latency_ms": 5, "jitter_ms": 0})


def on_links(links: Links) -> Faults:
    return Faults(cast(Any, links))


def test_what_waits_in_a_toxic_is_not_delivered_when_its_broker_dies() -> None:
    links = Links()
    faults = on_links(links)

    async def story() -> None:
        await faults.kill("delivered", 0)
        await faults.add_toxic("slow", 0, "client", SLOW)
        await faults.kill("delivered", 0)
        await faults.end_toxic("slow")
        await faults.kill("delivered", 0)

    asyncio.run(story())
    buried = [one[2] for one in links.done if one[0] == "bury"]
    assert buried == ["delivered", "discarded", "delivered"]
    assert [one["kill"]["in_flight"] for one in links.noted if "kill" in one] == buried


def test_a_toxic_on_the_coordination_service_is_on_the_link_to_every_controller() -> None:
    links = Links()
    faults = on_links(links)

    async def story() -> None:
        await faults.add_toxic("slow", 0, "coordination", SLOW)
        assert faults.idle_toxics() == ["slow"]
        links.connections["controller-2"] += 2
        assert faults.idle_toxics() == []
        assert await faults.end_toxic("slow") == 2

    asyncio.run(story())
    assert [one[:3] for one in links.done] == [
        ("begin", "controller-1", "slow on controller-1"),
        ("begin", "controller-2", "slow on controller-2"),
        ("end", "slow on controller-1"),
        ("end", "slow on controller-2"),
    ]
