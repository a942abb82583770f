"""What a client is about to do, written before it does it, so that its death hides nothing.

A process that is killed loses the rows that its recorder had in memory. What it had noted here is
in the kernel's hands by then: `recover` gives the rows that are in no file of its recorder. A
send among them is one of which the end is not known.

The rule: a line that is not whole was never acted upon, so the last one may be cut short; any
other that cannot be read is an error. A segment is deleted when all of its operations are in files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neaptide.results.errors import StoreError
from neaptide.results.tables import files_of
from neaptide.workloads.recorder import TABLE, writer_label

JOURNALS: Final = "journals"
# Of a line's rows, in this order.
COLUMNS: Final = (
    "operation", "row", "process", "f", "type", "invoked_ns", "completed_ns", "topic", "partition",
    "offset", "key", "value", "acks", "mop",
)  # fmt: skip

Row = Sequence[Any]


@dataclass(slots=True)
class _Segment:
    path: Path
    file: int
    open: int = 0  # operations that are not yet with the recorder


@dataclass(slots=True)
class Journal:
    """Of one process of clients. Safe for several threads."""

    run: Path
    number: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _segments: dict[int, _Segment] = field(default_factory=dict)
    _current: int = 0

    def __post_init__(self) -> None:
        (self.run / JOURNALS).mkdir(exist_ok=True)
        self._begin(0)

    def _begin(self, number: int) -> None:
        path = self.run / JOURNALS / f"{writer_label(self.number)}-{number:06d}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._segments[number] = _Segment(path, file)
        self._current = number

    def note(self, rows: Sequence[Row], operations: int) -> int:
        """Returns the segment, once the rows outlive this process. Raises StoreError.

        `operations`: how many times `done` will be called for them.
        """
        line = memoryview(orjson.dumps(rows) + b"\n")
        with self._lock:
            segment = self._segments[self._current]
            try:
                while line:
                    line = line[os.write(segment.file, line) :]
            except OSError as error:
                raise StoreError(f"Cannot write to {segment.path}: {error.strerror}.") from error
            segment.open += operations
            return self._current

    def done(self, segment: int) -> None:
        """An operation of this segment is with the recorder."""
        with self._lock:
            self._segments[segment].open -= 1

    def turn(self) -> list[int]:
        """Begins a new segment; those that may be deleted once the recorder has been flushed."""
        with self._lock:
            finished = [n for n, segment in self._segments.items() if segment.open == 0]
            self._begin(self._current + 1)
            return finished

    def close(self) -> None:
        """All is with the recorder, and that is closed."""
        self.delete([*self._segments])

    def delete(self, finished: Sequence[int]) -> None:
        with self._lock:
            for number in finished:
                segment = self._segments.pop(number)
                os.close(segment.file)
                segment.path.unlink()


def recover(run: Path, number: int) -> list[dict[str, Any]]:
    """Rows that a process of clients had noted and that are in no file of its recorder.

    Its journal is deleted. Raises StoreError where it cannot be read.
    """
    rows = list(_recovered(run, number))
    for path in _segments_of(run, number):
        path.unlink()
    return rows


def _recovered(run: Path, number: int) -> Iterator[dict[str, Any]]:
    noted = [row for path in _segments_of(run, number) for row in _rows_of(path)]
    if not noted:
        return
    files = files_of(run / TABLE, writer_label(number))
    flushed = pa.chunked_array(
        [pq.read_table(path, columns=["operation"])["operation"].combine_chunks() for path in files]
        or [pa.array([], pa.int64())]
    )
    known = pc.is_in(pa.array([row[0] for row in noted], pa.int64()), value_set=flushed)
    for row, is_known in zip(noted, known.to_pylist(), strict=True):
        if not is_known:
            yield dict(zip(COLUMNS, row, strict=True))


def _segments_of(run: Path, number: int) -> list[Path]:
    return sorted((run / JOURNALS).glob(f"{writer_label(number)}-*.jsonl"))


def _rows_of(path: Path) -> Iterator[Row]:
    for line in path.read_bytes().split(b"\n")[:-1]:  # what is behind the last one is not whole
        try:
            yield from orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StoreError(f"{path} cannot be read: {error}.") from error
