"""What goes from the tasks that read to the tasks that judge: columns, and how they travel.

A task that judges has all rows of its topic partitions. A *part* is one topic partition of one run
(or, without a topic, what a run says of no partition); `part` numbers it, in each task anew. Rows
travel in blocks (`neaptide.checkers.blocks`).

The rule: to which task a part goes follows from its names alone, and neighbouring partitions go to
different ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from neaptide.checkers.blocks import from_bytes, to_bytes

# Rows are passed on once there are this many bytes of them.
BLOCK_BYTES: Final = 8 * 2**20

Name = tuple[str, str | None, int | None]  # run, topic, partition

PARTS: Final = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
    ]
)

# What a record tells of its value; those from `READ` on are reads.
ACKED, FAILED, SENT, READ, READ_UNSURE, FINAL, FINAL_UNSURE = range(7)


def _columns(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("part", pa.int32()), *(pa.field(n, k) for n, k in kinds.items())])


_I8, _I16, _I32, _I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
_TEXT, _FLAG = pa.string(), pa.bool_()

RELATIONS: Final[Mapping[str, pa.Schema]] = {
    # One row per record that was sent, or read at an offset.
    "records": _columns(
        kind=_I8, value=_TEXT, log_offset=_I64, operation=_I64, row=_I32, process=_I32,
        invoked_ns=_I64, completed_ns=_I64, acks=_I16,  # -1: all
        in_transaction=_FLAG,
    ),
    # Reads without a gap that one operation did in one go, or (without offsets) a seek.
    "moves": _columns(
        process=_I32, operation=_I64, row=_I32, invoked_ns=_I64, first_offset=_I64,
        last_offset=_I64, value=_TEXT, known=_FLAG, ok=_FLAG, final=_FLAG, rebalanced=_FLAG,
    ),
    # Positions of groups: commit, committed, seek.
    "positions": _columns(
        f=_TEXT, log_offset=_I64, operation=_I64, row=_I32, process=_I32, invoked_ns=_I64,
        completed_ns=_I64, group_name=_TEXT,
    ),
    # What is counted of a part, a row from each of those that read of it.
    "seen": _columns(
        operations=_I64, sends=_I64, acked=_I64, final_records=_I64,
        highest_read=_I64, last_ns=_I64, backward_operation=_I64,
    ),
    # Complete: the run is whole, and these reads reached the log end.
    "final_reads": _columns(complete=_FLAG, start_offset=_I64, end_offset=_I64),
    "replicas": _columns(
        broker=_I32, log_offset=_I64, leader_epoch=_I32, key=_TEXT, value=_TEXT, control=_FLAG,
        high_watermark=_I64,
    ),
    "rounds": _columns(
        leader_epoch=_I32, leader=_I32, follower=_I32, round=_I64, responded_ns=_I64,
        delivered_ns=_I64, fetch_offset=_I64, high_watermark=_I64, error=_I16,
    ),
    # Of a run as a whole: every task has them.
    "steps": _columns(at_ns=_I64, fault=_TEXT),
    "failed": _columns(reason=_TEXT),
}  # fmt: skip

BLOCKS: Final = pa.schema(
    [
        pa.field("task", _I32),
        pa.field("relation", _TEXT),
        pa.field("parts", pa.binary()),
        pa.field("block", pa.binary()),
    ]
)

_NO_PARTITION: Final = -(2**31)  # in place of null; the least of its type


@dataclass(slots=True)
class Parts:
    """Numbers for parts, in the order in which they are met."""

    names: list[Name] = field(default_factory=list)
    _numbers: dict[Name, int] = field(default_factory=dict)

    def number(self, name: Name) -> int:
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number

    def numbers(self, run: str, topic: pa.DictionaryArray, partition: pa.Array) -> np.ndarray:
        """The part of each row of one run."""
        topics = [*topic.dictionary.to_pylist(), None]
        of_topic = topic.indices.fill_null(len(topics) - 1).to_numpy().astype(np.int64)
        of_partition = partition.fill_null(_NO_PARTITION).to_numpy().astype(np.int64)
        keys = of_topic * 2**32 + (of_partition - _NO_PARTITION)
        distinct, inverse = np.unique(keys, return_inverse=True)
        found = np.empty(len(distinct), np.int32)
        for place, key in enumerate(distinct.tolist()):
            topic_at, above = divmod(key, 2**32)
            number = above + _NO_PARTITION if above else None
            found[place] = self.number((run, topics[topic_at], number))
        return found[inverse]

    def table(self, numbers: Iterable[int]) -> pa.Table:
        names = [self.names[number] for number in numbers]
        rows = [dict(zip(PARTS.names, name, strict=True)) for name in names]
        return pa.Table.from_pylist(rows, schema=PARTS)


def task_of(name: Name, tasks: int) -> int:
    run, topic, partition = name
    return (zlib.crc32(f"{run}\0{topic or ''}".encode()) + (partition or 0)) % tasks


class Outbox:
    """Rows on their way to the tasks that judge."""

    def __init__(self, tasks: int) -> None:
        self.parts = Parts()
        self._tasks = tasks
        self._waiting: dict[tuple[int, str], list[pa.Table]] = {}
        self._bytes = 0
        self._of_part = np.empty(0, np.int32)

    def put(self, relation: str, table: pa.Table) -> None:
        """Rows that each go to the task of their part."""
        if table.num_rows == 0:
            return
        if self._tasks == 1:
            self._add(0, relation, table)
            return
        task = self._task_of_parts()[table["part"].to_numpy()]
        order = np.argsort(task, kind="stable")
        in_order = table.combine_chunks().take(pa.array(order))
        bounds = np.searchsorted(task[order], np.arange(self._tasks + 1))
        for number in range(self._tasks):
            first, end = int(bounds[number]), int(bounds[number + 1])
            if first < end:
                self._add(number, relation, in_order.slice(first, end - first))

    def put_to_all(self, relation: str, table: pa.Table) -> None:
        for number in range(self._tasks):
            self._add(number, relation, table)

    def blocks(self, *, at_end: bool = False) -> Iterator[pa.RecordBatch]:
        """What has become enough; at the end, all."""
        if self._bytes < BLOCK_BYTES * min(self._tasks, 4) and not at_end:
            return
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for (task, relation), tables in waiting.items():
            table = pa.concat_tables(tables).combine_chunks()  # each chunk would travel alone
            numbers, local = np.unique(table["part"].to_numpy(), return_inverse=True)
            table = table.set_column(0, "part", pa.array(local, pa.int32()))
            row = {
                "task": task,
                "relation": relation,
                "parts": to_bytes(self.parts.table(numbers.tolist())),
                "block": to_bytes(table),
            }
            yield pa.RecordBatch.from_pylist([row], schema=BLOCKS)

    def _add(self, task: int, relation: str, table: pa.Table) -> None:
        self._waiting.setdefault((task, relation), []).append(table)
        self._bytes += table.nbytes

    def _task_of_parts(self) -> np.ndarray:
        known = len(self._of_part)
        new = [task_of(name, self._tasks) for name in self.parts.names[known:]]
        if new:
            self._of_part = np.concatenate([self._of_part, np.array(new, np.int32)])
        return self._of_part


class Inbox:
    """Blocks opened again: rows whose parts have one numbering."""

    def __init__(self) -> None:
        self.parts = Parts()

    def opened(self, block: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        """Relations and rows of a batch of blocks."""
        columns = (block.column(place) for place in range(1, 4))
        for relation, names, rows in zip(*columns, strict=True):
            parts = from_bytes(names.as_buffer())
            numbers = np.array(
                [
                    self.parts.number(name)
                    for name in zip(*(c.to_pylist() for c in parts.columns), strict=True)
                ],
                np.int32,
            )
            table = from_bytes(rows.as_buffer())
            part = pa.array(numbers[table["part"].to_numpy()])
            yield relation.as_py(), table.set_column(0, "part", part)
