"""Which host was asked for, and making it: `local`, `netns`, `docker`, `ssh:user@h1,h2,h3`.

Also `simulation`, which is no host: there are no nodes, and whoever plays there needs none.
The libraries of docker and ssh are extras: they are imported only where they are asked for.
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, assert_never

from neaptide.clusters.cache import cache_directory
from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.hosts import netns
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.host import Host, NodeName
from neaptide.clusters.hosts.ledger import Remover
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.hosts.ssh_nodes import SshNodes, load_nodes, parse_nodes

PlaceName = NodeName | Literal["simulation"]
HOSTS: Final[tuple[NodeName, ...]] = ("local", "netns", "docker", "ssh")
PLACES: Final[tuple[PlaceName, ...]] = (*HOSTS, "simulation")


@dataclass(frozen=True, slots=True)
class Place:
    """What was asked for, checked as far as that goes without looking at any machine."""

    name: PlaceName
    image: str | None = None  # docker: what the processes run in; None: our own
    nodes: SshNodes | None = None  # ssh: the machines
    asked: tuple[str, ...] = ()  # what the command was given

    @property
    def options(self) -> tuple[str, ...]:
        """What to give the command so that it runs there again, ready for a shell."""
        return tuple(shlex.join(self.asked[n : n + 2]) for n in range(0, len(self.asked), 2))


LOCAL: Final = Place("local")


def parse_place(host: str, image: str | None = None, nodes: Path | None = None) -> Place:
    """Raises UsageError with what there is."""
    kind, colon, machines = host.partition(":")
    if image is not None and kind != "docker":
        raise UsageError(f"--image goes with --host docker only; this is --host {host}.")
    if nodes is not None and (kind != "ssh" or machines):
        raise UsageError(f"--nodes goes with --host ssh only; this is --host {host}.")
    asked = ("--host", host)
    match kind:
        case "local" if not colon:
            return LOCAL
        case "simulation" if not colon:
            return Place("simulation", asked=asked)
        case "netns" if not colon:
            return Place("netns", asked=asked)
        case "docker" if not colon:
            return Place("docker", image, asked=(*asked, *(("--image", image) if image else ())))
        case "ssh" if machines:
            return Place("ssh", nodes=parse_nodes(machines), asked=asked)
        case "ssh" if nodes is not None:
            return Place("ssh", nodes=load_nodes(nodes), asked=(*asked, "--nodes", str(nodes)))
        case "ssh":
            raise UsageError("Say which machines: --host ssh:user@h1,h2,h3, or --nodes FILE.")
    raise UsageError(f"There is no host {host!r}; it must be one of {', '.join(PLACES)}.")


def need_library(name: str, host: str) -> None:
    """Raises MissingPartError where the extra was not installed."""
    if importlib.util.find_spec(name) is None:
        raise MissingPartError(
            f"The host {host} needs the library {name}: pip install 'neaptide[{host}]'."
        )


def check_place(place: Place, report: Callable[[str], None]) -> None:
    """Has what a host needs. Raises MissingPartError where that cannot be."""
    match place.name:
        case "local" | "simulation":
            return
        case "netns":
            netns.check()
        case "docker":
            need_library("docker", "docker")
            from neaptide.clusters.hosts import docker_host

            docker_host.check(place.image, cache_directory() / "docker", report)
        case "ssh":
            need_library("paramiko", "ssh")
            from neaptide.clusters.hosts import ssh_host

            ssh_host.check(_machines(place))
        case _:
            assert_never(place.name)


def _machines(place: Place) -> SshNodes:
    assert place.nodes is not None  # parse_place has seen to it
    return place.nodes


def describe_place(name: NodeName) -> str:
    """What this machine has for a host. Raises MissingPartError that says what is missing."""
    match name:
        case "local":
            return "processes of this machine"
        case "netns":
            netns.check()
            return "root, ip, nft, nsenter"
        case "docker":
            need_library("docker", "docker")
            from neaptide.clusters.hosts import docker_host

            return docker_host.describe(cache_directory() / "docker")
        case "ssh":
            need_library("paramiko", "ssh")
            return "paramiko; the machines are looked at when they are named"
        case _:
            assert_never(name)


def open_host(place: Place, local: LocalHost, run: Path) -> Host:
    match place.name:
        case "local":
            return LocalNodes(local)
        case "netns":
            return netns.NetnsHost(local)
        case "docker":
            from neaptide.clusters.hosts.docker_host import DockerHost

            return DockerHost(local, run, place.image)
        case "ssh":
            from neaptide.clusters.hosts.ssh_host import SshHost

            return SshHost(local, run, _machines(place))
        case "simulation":
            raise NotImplementedError("the simulation has no nodes")
        case _:
            assert_never(place.name)


# --- what a harness that was killed has left -----------------------------------------------------


def _docker_container(name: str) -> bool:
    if importlib.util.find_spec("docker") is None:
        return False
    from neaptide.clusters.hosts.docker_host import remove_container

    return remove_container(name)


def _docker_network(name: str) -> bool:
    if importlib.util.find_spec("docker") is None:
        return False
    from neaptide.clusters.hosts.docker_host import remove_network

    return remove_network(name)


REMOVERS: Final[dict[str, Remover]] = {
    netns.NAMESPACE: netns.remove_namespace,
    netns.BRIDGE: netns.remove_bridge,
    "docker container": _docker_container,
    "docker network": _docker_network,
}
