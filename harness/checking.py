"""Checks runs that are over: Spark judges them, each gets its verdict and its report.

A session takes seconds to start; `SparkStart` begins with it while the runs are still going.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from harness.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from checkers.verdict import RunVerdict


class SparkStart:
    """A Spark session that is being started on a thread of its own."""

    def __init__(self, master: str | None = None) -> None:
        self._master = master
        self._session: SparkSession | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        from checkers.session import local_session

        try:
            self._session = local_session(self._master or "local[2]")
        except Exception as error:
            self._error = error

    def session(self) -> SparkSession:
        """Waits until it is there. Raises what its start raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def stop(self) -> None:
        self._thread.join()
        if self._session is not None:
            self._session.stop()


def histories_as_runs(spark: SparkStart, names: Sequence[str]) -> list[Path]:
    """Run directories by their names; a history of Jepsen's is made into one first."""
    from checkers.edn_reader import SUFFIX, import_history
    from results.errors import RunNotFoundError
    from results.store import find_run

    missing = [name for name in names if name.endswith(SUFFIX) and not Path(name).is_file()]
    if missing:
        raise RunNotFoundError(f"There is no file {missing[0]}.")
    known = {name: find_run(name) for name in names if not name.endswith(SUFFIX)}
    return [
        known.get(name)
        or import_history(spark.session(), Path(name), version=VERSION, utc=datetime.now(UTC))
        for name in names
    ]


def write_history(spark: SparkStart, run: Path, path: Path) -> None:
    from checkers.edn_writer import export_history

    export_history(spark.session(), run, path)


def check_and_report(
    spark: SparkSession, runs: Sequence[Path], *, thorough: bool = False
) -> list[RunVerdict]:
    """Verdicts in the order of the runs; every run that can be read gets a report."""
    from checkers.check import check_runs
    from results.errors import NeaptideError
    from results.report import write_report

    verdicts = check_runs(spark, runs, thorough=thorough)
    for run in runs:
        try:
            write_report(run)
        except NeaptideError:
            continue  # its verdict says why it cannot be read
    return verdicts
