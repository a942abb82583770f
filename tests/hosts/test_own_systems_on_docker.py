"""Brokers of the user's own in containers: of an image of theirs, or with their Kafka mounted."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from neaptide.clusters.hosts import docker_host, docker_image
from neaptide.clusters.kafka.versions import kafka_class_path
from tests.harness.command import COMMAND, neaptide
from tests.own.kafka import (
    INSTALLED,
    VERSION,
    write_files,
    write_scripts,
    write_zookeeper_files,
)

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.needs("maven", "docker"),
    pytest.mark.timeout(900),
]


def jars() -> list[Path]:
    return [Path(jar) for jar in kafka_class_path(VERSION).split(os.pathsep)]


@pytest.fixture(scope="module")
def image(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image as a user has it: a Java, and a Kafka with its scripts in /opt/kafka."""
    home = tmp_path_factory.mktemp("image") / "kafka"
    write_scripts(home, INSTALLED, "java", f"{INSTALLED}/libs/*")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(home, "kafka")
        for jar in jars():
            tar.add(jar, f"kafka/libs/{jar.name}")
    client, name = docker_host.connect(), f"neaptide-test-own:{os.getpid()}"
    container = client.containers.create(docker_image.tag(), command=["true"])
    try:
        container.put_archive("/opt", archive.getvalue())
        made = container.commit(*name.split(":"))
        yield name
        client.images.remove(str(made.id), force=True)
    finally:
        container.remove()
        client.close()


def with_image(directory: Path, image: str) -> Path:
    """The files of the page, as they are, and the image."""
    system = write_files(directory, INSTALLED)
    system.write_text(f'image = "{image}"\n{system.read_text("utf-8")}', encoding="utf-8")
    return system


def containers(directory: Path) -> list[str]:
    """Of runs in this directory: those that see a part of it."""
    client = docker_host.connect()
    try:
        found = client.containers.list(all=True, ignore_removed=True)
        return [
            str(one.name)
            for one in found
            if any(m.get("Source", "").startswith(str(directory)) for m in one.attrs["Mounts"])
        ]
    finally:
        client.close()


@pytest.mark.proof
def test_a_run_under_kills_and_pauses_is_valid(tmp_path: Path, image: str) -> None:
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", str(with_image(tmp_path, image)),
        "--host", "docker", "--nemesis", "kill,pause,restart,cut", "--time", "40",
        "--rate", "300", "--partitions", "2", "--seed", "11", "--json",
    )  # fmt: skip
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    assert verdict["proofs"]["replicas-read"] is True
    kept = json.loads((Path(verdict["run"]) / "run.json").read_text(encoding="utf-8"))
    assert (kept["host"], kept["own"]["image"]) == ("docker", image)
    words = {word for step in kept["schedule"]["step"] for word in step}
    assert len(words & {"kill", "pause", "stop", "cut"}) >= 3
    assert kept["missed"] == []
    logs = Path(verdict["run"]) / "logs"
    assert "Kafka Server started" in (logs / "broker-1.log").read_text(encoding="utf-8")
    assert containers(tmp_path) == []


@pytest.mark.proof
def test_a_scenario_holds_and_cuts_by_the_gate(tmp_path: Path, image: str) -> None:
    done, document = neaptide(
        tmp_path, "repro", "hw-truncation-loss", "--system", str(with_image(tmp_path, image)),
        "--host", "docker", "--json",
    )  # fmt: skip
    assert document is not None, done.stderr
    [result] = document["results"]
    seen = (result["expected"], result["observed"], result["reasons"])
    assert seen == ("held", "held", [])
    assert containers(tmp_path) == []


STOPPED = """\
title  = "A broker that is shut down comes back"
source = ["docs/own-system.md"]
[cluster]
brokers     = ["A", "B", "C"]
start_order = ["A", "B", "C"]
topics.t    = { assignment = [["A", "B", "C"]], settings = { "min.insync.replicas" = 2 } }
[[step]]
produce = { record = "m1", acks = "all" }
until   = "acked(m1) and level"
[[step]]
stop  = { broker = "A" }
until = "leader is B"
[[step]]
restart = { broker = "A" }
until   = "registered(A) and level"
within  = 60
[expect]
held = ["kafka:0.10+"]
"""


@pytest.mark.proof
def test_kafka_of_this_machine_is_mounted_and_shut_down_by_a_command_of_its_own(
    tmp_path: Path, node_image: None
) -> None:
    """With ZooKeeper, in neaptide's image; the script beside the file waits for Java."""
    home = write_scripts(tmp_path / "kafka", tmp_path / "kafka", "java", kafka_class_path(VERSION))
    system = write_zookeeper_files(tmp_path, str(home))
    common = os.path.commonpath([jar.parent for jar in jars()])
    stop = 'stop = ["sh", "-c", "echo stopping as asked; kill -TERM -1; kill -TERM 1"]\n'
    system.write_text(
        f'mounts = ["{common}"]\n{system.read_text("utf-8")}{stop}log_dir = "data-{{id}}"\n',
        encoding="utf-8",
    )
    scenario = tmp_path / "stopped.toml"
    scenario.write_text(STOPPED, encoding="utf-8")
    done, verdict = neaptide(
        tmp_path, "run", str(scenario), "--system", str(system), "--host", "docker", "--json"
    )
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    logs = Path(verdict["run"]) / "logs"
    assert (logs / "stop-1.log").read_text(encoding="utf-8").startswith("stopping as asked")
    broker = (logs / "broker-1.log").read_text(encoding="utf-8")
    assert "shut down completed (kafka.server.KafkaServer)" in broker
    assert (tmp_path / "data-1" / "meta.properties").is_file()  # its log_dir stays as it is
    assert containers(tmp_path) == []


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_however_the_harness_ends(
    tmp_path: Path, image: str, number: signal.Signals
) -> None:
    stores = {"NEAPTIDE_RUNS": str(tmp_path / "runs"), "NEAPTIDE_STATE": str(tmp_path / "state")}
    system = with_image(tmp_path, image)
    harness = subprocess.Popen(
        [*COMMAND, "run", "append", "--system", str(system), "--host", "docker", "--time", "300"],
        env={**os.environ, **stores},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 180
        while len(containers(tmp_path)) < 8:  # four were formatted, and four run
            assert time.monotonic() < deadline, containers(tmp_path)
            time.sleep(0.1)
    finally:
        harness.send_signal(number)
        harness.wait(120)
    if number is signal.SIGKILL:
        assert containers(tmp_path)
        done, _ = neaptide(tmp_path, "list", "--json")
        assert "ended what an earlier run left behind" in done.stderr
    assert containers(tmp_path) == []


def test_an_image_that_is_not_there_is_said_before_anything_starts(
    tmp_path: Path, node_image: None
) -> None:
    system = with_image(tmp_path, "no-such-image:1")
    done, _ = neaptide(tmp_path, "run", "append", "--system", str(system), "--host", "docker")
    assert done.returncode == 69
    assert "This Docker has no image no-such-image:1" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.proof
def test_a_program_that_the_image_has_not(tmp_path: Path, node_image: None) -> None:
    """The twin is the run of the same files in an image that has it."""
    system = write_files(tmp_path, INSTALLED)
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", str(system), "--host", "docker", "--json"
    )
    assert verdict["verdict"] == "unknown", done.stderr
    assert f"{INSTALLED}/bin/kafka-storage.sh" in " ".join(verdict["reasons"])
    assert containers(tmp_path) == []
