"""A cluster of brokers that the user's own commands start, with the user's own properties.

What PlacedCluster and its kinds of Kafka do with a provisioned Kafka is done here too: ports, the
gate's addresses, deaths, disks, replica logs, who is asked for leaders and ISRs. What differs: no
jars are fetched, commands and properties come from the system file, and a process is what the
command has started, whatever that is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from neaptide.clusters.cluster import ClusterSpec, Listeners
from neaptide.clusters.errors import HostError, UsageError
from neaptide.clusters.hosts.host import Host, NodeProcess
from neaptide.clusters.hosts.identity import ticks_since_boot
from neaptide.clusters.hosts.local import ProcessSpec, last_line
from neaptide.clusters.kafka.cluster import KafkaCluster
from neaptide.clusters.kafka.kraft import KraftCluster
from neaptide.clusters.kafka.kraft_properties import KRAFT_DEFAULTS, chosen_features, kraft_settings
from neaptide.clusters.kafka.kraft_storage import CLUSTER_ID
from neaptide.clusters.kafka.properties import DEFAULTS
from neaptide.clusters.kafka.versions import Mode, parse_release, row_of
from neaptide.clusters.own.asking import advertised_at
from neaptide.clusters.own.model import Argv, Managed, OwnNode
from neaptide.clusters.own.placeholders import fill
from neaptide.clusters.own.process import (
    MARK,
    PID,
    Commands,
    ContainedProcess,
    InContainer,
    MarkingHost,
    MountingHost,
    OwnProcess,
    RemoteProcess,
    enter,
    needs_no_pid,
    read_pid,
)
from neaptide.clusters.properties import read_properties, write_properties
from neaptide.results.store import write_text

_COMMAND_S: Final = 60.0
_PREPARE_S: Final = 120.0
_SHUT_WITHIN_S: Final = 5.0
_ADVERTISED_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.05  # nothing reports that nobody listens any more, nor new metadata


class OwnZooKeeperCluster(KafkaCluster):
    """Implements neaptide.clusters.cluster.Cluster for managed brokers; ZooKeeper is ours."""

    def __init__(self, host: Host, directory: Path, system: Managed, spec: ClusterSpec) -> None:
        super().__init__(host, directory, system.behaves_like, spec)
        self._system = system
        self._own = {node.id: node for node in system.nodes}
        self._starts: Counter[int] = Counter()
        self._places: dict[int, dict[str, str]] = {}

    async def _install(self, nodes: Iterable[int]) -> str:
        """The user has installed what there is to install; a container has it mounted."""
        for node in nodes:
            self._check_log_directory(node)
            if isinstance(self._host, MountingHost):
                self._mount(node, self._host)
        self._host.local.at_end(self._end_now)
        return ""

    def _check_log_directory(self, node: int) -> None:
        """Raises UsageError where there is data already: it is not ours to touch."""
        directory = self.log_directory(node)
        if self._own[node].log_dir is not None and directory.is_dir() and any(directory.iterdir()):
            raise UsageError(
                f"{self._system.file}: the log_dir {directory} of node {node} is not empty; empty"
                " it, or leave out log_dir, so that the logs are in the run directory."
            )

    def _mount(self, node: int, host: MountingHost) -> None:
        for directory in self._system.mounted:
            host.mount(node, directory)
        if self._own[node].log_dir is not None:
            self.log_directory(node).mkdir(parents=True, exist_ok=True)
            host.mount(node, self.log_directory(node), writable=True)

    def _archive(self, broker: int) -> Path | None:
        """What Java is, only the user knows."""
        return None

    def log_directory(self, broker: int) -> Path:
        named = self._own[broker].log_dir
        if named is None:
            return super().log_directory(broker)
        return Path(fill(named, {"id": str(broker), "here": self._here}))

    @property
    def _here(self) -> str:
        return str(self._system.directory)

    # --- what a node is given --------------------------------------------------------------------

    def _command(self, broker: int, through: Listeners, directory: Path) -> Argv:
        node, file = self._own[broker], directory / "server.properties"
        places = self._places_of(broker, through)
        write_text(file, write_properties(self._properties(node, places)))
        self._places[broker] = {**places, "properties": str(self._host.path(broker, file))}
        return self._filled(broker, node.start)

    def _filled(self, node: int, argv: Argv) -> Argv:
        """But for {pid}, which only a running process has."""
        return tuple(fill(word, {**self._places[node], "pid": PID}) for word in argv)

    def _places_of(self, node: int, through: Listeners) -> dict[str, str]:
        address = self._host.address(node)
        places = {
            "id": str(node),
            "cluster_id": CLUSTER_ID,
            "here": self._here,
            "log_dir": str(self._host.path(node, self.log_directory(node))),
            "zookeeper": f"{through.host}:{through.coordination_port}",
            "quorum": ",".join(
                f"{voter}@{through.host}:{port}" for voter, port in sorted(through.quorum.items())
            ),
        }
        gate = {
            "client": through.client_port,
            "replication": through.replication_port,
            "controller": through.quorum.get(node, 0),
        }
        for listener, port in self._own_ports(node).items():
            places[f"{listener}_listen"] = f"{address}:{port}"
            places[f"{listener}_advertised"] = f"{through.host}:{gate[listener]}"
        return places

    def _own_ports(self, node: int) -> dict[str, int]:
        client, replication = self.ports(node)
        return {"client": client, "replication": replication}

    def _properties(self, node: OwnNode, places: Mapping[str, str]) -> dict[str, str]:
        """Ours, where the user says nothing; then the user's; then those of the run."""
        try:
            said = read_properties(fill(node.template, places))
        except KeyError as missing:
            raise UsageError(
                f"{node.properties}: {{{missing.args[0]}}} has no value for node {node.id} of"
                f" {self._system.name}, which is no such node."
            ) from None
        return {**self._defaults(), **said, **self._of_the_run(node.id)}

    def _defaults(self) -> Mapping[str, str]:
        return {**DEFAULTS, **row_of(self._system.behaves_like).settings}

    def _of_the_run(self, node: int) -> Mapping[str, str]:
        return self._spec.settings_of(node)

    # --- life ------------------------------------------------------------------------------------

    async def _launch(self, node: int, spec: ProcessSpec) -> NodeProcess:
        own = self._own[node]
        self._starts[node] += 1
        mark = f"{self._directory}/{node}/{self._starts[node]}"
        spec = replace(spec, env={**spec.env, **self._system.environment, MARK: mark})
        if own.prepare is not None and self._starts[node] == 1:
            await self._run(node, self._filled(node, own.prepare), "prepare", _PREPARE_S)
        commands = Commands(
            *(
                None if argv is None else self._filled(node, argv)
                for argv in (own.stop, own.kill, own.pause, own.resume)
            )
        )
        is_first = self._starts[node] == 1
        if commands.kill is not None and needs_no_pid(commands.kill) and is_first:
            enter(self._host.local.ledger, kill=commands.kill)
        since = ticks_since_boot()
        started = await self._host.start(node, spec)
        if isinstance(self._host, MarkingHost):
            remote = RemoteProcess(f"The {spec.name}", started, mark, self._host, node)
            await remote.begin()
            return remote
        if isinstance(self._host, MountingHost):
            if commands.stop is None:
                return started
            log = self._command_log("stop", node)
            in_container = cast(InContainer, started)
            return ContainedProcess(spec.name, in_container, commands.stop, log)
        outside = None
        if own.pid_file is not None:
            file = Path(fill(own.pid_file, {"id": str(node), "here": self._here}))
            outside = await read_pid(file, since, f"The {spec.name}")
            enter(self._host.local.ledger, one=outside)

        async def run(argv: Argv, what: str) -> None:
            await self._run(node, argv, what, _COMMAND_S)

        return OwnProcess(f"The {spec.name}", started, mark, commands, run, outside)

    async def _run(self, node: int, argv: Argv, what: str, within_s: float) -> None:
        """A command that ends by itself. Raises HostError where it does not do that well."""
        log = self._command_log(what, node)
        directory = super().log_directory(node).parent
        spec = ProcessSpec(f"{what} {node}", argv, directory, log, self._system.environment)
        process = await self._host.start(node, spec)
        try:
            status: int | None = await process.wait(within_s)
        except TimeoutError:
            await process.kill()
            await process.wait()
            status = None
        if status != 0:
            how = (
                f"did not end in {within_s:.0f} s" if status is None else f"ended, status {status}"
            )
            raise HostError(
                f"The command {what} of node {node} of {self._system.name} {how}; its log {log}"
                f" says last: {last_line(log)}"
            )

    def _command_log(self, what: str, node: int) -> Path:
        return self._directory / "logs" / f"{what}-{node}.log"

    async def kill(self, broker: int) -> None:
        """Raises HostError where it is not the broker that was killed."""
        await super().kill(broker)
        address = self._host.address(broker)
        deadline = time.monotonic() + _SHUT_WITHIN_S
        for port in self._own_ports(broker).values():
            while await _is_listening(address, port):
                if time.monotonic() > deadline:
                    raise HostError(
                        f"Node {broker} of {self._system.name} still listens at {address}:{port}"
                        " after all that its start command has started was killed: somebody else"
                        " runs it; give it a kill, or a pid_file."
                    )
                await asyncio.sleep(_LOOK_S)

    async def pause(self, broker: int) -> None:
        if not self._own[broker].can_pause:
            raise HostError(f"Node {broker} of {self._system.name} has a kill but no pause.")
        await super().pause(broker)

    def _end_now(self) -> None:
        """What was started and is no child of ours goes too."""
        for process in self._processes.values():
            if isinstance(process, OwnProcess):
                process.end_now()

    # --- whether the links are what they are taken for -------------------------------------------

    async def check_links(
        self, through: Mapping[int, Listeners], coordinated: frozenset[int]
    ) -> None:
        """Every broker advertises the gate to clients and replicas, and comes to its
        coordination service through it. Raises UsageError.

        `coordinated`: the brokers that the gate has such a connection of.
        """
        for listener in ("client", "replication"):
            ports = {b: getattr(there, f"{listener}_port") for b, there in through.items()}
            first = next(iter(through))
            at = f"{through[first].host}:{ports[first]}"
            settings = self._system.client if listener == "client" else {}
            where = f"{self._system.file}, [client]"
            advertised = await _all_advertised(at, settings, where, frozenset(ports))
            if not advertised:
                like = f", or that {where} is what it takes" if settings else ""
                raise UsageError(
                    f"{self._own[first].properties}: nobody answers a client at {at}, the"
                    f" {listener} listener of broker {first}: see that it listens at"
                    f" {{{listener}_listen}}{like}."
                )
            for broker, port in ports.items():
                wanted = f"{through[broker].host}:{port}"
                if advertised.get(broker) != wanted:
                    raise UsageError(
                        f"{self._own[broker].properties}: broker {broker} advertises"
                        f" {advertised.get(broker, 'nothing')} on its {listener} listener, past the"
                        f" gate; let advertised.listeners have {{{listener}_advertised}} there."
                    )
        past = sorted(set(through) - coordinated)
        if past:
            where = "zookeeper.connect = {zookeeper}"
            if self.quorum:
                where = "controller.quorum.voters = {quorum}"
            raise UsageError(
                f"{self._own[past[0]].properties}: broker {past[0]} does not come to the"
                f" coordination service through the gate; write {where}."
            )


class OwnKraftCluster(OwnZooKeeperCluster, KraftCluster):
    """The same in KRaft: controllers are nodes of the file, or every broker is one."""

    def __init__(self, host: Host, directory: Path, system: Managed, spec: ClusterSpec) -> None:
        super().__init__(host, directory, system, spec)
        if parse_release(system.behaves_like).mode is not Mode.COMBINED:
            self._controllers = tuple(node.id for node in system.controllers)
            self._voters = self._controllers

    async def start_coordination(self) -> None:
        """The nodes themselves are started when the links are there."""
        features = chosen_features(self._spec.settings)
        if features:
            raise UsageError(
                f"{', '.join(features)} is for who formats the log directories, which is the"
                f" prepare command of {self._system.file}: write it there, not among the settings."
            )
        await self._install((*self._controllers, *self._spec.brokers))

    async def _format(self, node: int) -> None:
        """That is for the user's prepare command."""

    def _own_ports(self, node: int) -> dict[str, int]:
        ports = {} if node in self._controllers else super()._own_ports(node)
        if node in self._voters:
            ports["controller"] = self.quorum[node]
        return ports

    def _defaults(self) -> Mapping[str, str]:
        return KRAFT_DEFAULTS

    def _of_the_run(self, node: int) -> Mapping[str, str]:
        return kraft_settings(self._spec.settings_of(node))


async def _all_advertised(
    at: str, settings: Mapping[str, str], where: str, brokers: frozenset[int]
) -> Mapping[int, str]:
    """What the listener advertises, once it knows all of `brokers`, or after a while.

    A broker is registered before the metadata of the others has it.
    """
    deadline = time.monotonic() + _ADVERTISED_WITHIN_S
    while True:
        advertised = await asyncio.to_thread(advertised_at, at, settings, where)
        if brokers <= advertised.keys() or time.monotonic() > deadline:
            return advertised
        await asyncio.sleep(_LOOK_S)


async def _is_listening(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


def make_managed(
    host: Host, directory: Path, system: Managed, spec: ClusterSpec
) -> OwnZooKeeperCluster:
    in_zookeeper = parse_release(system.behaves_like).mode is Mode.ZOOKEEPER
    kind: Any = OwnZooKeeperCluster if in_zookeeper else OwnKraftCluster
    made: OwnZooKeeperCluster = kind(host, directory, system, spec)
    return made
