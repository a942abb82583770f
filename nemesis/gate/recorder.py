"""Writes every fetch round, and other messages, to Parquet files in the run directory.

A file is closed after a few seconds (`file_seconds`, two at least) or 500,000 rows, so that a
SIGKILL loses no more than that. A recorder that could not write is dead, and says so at the next
`tick`: the gate ends with it.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from neaptide.nemesis.gate.said import Message, Round
from neaptide.results.errors import StoreError
from neaptide.results.run import Written
from neaptide.results.schema import FETCH_ROUNDS, TABLES
from neaptide.results.tables import TableWriter, file_seconds

ROUNDS: Final = "fetch_rounds"
MESSAGES: Final = "messages"
WRITER: Final = "gate"
ROWS_PER_GROUP: Final = 2_000  # what waits in memory
ROWS_PER_FILE: Final = 500_000
_FILE_S_MIN: Final = 2.0
_columns: Final = attrgetter(*FETCH_ROUNDS.names)


class Recorder:
    """Rows in, Parquet files out. Whoever owns it calls `tick` now and then."""

    def __init__(self, run: Path) -> None:
        self._tables = {name: _Rows(run / name, TABLES[name]) for name in (ROUNDS, MESSAGES)}

    @property
    def written(self) -> dict[str, Written]:
        """By table: rounds in every run, messages where there were any."""
        every = {name: rows.written for name, rows in self._tables.items()}
        return {name: rows for name, rows in every.items() if rows.files or name == ROUNDS}

    def add(self, entry: Round, now_ns: int) -> None:
        """Record a round that has come as far as it will; only the first time counts."""
        if not entry.recorded:
            entry.recorded = True
            self._tables[ROUNDS].add(_columns(entry), now_ns)

    def add_message(self, message: Message, now_ns: int) -> None:
        """The same of a message that has left, or never will."""
        for row in message.rows():
            self._tables[MESSAGES].add(row, now_ns)

    def tick(self, now_ns: int) -> None:
        """Close files that are old enough. Raises StoreError."""
        for rows in self._tables.values():
            rows.tick(now_ns)

    def roll(self) -> None:
        """Write what is there and give the files their names. Raises StoreError."""
        for rows in self._tables.values():
            rows.roll()


class _Rows:
    """Those of one table."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._table = TableWriter(
            directory,
            schema,
            writer=WRITER,
            chunk_rows=ROWS_PER_GROUP,
            file_rows=ROWS_PER_FILE,
        )
        self._rows: list[tuple[Any, ...]] = []
        self._opened_ns: int | None = None
        self._failure: StoreError | None = None

    @property
    def written(self) -> Written:
        return self._table.written

    def add(self, row: tuple[Any, ...], now_ns: int) -> None:
        if self._opened_ns is None:
            self._opened_ns = now_ns
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._write_group()

    def tick(self, now_ns: int) -> None:
        """Close a file that is old enough. Raises StoreError."""
        self._check()
        file_s = max(_FILE_S_MIN, file_seconds(now_ns / 1e9))
        if self._opened_ns is not None and now_ns - self._opened_ns >= file_s * 1e9:
            self.roll()

    def roll(self) -> None:
        """Write what is there and give the file its name. Raises StoreError."""
        self._write_group()
        self._check()
        self._opened_ns = None
        self._table.flush()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_group(self) -> None:
        """Does not raise: what passes through the gate passes whether it is recorded or not."""
        rows, self._rows = self._rows, []
        try:
            self._table.extend(rows)
        except StoreError as error:
            self._failure = error
