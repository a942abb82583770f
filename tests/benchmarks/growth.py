"""How the cost of a check grows with its rows, by engine, in one partition and in many (JSON).

python -m tests.benchmarks.growth --operations 100000 --operations 1000000

All checks are of one session, which was warmed before. What counts is processor time: it is what
more cores share, and it does not hang on what else this machine does. From the two largest sizes
comes what one more million of rows takes (`cpu_s_per_million_rows`), and from that, on paper, what
a cluster would take: rows spread over its cores, but with DuckDB no partition over two of them. The
start, the way of rows over a network, and stragglers are not in it.

`spark_cost` is how many times DuckDB's processor time Spark SQL takes for the same rows, without
its plan: see `checkers.pipeline.engines`. Every answer is compared with what was planted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.pipeline.session import local_session
from neaptide.checkers.verdict import EngineName, Options
from tests.benchmarks.check_histories import FEW_KINDS
from tests.planting.planting import plant

ENGINES: Final[tuple[EngineName, ...]] = ("duckdb", "spark")
ON_PAPER: Final = (  # rows, partitions
    (10**7, 1),
    (10**7, 1_000),
    (10**9, 1),
    (10**9, 8),
    (10**9, 100_000),
)
CORES: Final = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, action="append")
    parser.add_argument("--partitions", type=int, action="append")
    options = parser.parse_args()
    sizes = options.operations or [100_000, 1_000_000]
    measured = []
    spark = local_session(rows=sys.maxsize)  # with both of Java's compilers
    with tempfile.TemporaryDirectory() as scratch:
        _measure(spark, Path(scratch) / "warm", min(sizes), 8)
        for partitions in options.partitions or [1, 100]:
            for operations in sizes:
                run = Path(scratch) / f"run-{partitions}-{operations}"
                measured += _measure(spark, run, operations, partitions)
    spark.stop()
    print(json.dumps({"cores": os.cpu_count(), "measured": measured, **on_paper(measured)}))


def _measure(
    spark: SparkSession, run: Path, operations: int, partitions: int
) -> list[dict[str, Any]]:
    planted = plant(run, operations, FEW_KINDS, partitions=partitions, seed=1)
    expected = Counter(one.anomaly for one in planted)
    measured = []
    for engine in ENGINES:
        begun, before_s = time.monotonic(), _cpu_s()
        [verdict] = check_runs(spark, [run], options=Options(engine=engine))
        assert {**verdict.anomalies, **verdict.allowed} == expected, verdict
        cost: dict[str, Any] = {
            "engine": engine,
            "partitions": partitions,
            "rows": sum((verdict.rows or {}).values()),
            "cpu_s": round(_cpu_s() - before_s, 2),
            "seconds": round(time.monotonic() - begun, 2),
        }
        print(json.dumps(cost), file=sys.stderr, flush=True)
        measured.append(cost)
    return measured


def _cpu_s() -> float:
    """Of this process and all that it has started."""
    here = psutil.Process()
    every = (one.cpu_times() for one in (here, *here.children(recursive=True)))
    return float(sum(of.user + of.system for of in every))


def on_paper(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What follows from two sizes of each engine; the mean over the numbers of partitions."""
    slopes: dict[str, list[float]] = {}
    for partitions in {one["partitions"] for one in measured}:
        for engine in ENGINES:
            sizes = sorted(
                (one["rows"], one["cpu_s"])
                for one in measured
                if (one["engine"], one["partitions"]) == (engine, partitions)
            )
            if len(sizes) > 1:
                (before, before_s), (after, after_s) = sizes[-2:]
                slopes.setdefault(engine, []).append((after_s - before_s) / (after - before) * 1e6)
    per_million = {name: sum(each) / len(each) for name, each in slopes.items()}
    if set(per_million) != set(ENGINES):
        return {"cpu_s_per_million_rows": per_million}
    cluster = [
        {
            "rows": rows,
            "partitions": partitions,
            "cores": CORES,
            "duckdb_s": round(max(rows / partitions, rows / CORES) / 1e6 * per_million["duckdb"]),
            "spark_s": round(rows / CORES / 1e6 * per_million["spark"]),
        }
        for rows, partitions in ON_PAPER
    ]
    return {
        "cpu_s_per_million_rows": {name: round(each, 2) for name, each in per_million.items()},
        "spark_cost": round(per_million["spark"] / per_million["duckdb"], 2),
        "on_paper": cluster,
    }


if __name__ == "__main__":
    main()
