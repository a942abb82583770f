"""The documented scenarios in the simulation: the same files as on live brokers, the same ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.broker.replication.generation import GENERATIONS
from harness.catalog import documented
from harness.predictions import unseen_sights
from harness.simulation.play import play_simulated
from nemesis.scenario import Scenario, expected_outcome
from nemesis.search.play import simulate

SCENARIOS = {scenario.name: (path, scenario) for path, scenario in documented([])}
CELLS = [
    (name, generation)
    for name, (_, scenario) in SCENARIOS.items()
    for generation in GENERATIONS
    if expected_outcome(scenario, f"neaptide:{generation}") is not None
]


def _scenario(name: str) -> Scenario:
    return SCENARIOS[name][1]


@pytest.mark.parametrize(("name", "generation"), CELLS)
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


PLAY = """
import sys
from pathlib import Path
from clusters.broker.replication.generation import GENERATIONS
from harness.catalog import documented
from harness.simulation.play import play_simulated
[(path, scenario)] = documented(["hw-truncation-loss"])
run, _ = play_simulated(scenario, "neaptide:0.10", GENERATIONS["0.10"], 1, str(path))
print(run)
"""


def _play_elsewhere(runs: Path, hash_seed: str) -> dict[str, bytes]:
    environment = {**os.environ, "NEAPTIDE_RUNS": str(runs), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PLAY], env=environment, capture_output=True, text=True, check=True
    )
    run = Path(done.stdout.strip())
    tables = {
        str(file.relative_to(run)): file.read_bytes()
        for table in ("operations", "fetch_rounds", "replicas")
        for file in sorted((run / table).glob("*.parquet"))
    }
    return {"events": (run / "logs" / "events.log").read_bytes(), **tables}


def test_one_schedule_writes_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    first = _play_elsewhere(tmp_path / "a", "1")
    second = _play_elsewhere(tmp_path / "b", "2")
    assert len(first["events"]) > 1_000
    assert first == second


def test_a_simulated_run_says_where_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    path, scenario = SCENARIOS["acks-1-loss"]
    run, seen = play_simulated(scenario, "neaptide:2.1", GENERATIONS["2.1"], 3, str(path))
    assert seen == ()
    assert '"host": "simulation"' in (run / "run.json").read_text(encoding="utf-8")
