"""`neaptide matrix`: out of saved runs, without playing or judging anything again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.matrix import scenario_runs
from tests.harness.command import COMMAND, TIMEOUT_S, neaptide
from tests.results.test_matrix import save


def test_a_directory_of_runs_stands_for_the_runs_in_it(tmp_path: Path) -> None:
    runs = [save(tmp_path, name, "lost") for name in ("a", "b")]
    (tmp_path / "latest").symlink_to("b")
    assert scenario_runs([str(tmp_path)]) == runs
    assert scenario_runs([str(runs[1]), str(tmp_path)]) == [runs[1], runs[0]]


def test_where_there_is_no_run_of_a_scenario_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no run of a scenario"):
        scenario_runs([str(tmp_path)])


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


def test_without_a_terminal_a_cell_still_has_its_sign(tmp_path: Path) -> None:
    save(tmp_path / "runs", "a", "held")
    arguments = ("matrix", str(tmp_path / "runs"), "--matrix", str(tmp_path / "m.html"))
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert "✗ held, expected lost 0/1" in done.stdout
