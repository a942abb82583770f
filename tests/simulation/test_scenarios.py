"""The documented scenarios in the simulation: the same files as on live brokers, the same ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import parse_place
from neaptide.harness.play.scenario import play
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.predictions import unseen_sights
from neaptide.harness.scenarios.systems import check_system_on, parse_systems
from neaptide.nemesis.scenario import Scenario, expected_outcome
from neaptide.nemesis.search.mutants import BY_NAME
from neaptide.nemesis.search.play import is_simulated, simulate
from neaptide.nemesis.steps import VERBS
from neaptide.results.run import Aim, read_run
from tests.proof import proof_but

SCENARIOS = {scenario.name: (path, scenario) for path, scenario in documented([])}
CELLS = [
    (name, generation)
    for name, (_, scenario) in SCENARIOS.items()
    for generation in GENERATIONS
    if expected_outcome(scenario, f"neaptide:{generation}") is not None and is_simulated(scenario)
]


# Long ones, of which the other generations are played by `make proof`.
LONG = {"lag-messages-flapping": ("0.8", "4.0"), "slow-follower-in-isr": ("0.10", "4.0")}
KEPT = [cell for cell in CELLS if cell[1] in LONG.get(cell[0], GENERATIONS)]


def _scenario(name: str) -> Scenario:
    return SCENARIOS[name][1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "generation"), proof_but(CELLS, *KEPT))
def test_a_documented_scenario_ends_as_the_documents_say(name: str, generation: str) -> None:
    scenario, system = _scenario(name), f"neaptide:{generation}"
    played = simulate(
        scenario,
        GENERATIONS[generation],
        look=lambda observed: unseen_sights(scenario, system, observed),
    )
    assert played.missed == ""
    assert played.disagreements == ()
    assert played.judged.outcome == expected_outcome(scenario, system)


def _steps_noted(name: str, generation: str) -> list[str]:
    noted: list[str] = []
    simulate(_scenario(name), GENERATIONS[generation], lambda world: noted.extend)
    return noted


@pytest.mark.parametrize("name", ["all-replicas-down-true", "power-loss-all-unflushed"])
def test_several_that_die_at_one_moment_are_each_a_row_as_in_a_live_run(name: str) -> None:
    verb = "power_off" if name.startswith("power") else "kill"
    assert _steps_noted(name, "2.1").count(verb) >= 3


def test_what_the_simulation_notes_is_called_as_in_files() -> None:
    names = {
        verb
        for name, (_, scenario) in SCENARIOS.items()
        if is_simulated(scenario) and name not in LONG
        for verb in _steps_noted(name, "2.1")
    }
    assert {"elect", "hold", "kill", "power_off"} <= names
    assert names <= {*VERBS, "measured"}


def test_a_follower_that_counts_as_caught_up_on_any_fetch_leads_and_loses() -> None:
    """What slow-follower-in-isr is for: the rule of Kafka before 0.9, on a broker of today."""
    naive = BY_NAME["caught-up-on-any-fetch"].rules
    played = simulate(_scenario("slow-follower-in-isr"), naive)
    assert (played.missed, played.judged.outcome) == ("", "lost")


def _digest(scenario: Path, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "neaptide.harness.play.simulation", str(scenario), "neaptide:0.10"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_one_schedule_writes_the_same_bytes_in_any_process() -> None:
    path, _ = SCENARIOS["hw-truncation-loss"]
    first, second = _digest(path, "1"), _digest(path, "2")
    assert len(first.strip()) == 64
    assert first == second
    other, _ = SCENARIOS["acks-1-loss"]
    assert _digest(other, "1") != first


def test_the_simulation_refuses_what_it_cannot_run() -> None:
    with pytest.raises(UsageError, match="The simulation runs our own broker"):
        check_system_on(parse_systems(["kafka:3.9.1"])[0], parse_place("simulation"))


def test_a_simulated_run_says_where_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    path, scenario = SCENARIOS["acks-1-loss"]
    [system] = parse_systems(["neaptide:2.1"])
    place = parse_place("simulation")
    played = asyncio.run(play(scenario, system, 3, str(path), lambda line: None, place))
    run = read_run(played.run)
    assert (run.host, run.status, run.aim) == ("simulation", "finished", Aim(True))
    assert "--host simulation" in run.repeat
    assert played.disagreements == ()
