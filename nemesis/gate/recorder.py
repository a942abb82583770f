"""Writes every fetch round to Parquet files in the run directory.

A file gets its name when it is whole: until then it begins with a dot, which Spark passes over.
A file is closed after two seconds or 50,000 rows, so that a SIGKILL loses no more than that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from neaptide.nemesis.gate.exchange import Round
from neaptide.results.schema import FETCH_ROUNDS

ROWS_PER_GROUP: Final = 2_000  # what waits in memory
ROWS_PER_FILE: Final = 50_000
FILE_NS: Final = 2_000_000_000


class RoundRecorder:
    """Rows in, Parquet files out. Whoever owns it calls `tick` now and then."""

    def __init__(self, run: Path) -> None:
        self._directory = run / "fetch_rounds"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._rows: list[Round] = []
        self._writer: Any = None
        self._temporary = Path()
        self._final = Path()
        self._number = 0
        self._rows_in_file = 0
        self._opened_ns: int | None = None

    def add(self, entry: Round, now_ns: int) -> None:
        """Record a round that has come as far as it will; only the first time counts."""
        if entry.recorded:
            return
        entry.recorded = True
        if self._opened_ns is None:
            self._opened_ns = now_ns
        self._rows.append(entry)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._write_group()
            if self._rows_in_file >= ROWS_PER_FILE:
                self.roll()

    def tick(self, now_ns: int) -> None:
        """Close a file that is old enough."""
        if self._opened_ns is not None and now_ns - self._opened_ns >= FILE_NS:
            self.roll()

    def roll(self) -> None:
        """Write what is there and give the file its name."""
        self._write_group()
        self._opened_ns = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._temporary.rename(self._final)

    def _write_group(self) -> None:
        if not self._rows:
            return
        columns = {
            name: [getattr(entry, name) for entry in self._rows] for name in FETCH_ROUNDS.names
        }
        if self._writer is None:
            self._open()
        self._writer.write_table(pa.table(columns, schema=FETCH_ROUNDS))
        self._rows_in_file += len(self._rows)
        self._rows.clear()

    def _open(self) -> None:
        while (final := self._directory / f"part-{self._number:05d}.parquet").exists():
            self._number += 1
        self._final = final
        self._temporary = self._directory / f".{final.name}.tmp"
        self._writer = pq.ParquetWriter(self._temporary, FETCH_ROUNDS)
        self._rows_in_file = 0
