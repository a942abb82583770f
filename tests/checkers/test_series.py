"""Series over time: what they say, that they are few however long the run, and their plots."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.material import open_run
from neaptide.checkers.pipeline.series import STRETCHES, width_ns, write_series
from neaptide.results.report import write_report
from tests.checkers.histories import Story, final, poll, send
from tests.planting.planting import plant
from tests.results.losing_run import write_losing_run

pytestmark = pytest.mark.spark

Series = dict[str, dict[int, float]]  # by name, at nanoseconds


def series_of(run: Path) -> Series:
    found: Series = {}
    for row in pq.read_table(run / "series").to_pylist():
        found.setdefault(row["series"], {})[row["at_ns"]] = row["value"]
    return found


@pytest.fixture(scope="module")
def reported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("series")
    story = Story(
        [
            send("a", 0),
            send("b", 1),
            send("c", None, type="info"),
            poll((0, "a")),
            send("d", None, type="fail", partition=1),
            final((0, "a"), (1, "b")),
        ]
    )
    plant(directory / "long", 9_000, {}, partitions=4)
    runs = {
        "tiny": story.write(directory / "tiny"),
        "long": directory / "long",
        "losing": write_losing_run(directory / "losing"),
    }
    write_series(spark, [open_run(run) for run in runs.values()])
    return runs


def test_each_series_says_what_happened_when(reported: dict[str, Path]) -> None:
    """Operation n begins at 10 n, ends at 10 n + 5; a stretch is one nanosecond wide."""
    found = series_of(reported["tiny"])
    sends = {5: (1.0, 0.0, 0.0), 15: (1.0, 0.0, 0.0), 25: (0.0, 0.0, 1.0), 45: (0.0, 1.0, 0.0)}
    kinds = ("ok", "fail", "info")
    assert {at: tuple(found[kind][at] for kind in kinds) for at in sends} == sends
    assert found["latency-max"] == {5: 5.0, 15: 5.0}
    assert found["unseen"] == {5: 1.0, 15: 2.0, 35: 1.0, 55: 0.0}
    assert found["lag"] == found["unseen"]
    assert {at: n for at, n in found["acknowledging"].items() if n} == {5: 1.0, 15: 1.0}
    assert found["written-to"] == {
        0: 1.0, 6: 0.0, 10: 1.0, 16: 0.0, 20: 1.0, 26: 0.0, 40: 1.0, 46: 0.0,
    }  # fmt: skip


def test_a_long_run_has_as_few_points_and_counts_everything(reported: dict[str, Path]) -> None:
    found = series_of(reported["long"])
    assert all(len(points) <= STRETCHES + 1 for points in found.values())
    operations = pq.read_table(reported["long"] / "operations", columns=["f"])["f"].to_pylist()
    assert sum(found["ok"].values()) == operations.count("send")
    last = max(found["unseen"])
    assert found["unseen"][last] == found["lag"][max(found["lag"])] == 0.0


def test_the_report_draws_them(reported: dict[str, Path]) -> None:
    page = write_report(reported["losing"]).read_text(encoding="utf-8")
    for title in ("sends completed, by outcome", "latency of", "unseen records", "availability"):
        assert title in page
    long = write_report(reported["long"])
    assert long.stat().st_size < 400_000


@pytest.mark.parametrize("last", [0, 1, 239, 240, 1_001, 10**9, 37 * 10**9, 86_400 * 10**9])
def test_stretches_are_few_and_round(last: int) -> None:
    width = width_ns(last)
    assert last // width < STRETCHES
    assert width == 1 or last // (width // 2) >= STRETCHES // 2
    assert str(width).rstrip("0") in ("1", "2", "5")
