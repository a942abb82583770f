"""The table writer: what goes in comes out, in whole files, with bounded memory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neaptide.results.errors import StoreError
from neaptide.results.run import Written
from neaptide.results.schema import OPERATIONS
from neaptide.results.tables import (
    TableWriter,
    file_seconds,
    hidden_name,
    table_files,
    write_table,
    written_by,
)

SMALL = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("word", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def rows_of(directory: Path) -> list[tuple[object, ...]]:
    tables = [pq.read_table(path) for path in table_files(directory)]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    rows = [(n, None if n % 3 else f"w{n}") for n in range(100)]
    with TableWriter(tmp_path, SMALL, chunk_rows=7, file_rows=20) as writer:
        writer.extend(rows)
    assert rows_of(tmp_path) == rows
    assert writer.written == Written(5, 100)
    assert len(table_files(tmp_path)) == 5  # files of three chunks, 21 rows


def test_a_reader_sees_only_what_was_flushed(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, SMALL, chunk_rows=2)
    writer.extend([(1, "a"), (2, "b"), (3, "c")])
    assert table_files(tmp_path) == []
    writer.flush()
    writer.append((4, "d"))
    assert rows_of(tmp_path) == [(1, "a"), (2, "b"), (3, "c")]
    writer.close()
    assert len(rows_of(tmp_path)) == 4


def test_two_processes_may_write_one_table(tmp_path: Path) -> None:
    with (
        TableWriter(tmp_path, SMALL, writer="a") as a,
        TableWriter(tmp_path, SMALL, writer="b") as b,
    ):
        a.append((1, "x"))
        b.append((2, "y"))
    assert rows_of(tmp_path) == [(1, "x"), (2, "y")]


def test_memory_holds_one_chunk(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, SMALL, chunk_rows=10)
    for n in range(1_000):
        writer.append((n, "w"))
        assert len(writer._rows) < 10
    writer.close()


def test_the_columns_of_operations_fit(tmp_path: Path) -> None:
    row = (1, 0, 3, "send", "ok", 10, None, "t", 0, 5, None, "m1", "all", None, "main", None)
    write_table(tmp_path, OPERATIONS, [row])
    assert rows_of(tmp_path) == [row]


def test_a_null_where_none_may_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid), TableWriter(tmp_path, SMALL) as writer:
        writer.append((None, "a"))


def test_a_row_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"), TableWriter(tmp_path, SMALL) as writer:
        writer.append((1,))


def test_a_full_disk_is_one_clear_sentence(tmp_path: Path) -> None:
    hidden_name(tmp_path / "part-0-00000.parquet").symlink_to("/dev/full")
    writer = TableWriter(tmp_path, SMALL, chunk_rows=1)
    with pytest.raises(StoreError, match=r"is full: free some space, or set NEAPTIDE_RUNS"):
        writer.extend((n, "w") for n in range(10_000))


def test_rows_count_once_their_file_has_its_name(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path, SMALL, writer="c1", chunk_rows=2)
    writer.extend((n, "w") for n in range(5))
    assert writer.written == Written(0, 0)
    writer.flush()
    assert writer.written == Written(1, 5) == written_by(tmp_path, "c1")
    writer.append((6, "w"))
    writer.close()
    assert writer.written == Written(2, 6) == written_by(tmp_path, "c1")
    assert written_by(tmp_path, "c2") == Written(0, 0)


def test_a_writer_that_failed_for_a_moment_takes_no_rows_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that it had are gone: were it to go on, a table with a gap would look whole."""
    writer = TableWriter(tmp_path, SMALL, chunk_rows=2)
    writer.extend([(1, "a"), (2, "b")])
    writer.flush()
    with monkeypatch.context() as failing:

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        failing.setattr(pq.ParquetWriter, "write_table", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            writer.extend([(3, "c"), (4, "d")])
    calls: list[Callable[[], object]] = [
        *(lambda: writer.append((5, "e")), writer.flush, writer.close)
    ]
    for call in calls:
        with pytest.raises(StoreError, match="Input/output error"):
            call()
    assert rows_of(tmp_path) == [(1, "a"), (2, "b")]
    assert writer.written == Written(1, 2)


def test_what_failed_in_a_with_is_what_is_raised(tmp_path: Path) -> None:
    def work() -> None:
        with TableWriter(tmp_path, SMALL) as writer:
            writer.append((None, "a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


@pytest.mark.parametrize(
    ("age_s", "seconds"),
    [(0, 1), (59, 1), (60, 1), (300, 5), (600, 10), (28_800, 10)],
)
def test_the_older_a_run_is_the_longer_a_file_is_written(age_s: float, seconds: float) -> None:
    assert file_seconds(age_s) == seconds
