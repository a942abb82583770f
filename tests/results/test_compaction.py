"""A run's many small files become few: no row is lost, and what is not all there stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neaptide.results import compaction
from neaptide.results.compaction import ALL, compact
from neaptide.results.errors import StoreError
from neaptide.results.run import Written
from neaptide.results.schema import OPERATIONS, OPERATIONS_READ
from neaptide.results.tables import TableWriter, table_files, written_by

TABLE = "operations"


def row(number: int, columns: pa.Schema = OPERATIONS) -> tuple[object, ...]:
    known = {
        "operation": number,
        "row": 0,
        "process": 1,
        "f": "send",
        "type": "ok",
        "invoked_ns": number,
        "phase": "main",
        "value": f"v{number}",
    }
    return tuple(known.get(name) for name in columns.names)


def write(
    run: Path, writer: str, files: Iterable[Iterable[int]], columns: pa.Schema = OPERATIONS
) -> Written:
    """One file for each of these lists of numbers."""
    with TableWriter(run / TABLE, columns, writer=writer) as table:
        for numbers in files:
            table.extend(row(number, columns) for number in numbers)
            table.flush()
    return table.written


def numbers_there(run: Path) -> list[int]:
    tables = [pq.read_table(path, columns=["operation"]) for path in table_files(run / TABLE)]
    return sorted(number for table in tables for number in table["operation"].to_pylist())


def names_there(run: Path) -> list[str]:
    return sorted(path.name for path in run.rglob("*") if path.is_file())


def test_all_files_of_all_writers_become_one(tmp_path: Path) -> None:
    said = {
        "c0": write(tmp_path, "c0", [[1, 2], [3]]),
        "c1": write(tmp_path, "c1", [[n] for n in range(10, 30)]),
    }
    written = compact(tmp_path, {TABLE: said})
    assert written == {TABLE: {ALL: Written(1, 23)}}
    assert written_by(tmp_path / TABLE, ALL) == Written(1, 23)
    assert names_there(tmp_path) == ["part-all-00000.parquet"]
    assert numbers_there(tmp_path) == [1, 2, 3, *range(10, 30)]
    assert pq.read_metadata(tmp_path / TABLE / "part-all-00000.parquet").num_row_groups == 1
    assert compact(tmp_path, written) == written


def test_row_groups_do_not_grow_beyond_what_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "GROUP_ROWS", 5)
    said = {"c1": write(tmp_path, "c1", [[n] for n in range(12)])}
    compact(tmp_path, {TABLE: said})
    assert numbers_there(tmp_path) == list(range(12))
    assert pq.read_metadata(tmp_path / TABLE / "part-all-00000.parquet").num_row_groups == 3


@pytest.mark.parametrize("said", [Written(3, 3), Written(2, 4), Written(1, 3)])
def test_the_rows_of_a_writer_that_are_not_all_there_stay_as_they_are(
    tmp_path: Path, said: Written
) -> None:
    write(tmp_path, "c2", [[1, 2], [3]])
    whole = write(tmp_path, "c1", [[4], [5], [6]])
    written = compact(tmp_path, {TABLE: {"c2": said, "c1": whole}})
    assert written == {TABLE: {ALL: Written(1, 3), "c2": said}}
    assert numbers_there(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert "part-c2-00001.parquet" in names_there(tmp_path)


def test_a_file_that_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    said = {"c1": write(tmp_path, "c1", [[1], [2]])}
    (tmp_path / TABLE / "part-c1-00001.parquet").write_bytes(b"no Parquet")
    assert compact(tmp_path, {TABLE: said}) == {TABLE: said}
    assert len(names_there(tmp_path)) == 2


def test_a_single_file_is_few_enough(tmp_path: Path) -> None:
    said = {"c1": write(tmp_path, "c1", [[1, 2]])}
    assert compact(tmp_path, {TABLE: said}) == {TABLE: said}
    assert names_there(tmp_path) == ["part-c1-00000.parquet"]


def test_columns_that_a_file_lacks_are_null(tmp_path: Path) -> None:
    said = {
        "c1": write(tmp_path, "c1", [[1]]),
        "c2": write(tmp_path, "c2", [[2]], OPERATIONS_READ),
    }
    assert compact(tmp_path, {TABLE: said}) == {TABLE: {ALL: Written(1, 2)}}
    [path] = table_files(tmp_path / TABLE)
    assert pq.read_schema(path).names == OPERATIONS_READ.names
    assert pq.read_table(path)["mop"].to_pylist() == [None, None]


def test_a_writer_whose_label_begins_like_another_is_another(tmp_path: Path) -> None:
    said = {
        "c": write(tmp_path, "c", [[1], [2]]),
        "c-1": write(tmp_path, "c-1", [[3]]),
    }
    assert compact(tmp_path, {TABLE: said}) == {TABLE: {ALL: Written(1, 3)}}
    assert numbers_there(tmp_path) == [1, 2, 3]


def test_a_disk_that_is_full_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"c1": write(tmp_path, "c1", [[1], [2]])}
    before = names_there(tmp_path)

    def full(self: TableWriter, _: pa.Table) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(TableWriter, "write_table", full)
    assert compact(tmp_path, {TABLE: said}) == {TABLE: said}
    assert names_there(tmp_path) == before


def test_rows_are_there_at_every_moment_and_a_failure_in_between_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"c1": write(tmp_path, "c1", [[1], [2], [3]])}
    unlink, seen = Path.unlink, []

    def failing(path: Path, missing_ok: bool = False) -> None:
        seen.append(set(numbers_there(tmp_path)))
        if len(seen) == 2:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(StoreError, match="Operation not permitted"):
        compact(tmp_path, {TABLE: said})
    assert seen == [{1, 2, 3}, {1, 2, 3}]


def test_what_somebody_who_was_killed_at_it_left_is_no_part_of_the_new_files(
    tmp_path: Path,
) -> None:
    said = {"c1": write(tmp_path, "c1", [[1], [2]])}
    left = tmp_path / ".compacted"
    write(left, ALL, [[7], [8], [9]])
    assert compact(tmp_path, {TABLE: said}) == {TABLE: {ALL: Written(1, 2)}}
    assert numbers_there(tmp_path) == [1, 2]
    assert not left.exists()
