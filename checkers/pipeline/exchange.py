"""The one exchange: all rows of a topic partition of a run come to one task, as typed columns.

The tables travel as one frame, each row with the name of its table and null in the columns that
only others have; in the task they are tables again. Spark moves, sorts out, spills and repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

KEY: Final = ("run", "topic", "partition")
_TABLE: Final = "of_table"

Tables = Mapping[str, StructType]  # the columns of each table


def columns_of(frames: Mapping[str, DataFrame]) -> dict[str, StructType]:
    return {name: frame.schema for name, frame in frames.items()}


def exchanged(frames: Mapping[str, DataFrame], tasks: int) -> DataFrame:
    """The rows of all tables, those of one partition in one of so many tasks."""
    columns = columns_of(frames)
    wide = _wide(columns)
    parts = [
        frame.selectExpr(
            f"'{name}' AS {_TABLE}", *[_column(field, columns[name]) for field in wide]
        )
        for name, frame in frames.items()
    ]
    rows = reduce(DataFrame.unionAll, parts)
    return rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, *KEY)


def _wide(tables: Tables) -> list[StructField]:
    """Every column once: what has one name has one type in all tables."""
    fields = {field.name: field for columns in tables.values() for field in columns}
    return [fields[name] for name in sorted(fields)]


def _column(field: StructField, columns: StructType) -> str:
    """SQL, which Spark gets in one call for all of them."""
    if field.name in columns.names:
        return f"`{field.name}`"
    return f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"


def unpacked(
    batches: Iterable[pa.RecordBatch], tables: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, pa.Table]]:
    """In the task: rows of one table each, with its columns."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        of_table = rows[_TABLE]
        for name in pc.unique(of_table).to_pylist():
            chosen = rows.select(tables[name])
            is_all = batch.num_rows and pc.all(pc.equal(of_table, name)).as_py()
            yield name, chosen if is_all else chosen.filter(pc.equal(of_table, name))
