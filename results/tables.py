"""Parquet tables of a run: a writer for load generators, and what a reader needs.

The writer takes plain tuples, one a row, in the order of the schema's columns. Rows are turned
into columns a chunk at a time, each chunk is one row group, and a file is closed and given its
final name when it is full or at `flush()`: memory stays bounded, and a reader sees whole files
only. Several processes may write to one table when each has a `writer` label of its own.

The rule: a writer that failed once is dead. Rows that it had are lost, so it takes no others: every
later call raises what the first one raised, and `written` counts what has its final name.

Not thread-safe: one writer belongs to one thread.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from neaptide.results.errors import StoreError
from neaptide.results.run import Written

CHUNK_ROWS: Final = 32_768
FILE_ROWS: Final = 2_000_000
WHOLE: Final = "0"  # the label of a writer that has the table to itself
_YOUNG_S: Final = 60.0
FILE_S_MIN: Final = 1.0
FILE_S_MAX: Final = 10.0

Row = Sequence[object]


class TableWriter:
    """Appends rows to one table of one run."""

    def __init__(
        self,
        directory: Path,
        schema: pa.Schema,
        *,
        writer: str = WHOLE,
        chunk_rows: int = CHUNK_ROWS,
        file_rows: int = FILE_ROWS,
    ) -> None:
        self._directory = directory
        self._schema = schema
        self._writer = writer
        self._chunk_rows = chunk_rows
        self._file_rows = file_rows
        self._rows: list[Row] = []
        self._open: _OpenFile | None = None
        self._failure: StoreError | None = None
        self.written = Written(files=0, rows=0)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _store_error(directory, error) from error

    def append(self, row: Row) -> None:
        """Add one row; cheap: the work is done once a chunk."""
        self._check()
        self._rows.append(row)
        if len(self._rows) >= self._chunk_rows:
            with self._dying():
                self._write_chunk()

    def extend(self, rows: Iterable[Row]) -> None:
        """Add many rows."""
        for row in rows:
            self.append(row)

    def write_table(self, table: pa.Table) -> None:
        """Add rows that are columns already, as one row group."""
        with self._dying():
            self._write_chunk()
            self._write(table)

    def flush(self) -> None:
        """Make all rows so far visible to readers."""
        with self._dying():
            self._write_chunk()
            self._close_file()

    def close(self) -> None:
        """Flush; the writer may not be used afterwards."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:  # what is raised already says more
            with suppress(Exception):
                self.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _dying(self) -> Iterator[None]:
        """Whatever goes wrong in it is the end of this writer, and of its file."""
        self._check()
        try:
            yield
        except OSError as error:
            self._discard()
            self._failure = _store_error(self._directory, error)
            raise self._failure from error
        except BaseException as error:
            self._discard()
            self._failure = StoreError(
                f"Rows of {self._directory} were not written ({type(error).__name__}: {error})."
            )
            raise

    def _write_chunk(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        self._write(pa.Table.from_arrays(arrays, schema=self._schema))

    def _write(self, table: pa.Table) -> None:
        if self._open is None:
            self._open = _OpenFile(self._next_path(), self._schema)
        self._open.write(table)
        if self._open.rows >= self._file_rows:
            self._close_file()

    def _next_path(self) -> Path:
        return self._directory / f"part-{self._writer}-{self.written.files:05d}.parquet"

    def _close_file(self) -> None:
        if self._open is None:
            return
        opened, self._open = self._open, None
        opened.finish()
        self.written = Written(self.written.files + 1, self.written.rows + opened.rows)

    def _discard(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            with suppress(Exception):
                opened.close()


class _OpenFile:
    """A Parquet file under its hidden name."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._temporary = hidden_name(path)
        self._stream: BinaryIO = self._temporary.open("wb")
        self._parquet = pq.ParquetWriter(self._stream, schema, compression="zstd")
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        self._parquet.write_table(table)
        self.rows += table.num_rows

    def close(self) -> None:
        try:
            self._parquet.close()
        finally:
            self._stream.close()

    def finish(self) -> None:
        self.close()
        self._temporary.replace(self._path)


def file_seconds(run_age_s: float) -> float:
    """How long a writer of a run is at one file, so that its rows can be read.

    Each second at first, for who follows a run; then less often, so that a run of hours leaves
    thousands of files and not tens of thousands.
    """
    return min(FILE_S_MAX, max(FILE_S_MIN, run_age_s / _YOUNG_S))


def hidden_name(path: Path) -> Path:
    """The name of a file that is not finished; Spark and our readers pass it by."""
    return path.with_name(f".{path.name}.tmp")


def write_table(directory: Path, schema: pa.Schema, rows: Iterable[Row]) -> dict[str, Written]:
    """Write a whole table at once; its directory is there even if it has no rows.

    Returns what was written, by writer, as `run.json` says it.
    """
    with TableWriter(directory, schema) as writer:
        writer.extend(rows)
    return {WHOLE: writer.written}


def written_by(directory: Path, writer: str) -> Written:
    """What is there of one writer, for one that did not live to say it."""
    rows = [pq.read_metadata(path).num_rows for path in files_of(directory, writer)]
    return Written(len(rows), sum(rows))


def files_of(directory: Path, writer: str) -> list[Path]:
    """The finished files of one writer, in their order."""
    return sorted(
        path
        for path in directory.glob(f"part-{writer}-*.parquet")
        if path.stem.rpartition("-")[0] == f"part-{writer}"
    )


def table_files(directory: Path) -> list[Path]:
    """The finished files of a table, in the order of their names."""
    return [path for path in named_files(directory) if path.is_file()]


def named_files(directory: Path) -> list[Path]:
    """The same, with what only has such a name: a directory, a FIFO, a link to nowhere."""
    return sorted(p for p in directory.glob("*.parquet") if not p.name.startswith((".", "_")))


def _store_error(directory: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"The disk that holds {directory} is full: "
            "free some space, or set NEAPTIDE_RUNS to a directory on another disk."
        )
    return StoreError(f"Cannot write to {directory}: {error.strerror or error}.")
