"""The engine inside Spark's tasks: DuckDB runs the rules on the partitions that came to a task.

DuckDB needs no warming up, sorts and aggregates whole columns, and puts on disk what exceeds its
memory.

The rule: each relation is a step of its own. Where one fails (no memory is left, the time is over)
the task reports so, after what was found before it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from neaptide.checkers.pipeline.exchange import unpacked
from neaptide.checkers.pipeline.output import (
    ANOMALY,
    EXPIRED,
    FAILED,
    OUTPUT,
    Asked,
    counted,
    reason_of,
    table_of,
)
from neaptide.checkers.pipeline.tables import RECORDED, operations_view
from neaptide.checkers.rules.conditions import text_of
from neaptide.checkers.rules.dialects import DuckDb

ROWS_A_BATCH: Final = 50_000
_FOUND: Final = (
    "run INTEGER, topic VARCHAR, partition INTEGER, name VARCHAR, log_offset BIGINT,"
    " value VARCHAR, operation BIGINT, evidence VARCHAR"
)


@dataclass(frozen=True, slots=True)
class Engine:
    """What every task has to know."""

    asked: Asked
    columns: Mapping[str, pa.Schema]  # of the tables that come
    facts: Mapping[str, pa.Table]  # of whole runs, by the name of the table
    memory: str  # of DuckDB, as "900MB"
    threads: int  # of DuckDB
    deadline_s: float | None  # of the wall clock
    anomalies_max: int | None  # how many rows of them are passed on; None: all

    def judge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of OUTPUT, of rows as they travel."""
        names = {name: schema.names for name, schema in self.columns.items()}
        return self.judge_tables(unpacked(batches, names))

    def judge_tables(self, rows: Iterable[tuple[str, pa.Table]]) -> Iterator[pa.RecordBatch]:
        """The same of rows of one table each, with its columns."""
        with tempfile.TemporaryDirectory(prefix="neaptide-check-") as scratch:
            # Nothing is loaded from anywhere: what it needs is part of it.
            settings: dict[str, str | bool | int | float | list[str]] = {
                "threads": self.threads,
                "memory_limit": self.memory,
                "temp_directory": scratch,
                "preserve_insertion_order": "false",
                "default_null_order": "nulls_first",  # as Spark has it
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            }
            with duckdb.connect(config=settings) as tables:
                yield from self._judge(tables, rows)

    def _judge(
        self, tables: duckdb.DuckDBPyConnection, rows: Iterable[tuple[str, pa.Table]]
    ) -> Iterator[pa.RecordBatch]:
        try:
            self._load(tables, rows)
        except duckdb.Error as error:
            yield _failed(reason_of(error))
            return
        failure = self._ask(tables)
        try:
            yield from self._output(tables, is_whole=failure is None)
        except duckdb.Error as error:
            failure = failure or reason_of(error)
        if failure is not None:
            yield _failed(failure)

    def _load(
        self, tables: duckdb.DuckDBPyConnection, rows: Iterable[tuple[str, pa.Table]]
    ) -> None:
        tables.execute(f"CREATE TABLE found ({_FOUND})")
        for name, facts in self.facts.items():
            tables.from_arrow(facts).create(name)
        for name, schema in self.columns.items():
            tables.from_arrow(schema.empty_table()).create(name)
        for name, some in rows:
            tables.from_arrow(some).insert_into(name)
        there = self.columns[RECORDED].names
        tables.execute(f"CREATE VIEW operations AS {operations_view(there)}")

    def _ask(self, tables: duckdb.DuckDBPyConnection) -> str | None:
        """Run the rules; why that ended before the last one."""
        try:
            with self._interrupted_in_time(tables):
                dialect = DuckDb()
                for relation in self.asked.plan.relations:
                    kind = "TABLE" if relation.kept else "VIEW"
                    tables.execute(f"CREATE {kind} {relation.name} AS {relation.sql}")
                    rules = self.asked.plan.over(relation.name)
                    if rules:
                        tables.execute(f"INSERT INTO found {dialect.found(relation.name, rules)}")
                if self.asked.rules_only:
                    return None
                tables.execute(f"CREATE VIEW anomalies AS {counted('found')}")
                tables.execute(f"CREATE TABLE witnessed AS {text_of('witnessed')}")
        except duckdb.InterruptException:
            return EXPIRED
        except duckdb.Error as error:
            return reason_of(error)
        return None

    def _output(
        self, tables: duckdb.DuckDBPyConnection, *, is_whole: bool
    ) -> Iterator[pa.RecordBatch]:
        dialect = DuckDb()
        for what, sql in self.asked.output(dialect, is_whole=is_whole):
            limit = self.anomalies_max if what == ANOMALY else None
            limited = "" if limit is None else f" LIMIT {limit}"
            rows = tables.sql(f"SELECT * FROM ({sql}){limited}")
            for batch in rows.to_arrow_reader(ROWS_A_BATCH):
                if batch.num_rows:
                    yield batch.cast(OUTPUT)

    @contextmanager
    def _interrupted_in_time(self, tables: duckdb.DuckDBPyConnection) -> Iterator[None]:
        if self.deadline_s is None:
            yield
            return
        left_s = self.deadline_s - time.time()
        if left_s <= 0:
            raise duckdb.InterruptException("no time is left")
        timer = threading.Timer(left_s, tables.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _failed(reason: str) -> pa.RecordBatch:
    return table_of([{"what": FAILED, "text": reason}]).to_batches()[0]
