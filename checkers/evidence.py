"""Writes each run's anomalies and measures beside it as Parquet, in place of earlier ones.

The rule: few anomalies (the usual case) are written from here, many by Spark itself, which finds
them once more: the driver never holds them all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from neaptide.checkers.count import Counted
from neaptide.checkers.frames import literal
from neaptide.checkers.limits import moving_blocks
from neaptide.checkers.material import Material
from neaptide.checkers.measures import MEASURES
from neaptide.results.schema import ANOMALIES
from neaptide.results.tables import Row, write_table

TABLES: Final = ("anomalies", "measures")


def write_evidence(counted: Counted, materials: Sequence[Material]) -> None:
    """Write `anomalies/` and `measures/` into every run; they have no rows where there are none."""
    if counted.again is not None:
        _write_by_spark(counted, counted.again(), materials)
    else:
        _write_from_here(counted, materials)


def _table_of(anomaly: object) -> str:
    return "measures" if anomaly in MEASURES else "anomalies"


def _write_from_here(counted: Counted, materials: Sequence[Material]) -> None:
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    found = [tuple(row[name] for name in ANOMALIES.names) for row in counted.rows]
    for row in sorted(found, key=repr):
        rows[row[0], _table_of(row[1])].append(row)
    for material in materials:
        for table in TABLES:
            with replacement(material.directory, table) as directory:
                write_table(directory, ANOMALIES, rows[material.name, table])


def _write_by_spark(counted: Counted, found: DataFrame, materials: Sequence[Material]) -> None:
    beside = materials[0].directory.parent
    is_measure = F.col("anomaly").isin(list(MEASURES))
    tables = F.when(is_measure, "measures").otherwise("anomalies")
    cycles = [row for row in counted.rows if row["topic"] is None]
    if cycles:
        found = found.unionAll(literal(found.sparkSession, found.schema.toDDL(), cycles))
    with tempfile.TemporaryDirectory(prefix=".checking-", dir=beside) as staging:
        written = Path(staging) / "written"
        with moving_blocks(found.sparkSession, materials):
            found.withColumn("of", F.col("run")).withColumn("table", tables).write.partitionBy(
                "of", "table"
            ).parquet(str(written))
        for material in materials:
            for table in TABLES:
                part = written / f"of={material.name}" / f"table={table}"
                with replacement(material.directory, table) as directory:
                    if part.is_dir():
                        shutil.copytree(part, directory)
                    else:
                        write_table(directory, ANOMALIES, [])


@contextmanager
def replacement(run: Path, table: str) -> Iterator[Path]:
    """A new directory that takes the place of the old one once it is whole.

    Two checks may be at it at once: who plays a run, and who has followed it.
    """
    new, final = run / f".{table}.{os.getpid()}.tmp", run / table
    shutil.rmtree(new, ignore_errors=True)
    yield new
    while new.exists():
        shutil.rmtree(final, ignore_errors=True)
        try:
            new.rename(final)
        except OSError:
            if not final.exists():  # otherwise the other check was quicker: once more
                raise
