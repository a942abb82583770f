"""Toxics, clocks and disks in random runs: what they do is seen, undone, and refused where the
machine lacks what they need."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.cluster import PartitionView
from neaptide.clusters.disks.damage import damage
from neaptide.clusters.disks.replica_reader import read_entries
from neaptide.clusters.errors import HostError, MissingPartError, UsageError
from neaptide.clusters.hosts import faketime
from neaptide.clusters.hosts.place import parse_place
from neaptide.harness.play.random_asked import RandomRun, check_faults, parse_nemesis
from neaptide.harness.play.random_run import run_random
from neaptide.harness.play.timed_target import NOBODY, TimedTarget, survives_without
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.nemesis import steps
from neaptide.nemesis.acts import Act
from neaptide.nemesis.player import MissedError
from neaptide.results.run import Run, named_brokers, read_run
from tests.storage.batches import batch, with_headers

OWN, KAFKA = parse_systems(["neaptide:2.1", "kafka:3.9.1"])
IDS = named_brokers((0, 1, 2))


# --- what is refused, and what `all` leaves out ---------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has none of it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(faketime, "_FOLDERS", ())


def asked(faults: str, host: str = "local") -> RandomRun:
    place = parse_place(host, None, None)
    names, saved = parse_nemesis(faults, OWN, place)
    return RandomRun("append", OWN, names, 10, 100, seed=1, place=place, saved=saved)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("slow", "need the server of Toxiproxy: GOBIN="),
        ("clock", "need the library libfaketimeMT: apt-get install"),
        ("disk", "need strace: apt-get install"),
    ],
)
def test_what_the_machine_lacks_is_missing_by_name_and_left_out_of_all(
    fault: str, says: str
) -> None:
    with pytest.raises(MissingPartError, match=says):
        check_faults(asked(fault))
    said: list[str] = []
    names, _ = parse_nemesis("all", OWN, report=said.append)
    assert fault not in names
    assert "kill" in names
    [why] = [line for line in said if line.startswith(f"--nemesis all leaves out {fault}: ")]
    assert says in why


@pytest.mark.needs("toxiproxy", "faketime", "strace")
def test_all_has_them_where_the_machine_has_what_they_need() -> None:
    said: list[str] = []
    names, _ = parse_nemesis("all", KAFKA, report=said.append)
    assert {"slow", "clock", "disk"} <= set(names)
    assert said == []
    assert check_faults(asked("slow,clock,disk")).faults == ("slow", "clock", "disk")


def test_a_host_that_cannot_is_refused_and_left_out_of_all() -> None:
    for fault, hosts in (("slow", "local"), ("disk", "local or netns")):
        with pytest.raises(UsageError, match=f"--nemesis {fault} .*: that needs --host {hosts}"):
            check_faults(asked(fault, "docker"))
        assert fault not in asked("all", "docker").faults


# --- clocks: a real process under libfaketime ----------------------------------------------------

ASKS = """
import time
from neaptide.clusters.broker.coordination.client import pause
while True:
    print(time.time(), flush=True)
    pause(0.1)
"""


class Clocks:
    """A stage of which only the clocks are there, in the file that a process looks up."""

    def __init__(self, directory: Path) -> None:
        self.spec = SimpleNamespace(brokers=(0, 1, 2), topic=None)
        self.directory = directory
        self.set: list[tuple[int, int]] = []

    async def set_clock(self, broker: int, ahead_ms: int) -> None:
        self.set.append((broker, ahead_ms))
        faketime.write_clock(self.directory, ahead_ms)


def machines(stand_in: Any) -> TimedTarget:
    return TimedTarget(stand_in, stand_in, stand_in, IDS, stand_in, seed=5)


@pytest.mark.slow
@pytest.mark.needs("faketime")
def test_a_process_sees_the_clock_move_and_come_back(tmp_path: Path) -> None:
    """And it waits as the own broker's driver of ZooKeeper does: time.sleep would fail."""
    clocks = Clocks(tmp_path)
    faketime.write_clock(tmp_path, 0)
    library = str(faketime.find_library())
    env = {**os.environ, **faketime.environment(library, str(tmp_path / faketime.CLOCK_FILE))}
    target = machines(clocks)

    async def story() -> None:
        with subprocess.Popen(
            [sys.executable, "-c", ASKS], env=env, stdout=subprocess.PIPE
        ) as process:
            try:
                said = process.stdout
                assert said is not None

                async def until_ahead_s(least: float, most: float) -> None:
                    while True:
                        line = await asyncio.to_thread(said.readline)
                        if least < float(line) - time.time() < most:
                            return

                async with asyncio.timeout(60):
                    await until_ahead_s(-5, 5)
                    [undo] = await target.begin(steps.SetClock("C", 3_600_000), 1.0)
                    await until_ahead_s(3_500, 3_700)
                    [again] = await target.begin(steps.SetClock("C", -1_800_000), 1.0)
                    await until_ahead_s(-1_900, -1_700)
                    assert target.is_set_back(2)
                    await again()
                    await undo()
                    await until_ahead_s(-5, 5)
            finally:
                process.kill()

    asyncio.run(story())
    assert clocks.set == [(2, 3_600_000), (2, -1_800_000), (2, 0)]


def test_the_clock_of_who_is_no_broker_is_left_alone(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    clocks.spec.brokers = (0, 1)
    with pytest.raises(MissedError, match=NOBODY):
        asyncio.run(machines(clocks).begin(steps.SetClock("C", 1_000), 1.0))
    assert clocks.set == []


# --- disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "min_isr", "survives"),
    [
        (PartitionView(0, 1, 5, (1, 0)), 2, True),
        (PartitionView(0, 1, 5, (1, 0, 2)), 2, False),  # it may be elected
        (PartitionView(0, 1, 5, (1,)), 2, False),  # it may be in an ELR
        (PartitionView(0, 1, 5, (1,)), 1, True),
        (PartitionView(0, None, 5, (0, 1)), 2, False),
        (PartitionView(0, None, 5, ()), 0, False),
        (None, 1, False),
    ],
)
def test_a_disk_is_damaged_only_where_the_partition_can_do_without(
    view: PartitionView | None, min_isr: int, survives: bool
) -> None:
    assert survives_without(2, view, min_isr) is survives


class Disks:
    """A stage that says who is in the ISR, and what was done to whom."""

    def __init__(self, isr: tuple[int, ...], met: int = 1, lives: bool = True) -> None:
        topic = SimpleNamespace(assignment={0: (0, 1, 2), 1: (0, 1)}, settings={})
        settings = {"min.insync.replicas": "2"}
        self.spec = SimpleNamespace(brokers=(0, 1, 2), topic=topic, settings=settings)
        self.isr, self.met = isr, met
        self.up = {0, 1, 2}
        self.lives = lives
        self.traceable = True
        self.paused: set[int] = set()
        self.severed: set[int] = set()
        self.done: list[tuple[Any, ...]] = []
        self.cluster = SimpleNamespace(is_up=lambda node: node in self.up)

    def is_reachable(self, node: int) -> bool:
        return node in self.up

    def view(self, _: int) -> PartitionView:
        return PartitionView(0, 0, 1, self.isr)

    async def until(self, condition: Any, within_s: float, what: str) -> None:
        if not condition():
            raise TimeoutError(f"after {within_s:g} s this is still not true: {what}")

    async def kill(self, in_flight: str, node: int) -> None:
        self.done.append(("kill", node))
        self.up.discard(node)

    async def restart(self, node: int) -> None:
        self.done.append(("restart", node))
        self.up.add(node)
        self.severed.discard(node)

    async def damage(self, node: int, *what: Any) -> None:
        self.done.append(("damage", node, *what))

    async def inject(self, node: int, *what: Any) -> None:
        self.done.append(("inject", node, *what))
        self.severed.add(node)
        if not self.traceable:
            raise HostError("strace could not attach: Operation not permitted")

    async def end_injections(self, node: int, *, watched: bool = True) -> int:
        self.done.append(("end", node, watched))
        if watched:
            self.severed.discard(node)
        if not self.lives:
            self.up.discard(node)
        return self.met


def played(disks: Disks, step: steps.Step) -> str | None:
    """Why it missed, at the end."""

    async def play() -> str | None:
        [undo] = await machines(disks).begin(step, 1.0)
        try:
            await undo()
        except MissedError as missed:
            return str(missed)
        return None

    return asyncio.run(play())


TORN = steps.Damage("C", "torn-tail")
FAILS = steps.Inject("C", "write", "EIO")
SLOW = steps.Inject("C", "write", delay_ms=100)


def test_a_broker_is_killed_damaged_and_started_again() -> None:
    disks = Disks(isr=(0, 1))
    assert played(disks, TORN) is None
    damaged = ("damage", 2, "torn-tail", "segment", 0, 5)
    assert disks.done == [("kill", 2), damaged, ("restart", 2)]


def test_a_broker_that_may_lead_is_started_again_as_it_was() -> None:
    disks = Disks(isr=(0, 1, 2))
    with pytest.raises(MissedError, match=r"nothing was damaged: .* can do without broker 2"):
        played(disks, TORN)
    assert disks.done == [("kill", 2), ("restart", 2)]


def test_who_has_no_replica_of_it_is_left_alone() -> None:
    for fault in (replace(TORN, partition=1), replace(FAILS, partition=1)):
        disks = Disks(isr=(0, 1))
        with pytest.raises(MissedError, match="broker 2 has no replica of partition 1"):
            played(disks, fault)
        assert disks.done == []


def test_a_broker_that_may_not_be_traced_is_a_miss_and_watched_again() -> None:
    disks = Disks(isr=(0, 1))
    disks.traceable = False
    with pytest.raises(MissedError, match="strace could not attach"):
        played(disks, FAILS)
    assert [one[0] for one in disks.done] == ["inject", "end"]
    assert disks.severed == set()


@pytest.mark.parametrize(
    ("fault", "met", "lives", "after", "why"),
    [
        (FAILS, 1, True, ["kill", "restart"], None),  # it may be about to end
        (FAILS, 1, False, ["kill", "restart"], None),
        (FAILS, 0, True, [], "no write of the segment was met"),
        (SLOW, 3, True, [], None),
    ],
)
def test_who_has_met_an_error_is_started_again_and_nobody_else(
    fault: steps.Inject, met: int, lives: bool, after: list[str], why: str | None
) -> None:
    disks = Disks(isr=(0, 1), met=met, lives=lives)
    assert played(disks, fault) == why
    assert [one[0] for one in disks.done] == ["inject", "end", *after]
    assert disks.up == {0, 1, 2}
    assert disks.severed == set()


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_record_bit_is_always_found_and_cut_off(tmp_path: Path, seed: int) -> None:
    """After a kill the newest segment is read whole."""
    partition = TopicPartition("t", 0)
    directory = tmp_path / "t-0"
    log = Log.open(directory, partition, LogConfig())
    for n in range(5):
        log.append(*with_headers(batch(n, [f"value {n}".encode() * 5], epoch=1)))
    log.close()
    damage(tmp_path, "flipped-record-bit", "segment", partition, seed)
    again = Log.open(directory, partition, LogConfig())
    assert 0 <= again.log_end_offset < 5
    again.close()
    torn: list[Any] = []
    [segment] = directory.glob("*.log")
    assert len(list(read_entries(segment, torn.append))) == again.log_end_offset
    assert torn == []


# --- live: all of it, on a cluster of our own ----------------------------------------------------

LEADER = {"broker": "leader(0)"}
FAULTS: list[dict[str, Any]] = [
    {
        "toxic": {
            "broker": "A",
            "purpose": "client",
            "stream": "downstream",
            "type": "latency",
            "latency_ms": 200,
        }
    },
    {"set_clock": {**LEADER, "ahead_ms": 600_000}},
    {"inject": {**LEADER, "call": "write", "error": "EIO", "nth": 2}},
    {"damage": {**LEADER, "kind": "flipped-record-bit"}},
]


def ran(monkeypatch: pytest.MonkeyPatch, directory: Path) -> tuple[Path, Run]:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(directory / "runs"))
    monkeypatch.setenv("NEAPTIDE_STATE", str(directory / "state"))
    acts = tuple(Act(0.5 + 6 * n, 3.0, (step,)) for n, step in enumerate(FAULTS))
    topic = "t", [["A", "B", "C"]]
    command = "neaptide run append --system neaptide:2.1"
    saved = directory / "schedule.toml"
    document = saved_schedule.document_of("each", command, tuple("ABC"), topic, acts)
    saved_schedule.save(document, saved)
    one = RandomRun("append", OWN, (), 40, 300, seed=1, partitions=1, saved=saved)
    run = asyncio.run(run_random(check_faults(one), lambda *_: None))
    return run, read_run(run)


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.needs("toxiproxy", "faketime", "strace")
def test_each_is_met_and_healed_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, run = ran(monkeypatch, tmp_path)
    assert run.status == "finished", run
    assert run.missed == ()
    assert run.converged is not None
    assert run.converged.level
    rows = pq.read_table(directory / "operations").to_pylist()
    done = [json.loads(row["value"]) for row in rows if row["f"] == "nemesis"]

    def of(verb: str) -> list[Any]:
        return [one[verb] for one in done if verb in one]

    assert [one["connections"] > 0 for one in of("end_toxic")] == [True]
    assert [one["ahead_ms"] for one in of("clock")] == [600_000, 0]
    assert [one["calls_met"] > 0 for one in of("end_injections")] == [True]
    [damaged] = of("damage")
    assert re.match(r"bit \d of byte \d+ of \d{20}\.log", damaged["what"])
    restarted = {one["broker"] for one in of("restart")}
    assert {of("inject")[0]["broker"], damaged["broker"]} <= restarted
