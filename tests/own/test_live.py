"""A real Kafka, started by nothing but the files of docs/own-system.md; one that is just used."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from neaptide.clusters.kafka.kraft_storage import CLUSTER_ID
from neaptide.clusters.own.process import MARK
from tests.harness.command import COMMAND, neaptide
from tests.own.kafka import install, write_files

pytestmark = [
    pytest.mark.live,
    pytest.mark.spark,
    pytest.mark.needs("maven"),
    pytest.mark.timeout(600),
]
SECRET = "hunter2-hunter2"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "them",
    "sasl.password": SECRET,
}


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return write_files(tmp_path, str(install(tmp_path)))


def managed(directory: Path) -> list[psutil.Process]:
    """What the system file's commands have started, and all that came of it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(str(directory)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def until(condition: Callable[[], Any], what: str, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def record(run: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((Path(run) / "run.json").read_text(encoding="utf-8"))
    return read


@pytest.mark.proof
def test_a_run_under_kills_and_pauses_is_valid(tmp_path: Path, system: Path) -> None:
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", str(system), "--nemesis", "kill,pause",
        "--time", "30", "--rate", "500", "--partitions", "2", "--seed", "11", "--json",
    )  # fmt: skip
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    assert verdict["proofs"]["replicas-read"] is True
    assert done.returncode == 0
    kept = record(verdict["run"])
    assert (kept["system"], kept["brokers"]) == ("own:my-cluster", {"A": 1, "B": 2, "C": 3})
    assert kept["own"]["properties"][str(tmp_path / "broker.properties")].startswith("process.rol")
    assert "-Xmx256m" not in json.dumps(kept["own"])  # the environment's values are not kept
    assert {"kill", "pause"} <= {word for step in kept["schedule"]["step"] for word in step}
    assert kept["missed"] == []
    assert managed(tmp_path) == []


@pytest.mark.proof
def test_a_scenario_holds_and_cuts_by_the_gate_as_on_a_kafka_of_ours(
    tmp_path: Path, system: Path
) -> None:
    done, document = neaptide(
        tmp_path, "repro", "hw-truncation-loss", "--system", str(system), "--json"
    )
    assert document is not None, done.stderr
    [result] = document["results"]
    seen = (result["expected"], result["observed"], result["reasons"])
    assert seen == ("held", "held", [])
    assert set(result["anomalies"]) <= {"high-watermark-regression-at-election"}  # never counts
    assert done.returncode == 0
    assert record(result["run"])["brokers"] == {"A": 1, "B": 2, "C": 3}
    assert managed(tmp_path) == []


@pytest.mark.proof
def test_a_broker_that_leads_past_the_gate_ends_the_run(tmp_path: Path, system: Path) -> None:
    """The twins are the tests before: there they lead through it."""
    properties = tmp_path / "broker.properties"
    text = properties.read_text(encoding="utf-8")
    wrong = text.replace("CLIENTS://{client_advertised}", "CLIENTS://{client_listen}")
    properties.write_text(wrong, encoding="utf-8")
    done, verdict = neaptide(tmp_path, "run", "append", "--system", str(system), "--time", "5")
    assert verdict is None
    assert done.returncode == 64
    last = done.stderr.strip().splitlines()[-1]
    assert f"{properties}: broker 1 advertises 127.0.0.1:" in last
    assert "{client_advertised}" in last
    assert managed(tmp_path) == []


def test_after_a_sigkill_of_the_harness_nothing_managed_is_left(
    tmp_path: Path, system: Path
) -> None:
    stores = {
        "NEAPTIDE_RUNS": str(tmp_path / "runs"),
        "NEAPTIDE_STATE": str(tmp_path / "state"),
    }
    harness = subprocess.Popen(
        [*COMMAND, "run", "append", "--system", str(system), "--time", "300"],
        env={**os.environ, **stores},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(managed(tmp_path)) >= 8, "four scripts, and Java behind each")
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    assert managed(tmp_path)
    done, _ = neaptide(tmp_path, "list", "--json")
    assert "ended what an earlier run left behind: broker 1" in done.stderr
    assert managed(tmp_path) == []


# --- a cluster that is just used -----------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker of somebody's, and where it is; each test has topics of its own."""
    tmp_path = tmp_path_factory.mktemp("theirs")
    home = install(tmp_path)
    port, controller = free_ports(2)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=7\nlog.dirs={tmp_path}/theirs\n"
        f"controller.quorum.voters=7@127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        "offsets.topic.replication.factor=1\n"
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=SASL_PLAINTEXT\n"
        "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
        "listener.name.sasl_plaintext.plain.sasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="them" password="{SECRET}" user_them="{SECRET}";\n',
        encoding="utf-8",
    )
    environment = {**os.environ, "KAFKA_HEAP_OPTS": "-Xmx256m"}
    tool, server = (str(home / "bin" / f"kafka-{n}.sh") for n in ("storage", "server-start"))
    format_ = [tool, "format", "-t", CLUSTER_ID, "-c", str(properties)]
    subprocess.run(format_, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=120)
    with (tmp_path / "server.log").open("wb") as log:
        broker = subprocess.Popen(
            [server, str(properties)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        address = f"127.0.0.1:{port}"
        until(lambda: topics_at(address) is not None, "the broker answers")
        yield broker, address
    finally:
        os.killpg(broker.pid, signal.SIGKILL)
        broker.wait()


def topics_at(address: str) -> set[str] | None:
    try:
        answer = AdminClient({"bootstrap.servers": address, **CLIENT}).list_topics(timeout=5)
    except Exception:
        return None
    return {name for name in answer.topics if not name.startswith("__")}  # not Kafka's own


def used_file(directory: Path, address: str, **client: str) -> Path:
    """`client`: settings that are not CLIENT's."""
    file = directory / "theirs.toml"
    settings = {**CLIENT, **client}
    lines = [f'"{name}" = "{value}"\n' for name, value in settings.items()]
    file.write_text(
        f'name = "theirs"\nbehaves_like = "3.9.1"\nbootstrap = "{address}"\n[client]\n'
        + "".join(lines),
        encoding="utf-8",
    )
    return file


def files_with(directory: Path, text: str) -> list[Path]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path for path in files if text.encode() in path.read_bytes()]


def test_a_cluster_that_is_used_is_judged_by_what_clients_saw_and_lives_on(
    tmp_path: Path, running: tuple[subprocess.Popen[bytes], str]
) -> None:
    broker, address = running
    before = topics_at(address)
    file = used_file(tmp_path, address)
    done, verdict = neaptide(
        tmp_path, "run", "append", "--system", str(file), "--time", "5", "--rate", "300",
        "--partitions", "2", "--seed", "5", "--json",
    )  # fmt: skip
    assert verdict is not None, done.stderr
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    assert done.returncode == 0
    proofs = verdict["proofs"]
    assert (proofs["replicas-read"], proofs["replicas-level"]) == (None, None)
    assert proofs["final-reads"] is True
    assert verdict["acknowledged"] > 500
    kept = record(verdict["run"])
    assert (kept["replicas_written"], kept["logs_readable"], kept["left"]) == (False, False, [])
    assert kept["brokers"] == {"A": 7}
    assert broker.poll() is None
    assert topics_at(address) == before
    assert files_with(tmp_path / "runs", SECRET) == []
    assert SECRET not in done.stderr + done.stdout
    assert files_with(tmp_path / "runs", "own:theirs")  # the twin: the search finds what is there


@pytest.mark.proof
def test_a_cluster_that_does_not_let_us_in(
    tmp_path: Path, running: tuple[subprocess.Popen[bytes], str]
) -> None:
    """The twin is the test before, with the right password."""
    _, address = running
    wrong = {"sasl.password": "hunter3-hunter3"}
    done, _ = neaptide(
        tmp_path, "run", "append", "--system", str(used_file(tmp_path, address, **wrong))
    )
    assert done.returncode == 69
    assert "and that [client] is what it takes" in done.stderr
    assert "hunter3" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.proof
def test_a_topic_of_somebody_elses_is_left_alone_and_ours_may_stay(
    tmp_path: Path, running: tuple[subprocess.Popen[bytes], str]
) -> None:
    _, address = running
    file = used_file(tmp_path, address)
    file.write_text(f"keep_topics = true\n{file.read_text('utf-8')}", encoding="utf-8")
    arguments = ("run", "append", "--system", str(file), "--time", "3", "--rate", "100")
    stores = {"NEAPTIDE_RUNS": str(tmp_path / "runs"), "NEAPTIDE_STATE": str(tmp_path / "state")}
    first = subprocess.run(
        [*COMMAND, *arguments, "--seed", "6"],
        env={**os.environ, **stores},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    assert "left on the cluster: neaptide-6-t" in first.stdout
    assert "the verdict is about what clients saw" in first.stdout
    again, verdict = neaptide(tmp_path, *arguments, "--seed", "6", "--json")
    assert (again.returncode, verdict["verdict"]) == (2, "unknown")
    assert "does not create the topic neaptide-6-t" in " ".join(verdict["reasons"])
    assert "neaptide-6-t" in (topics_at(address) or ())


@pytest.mark.proof
def test_nobody_who_answers(tmp_path: Path) -> None:
    [port] = free_ports(1)
    file = used_file(tmp_path, f"127.0.0.1:{port}")
    done, _ = neaptide(tmp_path, "run", "append", "--system", str(file))
    assert done.returncode == 69
    [sentence] = done.stderr.strip().splitlines()
    assert f"Nobody answers at 127.0.0.1:{port}, the bootstrap of {file}" in sentence
    assert not (tmp_path / "runs").exists()
