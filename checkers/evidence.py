"""Writes each run's anomalies and measures beside it as Parquet, in place of earlier ones.

The rule: few anomalies (the usual case) are written from here, many by Spark itself; the driver
never holds more than `FEW` rows.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import functions as F

from checkers.count import Counted
from checkers.material import Material
from checkers.measures import MEASURES
from results.schema import ANOMALIES
from results.tables import Row, write_table

TABLES: Final = ("anomalies", "measures")
FEW: Final = 20_000


def write_evidence(counted: Counted, materials: Sequence[Material]) -> None:
    """Write `anomalies/` and `measures/` into every run; they have no rows where there are none."""
    if counted.total > FEW:
        _write_by_spark(counted, materials)
    else:
        _write_from_here(counted, materials)


def _table_of(anomaly: object) -> str:
    return "measures" if anomaly in MEASURES else "anomalies"


def _write_from_here(counted: Counted, materials: Sequence[Material]) -> None:
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    if counted.total:
        columns = counted.rows().select(*ANOMALIES.names).toArrow()
        for row in sorted(zip(*columns.to_pydict().values(), strict=True), key=repr):
            rows[row[0], _table_of(row[1])].append(row)
    for material in materials:
        for table in TABLES:
            with replacement(material.directory, table) as directory:
                write_table(directory, ANOMALIES, rows[material.name, table])


def _write_by_spark(counted: Counted, materials: Sequence[Material]) -> None:
    beside = materials[0].directory.parent
    is_measure = F.col("anomaly").isin(list(MEASURES))
    tables = F.when(is_measure, "measures").otherwise("anomalies")
    with tempfile.TemporaryDirectory(prefix=".checking-", dir=beside) as staging:
        written = Path(staging) / "written"
        counted.rows().withColumn("of", F.col("run")).withColumn("table", tables).write.partitionBy(
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
    """A new directory that takes the place of the old one once it is whole."""
    new, final = run / f".{table}.tmp", run / table
    shutil.rmtree(new, ignore_errors=True)
    yield new
    shutil.rmtree(final, ignore_errors=True)
    new.rename(final)
