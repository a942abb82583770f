"""Writes each run's anomalies beside it, as Parquet, in place of those of an earlier check.

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
from results.schema import ANOMALIES
from results.tables import Row, write_table

DIRECTORY: Final = "anomalies"
FEW: Final = 20_000


def write_evidence(counted: Counted, materials: Sequence[Material]) -> None:
    """Write `anomalies/` into every run; it has no rows where there are none."""
    if counted.total > FEW:
        _write_by_spark(counted, materials)
    else:
        _write_from_here(counted, materials)


def _write_from_here(counted: Counted, materials: Sequence[Material]) -> None:
    rows: dict[str, list[Row]] = defaultdict(list)
    if counted.total:
        columns = counted.anomalies.select(*ANOMALIES.names).toArrow()
        for row in sorted(zip(*columns.to_pydict().values(), strict=True), key=repr):
            rows[row[0]].append(row)
    for material in materials:
        with _replacement(material.directory) as directory:
            write_table(directory, ANOMALIES, rows[material.name])


def _write_by_spark(counted: Counted, materials: Sequence[Material]) -> None:
    beside = materials[0].directory.parent
    with tempfile.TemporaryDirectory(prefix=".checking-", dir=beside) as staging:
        written = Path(staging) / "written"
        counted.anomalies.withColumn("of", F.col("run")).write.partitionBy("of").parquet(
            str(written)
        )
        for material in materials:
            with _replacement(material.directory) as directory:
                part = written / f"of={material.name}"
                if part.is_dir():
                    shutil.copytree(part, directory)
                else:
                    write_table(directory, ANOMALIES, [])


@contextmanager
def _replacement(run: Path) -> Iterator[Path]:
    """A new `anomalies/` that takes the place of the old one once it is whole."""
    new, final = run / f".{DIRECTORY}.tmp", run / DIRECTORY
    shutil.rmtree(new, ignore_errors=True)
    yield new
    shutil.rmtree(final, ignore_errors=True)
    new.rename(final)
