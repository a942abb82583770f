"""The documented loss, as a run records it, is found with its evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from tests.checkers.reading import judged
from tests.results.losing_run import write_losing_run

pytestmark = pytest.mark.spark


def test_the_lost_record_is_named(spark: SparkSession, tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "run")
    (verdict,) = check_runs(spark, [run])
    assert (verdict.verdict, verdict.outcome) == ("anomalous", "lost")
    assert verdict.operations == 4
    found = judged(verdict, run)
    assert found.found == {
        ("lost-write", 1, "m2"),
        ("committed-then-lost", 1, "m2"),
        ("high-watermark-regression-at-election", 1, None),
        ("protocol-violation", 1, None),
    }
    assert found.evidence("committed-then-lost")["first_read_ns"] == 4_853_000_000
