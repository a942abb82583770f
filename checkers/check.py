"""Checks runs with Spark: many run directories in, one verdict each, evidence beside the runs.

Here: the order of the work, and what happens when it fails. What is counted is in `count` and the
modules that it names, what follows from it in `verdict`.

The rule: all runs are judged together. Where that fails, they are halved until the one that makes
it fail is alone, which is then unknown, with what was found so far; a check never ends in a
traceback, nor in a guess.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from neaptide.checkers.count import Counted, TasksFailedError, count
from neaptide.checkers.evidence import write_evidence
from neaptide.checkers.limits import TimeLimit
from neaptide.checkers.material import Material, open_run
from neaptide.checkers.verdict import VERDICT_FILE, Counts, RunVerdict, judge
from neaptide.results.store import write_json

Verdicts = dict[Path, RunVerdict]
_CALLING: Final = "An error occurred while calling"


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
    verdicts = check_materials(
        spark, list(materials.values()), time_limit_s=time_limit_s, thorough=thorough
    )
    return [verdicts[directory] for directory in directories]


def check_materials(
    spark: SparkSession,
    materials: Sequence[Material],
    *,
    time_limit_s: float | None = None,
    thorough: bool = False,
) -> Verdicts:
    """The same for runs that were opened already; verdicts by directory."""
    limit = TimeLimit(spark, time_limit_s)
    verdicts: Verdicts = {}
    for batch in without_namesakes(materials):
        verdicts |= _check(spark, batch, limit, thorough)
    for directory, verdict in verdicts.items():
        if directory.is_dir():
            write_json(directory / VERDICT_FILE, verdict.to_json())
    return verdicts


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
    counted = Counted()
    try:
        with limit:
            count(spark, readable, counted, limit, thorough=thorough)
        write_evidence(counted, readable)
    except Exception as error:  # whatever Spark or its process failed with, the run is unknown
        return verdicts | _after_failure(spark, readable, limit, thorough, counted, error)
    return verdicts | _judged(readable, counted)


def _judged(materials: Sequence[Material], counted: Counted) -> Verdicts:
    return {
        m.directory: judge(_failed(m, counted.failed.get(m.name)), counted.of_run(m.name))
        for m in materials
    }


def _failed(material: Material, reason: str | None) -> Material:
    if reason is None:
        return material
    return _not_looked_at(material, f"The check failed: {reason}.")


def _not_looked_at(material: Material, reason: str) -> Material:
    """Of a run that was not read to its end nothing else is to be said."""
    return replace(material, reasons=(*material.reasons, reason), whole=False)


def _after_failure(
    spark: SparkSession,
    materials: Sequence[Material],
    limit: TimeLimit,
    thorough: bool,
    counted: Counted,
    error: Exception,
) -> Verdicts:
    if limit.expired or isinstance(error, TimeoutError):
        reason = f"The check ran out of its {limit.limit_s:g} s."
        return _found_so_far(materials, counted, reason)
    if len(materials) == 1:
        return _found_so_far(materials, counted, f"The check failed: {_first_line(error)}.")
    middle = len(materials) // 2
    first = _check(spark, materials[:middle], limit, thorough)
    return first | _check(spark, materials[middle:], limit, thorough)


def _found_so_far(materials: Sequence[Material], counted: Counted, reason: str) -> Verdicts:
    """Unknown, with what earlier checks of these runs have proved, if it can still be had."""
    counted.again = None  # it would fail again
    try:
        write_evidence(counted, materials)
    except OSError as error:
        logging.getLogger(__name__).info("no evidence is written: %s", _first_line(error))
    return _judged([_not_looked_at(m, reason) for m in materials], counted)


def _first_line(error: Exception) -> str:
    """What Java says comes behind a line that says only that Java said something; what a Python
    elsewhere says is the last line of its traceback."""
    if isinstance(error, TasksFailedError):
        return str(error)
    lines = [line for line in str(error).strip().splitlines() if not line.startswith(_CALLING)]
    if isinstance(error, PythonException):
        lines = [line for line in lines if line and not line[0].isspace()][-1:]
    first = lines[0].lstrip(": ").rstrip(".") if lines else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
