"""`neaptide matrix`: out of saved runs, without playing any again, judging only what is not."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import parse_place
from neaptide.harness.comparing.matrix import finished_runs, scenario_runs
from neaptide.harness.comparing.repro import cells, not_served
from neaptide.harness.play.scenario import play
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.run import read_run
from neaptide.results.store import write_json, write_run
from tests.harness.command import COMMAND, TIMEOUT_S, neaptide
from tests.results.losing_run import write_losing_run
from tests.results.matrices import save


def test_a_directory_of_runs_stands_for_the_runs_in_it(tmp_path: Path) -> None:
    runs = [save(tmp_path, name, "lost") for name in ("a", "b")]
    (tmp_path / "latest").symlink_to("b")
    assert scenario_runs([str(tmp_path)]) == runs
    assert scenario_runs([str(runs[1]), str(tmp_path)]) == [runs[1], runs[0]]


def test_where_there_is_no_run_of_a_scenario_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no run of a scenario"):
        scenario_runs([str(tmp_path)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcomes", "status"), [(("lost", "lost"), 0), (("lost", "held"), 1), (("unknown",), 2)]
)
def test_the_exit_status_is_that_of_the_worst_cell(
    tmp_path: Path, outcomes: tuple[str, ...], status: int
) -> None:
    for number, outcome in enumerate(outcomes):
        save(tmp_path / "runs", str(number), outcome)
    page = tmp_path / "matrix.md"
    done, document = neaptide(
        tmp_path, "matrix", str(tmp_path / "runs"), "--matrix", str(page), "--json"
    )
    assert done.returncode == status, done.stderr
    assert document["cells"][0]["observed"] == list(outcomes)
    assert "acks-1-loss" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_without_a_terminal_a_cell_still_has_its_sign(tmp_path: Path) -> None:
    save(tmp_path / "runs", "a", "held")
    arguments = ("matrix", str(tmp_path / "runs"), "--matrix", str(tmp_path / "m.html"))
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert "✗ held, expected lost 0/1" in done.stdout


@pytest.mark.spark
@pytest.mark.parametrize("rules", [RULES_VERSION - 1, RULES_VERSION])
def test_what_other_rules_have_judged_is_judged_again_and_nothing_else(
    tmp_path: Path, rules: int
) -> None:
    """An old verdict says that a run held which did not."""
    run = write_losing_run(tmp_path / "runs" / "a")
    write_json(run / "verdict.json", {"outcome": "held", "made_by": {"rules": rules}})
    before = (run / "verdict.json").read_text()
    page = tmp_path / "matrix.md"
    done, document = neaptide(tmp_path, "matrix", str(run), "--matrix", str(page), "--json")
    [cell] = document["cells"]
    if rules == RULES_VERSION:
        assert (cell["observed"], done.returncode) == (["held"], 1)
        assert (run / "verdict.json").read_text() == before
        assert "checking" not in done.stderr
    else:
        verdict = json.loads((run / "verdict.json").read_text())
        assert verdict["made_by"]["rules"] == RULES_VERSION
        assert cell["observed"] == [verdict["outcome"]] != ["held"]


@pytest.mark.spark
def test_a_verdict_that_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "runs" / "a")
    (run / "verdict.json").write_text("{ cut off")
    page = tmp_path / "matrix.md"
    done, document = neaptide(tmp_path, "matrix", str(run), "--matrix", str(page), "--json")
    assert "checking 1 runs with Spark" in done.stderr
    assert document["cells"][0]["observed"] == [
        json.loads((run / "verdict.json").read_text())["outcome"]
    ]


def test_a_cell_that_was_played_to_its_end_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was cut short is not, nor what was played from another file."""
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    [(path, scenario)] = documented(["acks-1-loss"])
    [system] = parse_systems(["neaptide:2.1"])
    place = parse_place("simulation")
    played = asyncio.run(play(scenario, system, 3, str(path), lambda line: None, place))
    assert finished_runs(scenario, str(system), "simulation", None) == [played.run]
    assert finished_runs(scenario, str(system), "local", None) == []
    assert finished_runs(scenario, "neaptide:2.0", "simulation", None) == []
    mine = {"program": {"client": "mine", "version": "1", "command": ["./mine"]}}
    assert finished_runs(scenario, str(system), "simulation", mine) == []
    changed = replace(scenario, document={**scenario.document, "title": "another"})
    assert finished_runs(changed, str(system), "simulation", None) == []
    write_run(played.run, replace(read_run(played.run), status="interrupted"))
    assert finished_runs(scenario, str(system), "simulation", None) == []


def test_what_is_not_served_is_not_played_and_is_said() -> None:
    [(path, scenario)] = documented(["rebalance-duplicate"])
    assert cells([(path, scenario)], ["neaptide:0.8"], 1) == []
    [lacking] = not_served([(path, scenario)], ["neaptide:0.8"])
    assert lacking["system"] == "neaptide:0.8"
    assert "groups have members" in lacking["lacks"]


def test_the_simulation_is_not_asked_for_what_it_cannot_do() -> None:
    chosen = documented(["retry-duplicate-plain", "acks-1-loss"])
    played = cells(chosen, ["neaptide:2.1"], 2, simulated=True)
    assert [cell.scenario.name for cell in played] == ["acks-1-loss", "acks-1-loss"]
