"""A history of Jepsen's Kafka workload as a run: EDN in, the tables that checks read out.

`jepsen.tests.kafka` writes one operation a line. Spark splits the file at its lines and reads the
splits in parallel; an invocation and its completion are brought together by their process.

What differs from a run of our own: Jepsen tells no final reads and no log ends, so every poll is
taken for one that belongs to the end, and what was never polled counts as gone: that is the rule of
Jepsen's checker. A partition that an `assign` or `subscribe` drops begins anew, which is a seek.

The rule: nothing is written before every line was read; a line that cannot be is named by number.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from neaptide.checkers.edn_rows import LINE, rows_of
from neaptide.results.errors import RunUnreadableError
from neaptide.results.run import FinalRead, Run
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.store import create_run, write_run

SYSTEM: Final = "jepsen"
_STAGING: Final = ".edn.tmp"
_BAD_MAX: Final = 1_000


def import_history(spark: SparkSession, path: Path, *, version: str, utc: datetime) -> Path:
    """Make a run directory out of a history, and return it."""
    run = create_run(path.stem, SYSTEM, 0, utc)
    try:
        _fill(spark, path, run, version, utc)
    except BaseException:
        shutil.rmtree(run)
        raise
    return run


def _fill(spark: SparkSession, path: Path, run: Path, version: str, utc: datetime) -> None:
    staging = run / _STAGING
    lines = spark.read.text(str(path)).selectExpr("monotonically_increasing_id() AS line", "value")
    lines.mapInArrow(_read_batches, from_arrow_schema(LINE)).write.parquet(str(staging))
    read = spark.read.parquet(str(staging))
    bad = read.where("bad IS NOT NULL").orderBy("line").limit(_BAD_MAX).collect()
    if bad:
        raise _refusal(path, {row["text"]: row["bad"] for row in bad})
    operations(read).write.parquet(str(run / "operations"))
    shutil.rmtree(staging)
    written = spark.read.parquet(str(run / "operations"))
    partitions = written.where("partition IS NOT NULL").select("topic", "partition").distinct()
    reads = sorted((row["topic"], row["partition"]) for row in partitions.toLocalIterator())
    subscribes = not written.where("f = 'subscribe'").isEmpty()
    write_run(
        run,
        Run(
            neaptide=version, name=path.stem, system=SYSTEM, host="none", seed=0,
            started_utc=utc.isoformat(), status="finished", kind="random", brokers={},
            title=f"A history of Jepsen's Kafka workload: {path.name}",
            final_reads=tuple(FinalRead(topic, p, None, True) for topic, p in reads),
            clients={"subscribe": subscribes},
        ),
    )  # fmt: skip


def _read_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield rows_of(batch)


def _refusal(path: Path, bad: dict[str, str]) -> RunUnreadableError:
    """Spark knows the line but not its number: count up to it."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip("\r\n")
            if text in bad:
                return RunUnreadableError(f"{path} line {number} cannot be read: {bad[text]}.")
    text, why = next(iter(bad.items()))
    return RunUnreadableError(f"{path} has a line that cannot be read: {why}: {text[:80]}.")


def operations(read: DataFrame) -> DataFrame:
    """Rows of `neaptide.results.schema.OPERATIONS_READ` out of lines."""
    order = "PARTITION BY process ORDER BY at"
    lines = read.selectExpr("*", "coalesce(index, line) AS at").selectExpr(
        "*", "coalesce(time, at) AS at_ns"
    )
    paired = lines.selectExpr(
        "*",
        f"lag(struct(type, at_ns, records, at)) OVER ({order}) AS before",
        f"lead(type) OVER ({order}) AS next_type",
    ).where("process = -1 OR type <> 'invoke' OR coalesce(next_type, 'invoke') = 'invoke'")
    whole = paired.selectExpr(
        "*",
        "process >= 0 AND type <> 'invoke' AND coalesce(before.type = 'invoke', false) AS answers",
    ).selectExpr(
        "coalesce(IF(answers, before.at, NULL), at) AS operation",
        "process", "f AS operation_f", "type",
        "IF(answers, before.at_ns, at_ns) AS invoked_ns",
        "IF(type = 'invoke', NULL, at_ns) AS completed_ns",
        "IF(answers AND size(records) = 0, before.records, records) AS records",
        "keys", "value AS nemesis_value", "error", "at",
    )  # fmt: skip
    rows = _with_records(whole).unionByName(_dropped(whole))
    return rows.select(*OPERATIONS_READ.names)


def _with_records(whole: DataFrame) -> DataFrame:
    """One row per record; one without a record where there is none."""
    exploded = whole.selectExpr("*", "posexplode_outer(records) AS (position, record)")
    return exploded.selectExpr(
        "operation",
        "coalesce(position, 0) AS row",
        "process",
        "coalesce(record.f, operation_f) AS f",
        "type",
        "invoked_ns",
        "completed_ns",
        "record.topic AS topic",
        "record.partition AS partition",
        "record.offset AS offset",
        "CAST(NULL AS STRING) AS key",
        "coalesce(record.value, nemesis_value) AS value",
        "CAST(NULL AS STRING) AS acks",
        "CAST(NULL AS INT) AS leader_epoch",
        "IF(record.f = 'poll', 'final', 'main') AS phase",
        "error",
        "record.mop AS mop",
        "record.rebalanced AS rebalanced",
    )


def _dropped(whole: DataFrame) -> DataFrame:
    """A seek for every key that an assignment no longer has."""
    assigned = whole.where("keys IS NOT NULL AND type IN ('ok', 'info')").selectExpr(
        "*", "lag(keys) OVER (PARTITION BY process ORDER BY at) AS earlier"
    )
    dropped = assigned.selectExpr(
        "*", "posexplode(array_except(earlier, keys)) AS (position, gone)"
    )
    return dropped.selectExpr(
        "operation",
        "position + 1 AS row",
        "process",
        "'seek' AS f",
        "'ok' AS type",
        "invoked_ns",
        "completed_ns",
        "regexp_replace(gone, '/[^/]*$', '') AS topic",
        "CAST(substring_index(gone, '/', -1) AS INT) AS partition",
        "CAST(NULL AS BIGINT) AS offset",
        "CAST(NULL AS STRING) AS key",
        "CAST(NULL AS STRING) AS value",
        "CAST(NULL AS STRING) AS acks",
        "CAST(NULL AS INT) AS leader_epoch",
        "'final' AS phase",
        "error",
        "CAST(NULL AS INT) AS mop",
        "CAST(NULL AS BOOLEAN) AS rebalanced",
    )
