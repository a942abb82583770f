"""The host `docker`: every node is a container, on a network that leads nowhere else.

Not a builder of anybody's images, and not for a Docker on another machine: the harness is the
network's gateway, and the run directory is mounted. A node is a small container that holds the
network and the packet filter (it may configure its network, and nothing else); a process on it is
one more container in that network, so that `docker kill` and `docker pause` are the kill and the
pause. All that is made is in the ledger before it exists.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final, cast

import docker
from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import LogConfig, Mount

from neaptide import clusters
from neaptide.clusters.errors import HostError, MissingPartError
from neaptide.clusters.hosts import docker_image
from neaptide.clusters.hosts.docker_process import DockerProcess
from neaptide.clusters.hosts.here import SharedDisk
from neaptide.clusters.hosts.host import Drop, NodeName
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec
from neaptide.clusters.hosts.node_ports import NodePort, NodePorts
from neaptide.clusters.hosts.packet_filter import TABLE, dropped_packets, render

CONTAINER: Final = "docker container"
NETWORK: Final = "docker network"
_LABEL: Final = "neaptide"
_PACKAGES: Final = "/opt/neaptide/packages"  # our own code, mounted
_TIMEOUT_S: Final = 60


def connect() -> DockerClient:
    """Raises MissingPartError where no Docker answers."""
    client = None
    try:
        client = docker.from_env(timeout=_TIMEOUT_S)
        client.ping()
    except DockerException as error:
        if client is not None:
            client.close()
        where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        raise MissingPartError(
            f"Docker does not answer at {where}: start it (systemctl start docker, or dockerd), or"
            " choose another host."
        ) from error
    return client


def check(image: str | None, cache: Path, report: Callable[[str], None]) -> None:
    """Docker answers and has the images; ours is built if need be. Raises MissingPartError."""
    client = connect()
    try:
        docker_image.ensure(client, cache, report)
        if image is not None and not client.images.list(name=image):
            raise MissingPartError(
                f"This Docker has no image {image}: fetch it (docker pull {image}) or name another."
            )
    finally:
        client.close()


def describe(cache: Path) -> str:
    """What there is, without building anything. Raises MissingPartError."""
    client = connect()
    try:
        version = client.version()["Version"]
        if client.images.list(name=docker_image.tag()):
            return f"Docker {version}, with the image {docker_image.tag()}"
    finally:
        client.close()
    if docker_image.archive_in(cache).exists() or docker_image.can_be_built():
        return f"Docker {version}; the image is made when it is first needed"
    raise MissingPartError(
        f"Docker {version} answers, but the image of the nodes cannot be built: run as root, with"
        " the package debootstrap."
    )


def remove_container(name: str) -> bool:
    return _remove(lambda client: client.containers.get(name).remove(force=True, v=True))


def remove_network(name: str) -> bool:
    return _remove(lambda client: client.networks.get(name).remove())


def _remove(removal: Callable[[DockerClient], Any]) -> bool:
    """False: Docker does not answer, so that a later command has to try again."""
    try:
        client = connect()
    except MissingPartError:
        return False
    try:
        removal(client)
    except NotFound:
        return True
    except APIError:
        return False
    finally:
        client.close()
    return True


class DockerHost(SharedDisk):
    """Implements clusters.hosts.host.Host with containers. `image`: what processes run in."""

    name: NodeName = "docker"
    filters = True

    def __init__(self, local: LocalHost, run: Path, image: str | None = None) -> None:
        self.local = local
        self._own_image = docker_image.tag()
        self._image = image or self._own_image
        self._client = connect()
        self._prefix = f"neaptide-{local.ledger.path.stem}"
        self._ports = NodePorts()
        self._network: Network | None = None
        self._gateway = ""
        self._nodes: dict[int, Container] = {}
        self._addresses: dict[int, str] = {}
        self._mounts: dict[int, dict[Path, bool]] = {}  # by node: directories; whether writable
        self._made: list[str] = []
        local.at_end(self.close_now)

    # --- the network -----------------------------------------------------------------------------

    async def prepare(self, nodes: Sequence[int]) -> None:
        try:
            await asyncio.to_thread(self._prepare, nodes)
        except DockerException as error:
            raise HostError(f"Docker did not make the nodes: {error}") from error

    def _prepare(self, nodes: Sequence[int]) -> None:
        self.local.ledger.intend_resource(NETWORK, self._prefix)
        labels = {_LABEL: self._prefix}
        self._network = network = self._client.networks.create(
            self._prefix, driver="bridge", internal=True, labels=labels
        )
        network.reload()
        self._gateway = _gateway(network)
        for node in nodes:
            self._nodes[node] = self._add_node(node)

    def _add_node(self, node: int) -> Container:
        container = self._create(
            f"{self._prefix}-node-{node}",
            self._own_image,
            ("sleep", "infinity"),
            network=self._prefix,
            hostname=f"node-{node}",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
        )
        container.start()
        container.reload()
        settings = container.attrs["NetworkSettings"]["Networks"][self._prefix]
        self._addresses[node] = str(settings["IPAddress"])
        return container

    def _create(self, name: str, image: str, argv: Sequence[str], **options: Any) -> Container:
        self.local.ledger.intend_resource(CONTAINER, name)
        self._made.append(name)
        labels = {_LABEL: self._prefix}
        return self._client.containers.create(
            image,
            name=name,
            entrypoint=list(argv),
            command=[],
            labels=labels,
            log_config=LogConfig(type="none"),
            **options,
        )

    @property
    def harness_address(self) -> str:
        return self._gateway

    def address(self, node: int) -> str:
        return self._addresses[node]

    def claim_port(self, node: int) -> NodePort:
        return self._ports.claim(node)

    # --- what is done to a node ------------------------------------------------------------------

    def java(self, node: int) -> str:
        return "java"

    def python(self, node: int) -> tuple[str, ...]:
        return ("python3",)

    async def install(self, node: int, files: Collection[Path]) -> Mapping[Path, str]:
        """Mounted, read-only, where they are here."""
        common = Path(os.path.commonpath([file.parent for file in files]))
        self.mount(node, common)
        return await super().install(node, files)

    def mount(self, node: int, directory: Path, *, writable: bool = False) -> None:
        """Processes that are started from now on see this directory of this machine."""
        mounts = self._mounts.setdefault(node, {})
        mounts[directory] = writable or mounts.get(directory, False)

    async def start(self, node: int, spec: ProcessSpec) -> DockerProcess:
        spec.directory.mkdir(parents=True, exist_ok=True)
        spec.stdout_log.parent.mkdir(parents=True, exist_ok=True)
        name = f"{self._prefix}-process-{len(self._made)}"
        try:
            container = await asyncio.to_thread(self._create_process, name, node, spec)
            process = DockerProcess(spec, container)
            await process.begin()
        except APIError as error:
            raise HostError(f"Docker did not start {spec.name}: {error.explanation}") from error
        return process

    def _create_process(self, name: str, node: int, spec: ProcessSpec) -> Container:
        code = Path(str(clusters.__file__)).parent.resolve()
        of_this_machine = {**self._mounts.get(node, {}), spec.directory: True}
        mounts = [
            Mount(str(path), str(path), type="bind", read_only=not writable)
            for path, writable in of_this_machine.items()
        ]
        mounts.append(
            Mount(f"{_PACKAGES}/neaptide/clusters", str(code), type="bind", read_only=True)
        )
        site = {"PYTHONPATH": f"{_PACKAGES}:{docker_image.SITE}", "PYTHONDONTWRITEBYTECODE": "1"}
        return self._create(
            name,
            self._image,
            spec.argv,
            network_mode=f"container:{self._nodes[node].id}",
            mounts=mounts,
            environment={**site, **spec.env},
            working_dir=str(spec.directory),
            user=f"{os.getuid()}:{os.getgid()}",
        )

    async def filter(self, node: int, drops: Collection[Drop]) -> int:
        return await asyncio.to_thread(self._filter, node, drops)

    def _filter(self, node: int, drops: Collection[Drop]) -> int:
        has_table = TABLE in self._nft(node, "list", "tables")
        listing = self._nft(node, "--json", "list", "table", "ip", TABLE) if has_table else ""
        # One argument: nft reads a whole script from it, and changes all or nothing.
        self._nft(node, render(drops, self.harness_address))
        return dropped_packets(listing) if listing else 0

    def _nft(self, node: int, *arguments: str) -> str:
        try:
            done = self._nodes[node].exec_run(["nft", *arguments], user="0")
        except DockerException as error:
            raise HostError(f"Docker did not run nft on node {node}: {error}") from error
        output = cast(bytes, done.output).decode(errors="replace")
        if done.exit_code != 0:
            raise HostError(f"nft on node {node}: {' '.join(output.split())}")
        return output

    # --- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Processes before their nodes, nodes before the network. Idempotent."""
        self._made = [name for name in self._made[::-1] if not remove_container(name)][::-1]
        if self._network is not None and remove_network(self._prefix):
            self._network = None
        self._client.close()
        if self._made or self._network is not None:
            raise HostError(
                f"Docker did not remove all of {self._prefix}: the next command tries again."
            )


def _gateway(network: Network) -> str:
    """The harness's own address on the network: what Docker says, or the subnet's first."""
    [configuration] = network.attrs["IPAM"]["Config"]
    named = configuration.get("Gateway")
    return str(named) if named else str(IPv4Network(configuration["Subnet"])[1])
