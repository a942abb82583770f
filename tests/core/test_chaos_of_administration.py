"""C5: reassignments, elections and controlled shutdowns at once, with deaths, late messages and
controllers that change: the cluster comes to rest where it was wanted, and nothing acknowledged is
lost. Likewise while a topic is deleted and made again: in the end it is gone, and can be made."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS as RULES
from neaptide.clusters.broker.replication.interface.administration import (
    AlterPartitionReassignmentsRequested,
    Reassigned,
)
from neaptide.clusters.broker.replication.interface.events import (
    DeleteTopicsRequested,
    TopicToDelete,
)
from neaptide.clusters.broker.replication.model import TopicConfiguration
from neaptide.clusters.simulation.network import CLIENT
from tests.core.administered import D, four
from tests.core.world import A, B, C, T, World
from tests.proof import proof_but

ALL = (A, B, C, D)
TARGETS = ((B, C, A), (D, C), (A, D, B), (C, B), (D, A, C))
_FIRST_REQUEST = 1_000_000  # far from the world's own


class Run:
    def __init__(self, generation: str, seed: int) -> None:
        self.random = Random(seed)
        self.keeps_reassignments = RULES[generation].keeps_reassignments_in_topics
        self.world = four(
            generation,
            B,
            C,
            A,
            min_insync_replicas=2,
            replica_lag_time_max_ms=3_000,
            controlled_shutdown_enable=True,
            controlled_shutdown_retry_backoff_ms=500,
            auto_leader_rebalance_enable=seed % 2 == 0,
            leader_imbalance_check_interval_seconds=2,
        )
        self.sent: dict[int, str] = {}
        self.asked = _FIRST_REQUEST

    def notify(self, news: Iterable[tuple[int, object]]) -> None:
        self.world.simulation.network.notify(news)

    # --- what may happen -------------------------------------------------------------------------

    def produce(self) -> None:
        if self.world.leader in self.world.brokers:
            name = f"m{len(self.sent)}"
            self.sent[self.world.produce(name)] = name

    def reassign_by_znode(self) -> None:
        self.notify(self.world.service.reassign({T: self.random.choice(TARGETS)}))

    def reassign_by_api(self) -> None:
        """Or take it back, also what the znode asks for. Where no Kafka of the age has this API,
        the znode is emptied, and topics do not say what goes on. In both its invariant cannot
        hold."""
        if not self.keeps_reassignments or T in self.world.service.reassignments:
            self.world.looking.allowed |= {"reassignment-is-remembered"}
        controller = self.world.service.controller
        if controller in self.world.brokers:
            self.asked += 1
            wanted = (Reassigned(T, self.random.choice([*TARGETS, None])),)
            event = AlterPartitionReassignmentsRequested(self.asked, wanted, 30_000)
            self.world.handle(controller, event)

    def elect(self) -> None:
        self.notify(self.world.service.elect((T,)))

    def depose(self) -> None:
        self.notify(self.world.service.depose())

    def kill(self) -> None:
        if len(self.world.brokers) > 3:
            self.world.kill(self.random.choice(sorted(self.world.brokers)))

    def stop(self) -> None:
        if len(self.world.brokers) > 3:
            self.world.stop(self.random.choice(sorted(self.world.brokers)))

    def start(self) -> None:
        if dead := sorted(set(ALL) - self.world.brokers.keys()):
            self.world.start(self.random.choice(dead))

    def deliver(self) -> None:
        """In order on each link; links overtake each other."""
        for _ in range(self.random.randint(1, 10)):
            first = self.world.simulation.heads()
            links = [link for link in first if link.target != CLIENT]
            if links:
                self.world.simulation.take(first[self.random.choice(links)])

    def wait(self) -> None:
        duration_ms = self.random.choice((10, 200, 1_600))
        self.world.advance(duration_ms, deliver=self.random.random() < 0.5)

    # --- the end ---------------------------------------------------------------------------------

    def heal(self) -> World:
        world = self.world.run().advance(10_000)
        for broker in ALL:
            if broker not in world.brokers:
                world.start(broker)
        world.advance(20_000)
        self.notify(world.service.reassign({T: (B, C, A)}))
        return world.advance(40_000)


DOINGS = {
    Run.produce: 25,
    Run.reassign_by_znode: 7,
    Run.reassign_by_api: 8,
    Run.elect: 4,
    Run.kill: 3,
    Run.stop: 3,
    Run.depose: 2,
    Run.start: 8,
    Run.deliver: 25,
    Run.wait: 15,
}


@pytest.mark.slow
@pytest.mark.parametrize("generation", ["0.11", "2.1", "2.8", "4.0"])
@pytest.mark.parametrize("seed", proof_but(range(15), 0, 1))
def test_c5_whatever_operators_do_the_cluster_comes_to_rest_and_keeps_its_records(
    generation: str, seed: int
) -> None:
    run = Run(generation, seed)
    for _ in range(160):
        [doing] = run.random.choices(list(DOINGS), list(DOINGS.values()))
        doing(run)
    world = run.heal()
    assert tuple(world.service.topics[T.topic].assignment[0]) == (B, C, A)
    assert sorted(world.isr) == [A, B, C]
    assert not world.service.reassignments
    assert world.service.elections is None
    acked = {name for number, name in run.sent.items() if world.is_acked(number)}
    assert acked <= set(world.log(world.leader))


class DeletingRun(Run):
    """What holds of a partition that is never deleted is not asked here."""

    def __init__(self, generation: str, seed: int) -> None:
        super().__init__(generation, seed)
        self.world.simulation.watch = None
        self.has_ids = RULES[generation].topic_ids
        self.made = 0

    def mark(self) -> None:
        self.notify(self.world.service.mark(T.topic))

    def delete(self) -> None:
        controller = self.world.service.controller
        if controller in self.world.brokers:
            self.asked += 1
            event = DeleteTopicsRequested(self.asked, (TopicToDelete(T.topic),), 3_000)
            self.world.handle(controller, event)

    def create(self) -> None:
        if T.topic not in self.world.service.topics:
            self.made += 1
            topic_id = f"made-{self.made}" if self.has_ids else None
            configuration = TopicConfiguration({0: (B, C, A)}, topic_id=topic_id)
            self.world.service.add_topic(T.topic, configuration)
            self.notify(self.world.service.topics_changed())


DELETING = {
    DeletingRun.mark: 2,
    DeletingRun.delete: 2,
    DeletingRun.create: 6,
    Run.elect: 4,
    Run.kill: 3,
    Run.stop: 3,
    Run.depose: 2,
    Run.start: 8,
    Run.deliver: 25,
    Run.wait: 15,
}


@pytest.mark.parametrize("generation", ["2.0", "2.1", "2.8", "4.0"])
@pytest.mark.parametrize("seed", proof_but(range(15), 0, 1))
def test_c5_a_topic_that_is_deleted_is_gone_everywhere_whatever_happens_meanwhile(
    generation: str, seed: int
) -> None:
    run = DeletingRun(generation, seed)
    for _ in range(160):
        [doing] = run.random.choices(list(DELETING), list(DELETING.values()))
        doing(run)
    world = run.world.run().advance(10_000)
    for broker in sorted(set(ALL) - world.brokers.keys()):
        world.start(broker)
    world.advance(20_000)
    run.mark()
    world.advance(20_000)
    assert (world.service.topics, world.service.states, world.service.marked) == ({}, {}, ())
    assert not any(T in node.disk.logs for node in world.simulation.nodes.values())
    run.create()
    world.advance(10_000)
    assert sorted(world.isr) == [A, B, C]
