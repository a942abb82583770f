"""Makes few large files of the many small ones that the writers of a run have left.

A writer finishes a file every few seconds, so that a run can be followed and little is lost where
it is killed; who reads the run later wants few of them. What is compacted are the files of writers
that are all there: as many files and rows as the writer says. Those of others stay as they are, for
the check is to see what they lack.

The rule: no row is ever in no file. The new files are written whole in a hidden directory, counted,
and moved in; then the old ones are deleted; what is returned is for `run.json`, which is written
last, when the run is called finished. A crash in between leaves all rows, of a run that is not
finished; where files are there twice, the check finds writers that the run does not name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from neaptide.results.errors import StoreError
from neaptide.results.run import Written
from neaptide.results.schema import TABLES
from neaptide.results.tables import TableWriter, files_of, table_files, written_by

ALL: Final = "all"  # the label of what was compacted
GROUP_ROWS: Final = 131_072
_HIDDEN: Final = ".compacted"


def compact(
    run: Path, written: Mapping[str, Mapping[str, Written]]
) -> dict[str, dict[str, Written]]:
    """Compact all tables; what each writer has there then. Raises StoreError.

    Where the new files cannot be written, as on a full disk, all stays as it was.
    """
    return {table: _compact_table(run, table, dict(said)) for table, said in written.items()}


def _compact_table(run: Path, table: str, said: dict[str, Written]) -> dict[str, Written]:
    directory = run / table
    whole = _whole(directory, said) if table in TABLES and ALL not in said else []
    old = [path for writer in whole for path in files_of(directory, writer)]
    if len(old) < 2:
        return said
    hidden = run / _HIDDEN / table
    try:
        made = _write(hidden, TABLES[table], old)
    except (OSError, pa.ArrowException, StoreError):
        shutil.rmtree(run / _HIDDEN, ignore_errors=True)
        return said
    rows = sum(said[writer].rows for writer in whole)
    if made.files >= len(old) or written_by(hidden, ALL) != Written(made.files, rows):
        shutil.rmtree(run / _HIDDEN, ignore_errors=True)
        return said
    try:
        for path in table_files(hidden):
            path.replace(directory / path.name)
        for path in old:
            path.unlink()
        shutil.rmtree(run / _HIDDEN)
    except OSError as error:
        raise StoreError(f"Cannot compact {directory}: {error.strerror}.") from error
    return {ALL: made, **{name: count for name, count in said.items() if name not in whole}}


def _whole(directory: Path, said: Mapping[str, Written]) -> list[str]:
    """The writers of which everything is there, and readable."""
    whole = []
    for writer, count in said.items():
        try:
            if count.files and written_by(directory, writer) == count:
                whole.append(writer)
        except (OSError, pa.ArrowException):
            continue
    return whole


def _write(hidden: Path, columns: pa.Schema, old: Sequence[Path]) -> Written:
    shutil.rmtree(hidden, ignore_errors=True)  # of one who was killed at it
    having = {name for path in old for name in pq.read_schema(path).names}
    if unknown := having - set(columns.names):
        raise StoreError(f"There are columns that are not known: {sorted(unknown)}.")
    schema = pa.schema([field for field in columns if field.name in having])
    with TableWriter(hidden, schema, writer=ALL) as writer:
        for group in _grouped(_row_groups(old, schema)):
            writer.write_table(group)
    return writer.written


def _row_groups(paths: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield _with_columns(file.read_row_group(number), schema)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that a file may lack are null."""
    arrays = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Small row groups together, so that memory and footers stay small."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
