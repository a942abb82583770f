"""The tables of all runs as frames, for what Spark itself aggregates: cycles, series over time.

Not for the checks, whose tasks read the files (`checkers.reading`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from checkers.frames import FINAL_READS, RUNS, TABLES, Frames, literal, read_table
from checkers.material import Material


def read_frames(spark: SparkSession, materials: Sequence[Material]) -> Frames:
    """The tables of all runs, and what their `run.json` say of them."""
    tables = {
        name: read_table(spark, name, {m.name: m.files[name] for m in materials}) for name in TABLES
    }
    runs = [
        {"run": m.name, "whole": m.whole, "level": m.level, "transactions": m.transactions}
        for m in materials
    ]
    final_reads = [
        {
            "run": m.name,
            "topic": read.topic,
            "partition": read.partition,
            "complete": m.whole and read.reached,
            "start_offset": read.start_offset,
            "end_offset": read.end_offset,
        }
        for m in materials
        for read in m.final_reads.values()
    ]
    return Frames(
        operations=tables["operations"],
        fetch_rounds=tables["fetch_rounds"],
        replicas=tables["replicas"],
        runs=literal(spark, RUNS, runs),
        final_reads=literal(spark, FINAL_READS, final_reads),
        written=frozenset(n for n in TABLES if any(m.files[n] for m in materials)),
        single=len(materials) == 1,
    )
