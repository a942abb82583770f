"""What a killed harness has left says so, or is gone, and nothing else is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.harness.live.left_behind import end_run, remove_scratch
from neaptide.results.run import Assigned, Status, read_run
from neaptide.results.store import write_run
from tests.results.one_run import RUN


@pytest.mark.parametrize(
    ("assigned", "status"),
    [((), "not started"), ((Assigned("t", 0, (1,)),), "interrupted")],
)
def test_a_run_that_was_running_says_how_far_it_came(
    tmp_path: Path, assigned: tuple[Assigned, ...], status: Status
) -> None:
    write_run(tmp_path, replace(RUN, status="running", aim=None, assigned=assigned))
    assert end_run(str(tmp_path))
    run = read_run(tmp_path)
    assert run.status == status
    assert run.aim is not None
    assert not run.aim.hit


def test_a_run_that_says_its_end_stays_as_it_is(tmp_path: Path) -> None:
    write_run(tmp_path, RUN)
    assert end_run(str(tmp_path))
    assert read_run(tmp_path) == RUN


def test_a_run_that_is_gone_is_no_matter(tmp_path: Path) -> None:
    assert end_run(str(tmp_path / "gone"))


def test_a_scratch_directory_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    scratch = tmp_path / "neaptide-1-1-0-1"
    (scratch / "blocks").mkdir(parents=True)
    assert remove_scratch(str(scratch))
    assert list(tmp_path.iterdir()) == []
    assert remove_scratch(str(scratch))


def test_a_directory_that_is_none_of_ours_is_not(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert not remove_scratch(str(tmp_path / "mine"))
    assert (tmp_path / "mine").is_dir()
