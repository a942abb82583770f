"""P4, P5: what is sent again is there once and in its order, with idempotence; and without it not.

Every test has its twin: the same doings by a producer that is not idempotent, or by a core with one
rule broken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.partition.partition_rules import isr_of
from neaptide.clusters.producer import ProducerOptions
from neaptide.clusters.simulation import faults, producing
from neaptide.clusters.simulation.network import CLIENT, Hold
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.scenario import load_scenario, parse_scenario
from neaptide.nemesis.search.episode import explore_seed
from neaptide.nemesis.search.mutants import BY_NAME, applied
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.search import Search
from tests.proof import proof_but
from tests.simulation.worlds import SETTINGS, A, B, C, log, ready, run_for, until

WITH = [name for name, rules in GENERATIONS.items() if rules.idempotence is not None]
IDEMPOTENT = ProducerOptions(idempotence=True)
SENDS_AGAIN = ProducerOptions(retries=3)


def _acked(world: World, *values: str) -> bool:
    return all(value in world.clients.acked for value in values)


def _lose_an_answer(generation: str, producer: ProducerOptions) -> World:
    """m1 is committed, its acknowledgement is lost with the connection; then m2 is sent."""
    world = ready(generation, producer=producer)
    faults.cut(world, C, CLIENT, "client", both=False)
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: all(log(world, broker) == ["m1"] for broker in (A, B, C)))
    run_for(world, 50)
    faults.heal(world, C, CLIENT)
    until(world, lambda: _acked(world, "m1"))
    producing.produce(world.clients, "m2", acks=-1)
    until(world, lambda: _acked(world, "m2"))
    return world


@pytest.mark.parametrize("generation", WITH)
def test_p4_a_record_that_is_sent_again_is_there_once(generation: str) -> None:
    world = _lose_an_answer(generation, IDEMPOTENT)
    assert log(world, C) == ["m1", "m2"]
    assert world.clients.acked == {"m1": 0, "m2": 1}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_p4_without_idempotence_it_is_there_twice(generation: str) -> None:
    world = _lose_an_answer(generation, SENDS_AGAIN)
    assert log(world, C) == ["m1", "m1", "m2"]
    assert world.clients.acked == {"m1": 1, "m2": 2}


def _lose_a_leader(producer: ProducerOptions) -> World:
    """m1 is on C and B, A is kept from it, so that nobody acknowledges it before C dies."""
    world = ready(producer=producer)
    faults.hold(world, Hold("h", "response", "fetch", C, A))
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: log(world, B) == ["m1"])
    assert not _acked(world, "m1")
    faults.kill(world, C)
    until(world, lambda: _acked(world, "m1"))
    return world


def test_p4_the_new_leader_knows_what_it_had_replicated() -> None:
    assert log(_lose_a_leader(IDEMPOTENT), B) == ["m1"]
    assert log(_lose_a_leader(SENDS_AGAIN), B) == ["m1", "m1"]


@pytest.mark.parametrize("mutant", ["sequences-not-checked", "followers-learn-nothing"])
def test_p4_a_new_leader_that_does_not_know_appends_it_again(mutant: str) -> None:
    with applied(BY_NAME[mutant]):
        assert log(_lose_a_leader(IDEMPOTENT), B) == ["m1", "m1"]


def _lose_all_processes() -> World:
    """m1 is on every disk when all brokers die; its producer waits until they are back."""
    world = ready(producer=IDEMPOTENT)
    faults.cut(world, C, CLIENT, "client", both=False)
    producing.produce(world.clients, "m1", acks=-1)
    until(world, lambda: all(log(world, broker) == ["m1"] for broker in (A, B, C)))
    for broker in (A, B, C):
        faults.kill(world, broker)
    faults.heal(world)
    for broker in (A, B, C):
        faults.restart(world, broker)
    until(world, lambda: _acked(world, "m1"))
    return world


def test_p4_a_broker_that_starts_knows_what_is_on_its_disk() -> None:
    assert log(_lose_all_processes(), C) == ["m1"]
    with applied(BY_NAME["producers-not-read"]):
        assert log(_lose_all_processes(), C) == ["m1", "m1"]


def _ask_twice() -> World:
    """m1 waits on C for A and B; its producer gets no answer for so long that it sends it again."""
    world = ready(producer=IDEMPOTENT, replica_lag_time_max_ms="60000")
    for follower in (A, B):
        faults.hold(world, Hold(f"h{follower}", "response", "fetch", C, follower))
    producing.produce(world.clients, "m1", acks=-1)
    run_for(world, 5_600)
    return world


def test_p4_a_duplicate_is_not_acknowledged_before_it_is_committed() -> None:
    world = _ask_twice()
    assert log(world, C) == ["m1"]
    assert not _acked(world, "m1")
    with applied(BY_NAME["duplicates-acked-at-once"]):
        assert _acked(_ask_twice(), "m1")
    for follower in (A, B):
        faults.release(world, f"h{follower}")
    until(world, lambda: _acked(world, "m1"))
    assert world.clients.acked == {"m1": 0}
    assert log(world, C) == ["m1"]


# --- as a scenario file ---------------------------------------------------------------------------

SENT_AGAIN = Path(__file__).parent / "scenarios" / "sent-again.toml"


@pytest.mark.parametrize("generation", WITH)
def test_p4_a_scenario_file_chooses_idempotence(generation: str) -> None:
    played = simulate(load_scenario(SENT_AGAIN), GENERATIONS[generation])
    assert (played.missed, played.judged.outcome) == ("", "held")
    assert played.world.clients.acked == {"m1": 0, "m2": 1}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_p4_without_idempotence_the_same_steps_duplicate(generation: str) -> None:
    text = SENT_AGAIN.read_text().replace("idempotence = true", "retries = 3")
    played = simulate(parse_scenario("twin", text, "twin.toml"), GENERATIONS[generation])
    assert (played.missed, played.judged.outcome) == ("", "duplicated")


@pytest.mark.proof
def test_p4_one_schedule_with_idempotence_writes_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "neaptide.harness.play.simulation",
                str(SENT_AGAIN),
                "neaptide:2.1",
            ],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


# --- P5 ------------------------------------------------------------------------------------------


def _believes_to_be_alone(world: World) -> bool:
    """C may learn later than the service that its ISR is larger."""
    led = world.brokers[C].led(world.partition)
    return led is not None and set(isr_of(led)) == {C}


def _orders(generation: str, producer: ProducerOptions) -> set[tuple[object, ...]]:
    """m1 and m2 are sent while the ISR of one grows, at every moment of it: what C then has.

    Whoever comes before it is large enough is refused with NOT_ENOUGH_REPLICAS, and sent again.
    """
    world = ready(generation, producer=producer)
    stays = generation == "4.0"  # who has all that there is, whether it fetches or not
    lacks_one = GENERATIONS[generation].caught_up_at_log_end and not stays
    for follower in (A, B):
        if stays:
            faults.stop(world, follower)
        else:
            faults.cut(world, C, follower, "replication", both=True)
    if lacks_one:
        producing.produce(world.clients, "m0", acks=1)
    until(world, lambda: set(world.service.states[world.partition].isr) == {C})
    if stays:
        for follower in (A, B):
            faults.restart(world, follower)
    else:
        faults.heal(world)
    found = set()
    while set(world.service.states[world.partition].isr) == {C} or _believes_to_be_alone(world):
        other = world.copy()
        producing.produce(other.clients, "m1", acks=-1)
        m2_us = other.now_us + 600  # m1 has arrived by then, and its answer not yet
        while other.advance(m2_us):
            pass
        producing.produce(other.clients, "m2", acks=-1)
        until(other, lambda other=other: not other.clients.unsettled)  # type: ignore[misc]
        found.add(tuple(log(other, C))[lacks_one:])
        world.advance()
    return found


@pytest.mark.parametrize("generation", ["0.10", "2.1"])
def test_p5_with_several_in_flight_what_is_sent_again_comes_late(generation: str) -> None:
    several = ProducerOptions(max_in_flight=5, retries=3)
    assert ("m2", "m1") in _orders(generation, several)


@pytest.mark.parametrize("generation", ["0.10", "2.1"])
def test_p5_with_one_in_flight_it_comes_in_order(generation: str) -> None:
    assert _orders(generation, SENDS_AGAIN) == {("m1", "m2")}


@pytest.mark.parametrize("generation", ["2.0", "2.1"])
def test_p5_with_idempotence_five_in_flight_come_in_order(generation: str) -> None:
    assert _orders(generation, ProducerOptions(True, 5)) == {("m1", "m2")}


def test_p5_a_producer_of_whom_nothing_is_known_may_begin_anywhere_from_kip_360_on() -> None:
    """So m1, refused before anything was known, can come no more: it is not acknowledged."""
    assert _orders("4.0", ProducerOptions(True, 5)) == {("m1", "m2"), ("m2",)}


def test_p5_without_the_check_idempotence_keeps_no_order() -> None:
    with applied(BY_NAME["late-sequences-taken"]):
        assert ("m2", "m1") in _orders("2.1", ProducerOptions(True, 5))


# --- the search ----------------------------------------------------------------------------------


def _search(generation: str, schedules: int, *, watched: bool = False) -> Search:
    faults_drawn = ("kill", "hold", "cut", "pause", "wait", "stop", "zombie")
    outcomes = ("diverged", "lost", "reordered", "duplicated")
    return Search(
        GENERATIONS[generation],
        ("all",),
        faults_drawn,
        SETTINGS,
        {"min.insync.replicas": "2"},
        schedules,
        watched=watched,
        outcomes=outcomes,
        idempotence=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("generation", proof_but(["2.1", "4.0"], "4.0"))
def test_p4_the_unbroken_generations_are_silent(generation: str) -> None:
    assert explore_seed(_search(generation, 600), 3).loss is None
    assert explore_seed(_search(generation, 60, watched=True), 4).loss is None


@pytest.mark.slow
def test_p4_a_duplicate_is_found_from_nothing_and_its_file_says_so_again() -> None:
    with applied(BY_NAME["followers-learn-nothing"]):
        found = explore_seed(_search("2.1", 3_000), 6)
        again = explore_seed(_search("2.1", 3_000), 6)
    assert found == again
    assert found.loss is not None
    assert found.loss.outcome == "duplicated"
    assert "idempotence = true" in found.loss.document
