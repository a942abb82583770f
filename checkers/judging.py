"""Judges the parts that come to one task, by SQL in DuckDB, inside that task's process.

DuckDB needs no warming up, sorts and aggregates whole columns, and puts on disk what exceeds its
memory. Spark brings the rows of a part together, here they are told apart by `part`.

The rule: each query is a check of its own. Where one fails (no memory is left, the time is over)
the task says so, and passes on what was found before it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from neaptide.checkers.blocks import from_bytes, to_bytes
from neaptide.checkers.cases import FOUND
from neaptide.checkers.reading import EXPIRED, Reader, Work, reason_of
from neaptide.checkers.relations import RELATIONS, Inbox

TOLD: Final = pa.schema([pa.field("what", pa.string()), pa.field("block", pa.binary())])
ROWS_A_BLOCK: Final = 10_000

RUNS: Final = pa.schema(
    [
        pa.field("run", pa.string()),
        pa.field("whole", pa.bool_()),  # all operations were recorded and are readable
        pa.field("level", pa.bool_()),  # all replicas were level when their logs were read
        pa.field("transactions", pa.bool_()),  # some of its operations are transactions
        pa.field("replicas_read", pa.bool_()),  # the replicas' logs were
    ]
)

# One row per part: how far it was read, and whether that is all there is to read. Final reads that
# claim to have reached an end above 0 but left no record are not believed.
_FACTS: Final = """
    CREATE TABLE partitions AS
    SELECT seen.*, run, topic, partition, level, transactions,
        whole AND failed_run IS NULL AS whole,
        coalesce(complete, false) AND failed_run IS NULL
            AND (final_records > 0 OR coalesce(end_offset, 0) = 0) AS complete,
        coalesce(start_offset, 0) AS start_offset, end_offset
    FROM (
        SELECT part, CAST(sum(operations) AS BIGINT) AS operations,
            CAST(sum(sends) AS BIGINT) AS sends, CAST(sum(acked) AS BIGINT) AS acked,
            CAST(sum(final_records) AS BIGINT) AS final_records,
            max(highest_read) AS highest_read, max(last_ns) AS last_ns,
            min(backward_operation) AS backward_operation
        FROM seen GROUP BY part
    ) AS seen
    JOIN parts USING (part) JOIN runs USING (run)
    LEFT JOIN (SELECT DISTINCT run AS failed_run FROM failed JOIN parts USING (part))
        ON failed_run = run
    LEFT JOIN final_reads USING (part)
"""
# Of these, what is asked about one value or one step.
_OF_EACH: Final = """
    CREATE VIEW facts AS
    SELECT part, run, topic IS NOT NULL AND sends > 0 AS is_written, whole, transactions, complete,
        highest_read, last_ns, start_offset, end_offset
    FROM partitions
"""
_RUN_STEPS: Final = """
    CREATE TABLE run_steps AS SELECT run, at_ns, fault FROM steps JOIN parts USING (part)
"""
_PARTITIONS: Final = """
    SELECT run, topic, partition, operations, sends, acked, complete, final_records,
        backward_operation FROM partitions
"""
_COUNTS: Final = """
    SELECT run, anomaly, count(*) AS count FROM anomalies JOIN parts USING (part)
    GROUP BY run, anomaly
"""
_FAILED: Final = "SELECT DISTINCT run, reason FROM failed JOIN parts USING (part)"
# Columns of `neaptide.results.schema.ANOMALIES`.
_ANOMALIES: Final = """
    SELECT run, anomaly, topic, partition, log_offset AS "offset", value, operation, evidence
    FROM ({found}) JOIN parts USING (part) ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Query:
    """A step of the checks; with a name, what later ones look at, otherwise anomalies."""

    sql: str
    table: str | None = None
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Judge:
    """What every task that judges has to know."""

    runs: Mapping[str, Sequence[Any]]  # columns of RUNS
    queries: Sequence[Query]
    witnessed: str  # SQL: the offsets that more is told of
    with_witnesses: str  # SQL: the anomalies with what is told
    memory: str  # of DuckDB, as "900MB"
    deadline_s: float | None  # of the wall clock
    anomalies_max: int | None  # how many rows of them are passed on; None: all

    def judge(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What was found, as blocks: what is little, the anomalies, and why that may not be all."""
        with tempfile.TemporaryDirectory(prefix="neaptide-check-") as scratch:
            # Nothing is loaded from anywhere: what it needs is part of it.
            settings: dict[str, str | bool | int | float | list[str]] = {
                "threads": "1",
                "memory_limit": self.memory,
                "temp_directory": scratch,
                "preserve_insertion_order": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            }
            with duckdb.connect(config=settings) as tables:
                yield from self._judge(tables, blocks)

    def read_and_judge(
        self,
        reader: Reader,
        shares: Sequence[Sequence[Work]],
        numbers: Iterable[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        """Both in one task."""
        yield from self.judge(reader.read_shares(shares, numbers))

    def _judge(
        self, tables: duckdb.DuckDBPyConnection, blocks: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        failure: str | None = None
        try:
            _load(tables, blocks, pa.table(dict(self.runs), schema=RUNS))
            failure = self._run(tables)
            yield from self._told(tables, is_whole=failure is None)
        except duckdb.Error as error:
            failure = failure or reason_of(error)
        if failure is not None:
            yield _block("failed", _of_all_runs(failure))

    def _told(
        self, tables: duckdb.DuckDBPyConnection, *, is_whole: bool
    ) -> Iterator[pa.RecordBatch]:
        for what, sql in (("partitions", _PARTITIONS), ("counts", _COUNTS), ("failed", _FAILED)):
            yield _block(what, tables.sql(sql).fetch_arrow_table())
        found = self.with_witnesses if is_whole else "SELECT * FROM anomalies"
        limited = "" if self.anomalies_max is None else f" LIMIT {self.anomalies_max}"
        anomalies = tables.sql(_ANOMALIES.format(found=found) + limited)
        for batch in anomalies.fetch_arrow_reader(ROWS_A_BLOCK):
            if batch.num_rows:
                yield _block("anomalies", pa.Table.from_batches([batch]))

    def _run(self, tables: duckdb.DuckDBPyConnection) -> str | None:
        """Make the checks; why they ended before the last one."""
        if self._is_over(tables):
            return EXPIRED
        try:
            with self._interrupted_in_time(tables):
                self._ask(tables)
        except duckdb.InterruptException:
            return EXPIRED
        except duckdb.Error as error:
            return reason_of(error)
        return None

    def _ask(self, tables: duckdb.DuckDBPyConnection) -> None:
        for query in self.queries:
            if query.table is not None:
                tables.execute(f"CREATE TABLE {query.table} AS {query.sql}")
            elif query.view is not None:
                tables.execute(f"CREATE VIEW {query.view} AS {query.sql}")
            else:
                tables.execute(f"INSERT INTO anomalies {query.sql}")
        tables.execute(f"INSERT INTO witnessed {self.witnessed}")

    def _is_over(self, tables: duckdb.DuckDBPyConnection) -> bool:
        """Also where a task that reads had no more time."""
        unread = tables.execute("SELECT 1 FROM failed WHERE reason = ?", [EXPIRED]).fetchall()
        return bool(unread) or (self.deadline_s is not None and time.time() > self.deadline_s)

    @contextmanager
    def _interrupted_in_time(self, tables: duckdb.DuckDBPyConnection) -> Iterator[None]:
        if self.deadline_s is None:
            yield
            return
        timer = threading.Timer(self.deadline_s - time.time(), tables.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _load(
    tables: duckdb.DuckDBPyConnection, blocks: Iterable[pa.RecordBatch], runs: pa.Table
) -> None:
    """Tables of what comes, of the parts that it names, and of the runs."""
    tables.execute(f"CREATE TABLE anomalies ({FOUND})")
    tables.execute("CREATE TABLE witnessed (part INTEGER, log_offset BIGINT)")
    for name, schema in RELATIONS.items():
        tables.from_arrow(schema.empty_table()).create(name)
    inbox = Inbox()
    for block in blocks:
        for name, rows in inbox.opened(block):
            tables.from_arrow(rows).insert_into(name)
    parts = range(len(inbox.parts.names))
    names = inbox.parts.table(parts).append_column("part", pa.array(parts, pa.int32()))
    tables.from_arrow(names).create("parts")
    tables.from_arrow(runs).create("runs")
    tables.execute(_FACTS)
    tables.execute(_OF_EACH)
    tables.execute(_RUN_STEPS)


def opened(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blocks of one kind."""
    for batch in blocks:
        for block in batch["block"]:
            yield from from_bytes(block.as_buffer()).to_batches()


def _of_all_runs(failure: str) -> pa.Table:
    """Which of a task's runs is to blame is not known."""
    return pa.table({"run": pa.array([None], pa.string()), "reason": [failure]})


def _block(what: str, table: pa.Table) -> pa.RecordBatch:
    columns = [pa.array([what]), pa.array([to_bytes(table)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=TOLD)
