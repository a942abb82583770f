"""Thousands of small generated histories in few Spark jobs: no false alarm, no disagreement (JSON).

python -m tests.benchmarks.generated_histories --valid 10000 --oracle 3000

Valid ones (`tests.checkers.valid`) must show no anomaly that counts; of any others (from
`tests.checkers.test_against_oracle`) Spark and the plain oracle must say the same. What is not so
is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.check import check_runs
from neaptide.checkers.pipeline.session import local_session
from tests.checkers import oracle
from tests.checkers.histories import Story
from tests.checkers.reading import Judged, judged
from tests.checkers.test_against_oracle import stories
from tests.checkers.valid import valid_story


def judge(spark: SparkSession, batch: Sequence[Story]) -> list[Judged]:
    with tempfile.TemporaryDirectory() as scratch:
        runs = [story.write(Path(scratch) / f"s{n:05d}") for n, story in enumerate(batch)]
        verdicts = check_runs(spark, runs)
        return [judged(*one) for one in zip(verdicts, runs, strict=True)]


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


def generated(count: int) -> list[Story]:
    if not count:
        return []
    made: list[Story] = []

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(story=stories())
    def collect(story: Story) -> None:
        made.append(story)

    collect()
    return made


def disagreements(spark: SparkSession, count: int, batch: int) -> tuple[int, list[Any]]:
    wrong = []
    made = generated(count)
    for first in range(0, len(made), batch):
        some = made[first : first + batch]
        for story, found in zip(some, judge(spark, some), strict=True):
            by_spark = Counter((r["anomaly"], r["offset"], r["value"]) for r in found.rows)
            expected = oracle.judge(story)
            if by_spark != expected:
                wrong.append(
                    {"more": repr(by_spark - expected), "fewer": repr(expected - by_spark),
                     "story": repr(story)}
                )  # fmt: skip
        print(f"{first + len(some)} compared, {len(wrong)} differ", file=sys.stderr, flush=True)
    return len(made), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--valid", type=int, default=1_000)
    parser.add_argument("--oracle", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=1_000, help="Histories in one job.")
    options = parser.parse_args()
    begun = time.monotonic()
    spark = local_session()
    alarms = false_alarms(spark, options.valid, options.batch)
    compared, wrong = disagreements(spark, options.oracle, options.batch)
    spark.stop()
    told = {
        "valid": options.valid,
        "false_alarms": alarms,
        "compared": compared,
        "disagreements": wrong,
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(told, indent=2))
    sys.exit(1 if alarms or wrong else 0)


if __name__ == "__main__":
    main()
