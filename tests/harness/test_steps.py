"""The command `steps`, and the answer in the report of a run that has lost something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.harness.scenarios.left_out import (
    PLAYS_WITH_A_RUN,
    leave_out,
    leave_out_of_losing,
    leave_out_of_run,
)
from neaptide.nemesis.scenario import load_scenario
from neaptide.results.left_out import STEPS_FILE, read_left_out
from neaptide.results.store import write_run
from tests.harness.command import neaptide
from tests.results.losing_run import RUN, write_losing_run

AGREES = 0
SIMULATED = ("--host", "simulation")


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
def test_a_run_that_loses_says_which_step_matters(tmp_path: Path) -> None:
    asked = ("run", "acks-1-loss", "--system", "neaptide:2.1", "--seed", "5", "--json", *SIMULATED)
    done, verdict = neaptide(tmp_path, *asked)
    assert done.returncode == AGREES, done.stderr
    run = Path(verdict["run"])
    found = json.loads((run / "steps.json").read_text(encoding="utf-8"))
    assert (found["outcome"], found["seed"]) == ("lost", 5)
    assert [step["matters"] for step in found["steps"]][3:] == ["decides", "decides"]
    assert "Which step matters" in (run / "report.html").read_text(encoding="utf-8")

    again_asked = ("steps", run.name, "--plays", "3", "--seed", "8", "--json")
    done, again = neaptide(tmp_path, *again_asked)
    assert done.returncode == AGREES, done.stderr
    assert (again["plays"], again["seed"]) == (3, 8)
    assert json.loads((run / "steps.json").read_text(encoding="utf-8")) == again
    assert "(seed 8)" in (run / "report.html").read_text(encoding="utf-8")


def test_a_system_that_holds_has_no_step_that_matters() -> None:
    scenario = load_scenario(scenario_files()["hw-truncation-loss"])
    losing = leave_out(scenario, "neaptide:0.10", plays=1, seed=1)
    assert [step.still("lost") for step in losing.steps] == [0, 0, 0, 0, 1, 0, 0]
    assert losing.steps[5].words == "kills C (SIGKILL); what it had sent is discarded"
    assert losing.steps[5].until == "leader is B and held(A, B)"
    holding = leave_out(scenario, "neaptide:0.11", plays=1, seed=1)
    assert (holding.outcome, holding.steps) == ("held", ())


@pytest.mark.parametrize(
    ("name", "system", "says"),
    [
        ("acks-1-loss", "kafka:3.9.1", "choose one with --system"),
        ("acks-1-loss", "neaptide:9", "choose one with --system"),
        ("rebalance-duplicate", "neaptide:4.0", "cannot play rebalance-duplicate"),
    ],
)
def test_what_cannot_be_played_is_said(name: str, system: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        leave_out(load_scenario(scenario_files()[name]), system, plays=1, seed=1)


def test_a_random_run_and_a_run_of_kafka_get_no_answer(tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "run")
    for other, says in (
        ({"kind": "random"}, "`neaptide shrink`"),
        ({"schedule": {"title": "x"}}, "cannot be read"),
        ({"schedule": None}, "no run of a scenario"),
    ):
        write_run(run, replace(RUN, **other))
        with pytest.raises(UsageError, match=says):
            leave_out_of_run(run, plays=1)
        leave_out_of_losing(run)
    document = load_scenario(scenario_files()["acks-1-loss"]).document
    write_run(run, replace(RUN, system="kafka:3.9.1", schedule=document))
    leave_out_of_losing(run)
    assert not (run / STEPS_FILE).exists()


def test_who_asked_already_is_not_answered_again(tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "run")
    document = load_scenario(scenario_files()["acks-1-loss"]).document
    write_run(run, replace(RUN, system="neaptide:2.1", schedule=document))
    asked = leave_out_of_run(run, plays=1)
    leave_out_of_losing(run)
    assert read_left_out(run) == asked
    (run / STEPS_FILE).unlink()
    leave_out_of_losing(run)
    found = read_left_out(run)
    assert found is not None
    assert (found.plays, found.seed, found.outcome) == (PLAYS_WITH_A_RUN, RUN.seed, "lost")
