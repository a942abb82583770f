"""What the controller of a test's cluster is asked, and a cluster of four."""

from __future__ import annotations

from typing import Any

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.interface.coordination_service import (
    ClusterLoaded,
    ControllerElected,
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    SessionStarted,
    WriteLeaderAndIsr,
)
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
)
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, C, T
from tests.core.world import World

ALL = {b: BrokerRegistration(b, (), epoch=b) for b in (A, B, C)}


def led_by(leader: int, isr: tuple[int, ...] = (A, B, C), epoch: int = 4) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr, 1, version=7)


def controller(
    state: LeaderAndIsr,
    generation: str = "2.8",
    live: tuple[int, ...] = (A, B, C),
    **settings: Any,
) -> Broker:
    """Broker A, controller of epoch 2; the preferred leader of T is B."""
    one = given.broker(generation, unclean_leader_election_enable=False, **settings)
    step(one, SessionStarted(1), NOW)
    step(one, ControllerElected(2), NOW)
    brokers = {b: ALL[b] for b in live}
    step(one, ClusterLoaded(2, brokers, {"t": TopicConfiguration({0: (B, A, C)})}, {T: state}), NOW)
    step(one, LeaderAndIsrRead((T,), {T: state}), NOW)
    return one


def asked(done: tuple[Effect, ...], kind: type) -> list[object]:
    requests = [e.request for e in done if isinstance(e, effects.Coordinate)]
    return [request for request in requests if isinstance(request, kind)]


def read(one: Broker, state: LeaderAndIsr) -> tuple[Effect, ...]:
    return step(one, LeaderAndIsrRead((T,), {T: state}), NOW)


def written(one: Broker, done: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """The only write among these effects takes place."""
    (write,) = asked(done, WriteLeaderAndIsr)
    assert isinstance(write, WriteLeaderAndIsr)
    return step(one, LeaderAndIsrWritten(T, write.state, True), NOW)


D = 4


def four(generation: str, *replicas: int, **settings: Any) -> World:
    overrides = {"unclean_leader_election_enable": False, **settings}
    return World(generation, **overrides).start(A, B, C, D).run().topic(*replicas).run()
