"""Thousands of small generated histories in few Spark jobs: no false alarm, no disagreement (JSON).

python -m tests.benchmarks.generated_histories --valid 10000 --oracle 3000

Valid ones (`tests.checkers.valid`) must show no anomaly that counts; of any others (from
`tests.differential.runs`: transactions, rebalances, crashes, indeterminate and failed operations,
missing final reads, deleted log starts, faulty replicas, committed positions) Spark and the plain
oracle must say the same. What is not so is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.check import check_runs
from neaptide.checkers.pipeline.session import local_session
from tests.checkers.histories import Story
from tests.checkers.reading import Judged, differences, judged
from tests.checkers.valid import valid_story
from tests.differential import runs


def judge(spark: SparkSession, batch: Sequence[Story | runs.Generated]) -> list[Judged]:
    with tempfile.TemporaryDirectory() as scratch:
        written = [story.write(Path(scratch) / f"s{n:05d}") for n, story in enumerate(batch)]
        verdicts = check_runs(spark, written)
        return [judged(*one) for one in zip(verdicts, written, strict=True)]


def false_alarms(spark: SparkSession, count: int, batch: int) -> list[Any]:
    wrong = []
    for first in range(0, count, batch):
        seeds = range(first, min(first + batch, count))
        for seed, found in zip(seeds, judge(spark, list(map(valid_story, seeds))), strict=True):
            counted = [row for row in found.rows if ANOMALIES[row["anomaly"]].counts]
            if counted or found.verdict.verdict == "anomalous":
                wrong.append({"seed": seed, "found": counted})
        print(f"{seeds.stop} valid, {len(wrong)} false alarms", file=sys.stderr, flush=True)
    return wrong


def disagreements(spark: SparkSession, count: int, batch: int) -> list[Any]:
    """Every third run is an imported history of Jepsen's, the others are our own."""
    wrong = []
    for first in range(0, count, batch):
        seeds = range(first, min(first + batch, count))
        some = [runs.generated(n) if n % 3 else runs.imported(n) for n in seeds]
        for seed, made, found in zip(seeds, some, judge(spark, some), strict=True):
            more, fewer = differences(found, made.expected(), transactions=made.transactions)
            if more or fewer:
                wrong.append({"seed": seed, "more": repr(more), "fewer": repr(fewer)})
        print(f"{seeds.stop} compared, {len(wrong)} differ", file=sys.stderr, flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--valid", type=int, default=1_000)
    parser.add_argument("--oracle", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=1_000, help="Histories in one job.")
    options = parser.parse_args()
    begun = time.monotonic()
    spark = local_session()
    alarms = false_alarms(spark, options.valid, options.batch)
    wrong = disagreements(spark, options.oracle, options.batch)
    spark.stop()
    reported = {
        "valid": options.valid,
        "false_alarms": alarms,
        "compared": options.oracle,
        "disagreements": wrong,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(reported, indent=2))
    sys.exit(1 if alarms or wrong else 0)


if __name__ == "__main__":
    main()
