"""A random run of a whole cluster, drawn from one seed: what the plays have not thought of.

Brokers are killed and restarted without losing what they wrote, sessions end under living brokers,
messages wait and overtake those of other links (never those of their own). The generation's rules
alone decide whether an acknowledged record survives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from neaptide.clusters.simulation.network import CLIENT
from tests.core.world import A, B, C, World, cluster

REPLICAS = (A, B, C)


@dataclass
class Run:
    world: World
    produced: dict[int, str] = field(default_factory=dict)
    sessionless: set[int] = field(default_factory=set)

    @property
    def acked(self) -> set[str]:
        return {name for request, name in self.produced.items() if self.world.is_acked(request)}

    @property
    def lost(self) -> set[str]:
        return self.acked - set(self.world.log(self.world.leader))


def random_run(generation: str, seed: int, length: int = 150) -> Run:
    """Draws faults, then heals the cluster and lets it come to rest."""
    random = Random(seed)
    world = cluster(generation, (C, B, A), min_insync_replicas=2, replica_lag_time_max_ms=3_000)
    run = Run(world)
    for _ in range(length):
        action = random.choices(
            (_produce, _deliver, _wait, _kill, _restart, _expire, _register),
            weights=(6, 20, 6, 1, 2, 0.3, 2),
        )[0]
        action(run, random)
    _heal(run)
    return run


def _produce(run: Run, random: Random) -> None:
    """To any broker that lives: some believe to lead who do not any more."""
    if run.world.brokers:
        name = f"m{len(run.produced)}"
        broker = random.choice(sorted(run.world.brokers))
        run.produced[run.world.produce(name, to=broker)] = name


def _deliver(run: Run, random: Random) -> None:
    for _ in range(random.randint(1, 10)):
        deliver_one(run.world, random)


def deliver_one(world: World, random: Random) -> None:
    """In order on each link; links overtake each other."""
    first = world.simulation.heads()
    links = [link for link in first if link.target != CLIENT]
    if links:
        world.simulation.take(first[random.choice(links)])


def _wait(run: Run, random: Random) -> None:
    run.world.advance(random.choice((10, 200, 500, 1_600)), deliver=False)


def _kill(run: Run, random: Random) -> None:
    if len(run.world.brokers) > 1:
        broker = random.choice(sorted(run.world.brokers))
        run.world.kill(broker)
        run.sessionless.discard(broker)


def _restart(run: Run, random: Random) -> None:
    dead = sorted(set(REPLICAS) - set(run.world.brokers))
    if dead:
        run.world.start(random.choice(dead))


def _expire(run: Run, random: Random) -> None:
    broker = random.choice(sorted(run.world.brokers))
    if broker not in run.sessionless:
        run.world.expire(broker)
        run.sessionless.add(broker)


def _register(run: Run, random: Random) -> None:
    for broker in sorted(run.sessionless):
        run.world.register(broker)
        run.sessionless.discard(broker)


def _heal(run: Run) -> None:
    world = run.world.run()
    for broker in REPLICAS:
        if broker not in world.brokers:
            world.start(broker)
        elif broker in run.sessionless:
            world.register(broker)
    run.sessionless.clear()
    world.advance(20_000)
    last = world.produce("last")
    world.advance(1_000)
    assert world.is_acked(last), "the cluster did not recover"
    assert set(world.isr) == set(REPLICAS), "a replica did not recover"
    run.produced[last] = "last"
