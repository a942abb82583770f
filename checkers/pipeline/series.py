"""What happened over time, for plots: each run in at most `STRETCHES` stretches of equal width.

Written as `series/` (Parquet) into each run. Not a judgement, and not taken by every check.

- `ok`, `fail`, `info`: sends that ended in the stretch, by outcome.
- `latency-p50`, `latency-p99`, `latency-max`: of the acknowledged ones, in nanoseconds.
- `unseen`: acknowledged records that nobody had read yet, at the end of the stretch.
- `lag`: from the highest offset read to the highest acknowledged, over all partitions, there.
- `written-to`: partitions to which a send was under way; `acknowledging`: those that took one.

The rule: Spark aggregates, and what is brought here is bounded by runs times stretches, however
long the runs are. `unseen`, `lag` and `written-to` have a row where they change, the others where
there is something to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.evidence import replacement
from neaptide.checkers.material import Material
from neaptide.checkers.pipeline.limits import sized_for
from neaptide.checkers.pipeline.tables import read, small
from neaptide.results.record_texts import IDENTITY_SQL
from neaptide.results.schema import SERIES
from neaptide.results.tables import write_table

STRETCHES: Final = 240
RUNS_AT_ONCE: Final = 50
_TABLE: Final = "series"

PARTITION: Final = ("run", "topic", "partition")
SEND: Final = "f = 'send'"
ACKED: Final = "(f = 'send' AND type = 'ok')"
READ: Final = "(f = 'poll' AND offset IS NOT NULL)"
_WIDTHS: Final = pa.schema([pa.field("run", pa.int32()), pa.field("width_ns", pa.int64())])


def write_series(spark: SparkSession, materials: Sequence[Material]) -> None:
    """Write `series/` into every run that has operations."""
    readable = [material for material in materials if material.files["operations"]]
    for first in range(0, len(readable), RUNS_AT_ONCE):
        _write(spark, readable[first : first + RUNS_AT_ONCE])


def _write(spark: SparkSession, materials: Sequence[Material]) -> None:
    with sized_for(spark, materials):
        operations = read(spark, "operations", materials)
        widths = {
            row["run"]: width_ns(row["last_ns"])
            for row in operations.groupBy("run").agg(F.expr(f"max({_AT_NS}) AS last_ns")).collect()
        }
        with over_time(spark, operations, widths) as series:
            rows = series.select(*SERIES.names).toArrow().to_pydict()
    by_run: list[list[tuple[object, ...]]] = [[] for _ in materials]
    for run, *row in sorted(zip(*rows.values(), strict=True)):
        by_run[run].append((materials[run].name, *row))
    for material, of_run in zip(materials, by_run, strict=True):
        with replacement(material.directory, _TABLE) as directory:
            write_table(directory, SERIES, of_run)


def width_ns(last_ns: int) -> int:
    """1, 2 or 5 times a power of ten: the least that makes few enough stretches."""
    power = 1
    while True:
        for step in (1, 2, 5):
            if last_ns // (step * power) < STRETCHES:
                return step * power
        power *= 10


@contextmanager
def over_time(
    spark: SparkSession, operations: DataFrame, widths: Mapping[int, int]
) -> Iterator[DataFrame]:
    """All series of all runs; what they share is kept inside the `with`."""
    listed = [{"run": run, "width_ns": width} for run, width in widths.items()]
    width = small(spark, _WIDTHS, listed)
    operations = operations.where(f"{SEND} OR {READ}").join(F.broadcast(width), "run")
    timed = operations.selectExpr("*", f"{_AT_NS} DIV width_ns AS stretch")
    by_partition = _by_partition(timed).persist()
    parts = [_rates(timed), _unseen(operations), *_of_partitions(by_partition)]
    found = reduce(DataFrame.unionByName, parts)
    try:
        yield found.join(F.broadcast(width), "run").selectExpr(
            "run",
            "series",
            "stretch * width_ns AS at_ns",
            "width_ns",
            "CAST(value AS DOUBLE) AS value",
        )
    finally:
        by_partition.unpersist()


def _rates(timed: DataFrame) -> DataFrame:
    """How sends ended, and how long the acknowledged ones took."""
    latency = f"IF({ACKED}, completed_ns - invoked_ns, NULL)"
    measured = (
        timed.where(SEND)
        .groupBy("run", "stretch")
        .agg(
            F.expr("count_if(type = 'ok') AS ok"),
            F.expr("count_if(type = 'fail') AS fail"),
            F.expr("count_if(type IN ('info', 'invoke')) AS info"),
            F.expr(f"percentile_approx({latency}, array(0.5D, 0.99D), 1000) AS quantiles"),
            F.expr(f"max({latency}) AS longest"),
        )
    )
    named = {
        "ok": "ok",
        "fail": "fail",
        "info": "info",
        "latency-p50": "quantiles[0]",
        "latency-p99": "quantiles[1]",
        "latency-max": "longest",
    }
    pairs = ", ".join(
        f"named_struct('series', '{name}', 'value', CAST({value} AS BIGINT))"
        for name, value in named.items()
    )
    return measured.selectExpr("run", "stretch", f"inline(array({pairs}))").where(
        "value IS NOT NULL"
    )


def _unseen(operations: DataFrame) -> DataFrame:
    """One more when a record is acknowledged, one less when it is first read."""
    values = (
        operations.withColumn("value", F.expr(IDENTITY_SQL["operations"]))
        .where("value IS NOT NULL")
        .groupBy(*PARTITION, "value", "width_ns")
        .agg(
            F.expr(f"min(IF({ACKED}, completed_ns, NULL)) AS acknowledged_ns"),
            F.expr(f"min(IF({READ}, completed_ns, NULL)) AS read_ns"),
        )
        .where("acknowledged_ns IS NOT NULL AND coalesce(read_ns > acknowledged_ns, true)")
    )
    changes = values.selectExpr(
        "run", "width_ns",
        "inline(array(struct(acknowledged_ns AS at_ns, 1L AS more),"
        " struct(read_ns AS at_ns, -1L AS more)))",
    ).where("at_ns IS NOT NULL")  # fmt: skip
    return _summed("unseen", changes.selectExpr("run", "at_ns DIV width_ns AS stretch", "more"))


def _by_partition(timed: DataFrame) -> DataFrame:
    """One row per partition and stretch in which something changed."""
    ended = _moment("stretch", ACKED, READ, "0")
    began = _moment("invoked_ns DIV width_ns", "false", "false", "1")
    # A send of which no completion is known is under way when it begins, and then who knows.
    over = _moment("1 + stretch", "false", "false", "-1")
    moments = timed.where("partition IS NOT NULL").selectExpr(
        *PARTITION, f"inline(IF({SEND}, array({ended}, {began}, {over}), array({ended})))"
    )
    measured = moments.groupBy(*PARTITION, "stretch").agg(
        F.expr("bool_or(acked) AS acknowledges"),
        F.expr("max(acked_offset) AS acked_offset"),
        F.expr("max(read_offset) AS read_offset"),
        F.expr("sum(more) AS more"),
    )
    return measured.selectExpr(
        *PARTITION, "stretch", "acknowledges",
        f"greatest(0L, coalesce(max(acked_offset) OVER ({_SO_FAR}), -1L)"
        f" - coalesce(max(read_offset) OVER ({_SO_FAR}), -1L)) AS lag",
        f"CAST(sum(more) OVER ({_SO_FAR}) > 0 AS BIGINT) AS written_to",
    )  # fmt: skip


def _moment(stretch: str, acked: str, read: str, more: str) -> str:
    return (
        f"struct({stretch} AS stretch, {acked} AS acked, IF({acked}, offset, NULL) AS acked_offset,"
        f" IF({read}, offset, NULL) AS read_offset, {more} AS more)"
    )


def _of_partitions(by_partition: DataFrame) -> list[DataFrame]:
    acknowledging = (
        by_partition.groupBy("run", "stretch")
        .agg(F.expr("count_if(acknowledges) AS value"))
        .selectExpr("run", "stretch", "'acknowledging' AS series", "value")
    )
    return [acknowledging, *(_stepping(by_partition, name) for name in ("lag", "written_to"))]


def _stepping(by_partition: DataFrame, column: str) -> DataFrame:
    """The sum over all partitions of what changes in steps."""
    changes = by_partition.selectExpr(
        "run", "stretch", f"{column} - coalesce(lag({column}) OVER ({_IN_ORDER}), 0L) AS more"
    )
    return _summed(column.replace("_", "-"), changes)


def _summed(series: str, changes: DataFrame) -> DataFrame:
    return (
        changes.groupBy("run", "stretch")
        .agg(F.expr("sum(more) AS more"))
        .where("more <> 0")
        .selectExpr(
            "run", "stretch", f"'{series}' AS series",
            "sum(more) OVER (PARTITION BY run ORDER BY stretch) AS value",
        )
    )  # fmt: skip


_AT_NS: Final = "coalesce(completed_ns, invoked_ns)"
_IN_ORDER: Final = "PARTITION BY run, topic, partition ORDER BY stretch"
_SO_FAR: Final = f"{_IN_ORDER} ROWS UNBOUNDED PRECEDING"
