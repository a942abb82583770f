"""A run on any host that is cut short leaves nothing, at the latest after the next command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.hosts import docker_host, netns
from neaptide.harness.live import left_behind
from tests.hosts.machines import Machines

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("node_image")]

COMMAND = (sys.executable, "-m", "neaptide.harness.cli")
LOAD = ("run", "append", "--time", "100", "--rate", "200", "--partitions", "1", "--seed", "1")
DEADLINE_S = 90.0
UNKNOWN = 2
NETNS = pytest.param("netns", marks=pytest.mark.needs("netns"))
NETNS_PROOF = pytest.param("netns", marks=[pytest.mark.needs("netns"), pytest.mark.proof])


@dataclass(slots=True)
class Harness:
    """A `neaptide run` under way, with stores of its own."""

    directory: Path
    host: tuple[str, ...]
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *LOAD, "--host", *self.host],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def env(self) -> dict[str, str]:
        stores = {"NEAPTIDE_RUNS": "runs", "NEAPTIDE_STATE": "state"}
        return {**os.environ, **{key: str(self.directory / at) for key, at in stores.items()}}

    def wait_for_records(self) -> None:
        def recorded() -> bool:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            return any(self.directory.glob("runs/20*/operations/*c2*.parquet"))

        until(recorded, "operations are recorded")

    def resources(self) -> list[tuple[str, str]]:
        """What the ledger says was made, in order: kind and name."""
        lines = [
            json.loads(line)
            for file in self.directory.glob("state/ledger/*.jsonl")
            for line in file.read_text().splitlines()
        ]
        return [(row["resource"], row["name"]) for row in lines if "resource" in row]

    def neaptide(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], env=self.env, capture_output=True, text=True, timeout=DEADLINE_S
        )


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


Made = frozenset[tuple[str, str, int | str]]  # kind, name, and which of that name it is


def existing(resources: list[tuple[str, str]]) -> Made:
    """Those that are there. A name that is free again is soon another run's: by the numbers that
    the kernel gives they differ."""
    client = docker_host.connect()
    found: dict[str, dict[str, int | str]] = {
        netns.NAMESPACE: _numbers("/run/netns", _of_namespace),
        netns.BRIDGE: _numbers("/sys/class/net", lambda path: (path / "ifindex").read_text()),
        docker_host.CONTAINER: {
            str(each.name): str(each.id)
            for each in client.containers.list(all=True, ignore_removed=True)
        },
        docker_host.NETWORK: {str(each.name): str(each.id) for each in client.networks.list()},
        left_behind.RUN: {},  # it is kept, and marked
    }
    client.close()
    return frozenset(
        (kind, name, found[kind][name]) for kind, name in resources if name in found[kind]
    )


def _of_namespace(path: Path) -> str:
    """Its number may be used again: with the moment in which it was made."""
    status = path.stat()
    return f"{status.st_ino} {status.st_ctime_ns}"


def _numbers(directory: str, number: Callable[[Path], int | str]) -> dict[str, int | str]:
    """By name, without those that go while it is read."""
    found: dict[str, int | str] = {}
    for path in Path(directory).glob("*"):
        with suppress(OSError):
            found[path.name] = number(path)
    return found


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    begun: list[Harness] = []

    def started(*host: str) -> Harness:
        begun.append(Harness(tmp_path, host))
        begun[-1].wait_for_records()
        return begun[-1]

    yield started
    for harness in begun:
        if harness.process.poll() is None:
            harness.process.kill()
        with harness.process:  # ends once it has ended, and closes its pipe
            harness.neaptide("list")


@pytest.mark.parametrize("host", [NETNS_PROOF, pytest.param("docker", marks=pytest.mark.proof)])
def test_sigkill_leaves_nothing_after_the_next_command(
    host: str, begin: Callable[..., Harness]
) -> None:
    harness = begin(host)
    resources = harness.resources()
    made = existing(resources)
    harness.process.kill()
    harness.process.wait()
    assert made
    assert existing(resources) == made
    listed = harness.neaptide("list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "ended what an earlier run left behind" in listed.stderr
    assert not existing(resources) & made
    assert harness.resources() == []


@pytest.mark.parametrize("host", [NETNS, pytest.param("docker", marks=pytest.mark.proof)])
def test_ctrl_c_leaves_nothing(host: str, begin: Callable[..., Harness]) -> None:
    harness = begin(host)
    resources = harness.resources()
    made = existing(resources)
    assert made
    harness.process.send_signal(signal.SIGINT)
    assert harness.process.wait(DEADLINE_S) == UNKNOWN
    assert harness.process.stderr is not None
    assert "Traceback" not in harness.process.stderr.read()
    assert not existing(resources) & made
    assert harness.resources() == []


@pytest.mark.proof
def test_on_machines_everything_ends_with_the_harness_that_was_killed(
    begin: Callable[..., Harness], three_machines: Machines, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    nodes = tmp_path / "nodes.toml"
    places = f'[[node]]\ndirectory = "{there}"\n'
    nodes.write_text(three_machines.nodes.read_text().replace("[[node]]\n", places))
    harness = begin("ssh", "--nodes", str(nodes))
    brokers = [
        process
        for process in psutil.process_iter()
        if any(str(there) in word for word in _command_line(process))
    ]
    assert len(brokers) >= 3
    harness.process.kill()
    harness.process.wait()
    until(lambda: not any(process.is_running() for process in brokers), "no broker is left")
    until(lambda: not any(there.iterdir()), "no file is left")


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
