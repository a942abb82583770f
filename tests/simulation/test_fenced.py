"""A zombie that is fenced, and one that is not: what `fenced` says, and what explore writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation import faults
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import COORDINATION
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search.command import TOPIC_SETTINGS
from neaptide.nemesis.search.document import Cluster, document_of
from neaptide.nemesis.search.explore import play_moves
from neaptide.nemesis.search.observed import WorldObserved
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.targets import Target
from neaptide.nemesis.search.worlds import ready_world
from tests.simulation.searches import SETTINGS, search
from tests.simulation.worlds import A, B, C

ZOMBIE = (steps.Cut("B", COORDINATION, "coordination", both=True), steps.Await())
BEFORE_FENCING = ("0.8", "0.10", "0.11", "2.0")
IN_NEW_EPOCHS = [name for name, rules in GENERATIONS.items() if rules.shrinks_in_new_epoch]


def _target(generation: str) -> Target:
    return replace(search(generation), faults=("zombie",)).target()


def _played(generation: str, *schedule: steps.Step) -> tuple[World, WorldObserved]:
    target = _target(generation)
    world = ready_world(target.spec)
    play_moves(world, target.names, schedule)
    return world, WorldObserved(world)


@pytest.mark.parametrize("generation", IN_NEW_EPOCHS)
def test_a_zombie_that_follows_in_an_earlier_epoch_is_fenced_from_kip_320_on(
    generation: str,
) -> None:
    world, observed = _played(generation, *ZOMBIE)
    assert world.brokers[B].partitions[world.partition].leader_epoch < (
        observed.leader_epoch() or 0
    )
    is_fenced = generation not in BEFORE_FENCING
    assert [observed.fenced(number) for number in (A, B, C)] == [False, is_fenced, False]
    assert (B in observed.isr()) is not is_fenced


def test_a_zombie_whose_leaders_epoch_stays_follows_outside_the_isr() -> None:
    """KAFKA-15021, and KIP-841: who is not registered is not put into an ISR."""
    world, observed = _played("4.0", *ZOMBIE)
    assert world.brokers[B].partitions[world.partition].leader_epoch == observed.leader_epoch()
    assert not observed.fenced(B)
    assert set(observed.isr()) == {A, C}
    play_moves(world, _target("4.0").names, (steps.Produce(("m1",)), steps.Await()))
    assert observed.log_end_offset_on_disk(B) == 1
    assert set(observed.isr()) == {A, C}


def test_who_was_fenced_follows_again_once_it_learns_of_the_epoch() -> None:
    world, observed = _played("2.1", *ZOMBIE)
    assert observed.fenced(B)
    play_moves(world, _target("2.1").names, (steps.Heal("B", COORDINATION), steps.Await()))
    assert not observed.fenced(B)
    assert B in observed.isr()


def test_a_process_that_died_was_notified_of_nothing() -> None:
    world, observed = _played("2.1", *ZOMBIE)
    copy = world.copy()
    faults.kill(world, B)
    assert not observed.fenced(B)
    assert WorldObserved(copy).fenced(B)


# --- what explore writes --------------------------------------------------------------------------

SAID = (*ZOMBIE, steps.Produce(("m1",)), steps.Kill("C", "discarded"), steps.Produce(("m2",)))


def _document(generation: str, schedule: tuple[steps.Step, ...]) -> str:
    target = _target(generation)
    return document_of(
        target,
        ready_world(target.spec),
        schedule,
        Cluster(SETTINGS, TOPIC_SETTINGS),
        title="a zombie",
        source="a test",
        expect={f"neaptide:{generation}": "held"},
    )


def _line(text: str, start: str) -> str:
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line


def test_a_step_waits_for_a_zombie_in_the_isr_or_for_its_being_fenced() -> None:
    text = _document("2.0", ZOMBIE)
    assert "(isr is {C, B, A} or isr is {C, A} and fenced(B))" in text
    assert "fenced" not in _document("2.1", ZOMBIE)  # there it is out of the ISR already


def test_a_record_goes_to_who_leads_where_a_zombie_believes_in_another() -> None:
    text = _document("2.0", SAID)
    assert _line(text, 'produce = { record = "m1"').endswith('"m1" }')
    assert _line(text, 'produce = { record = "m2"').endswith('to = "A" }')


def test_what_was_acknowledged_with_a_zombies_part_may_fail_elsewhere() -> None:
    text = _document("2.0", SAID)
    assert "(acked(m1) or error(m1) is not nobody)" in text


@pytest.mark.parametrize("generation", IN_NEW_EPOCHS)
def test_such_a_file_is_concluded_where_a_zombie_is_in_the_isr_or_fenced(generation: str) -> None:
    scenario = parse_scenario("found", _document("2.0", SAID[:4]), "found.toml")
    assert simulate(scenario, GENERATIONS[generation]).missed == ""
