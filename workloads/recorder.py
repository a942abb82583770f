"""Writes the operations of one process of clients: rows of results.schema.OPERATIONS.

Safe for several threads. A recorder that could not write takes no rows any more: `write` passes
over that, for its callers are callbacks of a client library, and `flush`, `close` and `failure` say
it. Operation ids are unique in the run because each recorder has its own
number; times are nanoseconds since the run's clock origin, on CLOCK_MONOTONIC, which all processes
of a machine share.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from neaptide.results.errors import StoreError
from neaptide.results.run import Written
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.tables import TableWriter, file_seconds

_IDS_PER_RECORDER = 1 << 40
NO_ROW = 0
TABLE: Final = "operations"


def writer_label(number: int) -> str:
    """In the names of the files of a recorder."""
    return f"c{number}"


class Recorder:
    def __init__(self, run: Path, number: int, clock_origin_ns: int) -> None:
        self._origin_ns = clock_origin_ns
        self._first_id = number * _IDS_PER_RECORDER
        self._count = 0
        self._lock = threading.Lock()
        self._table = TableWriter(run / TABLE, OPERATIONS_READ, writer=writer_label(number))
        self._failure: StoreError | None = None
        self._flushed_s = 0.0

    @property
    def failure(self) -> StoreError | None:
        """Why rows were lost, if any were."""
        return self._failure

    @property
    def written(self) -> Written:
        with self._lock:
            return self._table.written

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    def new_operation(self) -> int:
        return self.new_operations(1)

    def new_operations(self, count: int) -> int:
        """The first of so many numbers in a row."""
        with self._lock:
            first = self._first_id + self._count + 1
            self._count += count
            return first

    def write(
        self,
        *,
        operation: int,
        process: int,
        f: str,
        type: str,
        invoked_ns: int,
        row: int = NO_ROW,
        completed_ns: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        value: str | None = None,
        acks: str | None = None,
        leader_epoch: int | None = None,
        phase: str = "main",
        error: str | None = None,
        mop: int | None = None,
        rebalanced: bool | None = None,
    ) -> None:
        """One row, in the order of the schema's columns."""
        made = (
            operation, row, process, f, type, invoked_ns, completed_ns, topic, partition,
            offset, key, value, acks, leader_epoch, phase, error, mop, rebalanced,
        )  # fmt: skip
        with self._lock:
            try:
                self._table.append(made)
            except StoreError as failed:
                self._failure = self._failure or failed

    def flush(self) -> None:
        """Makes the rows so far visible to readers. Raises StoreError."""
        with self._lock, self._noting():
            self._table.flush()

    def flush_when_due(self) -> None:
        """For a writer of few rows: so that who follows the run sees them soon. Raises
        StoreError."""
        age_s = self.now_ns() / 1e9
        if age_s - self._flushed_s >= file_seconds(age_s):
            self._flushed_s = age_s
            self.flush()

    def close(self) -> None:
        """Raises StoreError."""
        with self._lock, self._noting():
            self._table.close()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self._failure = self._failure or error
            raise
