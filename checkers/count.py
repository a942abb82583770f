"""All checks put together: one job for all anomalies of all runs, and what a verdict needs of them.

Tasks read the files (`checkers.reading`), Spark brings the rows of each topic partition together,
tasks judge them (`checkers.judging`). Only cycles of transactions lie across partitions, and are
searched after that (`neaptide.checkers.cycles`).

The rule: what is brought to the driver is one row per run and kind of anomaly, one per run and
partition, and no more anomalies than `neaptide.checkers.limits` allows; never a row per record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from neaptide.checkers import (
    commits,
    fetch_rounds,
    measures,
    offsets,
    polls,
    replicas,
    sends,
    values,
    witnesses,
)
from neaptide.checkers.blocks import from_bytes
from neaptide.checkers.frames import TABLES, read_operations, read_table, spark_schema
from neaptide.checkers.judging import TOLD, Judge, Query, opened
from neaptide.checkers.limits import (
    TimeLimit,
    anomalies_per_task,
    is_local,
    judging_tasks,
    moving_blocks,
    readers_min,
    sized_for,
    task_memory,
)
from neaptide.checkers.material import Material
from neaptide.checkers.pieces import shared_out
from neaptide.checkers.reading import EXPIRED, Reader
from neaptide.checkers.relations import BLOCKS
from neaptide.checkers.verdict import Counts, PartitionCounts
from neaptide.results.schema import ANOMALIES


@dataclass(slots=True)
class Counted:
    """What was found so far."""

    anomalies: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    partitions: dict[str, list[PartitionCounts]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[str, str] = field(default_factory=dict)  # why a run's rows were not all there
    rows: list[dict[str, Any]] = field(default_factory=list)  # columns of `schema.ANOMALIES`
    again: Callable[[], DataFrame] | None = None  # all rows, where these are not all

    def of_run(self, run: str) -> Counts:
        return Counts(self.anomalies.get(run, {}), tuple(self.partitions.get(run, ())))

    @property
    def total(self) -> int:
        return sum(sum(counter.values()) for counter in self.anomalies.values())


class TasksFailedError(Exception):
    """A task that judges could not go on; which run made it so is not known."""


def count(
    spark: SparkSession,
    materials: Sequence[Material],
    counted: Counted,
    limit: TimeLimit,
    *,
    thorough: bool,
) -> None:
    """Run the checks. Raises TimeoutError, TasksFailedError, or what Spark failed with.

    `thorough` also takes measures, and looks for what is normal in Kafka: skips between sends,
    cycles over rw edges. What was found before a failure is in `counted` then.
    """
    transactional = [material for material in materials if material.transactions]
    tasks = judging_tasks(materials)
    reader = Reader(
        tasks, steps=thorough, deadline_s=limit.deadline_s, owns_process=is_local(spark)
    )
    judge = Judge(
        runs=_runs(materials),
        queries=_queries(thorough=thorough, transactions=bool(transactional)),
        witnessed=witnesses.PLACES,
        with_witnesses=witnesses.WITH_WITNESSES,
        memory=task_memory(spark),
        deadline_s=limit.deadline_s,
        anomalies_max=anomalies_per_task(tasks),
    )
    with moving_blocks(spark, materials):
        told = _job(spark, materials, reader, judge).collect()
    _take(counted, ((row["what"], row["block"]) for row in told))
    if len(counted.rows) < counted.total:
        everything = replace(judge, anomalies_max=None, deadline_s=None)
        endless = replace(reader, deadline_s=None)
        counted.again = lambda: _all_rows(_job(spark, materials, endless, everything))
    if transactional:
        from neaptide.checkers import cycles  # with networkx

        with sized_for(spark, transactional):
            found = cycles.cycle_anomalies(read_operations(spark, transactional), rw=thorough)
        for row in found:
            counted.rows.append(row)
            counted.anomalies[row["run"]][row["anomaly"]] += 1


def _queries(*, thorough: bool, transactions: bool) -> tuple[Query, ...]:
    queries = [
        Query(values.PROFILES, table="profiles"),
        Query(values.ANOMALIES),
        Query(values.SENDS, view="sends"),
        Query(values.OUT_OF_ORDER),
        Query(polls.ODD_STEPS, table="odd_steps"),
        Query(polls.BACKWARD),
        Query(offsets.KNOWN, table="known"),
        Query(offsets.BREAKS, table="breaks"),
        Query(polls.SKIPS),
        Query(offsets.INCONSISTENT),
        Query(commits.REGRESSIONS),
        Query(replicas.DIFFERENCES),
        Query(fetch_rounds.TOLD, view="told"),
        Query(fetch_rounds.REGRESSIONS),
        Query(fetch_rounds.REGRESSIONS_AT_ELECTION),
    ]
    if thorough:
        queries += [Query(measures.BY_FAULT), Query(measures.OVER_TIME)]
    if thorough or transactions:
        queries += [Query(sends.SKIPS, table="send_skips"), Query(sends.INSIDE)]
    if thorough:
        queries.append(Query(sends.BETWEEN))
    if transactions:
        queries.append(Query(sends.PRECOMMITTED))
    return tuple(queries)


def _runs(materials: Sequence[Material]) -> dict[str, list[Any]]:
    return {
        "run": [m.name for m in materials],
        "whole": [m.whole for m in materials],
        "level": [m.level for m in materials],
        "transactions": [m.transactions for m in materials],
        "replicas_read": [bool(m.files["replicas"]) for m in materials],
    }


def _job(
    spark: SparkSession, materials: Sequence[Material], reader: Reader, judge: Judge
) -> DataFrame:
    """What the tasks that judge tell; few rows are read and judged by one task."""
    shares = shared_out(materials, readers_min(materials))
    remote = list(_read_by_spark(spark, reader, materials))
    numbers = spark.range(len(shares), numPartitions=len(shares))
    if len(shares) == 1 and not remote and reader.tasks == 1:
        return numbers.mapInArrow(partial(judge.read_and_judge, reader, shares), spark_schema(TOLD))
    blocks = numbers.mapInArrow(partial(reader.read_shares, shares), spark_schema(BLOCKS))
    for frame in remote:
        blocks = blocks.unionAll(frame)
    brought = blocks.repartitionById(reader.tasks, "task")
    return brought.mapInArrow(judge.judge, spark_schema(TOLD))


def _read_by_spark(
    spark: SparkSession, reader: Reader, materials: Sequence[Material]
) -> Iterator[DataFrame]:
    """Files that only Spark can read, as blocks."""
    for table in TABLES:
        files = {m.name: m.files[table] for m in materials if m.is_remote and m.files[table]}
        if files:
            rows = read_table(spark, table, files)
            yield rows.mapInArrow(partial(reader.read_rows, table), spark_schema(BLOCKS))


def _take(counted: Counted, told: Iterable[tuple[str, bytes]]) -> None:
    failures = []
    for what, block in told:
        rows = from_bytes(block).to_pylist()
        match what:
            case "partitions":
                for row in rows:
                    counted.partitions[row.pop("run")].append(PartitionCounts(**row))
            case "counts":
                for row in rows:
                    counted.anomalies[row["run"]][row["anomaly"]] += row["count"]
            case "anomalies":
                counted.rows += rows
            case "failed":
                failures += rows
    for row in failures:
        if row["reason"] == EXPIRED:
            raise TimeoutError("the time is over")
        if row["run"] is None:
            raise TasksFailedError(row["reason"])
        counted.failed[row["run"]] = row["reason"]


def _all_rows(told: DataFrame) -> DataFrame:
    return told.where("what = 'anomalies'").mapInArrow(opened, spark_schema(ANOMALIES))
