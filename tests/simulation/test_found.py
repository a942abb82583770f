"""The found schedules that ship with the package do again what they were found for."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.nemesis.scenario import Scenario, expected_outcome, load_scenario
from neaptide.nemesis.search.play import simulate
from tests.simulation.searches import FOUND

# Found on this generation, by nothing but the search.
FOUND_ON = {
    "acks-1-loss": "4.0",
    "commit-loss": "2.1",
    "commit-truncation-loss": "0.10",
    "hw-truncation-loss": "0.10",
    "kip-279-divergence": "0.11",
    "kip-320-divergence": "2.0",
    "last-replica-standing": "2.1",
    "zombie-follower-divergence": "0.10",
}


def _found(name: str) -> Scenario:
    return load_scenario(FOUND[name])


def test_all_that_is_there_is_known() -> None:
    assert sorted(FOUND) == sorted(FOUND_ON)
    for name, generation in FOUND_ON.items():
        assert f"explore --system neaptide:{generation} " in _found(name).source[0]


@pytest.mark.parametrize("name", FOUND_ON)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_found_schedule_comes_to_what_its_file_says(name: str, generation: str) -> None:
    """Three times. Where nothing is said, its steps cannot be played there: that is no outcome."""
    scenario = _found(name)
    outcomes = {simulate(scenario, GENERATIONS[generation]).judged.outcome for _ in range(3)}
    expected = expected_outcome(scenario, f"neaptide:{generation}")
    assert outcomes == {expected or "unknown"}


def test_the_newest_generation_holds_but_what_acks_1_may_lose() -> None:
    for name in FOUND_ON:
        outcome = simulate(_found(name), GENERATIONS["4.0"]).judged.outcome
        assert (outcome == "lost") is (name == "acks-1-loss"), name
        assert outcome != "diverged"
