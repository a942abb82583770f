"""Histories of odd shapes are judged, or are unknown in one sentence that says where.

At full size: tests/benchmarks/check_histories.py with --partitions 1, --partitions 200000 or
--value-bytes 1000000. Files that are cut or wrong: test_unknown.py, test_edn_histories.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.verdict import RunVerdict
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.tables import table_files
from tests.checkers.histories import Story, final, poll, send
from tests.planting.planting import plant

pytestmark = pytest.mark.spark

PLANTS = {"lost-write": 2, "duplicate": 1, "poll-skip": 1, "reordered": 1, "unseen": 1}
SHAPES: dict[str, dict[str, int]] = {
    "one-partition": {"operations": 3_000, "partitions": 1},
    "many-partitions": {"operations": 100, "partitions": 300},
    "large-values": {"operations": 40, "partitions": 1, "value_bytes": 1_000_000},
}


@pytest.fixture(scope="module")
def planted(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[RunVerdict, Counter[str]]]:
    runs = tmp_path_factory.mktemp("odd")
    expected: dict[str, Counter[str]] = {}
    for name, shape in SHAPES.items():
        sizes: dict[str, Any] = dict(shape)
        plants = PLANTS if name != "large-values" else {"lost-write": 1}
        made = plant(runs / name, sizes.pop("operations"), plants, **sizes)
        expected[name] = Counter(one.anomaly for one in made)
    verdicts = check_runs(spark, [runs / name for name in SHAPES])
    return {v.run: (v, expected[v.run]) for v in verdicts}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shape_hides_nothing(
    planted: dict[str, tuple[RunVerdict, Counter[str]]], shape: str
) -> None:
    verdict, expected = planted[shape]
    found = {**verdict.anomalies, **verdict.allowed}
    assert (verdict.verdict, found) == ("anomalous", expected)


VALID = Story(
    [send("a", 0), send("b", 1), poll((0, "a")), poll((1, "b")), final((0, "a"), (1, "b"))]
)


def shifted(run: Path, *, by_ns: int, from_ns: int) -> Path:
    """The clock jumps by so much before whatever completed from then on."""
    (path,) = table_files(run / "operations")
    rows = pq.read_table(path, schema=OPERATIONS_READ).to_pylist()
    for row in rows:
        for column in ("invoked_ns", "completed_ns"):
            if row[column] >= from_ns:
                row[column] += by_ns
    pq.write_table(pa.Table.from_pylist(rows, schema=OPERATIONS_READ), path)
    return run


def test_a_clock_that_jumps_ahead_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    run = shifted(VALID.write(tmp_path / "ahead"), by_ns=10**15, from_ns=13)
    (verdict,) = check_runs(spark, [run])
    assert (verdict.verdict, dict(verdict.anomalies)) == ("valid", {})


def test_a_clock_that_goes_back_makes_the_run_unknown(spark: SparkSession, tmp_path: Path) -> None:
    run = shifted(VALID.write(tmp_path / "back"), by_ns=-100, from_ns=25)
    (verdict,) = check_runs(spark, [run])
    # The consumer's second poll now seems to be its first: that proves nothing.
    assert (verdict.verdict, dict(verdict.anomalies)) == ("unknown", {})
    assert verdict.reasons == (
        "The clock went back: operation 2 completed before it was invoked, "
        "so that no order is known.",
    )
