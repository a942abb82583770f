"""Producers that wait a while for other records: one request, several partitions."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.simulation import faults, producing
from neaptide.clusters.simulation.network import Hold
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.explore import watched_world
from neaptide.nemesis.search.targets import target_of
from tests.simulation.worlds import SETTINGS, A, B, C, log, ready, until

LINGER_MS = 500


def _ready(linger_ms: int = LINGER_MS, *, idempotence: bool = False) -> World:
    target = target_of(
        GENERATIONS["2.1"],
        SETTINGS,
        {"min.insync.replicas": "2"},
        ("all",),
        ("kill",),
        watched=False,
        partitions=2,
        linger_ms=linger_ms,
        idempotence=idempotence,
    )
    world = watched_world(target)
    assert isinstance(world, World)
    return world


def _requested(world: World) -> list[list[tuple[int, str]]]:
    """The partitions and records of each request on its way."""
    return [
        [(number.partition, str(batch.identity)) for number, (batch,) in entry.body.partitions]
        for entry in world.network.messages
        if isinstance(entry.body, events.ProduceRequested)
    ]


def _produce(world: World, value: str, partition: int, acks: int = -1) -> None:
    producing.produce(world.clients, value, acks, partition)


@pytest.mark.parametrize("idempotence", [False, True])
def test_records_of_two_partitions_share_a_request(idempotence: bool) -> None:
    world = _ready(idempotence=idempotence)
    _produce(world, "m1", 0)
    assert _requested(world) == []
    _produce(world, "m2", 1)
    assert _requested(world) == [[(0, "m1"), (1, "m2")]]
    until(world, lambda: not world.clients.unsettled)
    assert world.clients.acked == {"m1": 0, "m2": 0}


def test_without_linger_each_record_has_its_request() -> None:
    world = _ready(linger_ms=0)
    _produce(world, "m1", 0)
    _produce(world, "m2", 1)
    assert _requested(world) == [[(0, "m1")]]  # one request in flight


def test_a_record_that_stays_alone_is_sent_after_a_while() -> None:
    world = _ready()
    _produce(world, "m1", 0)
    begun_us = world.now_us
    until(world, lambda: bool(world.clients.acked))
    assert world.now_us >= begun_us + LINGER_MS * 1_000


def test_order_stays_within_a_partition_and_acks_are_of_a_request() -> None:
    world = _ready()
    for value, partition, acks in (("m1", 0, -1), ("m2", 0, -1), ("m3", 1, 1), ("m4", 1, -1)):
        _produce(world, value, partition, acks)
    seen: list[list[tuple[int, str]]] = []

    def all_are_answered() -> bool:
        seen.extend(one for one in _requested(world) if one not in seen)
        return not world.clients.unsettled

    until(world, all_are_answered)
    assert [value for request in seen for _, value in request] == ["m1", "m2", "m3", "m4"]
    assert world.clients.acked == {"m1": 0, "m2": 1, "m3": 0, "m4": 1}


def test_what_got_no_answer_is_unknown_in_each_partition() -> None:
    world = _ready()
    _produce(world, "m1", 0)
    _produce(world, "m2", 1)
    faults.kill(world, C)
    until(world, lambda: not world.clients.unsettled)
    assert [end.kind for _, end in world.clients.sends.values()] == ["info", "info"]


def test_what_was_sent_before_is_not_surely_refused() -> None:
    """A leader that steps down answers NOT_LEADER_OR_FOLLOWER to what it has appended; its
    successor has the record, and refuses it for its ISR."""
    world = ready("2.1")
    faults.kill(world, B)
    until(world, lambda: B not in world.service.states[world.partition].isr)
    has_it = Hold("h", "request", "fetch", A, C, lambda facts: int(facts["fetch_offset"] or 0) > 0)
    faults.hold(world, has_it)
    producing.produce(world.clients, "m1", -1)
    until(world, lambda: log(world, A) == ["m1"])
    faults.expire(world, C)
    until(world, lambda: world.service.states[world.partition].leader == A)
    faults.hold(world, Hold("i", "request", "fetch", C, A))
    faults.register(world, C)
    until(world, lambda: "m1" in world.clients.sends)
    _, outcome = world.clients.sends["m1"]
    assert (outcome.kind, outcome.error) == ("info", "NOT_ENOUGH_REPLICAS")
    assert log(world, A) == ["m1"]
