"""The tables of many runs as one DataFrame each, with the name of the run as a column.

For what Spark itself aggregates: cycles, series over time, a run that is still going. Not for the
checks, whose tasks read the files (`neaptide.checkers.reading`).

The rule: columns come from `results.schema` alone; a run's name is read from the path of the file
that a row is in, so that one scan reads all runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from neaptide.results import schema

if TYPE_CHECKING:
    from neaptide.checkers.material import Material

TABLES: Final[Mapping[str, pa.Schema]] = {
    "operations": schema.OPERATIONS_READ,
    "fetch_rounds": schema.FETCH_ROUNDS,
    "replicas": schema.REPLICAS,
}

_TYPES: Final[Mapping[pa.DataType, T.DataType]] = {
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.bool_(): T.BooleanType(),
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
}

PARTITION: Final = ("run", "topic", "partition")

SEND: Final = "f = 'send'"
ACKED: Final = "(f = 'send' AND type = 'ok')"
READ: Final = "(f = 'poll' AND offset IS NOT NULL)"


def spark_schema(columns: pa.Schema) -> T.StructType:
    """The schema of an Arrow table as Spark has it."""
    return T.StructType([T.StructField(f.name, _spark_type(f.type)) for f in columns])


def _spark_type(kind: pa.DataType) -> T.DataType:
    return _TYPES[kind.value_type if pa.types.is_dictionary(kind) else kind]


def read_table(
    spark: SparkSession, name: str, files: Mapping[str, Sequence[Path | str]]
) -> DataFrame:
    """One table of all runs, whose files are given by run; no files at all is an empty table."""
    columns = spark_schema(TABLES[name])
    paths = [str(path) for of_run in files.values() for path in of_run]
    if not paths:
        return literal(spark, columns.add("run", T.StringType()).toDDL(), [])
    rows = spark.read.schema(columns).parquet(*paths)
    if len(files) == 1:  # a constant costs nothing per row
        (only,) = files
        return rows.withColumn("run", F.lit(only))
    before = f"substring_index(_metadata.file_path, '/{name}/', 1)"
    return rows.selectExpr("*", f"substring_index({before}, '/', -1) AS run")


def read_operations(spark: SparkSession, materials: Sequence[Material]) -> DataFrame:
    """The operations of runs."""
    return read_table(spark, "operations", {m.name: m.files["operations"] for m in materials})


def literal(spark: SparkSession, columns: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A small frame out of the driver's memory, without a job and without an RDD."""
    array = F.from_json(F.lit(json.dumps(rows)), f"ARRAY<STRUCT<{columns}>>")
    return spark.range(1, numPartitions=1).select(F.inline(array))
