"""Looks at a run while it is still going, and reports an anomaly as soon as it is proved.

A look asks the rules of a check about the files that have come since the look before, and about as
many rows before them as are kept. DuckDB runs them here as it does in Spark's tasks (`in_tasks`):
there are too few rows to spread. Reported is what the register of anomalies calls `early`: what
some rows of a run show, all of them show. Not the verdict: that is the check's, once the run is
over.

The rule: a look can only miss. What is in no look together is left to the verdict, and so is what
comes faster than it can be looked at. So a look costs the same however long the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.checkers.anomalies import ANOMALIES, counting
from neaptide.checkers.material import EDN_SYSTEM, Material, open_files
from neaptide.checkers.pipeline import output, tables
from neaptide.checkers.pipeline.in_tasks import Engine
from neaptide.checkers.rules.conditions import plan
from neaptide.results.compaction import ALL
from neaptide.results.run import Run, read_run
from neaptide.results.schema import TABLES as RECORDED
from neaptide.results.tables import named_files

LOOK_S: Final = 1.0
ROWS_KEPT: Final = 100_000  # what is looked at once more
ROWS_MAX: Final = 1_000_000  # of one look
REPORTED_MAX: Final = 100  # of one anomaly in one partition; the verdict counts them all
TABLES: Final = ("operations", "fetch_rounds")
EARLY: Final = frozenset(name for name, anomaly in ANOMALIES.items() if anomaly.early)
_ORDER: Final = ("topic", "partition", "operation", "name", "log_offset")
Found = dict[str, Any]  # columns of `neaptide.results.schema.ANOMALIES`
# Of DuckDB: the brokers and the load that are looked at need the rest.
MEMORY: Final = "1GB"
THREADS: Final = 1


class LookFailedError(Exception):
    """A look could not go on: why."""


def follow(
    run_directory: Path,
    *,
    is_over: Callable[[], bool],
    report: Callable[[Found], None],
) -> int:
    """Returns when the run is over and what it wrote was looked at: how many rows were not.

    `is_over` is asked about once in `LOOK_S`. Raises RunUnreadableError, LookFailedError.
    """
    looks = _Looks(run_directory, read_run(run_directory), report)
    over = False
    while not over:
        over = is_over()
        began = time.monotonic()
        looks.look()
        if not over:
            time.sleep(max(0.0, LOOK_S - (time.monotonic() - began)))
    return looks.left_out


@dataclass(frozen=True, slots=True)
class _File:
    table: str
    path: Path
    rows: int
    transactions: bool


@dataclass
class _Looks:
    directory: Path
    run: Run
    report: Callable[[Found], None]
    left_out: int = 0  # rows
    _seen: set[Path] = field(default_factory=set)
    _kept: list[_File] = field(default_factory=list)  # the newest last
    _reported: dict[tuple[Any, ...], set[tuple[Any, ...]]] = field(default_factory=dict)

    def look(self) -> None:
        new = list(self._new())
        if not new:
            return
        within = _newest(new, ROWS_MAX)
        self.left_out += sum(file.rows for file in new[: len(new) - len(within)])
        if len(within) < len(new):
            self._kept.clear()  # what is between is missing
        try:
            for found in self._found([*self._kept, *within]):
                self.report(found)
        except FileNotFoundError:  # the run is over: larger files have taken the place of these
            self.left_out += sum(file.rows for file in within)
            return
        self._kept = _newest([*self._kept, *within], ROWS_KEPT)

    def _new(self) -> Iterator[_File]:
        """In the order in which they were written; what was compacted was there before."""
        for table in TABLES:
            paths = [path for path in named_files(self.directory / table) if _is_new(path)]
            unseen = [path for path in paths if path not in self._seen]
            self._seen.update(unseen)
            opened = open_files(sorted(unseen, key=lambda path: path.stat().st_mtime_ns), table)
            for path, rows in opened.good.items():
                yield _File(table, path, rows, opened.transactions)

    def _found(self, files: Sequence[_File]) -> list[Found]:
        of_table = {
            table: tuple(file.path for file in files if file.table == table) for table in TABLES
        }
        part = Material(
            self.directory, self.run, of_table, reasons=(), whole=False,
            transactions=any(file.transactions for file in files),
        )  # fmt: skip
        given = {
            tables.RECORDED if table == "operations" else table: tables.in_memory(table, part)
            for table in RECORDED
        } | {"final_reads": tables.FINAL_READS.empty_table()}
        there = [table for table in TABLES if of_table[table]]
        rules = plan(thorough=False, transactions=part.transactions, tables=there, only=EARLY)
        engine = Engine(
            asked=output.Asked(rules, transactions=False, rw=False, rules_only=True),
            columns={name: table.schema for name, table in given.items()},
            facts={
                "runs": tables.runs([part]),
                "nemesis_steps": tables.NEMESIS_STEPS.empty_table(),
                "overtaken_ends": tables.OVERTAKEN_ENDS.empty_table(),
            },
            memory=MEMORY,
            threads=THREADS,
            deadline_s=None,
            anomalies_max=None,
        )
        judged = [row for batch in engine.judge_tables(given.items()) for row in batch.to_pylist()]
        for row in judged:
            if row["what"] == output.FAILED:
                raise LookFailedError(row["text"])
        rows = sorted(
            (row for row in judged if row["what"] == output.ANOMALY and self._counts(row["name"])),
            key=lambda row: [str(row[name]) for name in _ORDER],
        )
        return [found for row in rows if (found := self._reported_as(row)) is not None]

    def _counts(self, name: str) -> bool:
        anomaly = ANOMALIES.get(name)
        if anomaly is None or not anomaly.early:
            return False
        if name == "duplicate" and self.run.of_application:  # it may send a value twice
            return False
        return bool(
            counting(
                [name],
                subscribed=self.run.subscribes,
                at_least_once=self.run.at_least_once,
                by_jepsen=self.run.system == EDN_SYSTEM,
            )
        )

    def _reported_as(self, row: dict[str, Any]) -> Found | None:
        """None: it was reported before. Two are one if they are of the same: the evidence of one
        that has more rows by now has changed."""
        place = row["name"], row["topic"], row["partition"]
        reported = self._reported.setdefault(place, set())
        what: tuple[Any, ...] = row["log_offset"], row["value"], row["operation"]
        match row["name"]:
            case "inconsistent-offsets":
                what = (row["log_offset"],)
            case "duplicate":
                what = (row["value"],)
        if what in reported or len(reported) >= REPORTED_MAX:
            return None
        reported.add(what)
        return {
            "run": self.directory.name,
            "anomaly": row["name"],
            "topic": row["topic"],
            "partition": row["partition"],
            "offset": row["log_offset"],
            "value": row["value"],
            "operation": row["operation"],
            "evidence": row["text"],
        }


def _is_new(path: Path) -> bool:
    return not path.name.startswith(f"part-{ALL}-")


def _newest(files: Sequence[_File], rows_max: int) -> list[_File]:
    """The newest files that together have no more rows; one at least."""
    kept: list[_File] = []
    rows = 0
    for file in reversed(files):
        rows += file.rows
        if kept and rows > rows_max:
            break
        kept.append(file)
    return kept[::-1]
