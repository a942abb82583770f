"""Writes each run's anomalies and measures beside it as Parquet, in place of earlier ones.

The rule: few anomalies (the usual case) are here already; many are found once more by Spark, and
come here part by part: the driver never holds them all. What is written is counted. The new is
whole before the old is deleted.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.anomalies import ANOMALIES as REGISTER
from neaptide.checkers.count import Counted, Place
from neaptide.checkers.material import Material
from neaptide.checkers.pipeline.brought import parquet_files
from neaptide.checkers.pipeline.tables import small
from neaptide.checkers.rules.conditions import MEASURES
from neaptide.results.errors import StoreError
from neaptide.results.schema import ANOMALIES
from neaptide.results.tables import Row, write_table

TABLES: Final = ("anomalies", "measures")
WITNESSED_MAX: Final = 50  # offsets of a partition; as `witnessed.sql` has it
ROUNDS_MAX: Final = 24


# By the number of the run: rows by the name of the anomaly, or why they cannot be written.
Written = Mapping[int, Counter[str] | str]


def write_evidence(spark: SparkSession, counted: Counted, materials: Sequence[Material]) -> Written:
    """Write `anomalies/` and `measures/` into every run; they have no rows where there are none."""
    witnesses = _witnesses(counted, materials)
    if counted.again is None:
        return _write_from_here(counted, witnesses, materials)
    with counted.again() as found:
        rows = _with_witnesses(spark, counted, found, witnesses, materials)
        return _write_brought(rows, counted.total, materials)


def difference(counted: Mapping[str, int], written: Mapping[str, int] | str) -> str | None:
    """A sentence where not every anomaly that was counted has its row of evidence."""
    if isinstance(written, str):
        return f"Its evidence cannot be written: {written}."
    names = sorted({*counted, *written})
    differ = [name for name in names if counted.get(name, 0) != written.get(name, 0)]
    if not differ:
        return None
    each = "; ".join(f"{name}: {counted.get(name, 0)}, {written.get(name, 0)}" for name in differ)
    return (
        f"{sum(counted.values())} anomalies were counted, and {sum(written.values())} rows of"
        f" evidence were written ({each}): check the run again."
    )


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
) -> Written:
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
    names: dict[int, Counter[str]] = defaultdict(Counter)
    for row in counted.rows:
        names[row["run"]][row["name"]] += 1
    written: dict[int, Counter[str] | str] = {**names}
    for number, material in enumerate(materials):
        try:
            for table in TABLES:
                with replacement(material.directory, table) as directory:
                    write_table(directory, ANOMALIES, sorted(rows[number, table], key=repr))
        except (OSError, StoreError) as error:  # of this run alone
            written[number] = str(error).rstrip(".")
    return written


def _json(evidence: dict[str, Any]) -> str:
    return json.dumps(evidence, separators=(",", ":"), ensure_ascii=False)


_MORE: Final = pa.schema(
    [
        pa.field("run", pa.int32()), pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()), pa.field("log_offset", pa.int64()),
        pa.field("more", pa.string()),
    ]
)  # fmt: skip


def _with_witnesses(
    spark: SparkSession,
    counted: Counted,
    found: DataFrame,
    witnesses: dict[Place, dict[str, Any]],
    materials: Sequence[Material],
) -> DataFrame:
    """All anomalies as rows of both tables, as `brought` takes them."""
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
    return (
        rows.join(F.broadcast(small(spark, _MORE, more)), key, "left")
        .join(F.broadcast(small(spark, names, named)), "run")
        .selectExpr(
            "of AS run", "name AS anomaly", "topic", "partition", "log_offset AS offset", "value",
            "operation",
            "IF(more IS NULL, text, concat(left(text, length(text) - 1), ',', more)) AS evidence",
            "run AS run_number", f"IF(name IN {MEASURES}, 'measures', 'anomalies') AS of_table",
        )
    )  # fmt: skip


def _write_brought(rows: DataFrame, total: int, materials: Sequence[Material]) -> Written:
    written: dict[int, Counter[str]] = defaultdict(Counter)
    with ExitStack() as stack:
        new = {
            (number, table): stack.enter_context(replacement(material.directory, table))
            for number, material in enumerate(materials)
            for table in TABLES
        }
        for directory in new.values():
            write_table(directory, ANOMALIES, [])
        for number, file in enumerate(parquet_files(rows, ANOMALIES, total), start=1):
            path = new[file.run, file.table] / f"part-0-{number:05d}.parquet"
            path.write_bytes(file.content)
            names = pq.read_table(io.BytesIO(file.content), columns=["anomaly"])["anomaly"]
            written[file.run].update(names.to_pylist())
    return written


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
