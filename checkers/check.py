"""Checks runs with Spark: many run directories in, one verdict each, evidence beside the runs.

Here: the order of the work, and what happens when it fails. What is counted is in `count`, what
follows from it in `proofs` and `verdict`.

The rule: all runs are judged together. Where that fails, they are halved until the one that makes
it fail is alone, which is then unknown, with what was found so far; a check never ends in a
traceback, nor in a guess.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from neaptide.checkers.count import Check, Counted, TasksFailedError
from neaptide.checkers.evidence import difference, write_evidence
from neaptide.checkers.material import Material, open_run
from neaptide.checkers.pipeline.kept import is_lost
from neaptide.checkers.pipeline.limits import NOT_SEEN, TimeLimit, not_seen
from neaptide.checkers.proofs import Counts
from neaptide.checkers.verdict import Options, RunVerdict, judge, unchecked
from neaptide.results.errors import StoreError
from neaptide.results.store import write_json
from neaptide.results.verdicts import VERDICT_FILE

Verdicts = dict[Path, RunVerdict]
_CALLING: Final = "An error occurred while calling"
TRIES: Final = 3  # of what fails since executors have left with what they kept


def check_runs(
    spark: SparkSession,
    run_directories: Iterable[Path],
    *,
    time_limit_s: float | None = None,
    options: Options | None = None,
) -> list[RunVerdict]:
    """Judge runs, and write `verdict.json`, `anomalies/` and `measures/` into each."""
    directories = [Path(directory).absolute() for directory in run_directories]
    materials = {directory: open_run(directory) for directory in directories}
    verdicts = check_materials(
        spark, list(materials.values()), time_limit_s=time_limit_s, options=options
    )
    return [verdicts[materials[directory].directory] for directory in directories]


def check_materials(
    spark: SparkSession,
    materials: Sequence[Material],
    *,
    time_limit_s: float | None = None,
    options: Options | None = None,
    trouble: Callable[[], str | None] = lambda: None,
) -> Verdicts:
    """The same for runs that were opened already; verdicts by directory. `trouble`: what is wrong
    with Spark itself, as a sentence, once a check has failed."""
    checking = _Checking(spark, TimeLimit(spark, time_limit_s), options or Options(), trouble)
    verdicts: Verdicts = {}
    for batch in without_namesakes(materials):
        verdicts |= checking.check(batch)
    return {directory: _written(directory, verdict) for directory, verdict in verdicts.items()}


def relation(spark: SparkSession, material: Material, name: str, rows_max: int) -> pa.Table:
    """The first rows of one relation of the rules, or of a table, without a verdict: what a rule
    has seen of a run. Ordered by all columns."""
    check = Check(spark, [material], TimeLimit(spark, None), "spark", thorough=True)
    with check.relation(name) as rows:
        shown = rows.drop("run")
        return shown.orderBy(*shown.columns).limit(rows_max).toArrow()


def _written(directory: Path, verdict: RunVerdict) -> RunVerdict:
    """A verdict that cannot be written is none: the run is unknown, and no other is disturbed."""
    try:
        if directory.is_dir():
            write_json(directory / VERDICT_FILE, verdict.to_json())
    except (OSError, StoreError) as error:
        why = f"Its verdict cannot be written: {str(error).rstrip('.')}."
        reasons = (*verdict.reasons, why)
        return replace(verdict, verdict="unknown", outcome="unknown", reasons=reasons)
    return verdict


def without_namesakes(materials: Sequence[Material]) -> list[list[Material]]:
    """Split so that names are unique: rows differ by the name of their run alone."""
    batches: list[dict[str, Material]] = []
    for material in materials:
        room = next((batch for batch in batches if material.name not in batch), None)
        if room is None:
            room = {}
            batches.append(room)
        room[material.name] = material
    return [list(batch.values()) for batch in batches]


@dataclass(frozen=True, slots=True)
class _Checking:
    """What all parts of one check share."""

    spark: SparkSession
    limit: TimeLimit
    options: Options
    trouble: Callable[[], str | None]

    def check(self, materials: Sequence[Material], tries: int = TRIES) -> Verdicts:
        readable = [m for m in materials if any(m.files.values())]
        verdicts = {m.directory: judge(m, Counts(), self.options) for m in materials}
        if not readable:
            return verdicts
        counted = Counted()
        check = Check(self.spark, readable, self.limit, self.options.engine, self.options.thorough)
        try:
            with self.limit:
                check.count(counted)
            written = write_evidence(self.spark, counted, readable)
        except Exception as error:  # whatever Spark or its process failed with, the run is unknown
            if is_lost(error) and tries > 1:
                return verdicts | self.check(readable, tries - 1)
            return verdicts | self._after_failure(readable, counted, error)
        return verdicts | {
            m.directory: self._concluded(m, counted.of_run(number), written.get(number, {}))
            for number, m in enumerate(readable)
        }

    def _concluded(
        self, material: Material, counts: Counts, written: Mapping[str, int] | str
    ) -> RunVerdict:
        """An anomaly without its evidence is no verdict."""
        reason = difference(counts.anomalies, written)
        if reason is not None:
            return unchecked(material, counts, self.options, reason)
        return judge(material, counts, self.options)

    def _after_failure(
        self, materials: Sequence[Material], counted: Counted, error: Exception
    ) -> Verdicts:
        if self.limit.expired or isinstance(error, TimeoutError):
            reason = f"The check ran out of its {self.limit.limit_s:g} s."
            return self._found_so_far(materials, counted, reason)
        trouble = self.trouble()
        if trouble is not None:  # of no run
            return self._found_so_far(materials, counted, f"The check failed: {trouble}")
        if not_seen(self.spark, error):
            return self._found_so_far(materials, counted, NOT_SEEN)
        if len(materials) == 1:
            reason = f"The check failed: {_first_line(error)}."
            return self._found_so_far(materials, counted, reason)
        middle = len(materials) // 2
        return self.check(materials[:middle]) | self.check(materials[middle:])

    def _found_so_far(
        self, materials: Sequence[Material], counted: Counted, reason: str
    ) -> Verdicts:
        """Unknown, with what earlier checks of these runs have proved, if it can still be had."""
        counted.again = None  # it would fail again
        try:
            write_evidence(self.spark, counted, materials)
        except (OSError, StoreError) as error:
            logging.getLogger(__name__).info("no evidence is written: %s", _first_line(error))
        return {
            m.directory: unchecked(m, counted.of_run(number), self.options, reason)
            for number, m in enumerate(materials)
        }


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
