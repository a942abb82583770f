"""A cluster for plays: a front of the simulation, where messages take no time.

Nothing moves by itself: `run` delivers what may be delivered now, in the order in which it was
sent; `advance` lets time pass. A message that a rule of `holds` matches stays where it is, and so
does what is behind it on its link. The search's invariants are checked after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicConfiguration, TopicPartition
from neaptide.clusters.simulation import faults, world
from neaptide.clusters.simulation.disk import Disk
from neaptide.clusters.simulation.network import SERVICE, Hold, Link
from neaptide.nemesis.search.worlds import world_spec
from tests.core.invariants import Looking

__all__ = ["SERVICE", "A", "B", "C", "T", "World", "cluster"]

T = TopicPartition("t", 0)
A, B, C = 1, 2, 3
MANY_EVENTS = 100_000  # that no play comes to: the cluster does not come to rest


class Message(NamedTuple):
    source: int
    target: int
    body: object
    sequence: int


Rule = Callable[[Message], bool]


@dataclass(frozen=True)
class HoldOf(Hold):
    """A hold of the simulation whose rule is a function."""

    rule: Callable[[Link, object], bool] = lambda link, body: False

    def matches(self, link: Link, body: object) -> bool:
        return self.rule(link, body)


class World:
    def __init__(self, generation: str | Generation, **settings: Any) -> None:
        rules = GENERATIONS[generation] if isinstance(generation, str) else generation
        spec = world_spec(rules, _named(settings), (), T.topic, {}, {})
        self.simulation = world.World(replace(spec, latency_us=0))
        self.service = self.simulation.service
        self.looking = self.simulation.watch = Looking(self.simulation.spec)
        self.answers, self.refused = self.looking.answers, self.looking.refused
        self.holds: list[Rule] = []
        self.is_still = False  # nothing is delivered
        faults.hold(
            self.simulation, HoldOf("of the play", "request", "any", 0, 0, rule=self._keeps)
        )

    # --- the cluster -----------------------------------------------------------------------------

    def start(self, *broker_ids: int) -> World:
        for broker_id in broker_ids:
            self.simulation.start(broker_id)
        return self

    def topic(self, *replicas: int, **settings: Any) -> World:
        self.service.add_topic(T.topic, TopicConfiguration({0: replicas}, _named(settings)))
        self.simulation.network.notify(self.service.topics_changed())
        return self

    def kill(self, broker_id: int, *, lose_from: int | None = None) -> None:
        """SIGKILL; what was in flight from or to it is discarded, its session is gone at once."""
        if lose_from is None:
            faults.kill(self.simulation, broker_id)
        else:
            self.looking.lose_pages()
            faults.power_off(self.simulation, broker_id, {T.partition: lose_from})

    def stop(self, broker_id: int) -> None:
        """A clean shutdown: nothing is lost, and the next start can say so. It is over when the
        broker has been relieved, where controlled.shutdown.enable is on."""
        faults.stop(self.simulation, broker_id)

    def expire(self, broker_id: int) -> None:
        """The session ends, the broker lives on and does not know it before `register`."""
        faults.expire(self.simulation, broker_id)

    def register(self, broker_id: int) -> None:
        faults.register(self.simulation, broker_id)

    def delete_before(self, broker_id: int, offset: int) -> None:
        """Retention deletes, whatever it keeps; a broker that runs learns of it."""
        node = self.simulation.nodes[broker_id]
        node.disk.logs[T].advance_start(offset)
        node.deleted[T] = offset
        if broker_id in self.brokers:
            self.handle(broker_id, events.LogStartAdvanced(T, offset))

    def handle(self, broker_id: int, event: object) -> None:
        self.simulation.handle(broker_id, event)

    # --- clients ---------------------------------------------------------------------------------

    def produce(
        self, identity: str, *, to: int | None = None, acks: int = -1, timeout_ms: int = 30_000
    ) -> int:
        """Sends one record to the leader that the service names; returns the request's number."""
        batches = (events.ProducedBatch(1, 100, identity),)
        request = self.simulation.network.number()
        produced = events.ProduceRequested(request, acks, timeout_ms, ((T, batches),))
        self.handle(self.leader if to is None else to, produced)
        return request

    def result(self, request: int) -> Error | None:
        """What a produce request came to; None while it waits."""
        for answer in self.answers.get(request, ()):
            assert isinstance(answer, effects.RespondProduce)
            return answer.results[0].error
        return None

    def is_acked(self, request: int) -> bool:
        return self.result(request) is Error.NONE

    # --- looking ---------------------------------------------------------------------------------

    @property
    def brokers(self) -> dict[int, Broker]:
        return self.simulation.brokers

    @property
    def disks(self) -> dict[int, Disk]:
        return self.simulation.disks

    @property
    def now_ms(self) -> int:
        return self.simulation.now_us // 1_000

    @property
    def leader(self) -> int:
        return self.service.states[T].leader

    @property
    def isr(self) -> tuple[int, ...]:
        return self.service.states[T].isr

    def log(self, broker_id: int) -> list[object]:
        return [batch.identity for batch in self.disks[broker_id].logs[T].batches]

    def offsets(self, broker_id: int) -> tuple[int, int]:
        """(LEO, HW) of a replica."""
        partition = self.brokers[broker_id].partitions[T]
        return partition.log.end_offset, partition.high_watermark

    # --- time and messages -----------------------------------------------------------------------

    @property
    def in_flight(self) -> list[Message]:
        """In the order of sending."""
        network = self.simulation.network
        entries = sorted((*network.messages, *network.waiting), key=lambda one: one.sequence)
        return [
            Message(e.link.source, e.link.target, e.body, e.sequence) for e in entries if e.link
        ]

    def hold(self, body: type, *, source: int | None = None, target: int | None = None) -> Rule:
        def matches(message: Message) -> bool:
            return (
                isinstance(message.body, body)
                and source in (None, message.source)
                and target in (None, message.target)
            )

        self.holds.append(matches)
        return matches

    def held(self) -> list[Message]:
        return [m for m in self.in_flight if any(rule(m) for rule in self.holds)]

    def _keeps(self, link: Link, body: object) -> bool:
        if self.is_still or not self.holds:
            return self.is_still
        message = Message(link.source, link.target, body, 0)
        return any(rule(message) for rule in self.holds)

    def run(self) -> World:
        """Delivers in the order of sending until nothing but held messages is left."""
        return self.advance(0)

    def deliver(self, message: Message) -> None:
        """This one, whatever keeps it up."""
        (entry,) = self.simulation.network.remove(lambda one: one.sequence == message.sequence)
        self.simulation.deliver_now(entry)

    def advance(self, duration_ms: int, *, deliver: bool = True) -> World:
        """Lets time pass, and delivers meanwhile, or does not."""
        end_us = self.simulation.now_us + duration_ms * 1_000
        self.is_still = not deliver
        self.simulation.network.unblock()
        for _ in range(MANY_EVENTS):
            if not self.simulation.advance(end_us):
                break
        else:
            raise AssertionError("the cluster does not come to rest")
        self.is_still = False
        self.simulation.network.unblock()
        return self


def _named(settings: dict[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): str(value).lower() for name, value in settings.items()}


def cluster(
    generation: str | Generation, replicas: tuple[int, ...] = (A, B, C), **settings: Any
) -> World:
    """Brokers A, B and C with the topic t, level and at rest; A is the controller."""
    overrides = {"unclean_leader_election_enable": False, **settings}
    return World(generation, **overrides).start(*sorted(replicas)).run().topic(*replicas).run()
