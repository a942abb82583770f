"""One broker process by itself: how it begins, and the ways in which it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from neaptide.clusters.hosts.ports import reserve_port
from neaptide.clusters.properties import write_properties
from tests.live.cluster import LiveCluster, until
from tests.live.raw import RawConnection, produce_request, produced
from tests.proof import proof_but
from tests.storage.batches import batch

pytestmark = pytest.mark.live
DEADLINE_S = 60.0


class Broker:
    """A process with settings of the test's own."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_file = directory / "broker.log"
        properties = directory / "server.properties"
        properties.write_text(write_properties(settings))
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "neaptide.clusters.broker.server", str(properties)],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def ends(self) -> tuple[int, list[str]]:
        """Its exit status, and the log lines of level ERROR or worse."""
        status = self.process.wait(DEADLINE_S)
        log = self.log_file.read_text()
        assert "Traceback" not in log, log
        return status, [line for line in log.splitlines() if " ERROR " in line]

    def says(self, text: str) -> None:
        def said() -> bool:
            assert self.process.poll() is None, self.log_file.read_text()
            return text in self.log_file.read_text()

        until(said, f"the broker says {text!r}")


@pytest.fixture
def listeners() -> Iterator[list[str]]:
    """Two pairs of listeners on ports that are this test's."""
    ports = [reserve_port() for _ in range(4)]
    names = ("CLIENT", "REPLICATION") * 2
    urls = [
        f"{name}://127.0.0.1:{p.release_socket()}" for name, p in zip(names, ports, strict=True)
    ]
    yield [",".join(urls[:2]), ",".join(urls[2:])]
    for reservation in ports:
        reservation.close()


@pytest.fixture
def settings(
    running: LiveCluster, tmp_path: Path, listeners: list[str]
) -> Iterator[dict[str, str]]:
    """Of a broker that is a cluster by itself: in a chroot of the ZooKeeper that there is."""
    root = f"/alone-{client_port(listeners[0])}"
    running.zookeeper.create(root)
    yield {
        "broker.id": "7",
        "neaptide.generation": "0.11",
        "listeners": listeners[0],
        "inter.broker.listener.name": "REPLICATION",
        "log.dirs": str(tmp_path / "data"),
        "zookeeper.connect": f"127.0.0.1:{running.brokers.coordination_port}{root}",
    }
    running.zookeeper.delete(root, recursive=True)


def client_port(listeners: str) -> int:
    return int(listeners.split(",")[0].rpartition(":")[2])


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    """Whatever a test puts here has ended after it."""
    started: list[Broker] = []
    yield started
    for broker in started:
        broker.process.kill()
        broker.process.wait()


def test_a_wrong_setting_ends_it_with_64_and_one_sentence(
    settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    brokers.append(Broker(tmp_path, {**settings, "broker.id": "seven"}))
    status, errors = brokers[0].ends()
    assert (status, len(errors)) == (64, 1)
    assert "broker.id must be a whole number" in errors[0]
    assert not (tmp_path / "data").exists()


def test_no_settings_at_all_end_it_with_64(tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "neaptide.clusters.broker.server", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    status, said = run()
    assert (status, said.splitlines()[0][:6]) == (64, "usage:")
    status, said = run(str(tmp_path / "missing.properties"))
    assert status == 64
    assert "cannot be read" in said
    assert len(said.splitlines()) == 1


def test_a_port_in_use_ends_it_with_1_before_it_touches_the_disk(
    settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        del settings["inter.broker.listener.name"]
        brokers.append(Broker(tmp_path, {**settings, "listeners": f"CLIENT://127.0.0.1:{port}"}))
        status, errors = brokers[0].ends()
    assert (status, len(errors)) == (1, 1)
    assert f"cannot listen on CLIENT://127.0.0.1:{port}" in errors[0]
    assert not (tmp_path / "data").exists()


def test_two_brokers_do_not_share_a_log_directory(
    settings: dict[str, str], listeners: list[str], tmp_path: Path, brokers: list[Broker]
) -> None:
    brokers.append(Broker(tmp_path / "first", settings))
    brokers[0].says("broker 7, generation 0.11")
    brokers.append(Broker(tmp_path / "second", {**settings, "listeners": listeners[1]}))
    status, errors = brokers[1].ends()
    assert (status, len(errors)) == (1, 1)
    assert "stop that one first" in errors[0]
    assert brokers[0].process.poll() is None


def test_a_log_directory_of_another_broker_is_left_alone(
    settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=8\n")
    brokers.append(Broker(tmp_path, settings))
    status, errors = brokers[0].ends()
    assert (status, len(errors)) == (1, 1)
    assert "broker.id=8" in errors[0]


@pytest.mark.parametrize("number", proof_but([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_a_signal_ends_it_cleanly_with_0(
    running: LiveCluster,
    settings: dict[str, str],
    tmp_path: Path,
    brokers: list[Broker],
    number: signal.Signals,
) -> None:
    brokers.append(Broker(tmp_path, settings))
    root = settings["zookeeper.connect"].partition("/")[2]
    until(lambda: running.zookeeper.exists(f"/{root}/brokers/ids/7"), "it is registered")
    brokers[0].process.send_signal(number)
    assert brokers[0].ends() == (0, [])
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert running.zookeeper.exists(f"/{root}/brokers/ids/7") is None


def test_a_signal_ends_it_while_it_still_looks_for_zookeeper(
    settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes the connection, never says a word
        connect = f"127.0.0.1:{silent.getsockname()[1]}"
        brokers.append(Broker(tmp_path, {**settings, "zookeeper.connect": connect}))
        brokers[0].says("broker 7, generation 0.11")
        brokers[0].process.send_signal(signal.SIGTERM)
        assert brokers[0].ends() == (0, [])


def create_topic(zookeeper: KazooClient, root: str, topic: str) -> None:
    """As tools of old do it: by ZooKeeper."""
    zookeeper.ensure_path(f"{root}/config/topics")
    zookeeper.ensure_path(f"{root}/brokers/topics")
    zookeeper.create(f"{root}/config/topics/{topic}", b'{"version":1,"config":{}}')
    zookeeper.create(f"{root}/brokers/topics/{topic}", b'{"version":1,"partitions":{"0":[7]}}')
    state = f"{root}/brokers/topics/{topic}/partitions/0/state"
    until(lambda: zookeeper.exists(state), f"{topic} has a leader")


def test_a_full_disk_ends_it_with_1_one_log_line_and_no_acknowledgement(
    running: LiveCluster, settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    """The limit on the size of a file stands for the full disk: the write fails in the same way."""
    brokers.append(Broker(tmp_path, settings))
    root = "/" + settings["zookeeper.connect"].partition("/")[2]
    until(lambda: running.zookeeper.exists(f"{root}/brokers/ids/7"), "it is registered")
    create_topic(running.zookeeper, root, "t")
    port = client_port(settings["listeners"])
    request = produce_request("t", batch(0, [b"x" * 10_000]), acks=1)
    with RawConnection(port) as connection:
        until(lambda: produced(connection.ask(request))[0] == "none", "it leads")
        limit = (200_000, 200_000)
        psutil.Process(brokers[0].process.pid).rlimit(psutil.RLIMIT_FSIZE, limit)
        acknowledged = 1

        def fill() -> None:
            nonlocal acknowledged
            for _ in range(100):
                assert produced(connection.ask(request)) == ("none", acknowledged)
                acknowledged += 1

        with pytest.raises((EOFError, ConnectionError)):
            fill()
    status, errors = brokers[0].ends()
    assert (status, len(errors)) == (1, 1)
    assert "cannot be used" in errors[0]
    assert acknowledged > 10
    segment = next((tmp_path / "data" / "t-0").glob("*.log"))
    assert segment.stat().st_size >= acknowledged * 10_000
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_c2_it_registers_again_when_its_session_has_expired(
    running: LiveCluster, settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    """It is stopped until ZooKeeper has given it up; then it goes on, under the next epoch."""
    brokers.append(Broker(tmp_path, {**settings, "zookeeper.session.timeout.ms": "1000"}))
    zookeeper, root = running.zookeeper, "/" + settings["zookeeper.connect"].partition("/")[2]
    registration = f"{root}/brokers/ids/7"
    until(lambda: zookeeper.exists(registration), "it is registered")
    create_topic(zookeeper, root, "t")
    brokers[0].process.send_signal(signal.SIGSTOP)
    until(lambda: zookeeper.exists(registration) is None, "its session has expired")
    brokers[0].process.send_signal(signal.SIGCONT)
    until(lambda: zookeeper.exists(registration), "it is registered again")
    until(lambda: zookeeper.exists(f"{root}/controller"), "it is controller again")
    assert zookeeper.get(f"{root}/controller_epoch")[0] == b"2"
    port = client_port(settings["listeners"])
    with RawConnection(port) as connection:
        request = produce_request("t", batch(0, [b"after it"]))
        until(lambda: produced(connection.ask(request))[0] == "none", "it leads")


def test_a_failure_of_the_coordination_ends_it_with_1(
    running: LiveCluster, settings: dict[str, str], tmp_path: Path, brokers: list[Broker]
) -> None:
    """What nobody expected, here a znode that is no JSON, is not forgotten."""
    root = "/" + settings["zookeeper.connect"].partition("/")[2]
    running.zookeeper.ensure_path(f"{root}/brokers/topics")
    running.zookeeper.create(f"{root}/brokers/topics/broken", b"\xff no JSON")
    broker = Broker(tmp_path, settings)
    brokers.append(broker)
    assert broker.process.wait(DEADLINE_S) == 1
    assert "is malformed" in broker.log_file.read_text().splitlines()[-1]
