"""The world of the simulation: time, links, disks and sessions, each seen to stop what it stops."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation import faults, producing
from neaptide.clusters.simulation.network import Clock, Hold, Noise
from neaptide.clusters.simulation.world import World
from tests.simulation.worlds import A, B, C, log, ready, run_for, until


def _acked(world: World, value: str) -> bool:
    return value in world.clients.acked


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_record_is_replicated_and_acknowledged(generation: str) -> None:
    world = ready(generation)
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: _acked(world, "m1"))
    assert [log(world, broker) for broker in (A, B, C)] == [["m1"]] * 3


def test_a_copy_goes_its_own_way() -> None:
    world = ready()
    other = world.copy()
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: _acked(world, "m1"))
    assert other.clients.acked == {}
    assert log(other, C) == []
    producing.produce(other.clients, "m2", acks=-1)
    until(other, lambda: _acked(other, "m2"))
    assert (log(world, A), log(other, A)) == (["m1"], ["m2"])


def test_two_worlds_with_the_same_doings_are_the_same() -> None:
    first, second = ready(), ready()
    for world in (first, second):
        producing.produce(world.clients, "m1", acks=-1)
        until(world, lambda world=world: _acked(world, "m1"))  # type: ignore[misc]
        faults.kill(world, C)
        run_for(world, 3_000)
    assert first.now_us == second.now_us
    assert first.network.messages == second.network.messages
    assert first.brokers == second.brokers


def test_a_held_message_stays_until_it_is_released() -> None:
    world = ready()
    rule = Hold("h", "request", "fetch", A, C)
    faults.hold(world, rule)
    producing.produce(world.clients, "m1", acks=-1)
    run_for(world, 3_000)
    assert "h" in world.network.ever_held
    assert not _acked(world, "m1")
    faults.release(world, "h")
    until(world, lambda: _acked(world, "m1"))


def test_a_discarded_message_breaks_its_connection_and_is_asked_again() -> None:
    world = ready()
    faults.hold(world, Hold("h", "response", "fetch", C, A))
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: "h" in world.network.ever_held)
    assert faults.discard(world, "h") == 1
    until(world, lambda: _acked(world, "m1"))
    assert log(world, A) == ["m1"]


def test_a_follower_gives_a_held_answer_up_after_its_socket_time_out() -> None:
    world = ready(replica_lag_time_max_ms="60000")
    faults.hold(world, Hold("h", "response", "fetch", C, A, times=1))
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: "h" in world.network.ever_held)
    until(world, lambda: log(world, A) == ["m1"], within_ms=40_000)


@pytest.mark.parametrize(("delivered", "arrives"), [(True, ["m1"]), (False, [])])
def test_the_schedule_says_what_becomes_of_a_dead_brokers_messages(
    delivered: bool, arrives: list[str]
) -> None:
    world = ready()
    faults.hold(world, Hold("h", "response", "fetch", C, A, lambda f: bool(f["records_bytes"])))
    producing.produce(world.clients, "m1", acks=1)
    until(world, lambda: "h" in world.network.ever_held)
    faults.hold(world, Hold("never again", "request", "fetch", A, B))
    faults.kill(world, C, delivered=delivered)
    assert log(world, A) == arrives


def test_a_power_failure_takes_what_was_not_flushed_and_a_kill_takes_nothing() -> None:
    world = ready()
    for value in ("m1", "m2"):
        producing.produce(world.clients, value, acks=-1)
    until(world, lambda: _acked(world, "m2"))
    faults.kill(world, A)
    assert log(world, A) == ["m1", "m2"]
    assert faults.power_off(world, B, {0: 1}) == {0: 1}
    assert log(world, B) == ["m1"]


def test_a_clean_stop_flushes() -> None:
    world = ready()
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: _acked(world, "m1"))
    faults.stop(world, A)
    assert world.disks[A].was_clean
    assert world.disks[A].lose_page_cache({}) == {world.partition: 0}
    assert world.disks[A].high_watermarks[world.partition] >= 0


@pytest.mark.parametrize("fault", ["pause", "cut"])
def test_a_session_ends_when_its_broker_is_not_reached(fault: str) -> None:
    world = ready()
    begun_us = world.now_us
    if fault == "pause":
        faults.pause(world, C)
    else:
        faults.cut(world, C, -1, "coordination", both=True)
    until(world, lambda: C not in world.service.sessions, within_ms=10_000)
    assert world.now_us - begun_us == 6_000_000
    until(world, lambda: world.service.states[world.partition].leader == B)
    if fault == "pause":
        faults.resume(world, C)
    else:
        faults.heal(world)
    until(world, lambda: set(world.service.states[world.partition].isr) == {A, B, C})


def test_a_short_pause_ends_no_session() -> None:
    world = ready()
    faults.pause(world, C)
    run_for(world, 5_000)
    faults.resume(world, C)
    run_for(world, 20_000)
    assert world.service.states[world.partition].leader == C


def test_a_zombie_controller_is_refused() -> None:
    world = ready()
    faults.pause(world, A)
    until(world, lambda: world.service.controller not in (A, None))
    faults.kill(world, C)
    faults.resume(world, A)
    until(world, lambda: world.service.states[world.partition].leader == B)
    until(world, lambda: A in world.service.sessions)
    assert world.service.controller != A


def test_noise_delays_and_breaks_but_loses_nothing_that_was_acknowledged() -> None:
    world = ready(noise=Noise(seed=7, jitter_us=20_000, loss_per_million=20_000))
    for number in range(30):
        producing.produce(world.clients, f"m{number}", acks=-1)
    until(world, lambda: not world.clients.unsettled, within_ms=600_000)
    acked = set(world.clients.acked)
    assert acked
    assert acked <= set(log(world, world.service.states[world.partition].leader))


def test_noise_is_its_seeds_alone() -> None:
    draws = [[Noise(seed).draw(number) for number in range(5)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_a_clock_runs_ahead_of_time_and_its_timers_are_early() -> None:
    fast = Clock(offset_ms=5, drift_per_million=100_000)
    assert fast.now_ms(1_000_000) == 1_105
    assert fast.duration_us(1_100) == 1_000_000
