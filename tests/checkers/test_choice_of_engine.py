"""Which engine a check takes: by the largest partition and the cores at hand, never by the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.checkers.material import Material
from neaptide.checkers.pipeline.engines import (
    PLAN_ROWS,
    SPARK_COST,
    _largest_known,
    faster,
)
from neaptide.results.run import FinalRead, Written
from tests.checkers.histories import run_of

BILLION = 10**9


@pytest.mark.parametrize(
    ("rows", "largest", "cores", "engine"),
    [
        (BILLION, BILLION, 1_000, "spark"),  # one partition
        (BILLION, BILLION // 8, 1_000, "spark"),  # 8 would be busy, and no more
        (BILLION, BILLION // 100_000, 1_000, "duckdb"),  # as many small ones as one likes
        (BILLION, BILLION, 2, "duckdb"),  # two cores spread nothing
        (BILLION, BILLION // 8, 8, "duckdb"),
        (BILLION, BILLION // 100, 100, "duckdb"),
        (BILLION, BILLION // 10, 100, "spark"),
        (PLAN_ROWS, PLAN_ROWS, 1_000, "duckdb"),  # the plan alone would take as long
        (2 * PLAN_ROWS, 2 * PLAN_ROWS, 1_000, "spark"),
    ],
)
def test_a_few_large_partitions_on_many_cores_are_spread(
    rows: int, largest: int, cores: int, engine: str
) -> None:
    assert faster(rows, largest, cores) == engine


def test_at_the_limit_both_take_as_long() -> None:
    cores = 100
    largest = PLAN_ROWS + int(SPARK_COST * BILLION / cores)
    assert faster(BILLION, largest - 1, cores) == "duckdb"
    assert faster(BILLION, largest + 1, cores) == "spark"


def material(*ends: int | None) -> Material:
    reads = tuple(FinalRead("t", n, end, True) for n, end in enumerate(ends))
    written = {"operations": {"0": Written(1, 900)}}
    return Material(Path("run"), run_of(final_reads=reads), {}, (), True, False, written)


@pytest.mark.parametrize(
    ("ends", "largest"),
    [
        ((100, 200, 600), 600),
        ((100,), 900),
        ((100, None), None),  # a log end that nobody reported is counted by Spark
        ((0, 0), None),
        ((), None),
    ],
)
def test_the_largest_partition_is_known_by_log_ends(
    ends: tuple[int | None, ...], largest: int | None
) -> None:
    assert _largest_known(material(*ends)) == largest
