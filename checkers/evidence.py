"""Writes each run's anomalies and measures beside it as Parquet, in place of earlier ones.

The rule: few anomalies (the usual case) are written from here, many by Spark itself, which finds
them once more: the driver never holds them all. The new is whole before the old is deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.anomalies import ANOMALIES as REGISTER
from neaptide.checkers.count import Counted, Place
from neaptide.checkers.material import Material
from neaptide.checkers.pipeline.tables import small
from neaptide.checkers.rules.conditions import MEASURES
from neaptide.results.schema import ANOMALIES
from neaptide.results.tables import Row, write_table

TABLES: Final = ("anomalies", "measures")
WITNESSED_MAX: Final = 50  # offsets of a partition; as `witnessed.sql` has it
ROUNDS_MAX: Final = 24


def write_evidence(spark: SparkSession, counted: Counted, materials: Sequence[Material]) -> None:
    """Write `anomalies/` and `measures/` into every run; they have no rows where there are none."""
    witnesses = _witnesses(counted, materials)
    if counted.again is not None:
        _write_by_spark(spark, counted, counted.again(), witnesses, materials)
    else:
        _write_from_here(counted, witnesses, materials)


def _witnesses(counted: Counted, materials: Sequence[Material]) -> dict[Place, dict[str, Any]]:
    """What replicas and fetch rounds bear witness of, at the first offsets of each partition."""
    offsets: dict[tuple[int, str, int], set[int]] = defaultdict(set)
    for row in counted.rows:
        anomaly = REGISTER.get(row["name"])
        if row["log_offset"] is not None and anomaly and (anomaly.counts or anomaly.doubt):
            offsets[row["run"], row["topic"], row["partition"]].add(row["log_offset"])
    return {
        (*partition, offset): _witness(counted, materials, (*partition, offset))
        for partition, of_partition in offsets.items()
        for offset in sorted(of_partition)[:WITNESSED_MAX]
    }


def _witness(counted: Counted, materials: Sequence[Material], place: Place) -> dict[str, Any]:
    """`replicas` without any: their logs were read, and none has the offset."""
    more: dict[str, Any] = {}
    if materials[place[0]].files["replicas"]:
        more["replicas"] = sorted(counted.replicas.get(place, ()), key=repr)
    if place in counted.rounds:
        order = ("leader_epoch", "leader", "follower")
        rounds = sorted(counted.rounds[place], key=lambda r: [r.get(name, -1) for name in order])
        more["rounds"] = rounds[:ROUNDS_MAX]
    return more


def _table_of(anomaly: object) -> str:
    return "measures" if anomaly in MEASURES else "anomalies"


def _write_from_here(
    counted: Counted, witnesses: dict[Place, dict[str, Any]], materials: Sequence[Material]
) -> None:
    rows: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in counted.rows:
        place = (row["run"], row["topic"], row["partition"], row["log_offset"])
        evidence = json.loads(row["text"]) | witnesses.get(place, {})
        rows[row["run"], _table_of(row["name"])].append(
            (
                materials[row["run"]].name, row["name"], row["topic"], row["partition"],
                row["log_offset"], row["value"], row["operation"], _json(evidence),
            )
        )  # fmt: skip
    for number, material in enumerate(materials):
        for table in TABLES:
            with replacement(material.directory, table) as directory:
                write_table(directory, ANOMALIES, sorted(rows[number, table], key=repr))


def _json(evidence: dict[str, Any]) -> str:
    return json.dumps(evidence, separators=(",", ":"), ensure_ascii=False)


_MORE: Final = pa.schema(
    [
        pa.field("run", pa.int32()), pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()), pa.field("log_offset", pa.int64()),
        pa.field("more", pa.string()),
    ]
)  # fmt: skip


def _write_by_spark(
    spark: SparkSession,
    counted: Counted,
    found: DataFrame,
    witnesses: dict[Place, dict[str, Any]],
    materials: Sequence[Material],
) -> None:
    beside = materials[0].directory.parent
    more = [
        {"run": run, "topic": topic, "partition": partition, "log_offset": offset,
         "more": _json(more)[1:]}
        for (run, topic, partition, offset), more in witnesses.items()
        if more
    ]  # fmt: skip
    names = pa.schema([pa.field("run", pa.int32()), pa.field("of", pa.string())])
    named = [{"run": number, "of": material.name} for number, material in enumerate(materials)]
    rows = found.select("run", "name", "topic", "partition", "log_offset", "value", "operation",
                        "text")  # fmt: skip
    if counted.apart:
        wanted = [{name: row[name] for name in rows.columns} for row in counted.apart]
        schema = pa.schema([(name, _TYPES[name]) for name in rows.columns])
        rows = rows.unionByName(small(spark, schema, wanted))
    key = ["run", "topic", "partition", "log_offset"]
    written = (
        rows.join(F.broadcast(small(spark, _MORE, more)), key, "left")
        .join(F.broadcast(small(spark, names, named)), "run")
        .selectExpr(
            "of AS run", "name AS anomaly", "topic", "partition", "log_offset AS offset", "value",
            "operation",
            "IF(more IS NULL, text, concat(left(text, length(text) - 1), ',', more)) AS evidence",
            "of", f"IF(name IN {MEASURES}, 'measures', 'anomalies') AS table",
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix=".checking-", dir=beside) as staging:
        there_now = Path(staging) / "written"
        written.write.partitionBy("of", "table").parquet(str(there_now))
        for material in materials:
            for table in TABLES:
                part = there_now / f"of={material.name}" / f"table={table}"
                with replacement(material.directory, table) as directory:
                    if part.is_dir():
                        shutil.copytree(part, directory)
                    else:
                        write_table(directory, ANOMALIES, [])


_TYPES: Final = {
    "run": pa.int32(), "name": pa.string(), "topic": pa.string(), "partition": pa.int32(),
    "log_offset": pa.int64(), "value": pa.string(), "operation": pa.int64(), "text": pa.string(),
}  # fmt: skip


@contextmanager
def replacement(run: Path, table: str) -> Iterator[Path]:
    """A new directory that takes the place of the old one once it is whole.

    Two checks may be at it at once: who plays a run, and who has followed it.
    """
    new, final = run / f".{table}.{os.getpid()}.tmp", run / table
    old = run / f".{table}.{os.getpid()}.old"
    shutil.rmtree(new, ignore_errors=True)
    try:
        yield new
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    while new.exists():
        shutil.rmtree(old, ignore_errors=True)
        try:
            if final.exists():
                final.rename(old)
            new.rename(final)
        except OSError:
            if not final.exists() and not old.exists():  # otherwise another check was quicker
                raise
    shutil.rmtree(old, ignore_errors=True)
