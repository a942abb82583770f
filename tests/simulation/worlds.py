"""Worlds for tests: three brokers, one partition led by C, then B, then A; A is controller."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.simulation.network import Noise
from neaptide.clusters.simulation.parts import WorldSpec
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.worlds import ready_world, world_spec

A, B, C = 1, 2, 3
SETTINGS = {
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.backoff.ms": "100",
    "zookeeper.session.timeout.ms": "6000",
    "min.insync.replicas": "2",
}


def spec(
    generation: str = "2.1",
    noise: Noise | None = None,
    producer: ProducerOptions | None = None,
    **settings: str,
) -> WorldSpec:
    given = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    made = world_spec(GENERATIONS[generation], given, (A, B, C), "t", {0: (C, B, A)}, {}, producer)
    if noise is None:
        return made
    return WorldSpec(
        made.rules, made.settings, made.brokers, made.topic, made.configuration, noise=noise
    )


def ready(
    generation: str = "2.1",
    noise: Noise | None = None,
    producer: ProducerOptions | None = None,
    **settings: str,
) -> World:
    return ready_world(spec(generation, noise, producer, **settings))


def until(world: World, condition: Callable[[], bool], within_ms: int = 60_000) -> None:
    deadline_us = world.now_us + within_ms * 1_000
    while not condition():
        assert world.advance(deadline_us) or condition(), "it never came to that"


def run_for(world: World, duration_ms: int) -> None:
    end_us = world.now_us + duration_ms * 1_000
    while world.advance(end_us):
        pass


def log(world: World, broker: int) -> list[object]:
    return [value for _, _, value in world.disks[broker].logs[world.partition].values()]
