"""A search whose seeds are explored by the executors of a cluster finds what it finds here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.harness.cli.main import app
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search.play import simulate
from neaptide.results.run import read_run
from tests.harness.command import COMMAND, neaptide
from tests.standalone import standalone_cluster

SEARCH = ["explore", "--system", "neaptide:2.0", "--acks", "1", "--nemesis", "kill,hold", "--json"]
SEEDS = ["--seed", "3", "--seeds", "2"]


def _explored(directory: Path, *options: str) -> dict[str, Any]:
    """In a process of its own: a process has one Spark context, which other tests may be using."""
    directory.mkdir()
    saved = str(directory / "schedules")
    done, found = neaptide(
        directory, *SEARCH, *SEEDS, "--save", saved, *options, PYSPARK_PYTHON=sys.executable
    )
    assert done.returncode == 1, done.stderr
    return dict(found)


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.live
def test_executors_of_a_standalone_cluster_find_what_is_found_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    here = _explored(tmp_path / "here", "--workers", "1")
    with standalone_cluster(tmp_path / "cluster") as cluster:
        runs = tmp_path / "runs"
        there = _explored(tmp_path / "there", "--master", cluster.url, "--histories", str(runs))
    assert _what(there) == _what(here)
    assert there["schedules"] == here["schedules"]
    for one in there["found"]:
        text = Path(one["schedule"]).read_text(encoding="utf-8")
        assert simulate(parse_scenario("x", text, "x"), GENERATIONS["2.0"]).judged.outcome == "lost"
    assert len(there["histories"]) == len(there["found"])
    for run in there["histories"]:
        assert read_run(Path(run)).status == "finished"
        assert list((Path(run) / "operations").glob("*.parquet"))


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.live
def test_ctrl_c_ends_a_search_on_executors_with_one_sentence(tmp_path: Path) -> None:
    command = [*COMMAND, "explore", "--system", "neaptide:2.1"]
    command += ["--master", "local[2]", "--seed", "1", "--seeds", "1000", "--save", str(tmp_path)]
    searching = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
    )
    assert searching.stdout is not None
    printed: list[str] = []
    while not (printed and "schedules, " in printed[-1]):
        printed.append(searching.stdout.readline())
        assert printed[-1], "".join(printed)
    searching.send_signal(signal.SIGINT)
    said, _ = searching.communicate(timeout=60)
    assert searching.returncode == 2, said
    assert "Interrupted." in said
    assert "Traceback" not in said


def _what(found: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [
        (one["outcome"], one["seed"], Path(one["schedule"]).read_text(encoding="utf-8"))
        for one in found["found"]
    ]


def test_a_master_goes_with_the_search_by_chance_alone() -> None:
    done = CliRunner().invoke(app, ["explore", "--mutants", "--master", "local[1]"])
    assert done.exit_code == 2
    assert "No such option: --master" in done.stderr
