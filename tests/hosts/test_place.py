"""`--host` and what goes with it; hosts that this machine cannot be are refused in one sentence."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.hosts import netns
from neaptide.clusters.hosts.place import LOCAL, check_place, parse_place
from neaptide.clusters.hosts.run_tool import ToolError, run_tool
from tests.harness.command import neaptide
from tests.hosts.machines import Machines

USAGE, MISSING = 64, 69


def test_a_place_is_repeated_as_it_was_asked_for(tmp_path: Path) -> None:
    nodes = tmp_path / "my nodes.toml"
    nodes.write_text('[[node]]\naddress = "10.0.0.1"\n')
    assert parse_place("local").options == ()
    assert parse_place("netns").options == ("--host netns",)
    assert parse_place("docker", "kafka:1").options == ("--host docker", "--image kafka:1")
    assert parse_place("ssh:me@a,b").options == ("--host ssh:me@a,b",)
    assert parse_place("ssh", nodes=nodes).options == ("--host ssh", f"--nodes '{nodes}'")


@pytest.mark.parametrize(
    ("host", "image", "nodes", "says"),
    [
        ("moon", None, None, "must be one of local, netns, docker, ssh"),
        ("netns:3", None, None, "There is no host 'netns:3'"),
        ("netns", "kafka:1", None, "--image goes with --host docker only"),
        ("docker", None, Path("nodes.toml"), "--nodes goes with --host ssh only"),
        ("ssh:me@a", None, Path("nodes.toml"), "--nodes goes with --host ssh only"),
        ("ssh", None, None, "Say which machines"),
    ],
)
def test_what_does_not_go_together_is_refused(
    host: str, image: str | None, nodes: Path | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        parse_place(host, image, nodes)


def test_the_local_host_needs_nothing() -> None:
    check_place(LOCAL, print)


def test_netns_without_root_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingPartError, match="needs root"):
        check_place(parse_place("netns"), print)


def test_netns_without_its_tools_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingPartError, match="install the package iproute2"):
        check_place(parse_place("netns"), print)


def test_netns_on_a_kernel_that_refuses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(argv: tuple[str, ...]) -> str:
        raise ToolError(f"{argv[0]}: Operation not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/sbin/{tool}")
    monkeypatch.setattr(netns, "run_tool", refuse)
    with pytest.raises(MissingPartError, match="may make network namespaces"):
        check_place(parse_place("netns"), print)


def refused(tmp_path: Path, *arguments: str, **env: str) -> str:
    """The last line of what a repro says that is refused for want of something."""
    done, document = neaptide(tmp_path, "repro", "acks-1-loss", *arguments, **env)
    assert done.returncode == MISSING, done.stderr
    assert document is None
    assert not (tmp_path / "runs").exists()
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.live
def test_a_docker_that_is_stopped_is_said_in_one_sentence(tmp_path: Path) -> None:
    said = refused(tmp_path, "--host", "docker", DOCKER_HOST=f"unix://{tmp_path}/docker.sock")
    assert "Docker does not answer at unix://" in said
    assert "start it (systemctl start docker, or dockerd)" in said


@pytest.mark.live
def test_an_image_that_docker_has_not_is_said(node_image: None) -> None:
    with pytest.raises(MissingPartError, match="This Docker has no image no-such-image:1"):
        check_place(parse_place("docker", "no-such-image:1"), print)


@pytest.fixture
def standing(three_machines: Machines) -> Iterator[Machines]:
    """The machines, whose known_hosts may be changed."""
    known = three_machines.known_hosts.read_text()
    yield three_machines
    three_machines.known_hosts.write_text(known)


@pytest.mark.live
def test_a_changed_host_key_is_said_in_one_sentence(tmp_path: Path, standing: Machines) -> None:
    standing.change_host_key(1)
    said = refused(tmp_path, "--host", "ssh", "--nodes", str(standing.nodes))
    assert f"The host key of {standing.addresses[1]} is not the one in" in said
    assert "ssh-keygen -f" in said


@pytest.mark.live
def test_an_unknown_host_key_is_said_and_never_added(standing: Machines) -> None:
    standing.known_hosts.write_text("")
    place = parse_place("ssh", nodes=standing.nodes)
    with pytest.raises(MissingPartError, match=r"is not in .*: connect once with ssh"):
        check_place(place, print)
    assert standing.known_hosts.read_text() == ""


@pytest.mark.live
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ('user = "nobody"', "accepts none of the keys"),
        ('user = "root"\nport = 1', "cannot be reached by ssh"),
    ],
)
def test_a_machine_that_does_not_let_us_in_is_said(
    changed: str, says: str, tmp_path: Path, three_machines: Machines
) -> None:
    nodes = tmp_path / "nodes.toml"
    nodes.write_text(three_machines.nodes.read_text().replace('user = "root"', changed))
    with pytest.raises(MissingPartError, match=says):
        check_place(parse_place("ssh", nodes=nodes), print)


@pytest.mark.live
def test_machines_that_let_us_in_are_accepted(three_machines: Machines) -> None:
    check_place(parse_place("ssh", nodes=three_machines.nodes), print)


@pytest.mark.live
@pytest.mark.needs("netns")
def test_what_runs_in_a_namespace_ends_with_it_and_nothing_else() -> None:
    names = ("neaptide-test-a", "neaptide-test-b")
    for name in names:
        run_tool(("ip", "netns", "add", name))
    started = [subprocess.Popen(netns.inside(name, "sleep", "1000")) for name in names]
    try:
        for name, process in zip(names, started, strict=True):
            while str(process.pid) not in run_tool(("ip", "netns", "pids", name)).split():
                assert process.poll() is None
        assert netns.remove_namespace(names[0])
        assert started[0].wait(30) == -signal.SIGKILL
        assert started[1].poll() is None
    finally:
        for name, process in zip(names, started, strict=True):
            process.kill()
            process.wait()
            netns.remove_namespace(name)
    assert not set(names) & set(run_tool(("ip", "netns", "list")).split())


@pytest.mark.live
@pytest.mark.needs("netns")
def test_the_links_of_a_namespace_go_although_somebody_holds_it() -> None:
    name, outer = "neaptide-test-c", "nttestc"
    run_tool(("ip", "netns", "add", name))
    link = ("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0")
    run_tool((*link, "netns", name))
    with Path(f"/run/netns/{name}").open():
        assert netns.remove_namespace(name)
        assert outer not in run_tool(("ip", "-brief", "link"))


def test_a_network_that_cannot_be_removed_now_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who has not the rights of the one that made it."""

    def refuse(argv: tuple[str, ...]) -> str:
        raise ToolError("Operation not permitted")

    monkeypatch.setattr(netns, "run_tool", lambda argv: "")
    assert netns.remove_namespace("neaptide-no-such-node")
    assert netns.remove_bridge("neaptide999")
    monkeypatch.setattr(netns, "run_tool", refuse)
    assert not netns.remove_namespace("neaptide-no-such-node")
    assert not netns.remove_bridge("neaptide999")
