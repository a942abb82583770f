"""Histories of Jepsen's shape: what was planted is found, and nothing besides."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from tests.planting.jepsen import STORIES, expected, lines, write_edn, write_parquet

OPERATIONS = 1_000


@pytest.mark.spark
def test_each_story_shows_its_anomaly(spark: SparkSession, tmp_path: Path) -> None:
    plants = {"valid": {}, "all": dict.fromkeys(STORIES, 1)} | {name: {name: 1} for name in STORIES}
    for name, planted in plants.items():
        write_edn(tmp_path / f"{name}.edn", OPERATIONS, planted)
        write_parquet(tmp_path / name, tmp_path / f"{name}.edn")
    verdicts = check_runs(spark, [tmp_path / name for name in plants])
    found = {
        verdict.run: (verdict.verdict, {**verdict.anomalies, **verdict.allowed})
        for verdict in verdicts
    }
    assert found == {
        name: ("anomalous" if planted else "valid", expected(planted))
        for name, planted in plants.items()
    }


def test_the_same_seed_makes_the_same(tmp_path: Path) -> None:
    first = list(lines(200, {"G1a": 2}, seed=7))
    assert list(lines(200, {"G1a": 2}, seed=7)) == first
    assert list(lines(200, {"G1a": 2}, seed=8)) != first


def test_what_cannot_be_planted_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be planted"):
        list(lines(200, {"nonsense": 1}))
