"""The world: which node gets the next event, and when. Nodes, in virtual time, one event a step.

`advance` takes the next event that is due and gives it to its node. What is due when follows from
the spec and from what was done to the world, and from nothing else: the same doings give the same
events. A world can be copied at any moment, and the copy goes another way. No rule of replication
is here, and no chance but the spec's `noise`. What a node does is in its own module.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop
from typing import Final, Protocol

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation import (
    blocking,
    broker_calls,
    controlling,
    effect_handlers,
    fetching,
    producing,
    retaining,
)
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.coordination_node import CoordinationNode
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.network import (
    CLIENT,
    CLIENTS,
    CONTROL,
    CONTROL_ANSWERS,
    COORDINATION,
    FETCH,
    SERVICE,
    ControlAnswered,
    Entry,
    Link,
)
from neaptide.clusters.simulation.network_node import Network
from neaptide.clusters.simulation.parts import (
    Register,
    RequestTimedOut,
    RetentionDue,
    SessionTimedOut,
    TimerDue,
    WorldSpec,
)
from neaptide.clusters.simulation.service import Service

ALL_TIME: Final = 1 << 62


class Watch(Protocol):
    """Sees every step of the core, after its effects; may raise. A fast search has none."""

    def started(self, world: World, broker_id: int) -> None: ...
    def handled(
        self, world: World, broker_id: int, event: object, done: tuple[Effect, ...]
    ) -> None: ...
    def served(self, world: World) -> None: ...
    def copy(self) -> Watch: ...


class World:
    """Make one with `start_world`; change it with the functions of `faults`, and its clients with
    those of `producing` and `committing`."""

    __slots__ = ("clients", "coordination", "network", "nodes", "partition", "spec", "watch")

    def __init__(self, spec: WorldSpec) -> None:
        self.spec = spec
        self.partition = TopicPartition(spec.topic, 0)  # that is looked at; decides nothing
        self.network = Network(spec)
        self.nodes: dict[int, BrokerNode] = {}
        self.coordination = CoordinationNode(self.network)
        self.clients = ClientNode(self.network, self.nodes, spec.producer)
        self.watch: Watch | None = None

    def copy(self) -> World:
        """A world that can go another way. Values are shared, holders are not."""
        other = World.__new__(World)
        other.spec = self.spec
        other.partition = self.partition
        network = other.network = self.network.copy()
        other.nodes = {number: node.copy(network) for number, node in self.nodes.items()}
        other.coordination = self.coordination.copy(network)
        other.clients = self.clients.copy(network, other.nodes)
        other.watch = None if self.watch is None else self.watch.copy()
        return other

    # --- looking ---------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.network.now_us

    @property
    def brokers(self) -> dict[int, Broker]:
        """The cores of those that run, in the order of their starts."""
        return {number: self.nodes[number].core for number in self.network.listening}

    @property
    def disks(self) -> dict[int, Disk]:
        """Also of brokers that do not run."""
        return {number: node.disk for number, node in self.nodes.items()}

    @property
    def service(self) -> Service:
        return self.coordination.service

    def deleted_before(self, partition: TopicPartition) -> int:
        """What retention was allowed to delete: all before this, on one broker at least."""
        return max((node.deleted.get(partition, 0) for node in self.nodes.values()), default=0)

    # --- what is due -----------------------------------------------------------------------------

    def advance(self, until_us: int = ALL_TIME) -> bool:
        """Takes the next event that is due by then and is not blocked; False: there is none."""
        network = self.network
        messages, own = network.messages, network.own
        while messages or own:
            is_message = bool(messages) and (not own or messages[0] < own[0])
            heap = messages if is_message else own
            if heap[0].due_us > until_us:
                break
            entry = heappop(heap)
            if self._take_message(entry) if is_message else self._take_own(entry):
                return True
            messages, own = network.messages, network.own
        if until_us != ALL_TIME:
            network.reach(until_us)
        return False

    def heads(self) -> dict[Link, Entry]:
        """The first message of each link, in the order of the links, that nothing keeps up."""
        first: dict[Link, Entry] = {}
        for entry in sorted(self.network.messages, key=lambda one: one.sequence):
            if entry.link is not None:
                first.setdefault(entry.link, entry)
        return {
            link: first[link]
            for link in sorted(first)
            if link.channel != CONTROL or link.target in self.network.listening
        }

    def take(self, entry: Entry) -> bool:
        """Delivers a message out of turn, before all that is due earlier on other links."""
        self.network.messages.remove(entry)
        heapify(self.network.messages)
        return self._take_message(entry)

    def _take_message(self, entry: Entry) -> bool:
        """True where it has arrived."""
        network, link = self.network, entry.link
        assert link is not None
        if blocking.is_blocked(network, link, entry):
            network.keep_up(entry, link)
            if link.channel == FETCH:
                fetching.expect_time_out(network, entry)
            return False
        network.reach(entry.due_us)
        if (network.holds or self.spec.noise) and blocking.is_dropped(network, link, entry):
            if link.channel in (CONTROL, CONTROL_ANSWERS):
                controlling.lose(network, entry)
            elif link.channel in broker_calls.APIS:
                broker_calls.lose(network, entry)
            elif link.channel == CLIENTS:
                producing.break_connection(self.clients, entry)
            else:
                fetching.break_connection(network, link, entry)
            return False
        self._deliver(entry, link)
        return True

    def _take_own(self, entry: Entry) -> bool:
        """What a node has put off: True where it was still meant."""
        network, body = self.network, entry.body
        match body:
            case TimerDue(broker, timer):
                node = self.nodes[broker]
                if node.timers.get(timer) != entry.sequence:
                    return False
                if broker in network.paused:
                    network.waiting.append(entry)
                    return False
                del node.timers[timer]
                network.reach(entry.due_us)
                self.handle(broker, events.TimerFired(timer))
            case RequestTimedOut(number):
                return fetching.take_time_out(network, number, entry.due_us)
            case RetentionDue(broker, started_us):
                if self.nodes[broker].started_us != started_us:
                    return False
                if broker in network.paused:
                    network.waiting.append(entry)
                    return False
                network.reach(entry.due_us)
                for advanced in retaining.retain(self.nodes[broker]):
                    self.handle(broker, advanced)
                retaining.look_again(self.nodes[broker])
            case SessionTimedOut():
                return self.coordination.time_out(body, entry.due_us)
            case controlling.ControlRetry() | controlling.ControlUnanswered():
                return controlling.take(network, body, entry.due_us)
            case broker_calls.CallTimedOut():
                return broker_calls.time_out(network, body, entry.due_us)
            case _:
                network.reach(entry.due_us)
                return producing.take(self.clients, body)
        return True

    # --- delivering ------------------------------------------------------------------------------

    def _deliver(self, entry: Entry, link: Link) -> None:
        network = self.network
        if network.recorder is not None:
            network.recorder.event(entry)
        body = entry.body
        if link.target == SERVICE:
            self.coordination.serve(link.source, body)
            if self.watch is not None:
                self.watch.served(self)
        elif link.target == CLIENT:
            producing.take_answer(self.clients, body)
        elif isinstance(body, ControlAnswered):
            controlling.take_answer(network, body)
            if body.answer.error is not Error.NONE and body.request.link is not None:
                self.handle(body.request.link.source, body.answer)
            network.unblock()
        elif link.target in network.listening:
            if link.channel == COORDINATION and self.coordination.is_of_no_session(
                link.target, body
            ):
                return
            if isinstance(body, fetching.ANSWERS):
                fetching.arrived(network, link.target, body)
            elif link.channel in broker_calls.APIS:
                broker_calls.arrived(network, link.target, link.channel, body)
            requests = controlling.answered_by(self.nodes[link.target], entry, link)
            for request, error in zip(requests, self.handle(link.target, body), strict=False):
                controlling.answer(network, request, error, self.service.marked)

    def deliver_now(self, entry: Entry) -> None:
        """A message that arrives whatever blocks its link."""
        assert entry.link is not None
        if entry.link.target not in self.network.paused:
            self._deliver(entry, entry.link)

    def handle(self, broker_id: int, event: object) -> tuple[Error, ...]:
        """One event for the core. Returns what it answers to controllers, in their order."""
        handled = effect_handlers.handle(self.nodes[broker_id], event)
        if handled.has_halted:
            self.end(broker_id)
        elif self.watch is not None:
            self.watch.handled(self, broker_id, event, handled.effects)
        if handled.may_stop:
            self.stop(broker_id)
        return handled.answers

    # --- processes -------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        """A broker process begins with what is on its disk."""
        node = self.nodes.setdefault(broker_id, BrokerNode(broker_id, self.network))
        unclean = self.spec.rules.eligible_leader_replicas and not node.disk.was_clean
        self.network.listening += (broker_id,)
        fetching.restart(self.network, broker_id)
        effect_handlers.start(node)
        node.own_disk().was_clean = False
        self.network.send(broker_id, SERVICE, COORDINATION, Register(unclean))
        if self.watch is not None:
            self.watch.started(self, broker_id)
        retaining.look_again(node)
        self.coordination.look_at_sessions()
        self.network.unblock()

    def stop(self, broker_id: int) -> None:
        """A clean end: high watermarks checkpointed, logs flushed; what it had sent arrives."""
        effect_handlers.stop(self.nodes[broker_id])
        self.deliver_sent(broker_id)
        self.end(broker_id)

    def deliver_sent(self, broker_id: int) -> None:
        """What a broker that dies had sent to others, in its order; also what was held: the
        schedule says that it arrives."""
        network = self.network
        sent = network.remove(
            lambda e: e.link is not None and broker_id == e.link.source != e.link.target
        )
        for entry in sorted(sent, key=lambda one: one.sequence):
            self.deliver_now(entry)

    def end(self, broker_id: int) -> None:
        """A broker's process is gone: by a fault, or by itself (`Halt`)."""
        network = self.network
        self.nodes[broker_id].end()
        network.listening = tuple(one for one in network.listening if one != broker_id)
        network.paused -= {broker_id}
        fetching.die(network, broker_id)
        broker_calls.die(network, broker_id)
        gone = network.remove(lambda entry: _dies_with(entry, broker_id))
        network.abandoned = tuple(e for e in network.abandoned if not _dies_with(e, broker_id))
        controlling.forget_answers(network, broker_id)
        if network.recorder is not None:
            for entry in gone:
                network.recorder.dropped(entry)
        producing.broken(self.clients, broker_id)
        self.coordination.lose(broker_id)
        network.unblock()


def _dies_with(entry: Entry, broker_id: int) -> bool:
    """All messages from it and to it, but what a controller that lives goes on sending to it."""
    link = entry.link
    if link is None or broker_id not in (link.source, link.target):
        return False
    is_tried_again = link.channel == CONTROL and link.source != broker_id
    return not is_tried_again or isinstance(entry.body, events.ControlResponded)


def start_world(spec: WorldSpec, watch: Callable[[World], None] = lambda world: None) -> World:
    """Brokers up, the first of them controller, the topic there: nothing has been done yet.

    `watch` may set a recorder, before anything happens.
    """
    world = World(spec)
    watch(world)
    for broker_id in spec.brokers:
        world.start(broker_id)
        while world.service.controller is None and world.advance():
            pass
    while len(world.service.sessions) < len(spec.brokers) and world.advance():
        pass
    world.service.add_topic(spec.topic, spec.configuration)
    for topic, configuration in spec.internal_topics.items():
        world.service.add_topic(topic, configuration)
    world.network.notify(world.service.topics_changed())
    return world
