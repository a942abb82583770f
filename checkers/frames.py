"""Frames: the tables of many runs as one DataFrame each, with the name of the run as a column.

Not here: what is wrong with a run (`checkers.material`), and any judgement.

The rule: columns come from `results.schema` alone; a run's name is read from the path of the file
that a row is in, so that one scan reads all runs. A topic partition is judged in one place: what
compares its records is spread by `PARTITION`, once, and Spark needs no second shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from results import schema

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
}

PARTITION: Final = ("run", "topic", "partition")

SEND: Final = "f = 'send'"
ACKED: Final = "(f = 'send' AND type = 'ok')"
READ: Final = "(f = 'poll' AND offset IS NOT NULL)"

# whole: all operations were recorded and are readable.
# level: all replicas were level when their logs were read.
# transactions: some of its operations are transactions.
RUNS: Final = "run STRING, whole BOOLEAN, level BOOLEAN, transactions BOOLEAN"

# complete: the run is whole and these reads reached the log end.
FINAL_READS: Final = (
    "run STRING, topic STRING, partition INT, "
    "complete BOOLEAN, start_offset BIGINT, end_offset BIGINT"
)


@dataclass(frozen=True, slots=True)
class Frames:
    """Everything that the checks look at, of all runs together."""

    operations: DataFrame
    fetch_rounds: DataFrame
    replicas: DataFrame
    runs: DataFrame
    final_reads: DataFrame
    written: frozenset[str]  # tables of which there are files
    single: bool  # of one run only

    def spread(self, frame: DataFrame) -> DataFrame:
        """Bring together what is of one partition; the name of an only run is a constant."""
        return frame.repartition(*(PARTITION[1:] if self.single else PARTITION))


def spark_schema(columns: pa.Schema) -> T.StructType:
    """The schema of a Parquet table as Spark reads it."""
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


def literal(spark: SparkSession, columns: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A small frame out of the driver's memory, without a job and without an RDD."""
    array = F.from_json(F.lit(json.dumps(rows)), f"ARRAY<STRUCT<{columns}>>")
    return spark.range(1, numPartitions=1).select(F.inline(array))
