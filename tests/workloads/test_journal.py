"""What a client noted before its death is in the history; what it recorded is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neaptide.results.errors import StoreError
from neaptide.workloads.journal import JOURNALS, Journal, recover
from neaptide.workloads.recorder import Recorder

NUMBER = 3


def noted(operation: int, value: str) -> tuple[Any, ...]:
    return (operation, 0, 7, "send", "invoke", 5, None, "t", 0, None, None, value, "all", None)


def record(recorder: Recorder, operation: int, value: str) -> None:
    recorder.write(
        operation=operation, process=7, f="send", type="ok", invoked_ns=5, completed_ns=6,
        topic="t", partition=0, value=value, acks="all",
    )  # fmt: skip


def test_what_was_recorded_is_not_recovered(tmp_path: Path) -> None:
    recorder, journal = Recorder(tmp_path, NUMBER, 0), Journal(tmp_path, NUMBER)
    journal.note([noted(1, "a"), noted(2, "b")], 2)
    record(recorder, 1, "a")
    recorder.flush()
    record(recorder, 2, "b")  # in memory when it is killed
    assert [row["value"] for row in recover(tmp_path, NUMBER)] == ["b"]
    assert recover(tmp_path, NUMBER) == []  # once


def test_what_of_another_process_was_noted_is_its_own(tmp_path: Path) -> None:
    Journal(tmp_path, NUMBER).note([noted(1, "a")], 1)
    assert recover(tmp_path, NUMBER + 30) == []


def test_a_line_that_was_cut_short_was_never_acted_upon(tmp_path: Path) -> None:
    Journal(tmp_path, NUMBER).note([noted(1, "a")], 1)
    [file] = (tmp_path / JOURNALS).iterdir()
    with file.open("ab") as stream:
        stream.write(b"[[2,0,7,")
    assert [row["value"] for row in recover(tmp_path, NUMBER)] == ["a"]


def test_a_damaged_journal_is_an_error(tmp_path: Path) -> None:
    Journal(tmp_path, NUMBER).note([noted(1, "a")], 1)
    [file] = (tmp_path / JOURNALS).iterdir()
    file.write_bytes(b"[[2,0,7,\n" + file.read_bytes())
    with pytest.raises(StoreError, match="cannot be read"):
        recover(tmp_path, NUMBER)


def test_a_segment_goes_when_all_of_it_is_in_files(tmp_path: Path) -> None:
    recorder, journal = Recorder(tmp_path, NUMBER, 0), Journal(tmp_path, NUMBER)
    first = journal.note([noted(1, "a")], 1)
    journal.delete(journal.turn())  # still on its way: kept
    second = journal.note([noted(2, "b")], 1)
    record(recorder, 1, "a")
    journal.done(first)
    finished = journal.turn()
    recorder.flush()
    journal.delete(finished)
    assert finished == [first]
    assert [row["value"] for row in recover(tmp_path, NUMBER)] == ["b"]
    assert second == first + 1


def test_nothing_stays_of_one_that_ended_by_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NUMBER)
    journal.note([noted(1, "a")], 0)
    journal.close()
    assert list((tmp_path / JOURNALS).iterdir()) == []
