"""Rows of Spark as files of this machine, wherever the disks of its executors are.

A task writes no file: what it makes is the content of files, as rows, and those come here, one part
of them after the other. So a cluster needs no file system that it shares with this machine.

The rule: what is here at once is one part, of about `ROWS_A_PART` rows; never all of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ROWS_A_PART: Final = 50_000
_CONTENT: Final = "run INT, of_table STRING, content BINARY"
_CONTENTS: Final = pa.schema(
    [("run", pa.int32()), ("of_table", pa.string()), ("content", pa.binary())]
)


@dataclass(frozen=True, slots=True)
class File:
    """The content of one Parquet file: rows of one table of one run."""

    run: int
    table: str
    content: bytes


def parquet_files(rows: DataFrame, schema: pa.Schema, rows_max: int) -> Iterator[File]:
    """The rows, of about so many, as files; beside the columns of the schema they have the number
    of the run, `run_number`, and `of_table`."""
    parts = max(1, -(-rows_max // ROWS_A_PART))
    # One run may have nearly all: its rows are spread, too. The work before is done at once by all
    # tasks; what is brought, one after the other, is only what an exchange has kept.
    spread = rows.withColumn("spread", F.expr(f"pmod(xxhash64(*), {parts})"))
    exchanged = spread.repartition(parts, "run_number", "spread").drop("spread")
    packed = exchanged.sortWithinPartitions("run_number", "of_table").mapInArrow(
        _Packing(schema).pack, _CONTENT
    )
    for row in packed.toLocalIterator():
        yield File(row["run"], row["of_table"], bytes(row["content"]))


@dataclass(frozen=True, slots=True)
class _Packing:
    """In a task."""

    schema: pa.Schema

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for of_run in _apart(pa.Table.from_batches([batch]), "run_number"):
                for rows in _apart(of_run, "of_table"):
                    content = io.BytesIO()
                    pq.write_table(rows.select(self.schema.names).cast(self.schema), content)
                    place = {"run": rows["run_number"][0], "of_table": rows["of_table"][0]}
                    yield pa.RecordBatch.from_pylist(
                        [{**place, "content": content.getvalue()}], schema=_CONTENTS
                    )


def _apart(rows: pa.Table, column: str) -> Iterator[pa.Table]:
    """Sorted rows by the values of a column."""
    for value in pc.unique(rows[column]):
        yield rows.filter(pc.equal(rows[column], value))
