"""Judges what has ended, many runs in one Spark session that lives as long as the night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neaptide.harness.checking.check import SparkStart, check_and_report
from neaptide.harness.nightly.rates import Rate, rates_of
from neaptide.harness.nightly.rows import Known, of_search, row_of, unknown
from neaptide.harness.nightly.state import Ended
from neaptide.results.errors import RunUnreadableError
from neaptide.results.run import Run, read_run

if TYPE_CHECKING:
    from neaptide.checkers.verdict import Options

_FAILED = "The check failed"  # as a verdict says it
_CORES = 2  # of a standalone cluster; what is left is for the searches


class Judging:
    def __init__(self, night: str, known: Known, master: str | None, options: Options) -> None:
        self._night = night
        self._known = known
        self._master = master
        self._options = options
        self._spark = SparkStart(master, cores_max=_CORES)

    @property
    def spark(self) -> SparkStart:
        return self._spark

    def stop(self) -> None:
        self._spark.stop()

    def rows(self, batch: Sequence[Ended]) -> list[dict[str, Any]]:
        """In the order of the batch. What left no run is unknown, and says why."""
        runs = [Path(one.run) for one in batch if one.run is not None]
        verdicts = self._verdicts(runs) if runs else {}
        rates = self._rates(runs) if runs else {}
        return [self._row(one, verdicts, rates) for one in batch]

    def _row(
        self,
        ended: Ended,
        verdicts: Mapping[Path, Mapping[str, Any]],
        rates: Mapping[Path, Sequence[Rate]],
    ) -> dict[str, Any]:
        if ended.run is None:
            verdict = unknown(ended.why) if ended.found is None else of_search(ended.found)
            return row_of(self._night, ended, verdict, self._known)
        run = Path(ended.run)
        return row_of(
            self._night, ended, verdicts[run], self._known, _read(run), rates.get(run, ())
        )

    def _verdicts(self, runs: Sequence[Path]) -> dict[Path, dict[str, Any]]:
        found = self._checked(runs)
        if all(_has_failed(verdict) for verdict in found.values()):
            # Of one run its own files may be why; of Spark's Java, that it is gone.
            self._spark.stop()
            self._spark = SparkStart(self._master, cores_max=_CORES)
            found = self._checked(runs)
        return found

    def _checked(self, runs: Sequence[Path]) -> dict[Path, dict[str, Any]]:
        verdicts = check_and_report(self._spark.session(), runs, options=self._options)
        return {run: one.to_json() for run, one in zip(runs, verdicts, strict=True)}

    def _rates(self, runs: Sequence[Path]) -> Mapping[Path, Sequence[Rate]]:
        try:
            return rates_of(self._spark.session(), runs)
        except Exception:  # whatever Spark failed with, the verdicts stand
            return {}


def _has_failed(verdict: Mapping[str, Any]) -> bool:
    return any(reason.startswith(_FAILED) for reason in verdict["reasons"])


def _read(run: Path) -> Run | None:
    try:
        return read_run(run)
    except RunUnreadableError:
        return None
