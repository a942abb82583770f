"""C5 in the simulation: elections on demand, controlled shutdown, and partitions that move."""

from __future__ import annotations

from typing import Any

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS as RULES
from neaptide.clusters.simulation import faults, producing
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.search import Search
from tests.simulation.worlds import SETTINGS, A, B, C, log, ready, run_for, until

GENERATIONS = ["0.8", "0.10", "2.1", "2.8", "4.0"]
STOPS: dict[str, Any] = {"controlled_shutdown_enable": "true"}


def _acked(world: World, value: str) -> bool:
    producing.produce(world.clients, value, acks=-1)
    until(world, lambda: value in world.clients.acked)
    return True


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_a_preferred_leader_is_elected(generation: str) -> None:
    world = ready(generation)
    faults.kill(world, C)
    until(world, lambda: world.service.states[world.partition].leader == B)
    faults.restart(world, C)
    until(world, lambda: C in world.service.states[world.partition].isr)
    world.network.notify(world.service.elect((world.partition,)))
    until(world, lambda: world.service.states[world.partition].leader == C)
    until(world, lambda: world.service.elections is None)
    assert _acked(world, "m1")


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("who", [A, B, C], ids=["controller", "follower", "leader"])
def test_c5_a_stopping_broker_is_relieved_before_its_process_ends(
    generation: str, who: int
) -> None:
    world = ready(generation, **STOPS)
    assert _acked(world, "m1")
    faults.stop(world, who)
    assert who in world.network.listening
    until(world, lambda: who not in world.network.listening)
    state = world.service.states[world.partition]
    assert state.leader != who
    assert _acked(world, "m2")
    faults.restart(world, who)
    until(world, lambda: who in world.service.states[world.partition].isr)
    assert log(world, who) == ["m1", "m2"]


@pytest.mark.parametrize("generation", ["2.0", *GENERATIONS[2:]])
def test_c5_a_topic_is_deleted_whichever_broker_is_down_and_who_controls_changes(
    generation: str,
) -> None:
    world = ready(generation)
    assert _acked(world, "m1")
    faults.kill(world, B)
    topic = world.partition.topic
    world.network.notify(world.service.mark(topic))
    run_for(world, 2_000_000)
    assert topic in world.service.topics
    assert world.partition not in world.nodes[C].disk.logs
    world.network.notify(world.service.depose())
    run_for(world, 2_000_000)
    assert world.partition in world.nodes[B].disk.logs
    faults.restart(world, B)
    until(world, lambda: topic not in world.service.topics)
    assert world.service.marked == ()
    assert not any(world.partition in node.disk.logs for node in world.nodes.values())


def test_c5_where_deletion_is_disabled_the_mark_goes_and_the_topic_stays() -> None:
    world = ready("0.10")
    world.network.notify(world.service.mark(world.partition.topic))
    until(world, lambda: world.service.marked == ())
    assert _acked(world, "m1")


def test_c5_switched_off_the_process_ends_at_once() -> None:
    world = ready("2.1")
    faults.stop(world, C)
    assert C not in world.network.listening
    assert world.service.states[world.partition].leader == C


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_c5_a_broker_that_its_controller_does_not_answer_ends_all_the_same(how: str) -> None:
    world = ready("2.8", replica_socket_timeout_ms="3000", **STOPS)
    if how == "cut":
        faults.cut(world, C, A, "coordination", both=True)
        faults.stop(world, C)
    else:
        faults.stop(world, C)
        faults.kill(world, A)
    until(world, lambda: C not in world.network.listening)
    until(world, lambda: world.service.states[world.partition].leader in (A, B))


def test_c5_a_copy_of_a_world_in_which_a_broker_stops_goes_its_own_way() -> None:
    world = ready("2.8", **STOPS)
    faults.stop(world, C)
    other = world.copy()
    until(other, lambda: C not in other.network.listening)
    assert C in world.network.listening
    until(world, lambda: C not in world.network.listening)
    assert world.now_us == other.now_us


@pytest.mark.parametrize("generation", GENERATIONS)
def test_c5_a_partition_moves_and_its_log_is_gone_where_it_was(generation: str) -> None:
    world = ready(generation)
    assert _acked(world, "m1")
    partition = world.partition
    for target in ((B, A), (A, C, B)):
        world.network.notify(world.service.reassign({partition: target}))
        until(world, lambda: not world.service.reassignments)
        until(
            world,
            lambda wanted=set(target): (
                wanted  # type: ignore[misc]
                == {broker for broker, disk in world.disks.items() if partition in disk.logs}
            ),
        )
        assert world.service.topics[partition.topic].assignment[0] == target
        assert set(world.service.states[partition].isr) == set(target)
        assert world.service.states[partition].leader in target
    assert _acked(world, "m2")
    run_for(world, 2_000)
    assert [log(world, broker) for broker in (A, B, C)] == [["m1", "m2"]] * 3


@pytest.mark.parametrize("generation", ["0.11", "2.1", "2.8", "4.0"])
def test_c5_a_search_in_which_brokers_stop_and_leaders_go_back_finds_nothing(
    generation: str,
) -> None:
    on = {"controlled.shutdown.enable": "true", "auto.leader.rebalance.enable": "true"}
    search = Search(
        RULES[generation],
        ("all",),
        ("stop", "kill", "hold", "cut", "wait"),
        {**SETTINGS, **on, "leader.imbalance.check.interval.seconds": "1"},
        {"min.insync.replicas": "2"},
        150,
        watched=True,
    )
    assert explore_seed(search, 1).loss is None


@pytest.mark.parametrize("generation", ["2.1", "2.8", "4.0"])
def test_c10_ids_follow_from_names_and_their_order_and_outlive_what_happens(
    generation: str,
) -> None:
    world, other = ready(generation), ready(generation)
    topic = world.partition.topic
    topic_id = world.service.topics[topic].topic_id
    assert (topic_id is not None) == (generation != "2.1")
    assert other.service.topics == world.service.topics  # no run differs from another in that
    before = world.service.controller_epoch
    faults.kill(world, A)
    until(world, lambda: world.service.controller not in (None, A))
    faults.restart(world, A)
    until(
        world,
        lambda: (
            len(world.brokers) == 3
            and all(world.partition in one.partitions for one in world.brokers.values())
        ),
    )
    assert world.service.controller_epoch > before
    assert world.service.topics[topic].topic_id == topic_id
    held = {broker.partitions[world.partition].topic_id for broker in world.brokers.values()}
    assert held == {topic_id}
