"""Runs are named, found again, and never half written."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from neaptide.results.errors import RunNotFoundError, StoreError
from neaptide.results.store import (
    create_run,
    find_run,
    list_runs,
    point_latest_at,
    remove_run,
    write_json,
    write_text,
)

NOON = datetime(2025, 11, 21, 12, 0, 5, tzinfo=UTC)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_the_name_says_when_what_and_with_which_seed(runs: Path) -> None:
    directory = create_run("hw-truncation-loss", "kafka:0.10.2.2", 7, NOON)
    assert directory == runs / "2025-11-21T12-00-05Z-hw-truncation-loss-kafka-0.10.2.2-7"
    assert directory.is_dir()


def test_two_runs_of_one_second_do_not_share_a_directory(runs: Path) -> None:
    first = create_run("x", "neaptide:0.10", 1, NOON)
    second = create_run("x", "neaptide:0.10", 1, NOON)
    assert first != second
    assert list_runs() == [first, second]


def test_latest_is_the_last_one_made(runs: Path) -> None:
    create_run("x", "neaptide:0.10", 1, NOON)
    second = create_run("y", "neaptide:0.10", 1, NOON)
    assert find_run("latest") == second.resolve()


def test_a_run_is_found_by_path_name_and_part_of_it(runs: Path) -> None:
    directory = create_run("acks-1-loss", "neaptide:0.10", 1, NOON)
    create_run("acks-0-loss", "neaptide:0.10", 1, NOON)
    for text in (str(directory), directory.name, "acks-1"):
        assert find_run(text) == directory.resolve()


def test_what_two_runs_share_finds_neither(runs: Path) -> None:
    create_run("acks-1-loss", "neaptide:0.10", 1, NOON)
    create_run("acks-0-loss", "neaptide:0.10", 1, NOON)
    with pytest.raises(RunNotFoundError, match="2 runs have 'acks'"):
        find_run("acks")
    with pytest.raises(RunNotFoundError, match="There is no run 'zombie'"):
        find_run("zombie")


def test_a_directory_that_cannot_be_made_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "file" / "runs"))
    with pytest.raises(StoreError, match="set NEAPTIDE_RUNS"):
        create_run("x", "y", 1, NOON)


def test_writing_json_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    write_json(tmp_path / "a.json", {"a": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_written_leaves_the_old_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "page", "old")

    def full(path: Path, text: str, encoding: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(Path, "write_text", full)
        with pytest.raises(StoreError, match="No space left on device"):
            write_text(tmp_path / "page", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_latest_stays_what_it_was_until_a_run_is_whole(runs: Path) -> None:
    first = create_run("a", "s", 1, NOON)
    second = create_run("b", "s", 1, NOON, is_latest=False)
    assert find_run("latest") == first.resolve()
    point_latest_at(second)
    assert find_run("latest") == second.resolve()


def test_when_the_latest_is_removed_the_one_before_it_is(runs: Path) -> None:
    first, second = create_run("a", "s", 1, NOON), create_run("b", "s", 1, NOON)
    for run in (first, second):
        write_json(run / "run.json", {})
    remove_run(second)
    assert find_run("latest") == first.resolve()
    remove_run(first)
    assert not os.path.lexists(runs / "latest")
