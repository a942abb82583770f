"""Writes the operations of one process of clients: rows of results.schema.OPERATIONS.

Safe for several threads. Operation ids are unique in the run because each recorder has its own
number; times are nanoseconds since the run's clock origin, on CLOCK_MONOTONIC, which all processes
of a machine share.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from neaptide.results.schema import OPERATIONS
from neaptide.results.tables import TableWriter

_IDS_PER_RECORDER = 1 << 40
NO_ROW = 0


class Recorder:
    def __init__(self, run: Path, number: int, clock_origin_ns: int) -> None:
        self._origin_ns = clock_origin_ns
        self._first_id = number * _IDS_PER_RECORDER
        self._count = 0
        self._lock = threading.Lock()
        self._table = TableWriter(run / "operations", OPERATIONS, writer=f"c{number}")

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    def new_operation(self) -> int:
        with self._lock:
            self._count += 1
            return self._first_id + self._count

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
    ) -> None:
        """One row, in the order of the schema's columns."""
        with self._lock:
            self._table.append(
                (
                    operation, row, process, f, type, invoked_ns, completed_ns, topic, partition,
                    offset, key, value, acks, leader_epoch, phase, error,
                )
            )  # fmt: skip

    def flush(self) -> None:
        """Makes the rows so far visible to readers."""
        with self._lock:
            self._table.flush()

    def close(self) -> None:
        with self._lock:
            self._table.close()
