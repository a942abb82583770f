"""The simulation through the command: run, repro, explore and replay, as a person uses them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.harness.command import neaptide

pytestmark = [pytest.mark.live, pytest.mark.spark]

AGREES, ANOMALY, USAGE = 0, 1, 64
SIMULATED = ("--host", "simulation")


@pytest.mark.proof
def test_the_command_that_repeats_a_run_repeats_it(tmp_path: Path) -> None:
    asked = ("run", "acks-1-loss", "--system", "neaptide:2.1", "--seed", "5", "--json", *SIMULATED)
    done, verdict = neaptide(tmp_path, *asked)
    assert (done.returncode, verdict["outcome"]) == (AGREES, "lost"), done.stderr
    run = json.loads((Path(verdict["run"]) / "run.json").read_text(encoding="utf-8"))
    repeat = shlex.split(run["repeat"])
    assert repeat[:3] == ["neaptide", "run", "acks-1-loss"]
    again, verdict = neaptide(tmp_path, *repeat[1:], "--json")
    assert (again.returncode, verdict["outcome"]) == (AGREES, "lost"), again.stderr


def test_documented_scenarios_agree_in_virtual_time(tmp_path: Path) -> None:
    done, found = neaptide(tmp_path, "repro", "hw-truncation-loss", "--json", *SIMULATED)
    assert done.returncode == AGREES, done.stderr
    outcomes = {result["system"]: result["observed"] for result in found["results"]}
    assert (outcomes["neaptide:0.10"], outcomes["neaptide:2.1"]) == ("lost", "held")
    assert {result["host"] for result in found["results"]} == {"simulation"}


@pytest.mark.proof
def test_what_explore_finds_replay_loses_again(tmp_path: Path) -> None:
    search = ("explore", "--system", "neaptide:2.1", "--acks", "1", "--seed", "0", "--seeds", "2")
    done, found = neaptide(tmp_path, *search, "--json")
    assert done.returncode == ANOMALY, done.stderr
    [best, *_] = found["found"]
    assert best["outcome"] == "lost"
    assert best["shrunk_steps"] <= best["steps"]
    replayed = ("replay", best["schedule"], "--system", "neaptide:2.1", "--twice", "--json")
    done, reported = neaptide(tmp_path, *replayed, *SIMULATED)
    assert done.returncode == AGREES, done.stderr
    assert "the same bytes" in done.stderr
    assert [result["observed"] for result in reported["results"]] == ["lost"]


def test_a_real_kafka_cannot_be_simulated(tmp_path: Path) -> None:
    asked = ("replay", "x.toml", "--system", "kafka:3.9.1", *SIMULATED)
    (tmp_path / "x.toml").write_text("title = 1", encoding="utf-8")
    done, _ = neaptide(tmp_path, *asked)
    assert done.returncode == USAGE
    assert done.stderr.strip().count("\n") == 0
