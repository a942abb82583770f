"""The stage of one run: host, links, cluster and clients, and what is observed of them.

Everything that a run starts is started here and ends here. Whoever waits, waits on `changed`, which
is set by every event of the gate, of the clients and of the coordination service.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.cluster import ClusterSpec, Listeners, PartitionView, TopicSpec
from neaptide.clusters.hosts.local import LocalHost, last_lines, last_said
from neaptide.clusters.hosts.place import LOCAL, Place, open_host
from neaptide.clusters.hosts.toxiproxy import ToxicLinks
from neaptide.clusters.observer import Observer
from neaptide.clusters.own.asking import advertised_at
from neaptide.clusters.producer import ProducerOptions
from neaptide.harness.live.account import Account
from neaptide.harness.live.guard import guarded
from neaptide.harness.live.holds import Holds
from neaptide.harness.live.left_behind import open_scratch
from neaptide.harness.scenarios.systems import (
    System,
    client_settings,
    make_cluster,
    names_brokers,
    place_of,
    secret_settings,
    topic_id,
    unclean_by_default,
)
from neaptide.nemesis.gate.client import Gate
from neaptide.nemesis.gate.errors import GateError
from neaptide.nemesis.gate.model import (
    COORDINATION,
    Endpoint,
    GateConfig,
    LinkSpec,
    Purpose,
    Subscription,
    Target,
    cluster_links,
    quorum_links,
)
from neaptide.nemesis.gate.recorder import WRITER as GATE_WRITER
from neaptide.nemesis.steps import record_of
from neaptide.results.errors import StoreError
from neaptide.results.run import Assigned, Incident, IncidentError, IncidentKind
from neaptide.workloads.clients import Clients
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.kafka_clients import settings_of
from neaptide.workloads.protocol import ClientsConfig
from neaptide.workloads.recorder import TABLE as OPERATIONS_TABLE
from neaptide.workloads.recorder import Recorder, writer_label

NEMESIS_PROCESS = -1
OBSERVER_PROCESS = -2
_HARNESS_RECORDER = 0
_START_WITHIN_S = 90.0
# Why a broker ended itself: it is ahead of its leader (ReplicaFetcherThread up to 2.0, and our own
# broker), or it lost ZooKeeper before it was up (KafkaServer.startup). What it logs after that is
# of its shutdown, unless it is fatal in its turn.
_GAVE_UP = re.compile(
    r"log truncation is not allowed[^\n]*(?![\s\S]*(\bFATAL\b|java\.lang\.\w+Error))"
    r"|[Ff]atal (exception|error) during (KafkaServer )?startup[^\n]*\n"
    r"[^\n]*(SessionExpired|ConnectionLoss|ClientTimeout)"
)
_KAFKA_STARTS = " starting (kafka.server.KafkaServer)"
_LAST_LINES = 150  # a Kafka that shuts down after its start has failed logs some sixty
_INCIDENT_LOOK_S = 0.25
_STANDS_STILL_S = 1.0  # what a fault has resumed may be seen so for a moment
_COORDINATED_WITHIN_S = 10.0
_HITS_NOTED = 5
_FILE_LOOK_S = (
    0.05  # what notifies nobody that it changed (files, metadata) is looked at this often
)


@dataclass(slots=True)
class Sends:
    """Completions of scripted sends and polls, by value."""

    acked: dict[str, int | None] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)  # by group and partition
    commits: int = 0  # that were acknowledged
    # Of clients that a scenario drives: what each has taken, has, and was notified of last.
    taken: dict[str, set[str]] = field(default_factory=dict)
    assigned: dict[str, int] = field(default_factory=dict)
    notified: dict[str, str] = field(default_factory=dict)
    handled: dict[str, int] = field(default_factory=dict)  # by record: how often


# Links on which transactions are: what producers send, and the markers of coordinators.
OF_TRANSACTIONS: Final[frozenset[Purpose]] = frozenset({"client", "replication"})


class Stage:
    """Make one with `async with Stage.open(…)`."""

    def __init__(
        self,
        run: Path,
        system: System,
        spec: ClusterSpec,
        place: Place = LOCAL,
        account: Account | None = None,
        reads: Collection[Purpose] = (),
        toxics: bool = False,
    ) -> None:
        """`reads`: links of which rules may be about any API, not replicas' fetches alone.
        `toxics`: links can have them."""
        self.run = run
        self._reads = frozenset(reads)
        self._has_toxics = toxics
        self.toxics: ToxicLinks | None = None
        self.account = account or Account()
        self.system = system
        self.spec = spec
        self.origin_ns = time.monotonic_ns()
        self.host = LocalHost()
        self.recorder = Recorder(run, _HARNESS_RECORDER, self.origin_ns)
        self.machines = open_host(place_of(system, place), self.host, run)
        self.cluster = make_cluster(system, self.machines, run, spec)
        self.sends = Sends()
        self.severed: set[int] = set()
        self.lets_give_up = False  # see has_given_up
        self.paused: set[int] = set()
        # Ends of links that are no nodes and that a step has killed: "client", from then on.
        self.gone: set[Endpoint] = set()
        self.problems: list[str] = []  # why the aim was missed, if it was
        self.last_fetch_ns: dict[int, int] = {}
        self.holds = Holds()
        self.hits: Counter[str] = Counter()  # by rule: messages that it has taken
        self.connections: Counter[str] = Counter()  # by link: how many were opened
        self.names: Mapping[Any, str] = {}  # of nodes, for the history
        self.links: tuple[LinkSpec, ...] = ()
        self.isr_changes: dict[int, int] = {}  # by partition, since all replicas were first there
        self.controllers_answered: dict[int, set[int]] = {}  # by the error that they were given
        self._isrs: dict[int, frozenset[int]] = {}
        self.named: dict[str, int] = {}  # what steps called the controller of their moment
        self.gate: Gate
        self.clients: Clients
        self.observer: Observer
        self.left: tuple[str, ...] = ()  # topics that stay on a cluster that was just used
        self._more_clients: list[Clients] = []
        self._killed_clients: list[Clients] = []
        self.on_nemesis: Callable[[Mapping[str, Any]], None] = lambda _: None
        self._started: set[int] = set()
        self._stands_since: dict[int, float] = {}
        self._assigned: list[Assigned] = []
        self._changed = asyncio.Event()

    # --- beginning and ending --------------------------------------------------------------------

    async def __aenter__(self) -> Stage:
        try:
            await guarded(self._open(), self.run, self.find_incident)
        except BaseException as error:
            await self._close_after(error)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None:
            await self.close()
        else:
            await self._close_after(error)

    async def _close_after(self, error: BaseException) -> None:
        """What is raised already is why the run ends; that, and what fails now, is noted."""
        if isinstance(error, IncidentError):
            self.account.note(error.incident)
        self.find_incident()
        if not self.account.incidents and isinstance(error, ClientsError | GateError):
            kind: IncidentKind = "client" if isinstance(error, ClientsError) else "process"
            self.account.note(Incident(kind, str(error)))
        try:
            await self.close()
        except Exception as failed:
            is_known = isinstance(failed, StoreError) and self.recorder.failure is not None
            if not (is_known and self.account.incidents):
                why = f"Not all could be ended in order: {failed}."
                self.account.note(Incident("process", why))

    async def _open(self) -> None:
        if self.cluster.managed:
            await self._open_managed()
        else:
            await self._open_used()
        for topic in self.spec.topics:
            await self._create_topic(topic)
        for topic in self.spec.internal:
            await self._create_topic(topic)
        await self.until(self._all_led, _START_WITHIN_S, "every partition has a leader")
        self._assigned = [
            Assigned(topic.name, partition, brokers)
            for topic in (*self.spec.topics, self.spec.offsets)
            if topic is not None
            for partition, brokers in sorted((await self.observer.assignment(topic.name)).items())
        ]

    async def _open_used(self) -> None:
        """Clients connect to the cluster itself: the gate is on no link."""
        self.gate = await Gate.start(GateConfig(self.run, self.origin_ns, ()), self.host)
        self.gate.listen(self._on_gate_event)
        self.observer = self.cluster.observer(self._on_view)
        await self.observer.start()

    async def _open_managed(self) -> None:
        brokers = tuple(self.spec.brokers)
        if self.spec.security is not None:
            open_scratch(self.host, self.spec.security.directory)
            self.spec.security.write()
        await self.machines.prepare(self.nodes)
        address = self.machines.harness_address
        addresses = {node: self.machines.address(node) for node in self.nodes}
        links = cluster_links(
            brokers,
            replication={b: self.cluster.ports(b)[1] for b in brokers},
            client={b: self.cluster.ports(b)[0] for b in brokers},
            addresses=addresses,
        )
        links += quorum_links(self.cluster.quorum, addresses)
        links = tuple(replace(link, reads=self._is_read(link)) for link in links)
        if self._has_toxics:
            self.toxics = await ToxicLinks.start(self.host, self.run)
        links = tuple(
            [replace(link, via=await self._via(link.name, link.target)) for link in links]
        )
        self.gate, _ = await asyncio.gather(
            Gate.start(GateConfig(self.run, self.origin_ns, links, address), self.host),
            self.cluster.start_coordination(),
        )
        self.links = links
        self.gate.listen(self._on_gate_event)
        self.observer = self.cluster.observer(self._on_view)
        await self.observer.start()
        if self.cluster.quorum:
            await self._start_nodes(brokers)
        else:
            await self._start_brokers(brokers)
        if self.system.own is not None:
            await self._check_links()

    async def _check_links(self) -> None:
        """What the user has configured leads through the gate, or is refused."""
        through = {broker: self.listeners(broker) for broker in self.spec.brokers}
        deadline = time.monotonic() + _COORDINATED_WITHIN_S
        while not (seen := await self._coordinated()) >= set(through):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_FILE_LOOK_S)
        await self.cluster.check_links(through, frozenset(seen))

    async def _coordinated(self) -> set[int]:
        """The brokers that have a connection to their coordination service in the gate."""
        links = {link.name: link for link in self.links}
        return {
            each["source"]
            for each in (await self.gate.state())["connections"]
            if links[each["link"]].purpose == COORDINATION and isinstance(each["source"], int)
        }

    async def _via(self, link: str, target: Target | None) -> Target | None:
        """What a link is led through, if it is to have toxics."""
        if self.toxics is None or target is None:
            return None
        return Target(await self.toxics.lead(link, target.host, target.port))

    def _all_led(self) -> bool:
        return all(
            (view := self.view(partition, topic.name)) is not None and view.leader is not None
            for topic in self.spec.topics
            for partition in topic.assignment
        )

    def _is_read(self, link: LinkSpec) -> bool:
        """ZooKeeper's protocol is not read."""
        if link.destination == COORDINATION:
            return False
        return link.purpose in self._reads or (link.shared and "client" in self._reads)

    async def _create_topic(self, topic: TopicSpec) -> None:
        """The gate knows a topic's id before the first Fetch, also where the cluster chose it."""
        named = topic_id(self.system, topic.name)
        if named is not None:
            await self.gate.name_topics({named: topic.name})
        await self.gate.cut(None, None, "replication")
        chosen = await self.observer.create_topic(
            topic, named, watched=topic not in self.spec.internal
        )
        if chosen is not None:
            await self.gate.name_topics({chosen: topic.name})
        await self.gate.heal_all()

    async def _start_nodes(self, brokers: tuple[int, ...]) -> None:
        """KRaft: the controllers, and the brokers when the quorum has settled.

        A controller that starts late can depose the first one; a broker that had begun to register
        with that asks it until its time is over, and ends.
        """
        controllers = self.cluster.controllers
        for node in controllers:
            await self._start(node)
        if controllers:
            await self.until(
                lambda: self.observer.is_settled, _START_WITHIN_S, "the controllers agree"
            )
        for broker in brokers:
            await self._start(broker)
        everyone = frozenset(self.spec.brokers)
        await self.until(
            lambda: self.observer.registered == everyone, _START_WITHIN_S, "all are registered"
        )

    async def _start(self, node: int) -> None:
        await self.cluster.start(node, self.listeners(node))
        self._started.add(node)

    async def _start_brokers(self, brokers: tuple[int, ...]) -> None:
        """All at once; but the first is controller, for the others reach ZooKeeper after it."""
        first = brokers[0]
        for broker in brokers:
            port, address = self.cluster.coordination_port, self.machines.harness_address
            via = await self._via(f"coordination-{broker}", Target(port, address))
            await self.gate.set_target(f"coordination-{broker}", port, address, via)
            if broker != first:
                await self.gate.cut(broker, COORDINATION, "coordination")
            await self._start(broker)
        await self.until(
            lambda: self.observer.controller == first,
            _START_WITHIN_S,
            "the first broker is controller",
        )
        await self.gate.heal_all()
        everyone = frozenset(brokers)
        await self.until(
            lambda: self.observer.registered == everyone, _START_WITHIN_S, "all are registered"
        )
        if names_brokers(self.system):
            await self._until_controller_knows(first, everyone)

    async def _until_controller_knows(self, controller: int, everyone: frozenset[int]) -> None:
        """It names the brokers that it knows; of others that are registered already it makes no
        leaders and no members of an ISR yet. Raises TimeoutError.
        """
        settings = {**client_settings(self.system), **secret_settings(self.system)}
        asked = self.client_address(controller), settings, str(self.system)
        deadline = time.monotonic() + _START_WITHIN_S
        while set(await asyncio.to_thread(advertised_at, *asked)) != everyone:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {_START_WITHIN_S:g} s the controller does not know of all brokers"
                )
            await asyncio.sleep(_FILE_LOOK_S)

    async def start_clients(self, options: ProducerOptions, program: Sequence[str] = ()) -> None:
        """`program`: a client that is driven in place of the one that ships, as it is started."""
        config = replace(self._clients_config(1, options), program=list(program))
        secret = secret_settings(self.system)
        self.clients = await Clients.start(self.host, config, self._on_client_event, secret)
        for topic in (*self.spec.topics, self.spec.offsets):
            if topic is not None:
                brokers = {**unclean_by_default(self.system), **self.spec.settings}
                self.note_settings(topic, topic.judged_by(brokers))
        self.account.started(self._assigned)

    async def start_more_clients(
        self, number: int, options: ProducerOptions, library: str
    ) -> Clients:
        """A process beside that of `clients`; until it is forgotten its end is an incident. What
        it does it notes before: it may be killed, or cut off."""
        config = replace(self._clients_config(number, options), library=library, journal=True)
        secret = secret_settings(self.system)
        clients = await Clients.start(self.host, config, self._on_client_event, secret)
        self._more_clients.append(clients)
        return clients

    def forget_clients(self, clients: Clients) -> None:
        """A fault ends it: what it has written is known when that is done."""
        self._more_clients.remove(clients)
        self._killed_clients.append(clients)

    def _clients_config(self, number: int, options: ProducerOptions) -> ClientsConfig:
        return ClientsConfig(
            str(self.run),
            number,
            self.origin_ns,
            self.bootstrap,
            dict(client_settings(self.system)),
            settings_of(options),
        )

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        if self.system.used is not None:
            return self.system.used.bootstrap
        return ",".join(self.client_address(broker) for broker in sorted(self.spec.brokers))

    async def stop_load(self) -> None:
        """Sends without an answer in time are an incident: their ends are not known."""
        left = (await self.clients.do("stop_load"))["left"]
        if left:
            why = f"{left} sends were never answered, nor did they time out."
            self.account.note(Incident("client", why))

    async def watch_rounds(self) -> None:
        """Has every fetch round reported: conditions ask for them."""
        await self.gate.subscribe(Subscription("harness"))
        self.holds.see_rounds()

    async def close(self) -> None:
        """Ends everything, also if a part of it fails. Then raises the first failure.

        What was recorded is on disk after this, and `account` says how much that is.
        """
        failures: list[BaseException] = []
        for step in (
            self._close_clients,
            self._close_gate,
            self._close_observer,
            self.machines.close,
            self._close_toxics,
            self._close_cluster,
            self._close_recorder,
            self.host.close,
        ):
            try:
                await step()
            except BaseException as error:  # also where somebody does not want to wait for it
                failures.append(error)
        if failures:
            raise failures[0]

    async def _close_clients(self) -> None:
        if hasattr(self, "clients"):
            living = (self.clients, *self._more_clients)
            for incident in await asyncio.gather(*(clients.close() for clients in living)):
                self.account.note(incident)
            for clients in (*living, *self._killed_clients):
                self.account.wrote(OPERATIONS_TABLE, clients.writer, clients.written)

    async def _close_gate(self) -> None:
        if hasattr(self, "gate"):
            await self.gate.close()
            self.account.note(self._gate_incident(has_ended=True))
            for table, written in self.gate.written.items():
                self.account.wrote(table, GATE_WRITER, written)

    async def _close_observer(self) -> None:
        if hasattr(self, "observer"):
            await self.observer.close()
            self.left = self.observer.left

    async def _close_toxics(self) -> None:
        if self.toxics is not None:
            self.toxics.close()

    async def _close_cluster(self) -> None:
        self.cluster.close()

    async def _close_recorder(self) -> None:
        try:
            self.recorder.close()
        except StoreError as error:
            self.account.note(Incident("recorder", str(error)))
            raise
        finally:
            writer = writer_label(_HARNESS_RECORDER)
            self.account.wrote(OPERATIONS_TABLE, writer, self.recorder.written)

    def sever(self, node: int) -> None:
        """A step ends the node: from here on its connections may close."""
        self.severed.add(node)
        self.holds.died(node)

    # --- what is where ---------------------------------------------------------------------------

    def listeners(self, broker: int) -> Listeners:
        """Of a node that is a controller only, there are none but the quorum's."""
        ports = self.gate.ports
        return Listeners(
            client_port=ports.get(f"client-{broker}", 0),
            replication_port=ports.get(f"replication-{broker}", 0),
            coordination_port=ports.get(f"coordination-{broker}", 0),
            quorum={node: ports[f"controller-{node}"] for node in self.cluster.quorum},
            host=self.machines.harness_address,
        )

    def client_address(self, broker: int) -> str:
        return f"{self.machines.harness_address}:{self.listeners(broker).client_port}"

    @property
    def nodes(self) -> tuple[int, ...]:
        """All that can be started and killed: brokers, and controllers that are none."""
        return (*self.cluster.controllers, *self.spec.brokers)

    def links_of(self, broker: int, purpose: Purpose) -> tuple[str, ...]:
        """The names of the links that toxics are put on: see nemesis.steps.AddToxic."""
        if purpose == COORDINATION and self.cluster.quorum:
            return tuple(f"controller-{node}" for node in self.cluster.quorum)
        return (f"{purpose}-{broker}",)

    def coordination_of(self, node: Endpoint | None) -> tuple[Endpoint, ...]:
        """What "coordination" means for a node: ZooKeeper, or the controllers other than itself."""
        return tuple(other for other in self.cluster.quorum if other != node) or (COORDINATION,)

    def view(self, partition: int = 0, topic: str | None = None) -> PartitionView | None:
        """Of the first topic unless another one is named."""
        return self.observer.topics.get(topic or self.spec.topic.name, {}).get(partition)

    def find_incident(self) -> Incident | None:
        """What failed without a fault, noted at once: to end what goes on may take a while."""
        incident = self._find_incident()
        self.account.note(incident)
        return incident

    def _find_incident(self) -> Incident | None:
        """The clients and the cluster need the gate: what it has comes first."""
        with suppress(StoreError):  # it is kept as the recorder's failure
            self.recorder.flush_when_due()
        if self.recorder.failure is not None:
            return Incident("recorder", str(self.recorder.failure))
        gate = self._gate_incident() if hasattr(self, "gate") else None
        clients = self._find_clients_incident() if hasattr(self, "clients") else None
        toxics = None if self.toxics is None else self.toxics.process.trouble()
        lost = self.cluster.find_lost_coordination()
        ended = self._find_ended_node() or self._find_standing_node()
        return (
            gate
            or clients
            or (None if toxics is None else Incident("process", toxics))
            or (None if lost is None else Incident("coordination", lost))
            or (None if ended is None else Incident("process", ended))
        )

    def _find_clients_incident(self) -> Incident | None:
        found = (clients.find_incident() for clients in (self.clients, *self._more_clients))
        return next((incident for incident in found if incident is not None), None)

    def _gate_incident(self, *, has_ended: bool = False) -> Incident | None:
        if self.gate.recorder_failure is not None:
            return Incident("recorder", self.gate.recorder_failure)
        if has_ended and self.gate.process.returncode == 0:
            return None
        trouble = self.gate.process.trouble()
        return None if trouble is None else Incident("process", trouble)

    def _find_ended_node(self) -> str | None:
        """A broker or controller that ended although no fault ended it: what its log said last."""
        for broker in self.nodes:
            if self._has_ended_by_itself(broker) and not self.has_given_up(broker):
                return (
                    f"{self._kind_of(broker)} {broker} ended by itself; its log"
                    f" {self._log_of(broker)} says last: {self.last_words(broker)}"
                )
        return None

    def _find_standing_node(self) -> str | None:
        """A broker or controller that stands still although no fault has paused it."""
        now = time.monotonic()
        for node in sorted(self._started):
            by_fault = node in self.paused or node in self.severed
            if by_fault or not self.cluster.is_stopped(node):
                self._stands_since.pop(node, None)
            elif now - self._stands_since.setdefault(node, now) >= _STANDS_STILL_S:
                return f"{self._kind_of(node)} {node} stands still: somebody sent it a SIGSTOP."
        return None

    def _kind_of(self, node: int) -> str:
        return "Controller" if node in self.cluster.controllers else "Broker"

    def _has_ended_by_itself(self, node: int) -> bool:
        known = node in self._started and node not in self.severed
        return known and not self.cluster.is_up(node)

    def has_given_up(self, node: int) -> bool:
        """A broker ended itself, as Kafka does that is ahead of its leader (up to 2.0, with unclean
        elections off), or that loses ZooKeeper while it starts. That is what the system does of
        faults, and no failure of a run that starts it again (`lets_give_up`)."""
        if not (self.lets_give_up and self._has_ended_by_itself(node)):
            return False
        return _GAVE_UP.search(self._last_lines(node)) is not None

    def last_words(self, node: int) -> str:
        """Of a node that has ended: one line."""
        lines = self._last_lines(node)
        given_up = _GAVE_UP.search(lines)
        if given_up is None:
            return last_said(lines) or "nothing"
        at = lines.rfind("\n", 0, given_up.start()) + 1
        return lines[at:].partition("\n")[0]

    def _last_lines(self, node: int) -> str:
        """Of its log, since it was last started."""
        return last_lines(self._log_of(node), _LAST_LINES).rpartition(_KAFKA_STARTS)[2]

    def _log_of(self, node: int) -> Path:
        kind = "controller" if node in self.cluster.controllers else "broker"
        return self.cluster.logs()[f"{kind}-{node}"]

    def is_reachable(self, broker: int) -> bool:
        """Up, and neither paused nor cut off from all."""
        return (
            self.cluster.is_up(broker) and broker not in self.paused and broker not in self.severed
        )

    async def is_listening(self, broker: int) -> bool:
        """Whether a broker's own port accepts a connection, paused or not.

        Of a cluster that is just used that is its own affair.
        """
        if not self.cluster.managed:
            return True
        try:
            _, writer = await asyncio.open_connection(
                self.machines.address(broker), self.cluster.ports(broker)[1]
            )
        except OSError:
            return False
        writer.close()
        return True

    # --- waiting ---------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        """Returns as soon as the condition holds. Raises TimeoutError that says what did not."""
        deadline = time.monotonic() + within_s
        look_at = time.monotonic()
        while not condition():
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + _INCIDENT_LOOK_S
                incident = self.find_incident()
                if incident is not None:
                    raise IncidentError(incident)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"after {within_s:g} s this is still not true: {what}")
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left, _FILE_LOOK_S)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # --- events ----------------------------------------------------------------------------------

    def _on_gate_event(self, event: Mapping[str, Any]) -> None:
        missed = self.holds.take(event, self.severed | self.gone)
        if missed is not None:
            self.problems.append(missed)
        match event["event"]:
            case "round" if event["phase"] == "started":
                self.last_fetch_ns[event["follower"]] = event["at_ns"]
            case "hold_started" | "dropped" | "delayed" | "answered" | "capped":
                self._hit(event)
            case "connection_opened":
                self.connections[event["link"]] += 1
            case "rule_failed":
                self.problems.append(event["why"])
            case "controller_answered":
                self.controllers_answered.setdefault(event["error"], set()).add(event["controller"])
        self._changed.set()

    def _hit(self, event: Mapping[str, Any]) -> None:
        """The history has the first few of each rule: when, and between whom."""
        rule = event["rule"]
        self.hits[rule] += 1
        if self.hits[rule] <= _HITS_NOTED:
            ends = {"from": event["source"], "to": event["destination"]}
            named = {key: self.names.get(end, end) for key, end in ends.items()}
            said = {"rule": rule, "how": event["event"], event["message"]: event["api"]}
            self.note_nemesis({"hit": {**said, **named}}, event["at_ns"])

    def _on_client_event(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "sent" if event["type"] == "ok":
                self.sends.acked[record_of(event["value"])] = event["offset"]
            case "sent" if event["type"] == "fail":
                self.sends.failed[record_of(event["value"])] = event["error"]
            case "sent":
                self.sends.unknown[record_of(event["value"])] = event["error"]
            case "polled" if event["value"] is not None:
                self.sends.consumed[record_of(event["value"])] = event["offset"]
                if "client" in event:
                    self.sends.taken.setdefault(event["client"], set()).add(event["value"])
            case "handled" if event["value"] is not None:
                self.sends.handled[event["value"]] = self.sends.handled.get(event["value"], 0) + 1
            case "assigned":
                self.sends.assigned[event["client"]] = event["count"]
            case "notified":
                self.sends.notified[event["client"]] = event["error"]
            case "committed":
                self.sends.committed[event["group"], event["partition"]] = event["offset"]
                self.sends.commits += 1
        self._changed.set()

    def _on_view(self, view: PartitionView | None) -> None:
        if view is not None:
            self._count_isr_change(view)
            self._note(
                OBSERVER_PROCESS,
                "leader",
                topic=self.spec.topic.name,
                partition=view.partition,
                leader_epoch=view.leader_epoch,
                value=view.to_json(),
            )
        self._changed.set()

    def _count_isr_change(self, view: PartitionView) -> None:
        isr = frozenset(view.isr)
        before = self._isrs.get(view.partition)
        self._isrs[view.partition] = isr
        if before is not None and before != isr:
            self.isr_changes[view.partition] = self.isr_changes.get(view.partition, 0) + 1

    def note_settings(self, topic: TopicSpec, settings: Mapping[str, str]) -> None:
        """What rules have to know of each partition is in the history."""
        for partition in sorted(topic.assignment):
            for name, value in settings.items():
                self._note(
                    NEMESIS_PROCESS,
                    "setting",
                    topic=topic.name,
                    partition=partition,
                    key=name,
                    value=value,
                )

    def note_deletion(self, topic: str, partition: int, before: int) -> None:
        """Records below this offset are deleted on purpose."""
        self._note(
            NEMESIS_PROCESS, "delete-records", topic=topic, partition=partition, offset=before
        )

    def note_nemesis(self, value: Mapping[str, Any], invoked_ns: int) -> None:
        """A fault is an operation of the history too."""
        self.on_nemesis(value)
        self._note(NEMESIS_PROCESS, "nemesis", invoked_ns, value=json.dumps(value))

    def _note(self, process: int, f: str, invoked_ns: int | None = None, **what: Any) -> None:
        """An operation of no client, which ends now; it began now, too, unless that is said."""
        now_ns = self.recorder.now_ns()
        self.recorder.write(
            operation=self.recorder.new_operation(),
            process=process,
            f=f,
            type="info",
            invoked_ns=now_ns if invoked_ns is None else invoked_ns,
            completed_ns=now_ns,
            **what,
        )
