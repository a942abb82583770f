"""Makes worlds: brokers of a generation, with the cluster that a scenario describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.model import TopicConfiguration
from neaptide.clusters.broker.replication.settings import replication_settings
from neaptide.clusters.cluster import STILL
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.simulation.parts import WorldSpec
from neaptide.clusters.simulation.world import World, start_world
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import Scenario, Topic
from neaptide.nemesis.search.observed import WorldObserved

SESSION_TIMEOUT_MS = "6000"
SOCKET_TIMEOUT_MS = "30000"
RETENTION_CHECK_MS = "300000"
START_WITHIN_US = 60_000_000


def world_spec(
    rules: Generation,
    settings: Mapping[str, str],
    brokers: tuple[int, ...],
    topic: str,
    assignment: Mapping[int, tuple[int, ...]],
    topic_settings: Mapping[str, str],
    producer: ProducerOptions | None = None,
    offsets: TopicConfiguration | None = None,
    transactions: TopicConfiguration | None = None,
) -> WorldSpec:
    return WorldSpec(
        rules,
        replication_settings({**STILL, **settings}, rules),
        brokers,
        topic,
        TopicConfiguration(dict(assignment), dict(topic_settings)),
        session_timeout_ms=int(settings.get("zookeeper.session.timeout.ms", SESSION_TIMEOUT_MS)),
        socket_timeout_ms=int(settings.get("replica.socket.timeout.ms", SOCKET_TIMEOUT_MS)),
        retention_check_ms=int(settings.get("log.retention.check.interval.ms", RETENTION_CHECK_MS))
        if "retention.bytes" in topic_settings
        else None,
        producer=producer or ProducerOptions(),
        offsets=offsets,
        transactions=transactions,
    )


def spec_of(scenario: Scenario, rules: Generation) -> WorldSpec:
    ids = scenario.brokers
    return world_spec(
        rules,
        scenario.settings,
        tuple(ids[name] for name in scenario.start_order),
        scenario.topic.name,
        _assignment(scenario.topic, ids),
        scenario.topic.settings,
        scenario.producer,
        _configuration(scenario.offsets, ids),
        _transactions(scenario, rules),
    )


def _configuration(topic: Topic | None, ids: Mapping[str, int]) -> TopicConfiguration | None:
    if topic is None:
        return None
    return TopicConfiguration(_assignment(topic, ids), topic.settings)


def _transactions(scenario: Scenario, rules: Generation) -> TopicConfiguration | None:
    """Where the scenario has it; else as the brokers' settings say, one after the other."""
    given = _configuration(scenario.transactions, scenario.brokers)
    opened = [one.step for one in scenario.steps if isinstance(one.step, steps.OpenClient)]
    if given is not None or not any(one.transactional_id for one in opened):
        return given
    settings = replication_settings(scenario.settings, rules)
    ids = sorted(scenario.brokers.values())
    replicas = min(settings.transaction_state_log_replication_factor, len(ids))
    assignment = {
        number: tuple((ids[number % len(ids) :] + ids)[:replicas])
        for number in range(settings.transaction_state_log_num_partitions)
    }
    least = {"min.insync.replicas": str(settings.transaction_state_log_min_isr)}
    return TopicConfiguration(assignment, least)


def _assignment(topic: Topic, ids: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
    return {
        partition: tuple(ids[name] for name in replicas)
        for partition, replicas in enumerate(topic.assignment)
    }


def ready_world(spec: WorldSpec, watch: Callable[[World], None] = lambda world: None) -> World:
    """A world at rest: the partitions are led, all their replicas are there and level."""
    world = start_world(spec, watch)
    observed = WorldObserved(world)
    deadline_us = world.now_us + START_WITHIN_US
    while not (observed.settled_at(0) and observed.commits_settled() and observed.others_settled()):
        if not world.advance(deadline_us):
            raise AssertionError("the cluster of the simulation does not start")
    return world
