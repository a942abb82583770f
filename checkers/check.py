"""Checks runs with Spark: many run directories in, one verdict each, evidence beside the runs.

Here: the order of the work, and what happens when it fails. What is counted is in `count` and the
modules that it names, what follows from it in `verdict`.

The rule: one job answers for all runs. Where it fails, the runs are halved until the one that makes
it fail is alone, which is then unknown; a check never ends in a traceback, nor in a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from checkers.count import count
from checkers.evidence import write_evidence
from checkers.limits import TimeLimit, sized_for
from checkers.material import Material, open_run
from checkers.verdict import VERDICT_FILE, Counts, RunVerdict, judge, unknown
from results.store import write_json

Verdicts = dict[Path, RunVerdict]


def check_runs(
    spark: SparkSession,
    run_directories: Iterable[Path],
    *,
    time_limit_s: float | None = None,
    thorough: bool = False,
) -> list[RunVerdict]:
    """Judge runs, and write `verdict.json`, `anomalies/` and `measures/` into each.

    `thorough` also takes measures, and looks for what is normal in Kafka and never counts.
    """
    directories = [Path(directory).resolve() for directory in run_directories]
    materials = {directory: open_run(directory) for directory in directories}
    limit = TimeLimit(spark, time_limit_s)
    verdicts: Verdicts = {}
    for batch in without_namesakes(list(materials.values())):
        verdicts |= _check(spark, batch, limit, thorough)
    for directory, verdict in verdicts.items():
        if directory.is_dir():
            write_json(directory / VERDICT_FILE, verdict.to_json())
    return [verdicts[directory] for directory in directories]


def without_namesakes(materials: Sequence[Material]) -> list[list[Material]]:
    """Split so that names are unique: rows are told apart by the name of their run alone."""
    batches: list[dict[str, Material]] = []
    for material in materials:
        room = next((batch for batch in batches if material.name not in batch), None)
        if room is None:
            room = {}
            batches.append(room)
        room[material.name] = material
    return [list(batch.values()) for batch in batches]


def _check(
    spark: SparkSession, materials: Sequence[Material], limit: TimeLimit, thorough: bool
) -> Verdicts:
    readable = [m for m in materials if any(m.files.values())]
    bare = [m for m in materials if not any(m.files.values())]
    verdicts = {m.directory: judge(m, Counts()) for m in bare}
    if not readable:
        return verdicts
    try:
        with (
            limit,
            sized_for(spark, readable),
            count(spark, readable, thorough=thorough) as counted,
        ):
            write_evidence(counted, readable)
    except Exception as error:  # whatever Spark or its process failed with, the run is unknown
        return verdicts | _after_failure(spark, readable, limit, thorough, error)
    return verdicts | {m.directory: judge(m, counted.of(m.name)) for m in readable}


def _after_failure(
    spark: SparkSession,
    materials: Sequence[Material],
    limit: TimeLimit,
    thorough: bool,
    error: Exception,
) -> Verdicts:
    if limit.expired:
        reason = f"The check ran out of its {limit.limit_s:g} s."
        return {m.directory: unknown(m, reason) for m in materials}
    if len(materials) == 1:
        reason = f"The check failed: {_first_line(error)}."
        return {materials[0].directory: unknown(materials[0], reason)}
    middle = len(materials) // 2
    first = _check(spark, materials[:middle], limit, thorough)
    return first | _check(spark, materials[middle:], limit, thorough)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
