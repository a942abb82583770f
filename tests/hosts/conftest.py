"""The machines of the ssh tests, and every host ready to be prepared."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.hosts import docker_host, docker_image
from neaptide.clusters.hosts.docker_host import DockerHost
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.host import Host
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.hosts.netns import NetnsHost
from neaptide.clusters.hosts.ssh_host import SshHost
from neaptide.clusters.hosts.ssh_nodes import load_nodes
from neaptide.clusters.kafka.versions import kafka_class_path
from tests.hosts.machines import Machines, machines


@pytest.fixture(scope="package")
def three_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        with machines(directory) as standing:
            yield standing


@pytest.fixture(scope="package")
def node_image() -> None:
    """Docker has the image of the nodes."""
    docker_host.check(None, cache_directory() / "docker", print)


@pytest.fixture(scope="package")
def kafka_image(node_image: None) -> Iterator[str]:
    """An image as those of Apache Kafka are: a Java, and the jars in /opt/kafka/libs."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for jar in kafka_class_path("0.10.2.2").split(os.pathsep):
            tar.add(jar, f"kafka/libs/{Path(jar).name}")
    client, name = docker_host.connect(), f"neaptide-test-kafka:{os.getpid()}"
    container = client.containers.create(docker_image.tag(), command=["true"])
    try:
        container.put_archive("/opt", archive.getvalue())
        repository, _, tag = name.partition(":")
        image = container.commit(repository, tag)
        yield name
        client.images.remove(str(image.id), force=True)
    finally:
        container.remove()
        client.close()


@pytest.fixture
def open_by_name(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Host]]:
    """A host by its name, with a run directory and a ledger of its own; ended after the test."""
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    local = LocalHost()

    def opened(name: str) -> Host:
        run = tmp_path / "run"
        run.mkdir()
        match name:
            case "netns":
                return NetnsHost(local)
            case "docker":
                request.getfixturevalue("node_image")
                return DockerHost(local, run)
            case "ssh":
                standing: Machines = request.getfixturevalue("three_machines")
                return SshHost(local, run, load_nodes(standing.nodes))
            case _:
                return LocalNodes(local)

    yield opened
    local.close_now()
