"""The valid part of a planted history as Arrow tables: many batches at a time, no Python per row.

Not here: what is planted, and where (`tests.planting.planting`).

The rule: an operation's number, and so its time, is a function of the batch that it is in: each
batch has room for `ROOM` operations, and the final reads come after all batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.tables import TableWriter

TOPIC: Final = "planted"
BATCH: Final = 10  # offsets
ROOM: Final = 16  # operations of one batch, however it is changed
STEP_NS: Final = 10
CHUNK: Final = 20_000  # batches in one table, at most
CHUNK_BYTES: Final = 256 * 2**20  # of values in one table, about

# Processes, from these numbers on one a partition, which are fewer than a million.
CONSUMERS: Final = 1_000_000
FINAL: Final = 2_000_000

Integers = np.ndarray[Any, np.dtype[np.int64]]


class Op(Protocol):
    """An operation to be written."""

    @property
    def process(self) -> int: ...
    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]: ...
    @property
    def type(self) -> str: ...
    @property
    def phase(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a history is. Batch n is the one of partition `n % partitions`, then on."""

    partitions: int
    batches: int  # of each partition
    value_bytes: int = 0

    @property
    def total(self) -> int:
        return self.partitions * self.batches

    def first_operation(self, n: int) -> int:
        """The number of the first operation of batch n; those behind the last are for tails."""
        return ROOM * n

    def final_operation(self, n: int) -> int:
        """The number of the final read of batch n."""
        return ROOM * (self.total + self.partitions) + n

    def look(self, n: int) -> int:
        """The number of the first look at the end, of batch n."""
        return self.final_operation(self.total + ROOM * n)


def polled_batches(shape: Shape, without: Collection[int]) -> Iterator[pa.Table]:
    """Sends and polls of all batches but those."""
    for n in _chunks(shape, without):
        each = np.arange(BATCH)
        first = (ROOM * n)[:, None]
        yield _table(shape, n, "send", first + each, np.zeros_like(each), 0)
        yield _table(shape, n, "poll", first + BATCH + 0 * each, each, CONSUMERS)


def final_batches(shape: Shape, without: Collection[int]) -> Iterator[pa.Table]:
    """Final reads of all batches but those."""
    for n in _chunks(shape, without):
        each = np.arange(BATCH)
        read = (n + shape.final_operation(0))[:, None] + 0 * each
        yield _table(shape, n, "poll", read, each, FINAL, phase="final")


def write_ops(table: TableWriter, first: int, ops: Sequence[Op]) -> None:
    """Write operations by themselves, numbered from `first`."""
    assert len(ops) <= ROOM
    for number, op in enumerate(ops, first):
        shared = {
            "operation": number,
            "process": op.process,
            "type": op.type,
            "invoked_ns": STEP_NS * number,
            "completed_ns": STEP_NS * number + STEP_NS // 2,
            "phase": op.phase,
        }
        for n, row in enumerate(op.rows):
            whole = {**shared, "row": n, **row}
            table.append(tuple(whole.get(name) for name in OPERATIONS_READ.names))


def _chunks(shape: Shape, without: Collection[int]) -> Iterator[Integers]:
    left_out = np.array(sorted(without), dtype=np.int64)
    at_once = min(CHUNK, max(1, CHUNK_BYTES // (BATCH * max(1, shape.value_bytes))))
    for start in range(0, shape.total, at_once):
        n = np.arange(start, min(start + at_once, shape.total))
        chosen = n[~np.isin(n, left_out, assume_unique=True)]
        if len(chosen):
            yield chosen


def _table(
    shape: Shape,
    n: Integers,
    f: str,
    operation: Integers,
    row: Integers,
    processes: int,
    phase: str = "main",
) -> pa.Table:
    """One row per record of the batches; `operation` is a matrix of batches and offsets."""
    partition = np.repeat(n % shape.partitions, BATCH)
    offset = (BATCH * (n // shape.partitions)[:, None] + np.arange(BATCH)).ravel()
    count = len(offset)
    known: dict[str, Any] = {
        "operation": operation.ravel(),
        "row": np.tile(row, len(n)),
        "process": partition + processes,
        "f": f,
        "type": "ok",
        "invoked_ns": STEP_NS * operation.ravel(),
        "completed_ns": STEP_NS * operation.ravel() + STEP_NS // 2,
        "topic": TOPIC,
        "partition": partition,
        "offset": offset,
        "value": _values(partition, offset, shape.value_bytes),
        "acks": "all" if f == "send" else None,
        "phase": phase,
    }
    columns = [_column(known.get(field.name), field.type, count) for field in OPERATIONS_READ]
    return pa.Table.from_arrays(columns, schema=OPERATIONS_READ)


def _values(partition: Integers, offset: Integers, width: int) -> pa.Array:
    texts = [pa.array(numbers).cast(pa.string()) for numbers in (partition, offset)]
    joined = pc.binary_join_element_wise(*texts, "-")
    return pc.utf8_rpad(joined, width, padding=".") if width else joined


def _column(of: Any, kind: pa.DataType, count: int) -> pa.Array:
    """An array, or one text or null as often as needed."""
    if of is None:
        return pa.nulls(count, kind)
    if isinstance(of, str):
        indices = pa.array(np.zeros(count, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(indices, [of])
    return pa.array(of).cast(kind)
