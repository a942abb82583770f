"""Rows of a writer that writes few are seen soon, in not too many files."""

from __future__ import annotations

import time
from pathlib import Path

from neaptide.results.tables import table_files
from neaptide.workloads.recorder import TABLE, Recorder

S = 1_000_000_000


def write(recorder: Recorder) -> None:
    recorder.write(operation=1, process=-1, f="nemesis", type="info", invoked_ns=1)


def files(run: Path) -> int:
    return len(table_files(run / TABLE))


def test_rows_become_visible_when_a_file_is_due(tmp_path: Path) -> None:
    """A run of ten minutes has a file every ten seconds."""
    recorder = Recorder(tmp_path, 1, time.monotonic_ns() - 600 * S)
    write(recorder)
    assert files(tmp_path) == 0
    recorder.flush_when_due()
    assert files(tmp_path) == 1
    write(recorder)
    recorder.flush_when_due()  # ten seconds are not over
    assert files(tmp_path) == 1
    recorder.close()
    assert (files(tmp_path), recorder.written.rows) == (2, 2)


def test_a_run_that_has_just_begun_writes_no_file_yet(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, time.monotonic_ns() + 600 * S)
    write(recorder)
    recorder.flush_when_due()
    assert files(tmp_path) == 0
    recorder.close()


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 1, time.monotonic_ns() - 600 * S)
    recorder.flush_when_due()
    assert files(tmp_path) == 0
