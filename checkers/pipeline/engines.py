"""Which engine runs the rules of a check: by the sizes of its partitions and the cores at hand.

With DuckDB inside Spark's tasks all rows of a partition are in one task: a run in few large
partitions leaves most cores of a cluster idle. Spark SQL spreads the rows of one partition over all
cores, but first it needs its plan. A row costs both about as much processor time (`python -m
tests.benchmarks.growth`, from a million operations on); Spark SQL sends it over the network, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.material import Material
from neaptide.checkers.pipeline.exchange import KEY
from neaptide.checkers.pipeline.limits import is_local
from neaptide.checkers.verdict import EngineName

# As many as a task of DuckDB judges while Spark SQL makes its plan.
PLAN_ROWS: Final = 7_000_000
# What a row costs Spark SQL, where it costs DuckDB 1: half of it is for what one machine has not.
SPARK_COST: Final = 2.0
_COUNTED: Final = 100_000  # rows, over all cores that are there


def engine_of(
    spark: SparkSession, materials: Sequence[Material], operations: DataFrame
) -> EngineName:
    """For these runs; `operations` are theirs. On one machine the tasks of DuckDB share its cores,
    however few they are."""
    rows = sum(material.rows for material in materials)
    if rows < PLAN_ROWS or is_local(spark):
        return "duckdb"
    return faster(rows, _largest(materials, operations), _cores(spark))


def faster(rows: int, largest: int, cores: int) -> EngineName:
    """Of so many rows, the most of one partition, on so many cores."""
    by_duckdb = max(largest, rows / cores)
    by_spark = PLAN_ROWS + SPARK_COST * rows / cores
    return "spark" if by_spark < by_duckdb else "duckdb"


def _largest(materials: Sequence[Material], operations: DataFrame) -> int:
    """About how many rows the largest partition has in all tables."""
    known = [_largest_known(material) for material in materials]
    if all(rows is not None for rows in known):
        return max(rows or 0 for rows in known)
    partitions = operations.groupBy(*KEY).count()
    largest, total = partitions.agg(F.max("count"), F.sum("count")).collect()[0]
    return int(sum(material.rows for material in materials) * largest / total) if total else 0


def _largest_known(material: Material) -> int | None:
    """As the log ends of the final reads have it."""
    extents = [
        None if read.end_offset is None else read.end_offset - read.start_offset
        for read in material.final_reads.values()
    ]
    known = [extent for extent in extents if extent is not None]
    if len(known) < len(extents) or sum(known) == 0:
        return None
    return material.rows * max(known) // sum(known)


def _cores(spark: SparkSession) -> int:
    """As many as Spark spreads a range over, on a cluster or behind Spark Connect."""
    parts = spark.range(_COUNTED).select(F.spark_partition_id().alias("part"))
    return max(1, parts.distinct().count())
