"""Looks at a run while it is still going, and tells of a lost write as soon as one is proved.

Structured Streaming over the Parquet files of its operations, which appear whole. Not the verdict:
that is the batch check's (`neaptide.checkers.check`), once the run is over.

What is proof before the final reads: a send that began after another's acknowledgement was
appended behind it, if the log still had it. Where the later send is acknowledged at the same
offset or a lower one, the log was cut between, and one of the two acknowledged records is lost.

The rule: what is kept between two looks is one acknowledgement a partition; nothing that later
rows could take back is told. Rows may come late, since every process of clients writes files of its
own: a comparison with what is not there yet is not made, and is not an accusation.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.pipeline.limits import sized_for
from neaptide.checkers.pipeline.series import ACKED
from neaptide.checkers.pipeline.tables import spark_schema
from neaptide.results.schema import OPERATIONS_READ

LOOK_S: Final = 1
Found = dict[str, Any]  # columns of `neaptide.results.schema.ANOMALIES`

_ACK: Final = "struct(offset, value, operation, at_ns)"
_STATE: Final = (
    "topic STRING, partition INT, offset BIGINT, value STRING, operation BIGINT, at_ns BIGINT"
)


def follow(
    spark: SparkSession,
    run_directory: Path,
    *,
    is_over: Callable[[], bool],
    tell: Callable[[Found], None],
) -> None:
    """Returns when the run is over and everything it wrote was looked at.

    `is_over` is asked about once in `LOOK_S`. Raises PySparkException where Spark cannot go on.
    """
    looker = _Looker(run_directory.name, tell)
    operations = run_directory / "operations"
    with tempfile.TemporaryDirectory(prefix="neaptide-follow-") as scratch:
        rows = spark.readStream.schema(spark_schema(OPERATIONS_READ)).parquet(str(operations))
        looks = (
            rows.writeStream.foreachBatch(looker.look)
            .option("checkpointLocation", scratch)
            .trigger(processingTime=f"{LOOK_S} seconds")
        )
        with sized_for(spark, []):  # a look is at few rows, and takes the settings of its start
            query = looks.start()
        try:
            while not query.awaitTermination(LOOK_S):
                if is_over():
                    query.processAllAvailable()
                    return
        finally:
            query.stop()


class _Looker:
    """What is kept between two looks: of each partition the acknowledgement to compare with."""

    def __init__(self, run: str, tell: Callable[[Found], None]) -> None:
        self._run = run
        self._tell = tell
        self._kept: dict[tuple[str, int], Mapping[str, Any]] = {}

    def look(self, batch: DataFrame, _: int) -> None:
        """At the rows that are new."""
        kept = [
            {"topic": topic, "partition": partition, **ack}
            for (topic, partition), ack in self._kept.items()
        ]
        for row in judged(batch, kept).collect():
            place = row["topic"], row["partition"]
            if row["count"]:
                self._tell(self._found(*place, row["count"], row["first"].asDict(True)))
            # After a loss the log goes on from where it was cut.
            ack = row["latest"] if row["count"] else row["greatest"]
            self._kept[place] = ack.asDict()

    def _found(self, topic: str, partition: int, count: int, first: Mapping[str, Any]) -> Found:
        lost = first["before"]
        evidence = {
            "acknowledged_ns": lost["at_ns"],
            "later_value": first["value"],
            "later_offset": first["offset"],
            "later_operation": first["operation"],
            "later_invoked_ns": first["at_ns"],
            "later_sends": count,
        }
        return {
            "run": self._run,
            "anomaly": "lost-write",
            "topic": topic,
            "partition": partition,
            "offset": lost["offset"],
            "value": lost["value"],
            "operation": lost["operation"],
            "evidence": json.dumps(evidence),
        }


def judged(batch: DataFrame, kept: list[dict[str, Any]]) -> DataFrame:
    """One row per partition: how many sends prove a loss, the first, and what to keep."""
    acked = batch.where(f"{ACKED} AND offset IS NOT NULL AND partition IS NOT NULL")
    columns = "offset, value, operation"
    moments = acked.selectExpr(
        "topic", "partition",
        f"inline(array(struct(completed_ns AS at_ns, 1 AS ends, {columns}),"
        f" struct(invoked_ns AS at_ns, 0 AS ends, {columns})))",
    )  # fmt: skip
    earlier = literal(batch.sparkSession, _STATE, kept).selectExpr(*_moment_columns())
    compared = moments.unionByName(earlier).selectExpr(
        "*", f"max(IF(ends = 1, {_ACK}, NULL)) OVER ({_SO_FAR}) AS before"
    )
    proof = "ends = 0 AND coalesce(before.offset >= offset, false)"
    of_partition = compared.groupBy("topic", "partition").agg(
        F.expr(f"count_if({proof}) AS count"),
        F.expr(f"min_by(struct({columns}, at_ns, before), at_ns) FILTER (WHERE {proof}) AS first"),
        F.expr(f"max({_ACK}) FILTER (WHERE ends = 1) AS greatest"),
        F.expr(f"max_by({_ACK}, at_ns) FILTER (WHERE ends = 1) AS latest"),
    )
    return of_partition.orderBy("topic", "partition")


def _moment_columns() -> tuple[str, ...]:
    return ("topic", "partition", "at_ns", "1 AS ends", "offset", "value", "operation")


# At one and the same moment nothing is before anything: beginnings come first.
_SO_FAR: Final = (
    "PARTITION BY topic, partition ORDER BY at_ns, ends, operation ROWS UNBOUNDED PRECEDING"
)
