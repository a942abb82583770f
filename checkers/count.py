"""All checks put together: from the tables of runs to what a verdict needs of them.

The way, top-down: Spark reads the tables (`pipeline.tables`), one exchange brings the rows of a
topic partition of a run to one task (`pipeline.exchange`), where DuckDB runs the rules
(`pipeline.in_tasks`); or Spark SQL runs the same rules over the whole tables (`pipeline.in_spark`).
Cycles of transactions lie across partitions: their edges come out of the same pass, and go on to
one task a run (`pipeline.cycles`).

The rule: what is brought to the driver is one row per run and kind of anomaly, one per run and
partition, and no more anomalies than `pipeline.limits` allows; never a row per record.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from neaptide.checkers.material import Material
from neaptide.checkers.pipeline import in_spark, output, tables
from neaptide.checkers.pipeline.engines import engine_of
from neaptide.checkers.pipeline.exchange import exchanged
from neaptide.checkers.pipeline.in_tasks import Engine
from neaptide.checkers.pipeline.limits import (
    TimeLimit,
    anomalies_per_task,
    is_small,
    judging_tasks,
    sized_for,
    task_memory,
    threads_of_tasks,
)
from neaptide.checkers.proofs import Counts, PartitionCounts
from neaptide.checkers.rules.conditions import plan, relations_of
from neaptide.checkers.verdict import EngineName
from neaptide.results.schema import TABLES

Place = tuple[int, str, int, int]  # run, topic, partition, offset


@dataclass(slots=True)
class Counted:
    """What was found so far, by the numbers of runs."""

    anomalies: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    partitions: dict[int, list[PartitionCounts]] = field(default_factory=lambda: defaultdict(list))
    logs: dict[int, set[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(set))
    misfits: dict[int, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    rows: list[dict[str, Any]] = field(default_factory=list)  # anomalies, as in output.OUTPUT
    replicas: dict[Place, list[Any]] = field(default_factory=lambda: defaultdict(list))
    rounds: dict[Place, list[Any]] = field(default_factory=lambda: defaultdict(list))
    many_edges: list[int] = field(default_factory=list)  # runs with more than a task may hold
    apart: list[dict[str, Any]] = field(default_factory=list)  # of `rows`, cycles of those
    # All anomalies but these, where rows are not all.
    again: Callable[[], AbstractContextManager[DataFrame]] | None = None

    def of_run(self, run: int) -> Counts:
        return Counts(
            self.anomalies.get(run, {}),
            tuple(self.partitions.get(run, ())),
            frozenset(self.logs.get(run, ())),
            tuple(sorted(self.misfits.get(run, ()))),
        )

    @property
    def total(self) -> int:
        return sum(sum(counter.values()) for counter in self.anomalies.values())


class TasksFailedError(Exception):
    """A task that judges could not go on; which run made it so is not known."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of runs in a session."""

    spark: SparkSession
    materials: Sequence[Material]
    limit: TimeLimit
    engine: EngineName | None  # None: the one that is faster
    thorough: bool

    def count(self, counted: Counted) -> None:
        """Run the rules. Raises TimeoutError, TasksFailedError, or what Spark failed with; what was
        found before is in `counted` then."""
        few = anomalies_per_task(self._tasks)
        with sized_for(self.spark, self.materials):
            with self._output(few) as rows:
                _take(counted, self._searched(rows, few).toArrow().to_pylist())
            for run in counted.many_edges:
                self._trim_and_search(counted, run)
        if len(counted.rows) < counted.total:
            counted.again = self._everything

    @contextmanager
    def relation(self, name: str) -> Iterator[DataFrame]:
        """The rows of a relation of the rules, or of a table, as Spark SQL works them out."""
        given = self._frames() | self._framed(self._facts())
        keeps_all = is_small(self.materials)
        with (
            sized_for(self.spark, self.materials),
            in_spark.related(self.spark, given, relations_of({name}), keeps_all=keeps_all),
        ):
            yield self.spark.table(name)

    @property
    def _transactions(self) -> bool:
        return any(material.transactions for material in self.materials)

    @property
    def _tasks(self) -> int:
        return judging_tasks(self.materials)

    def _searched(self, rows: DataFrame, anomalies_max: int | None) -> DataFrame:
        """With cycles in place of the graph."""
        if not self._transactions:
            return rows
        from neaptide.checkers.pipeline.cycles import searched  # with SciPy

        return searched(rows, min(self._tasks, len(self.materials)), anomalies_max)

    def _trim_and_search(self, counted: Counted, run: int) -> None:
        from neaptide.checkers.pipeline.cycles import trimmed_and_searched  # with SciPy

        with self._output(None) as rows:
            found = trimmed_and_searched(rows, run).to_pylist()
        _take(counted, found)
        counted.apart += [row for row in found if row["what"] == output.ANOMALY]

    @contextmanager
    def _output(self, anomalies_max: int | None) -> Iterator[DataFrame]:
        """Rows of output.OUTPUT."""
        asked = self._asked
        frames = self._frames()
        facts = self._facts()
        engine_name = self.engine or engine_of(self.spark, self.materials, frames[tables.RECORDED])
        if engine_name == "spark":
            given = frames | self._framed(facts)
            keeps_all = is_small(self.materials)
            with in_spark.judged(
                self.spark, given, asked, anomalies_max, keeps_all=keeps_all
            ) as rows:
                yield rows
            return
        engine = Engine(
            asked=asked,
            columns={name: to_arrow_schema(frame.schema) for name, frame in frames.items()},
            facts=facts,
            memory=task_memory(self.spark),
            threads=threads_of_tasks(self.spark, self.materials),
            deadline_s=self.limit.deadline_s if anomalies_max is not None else None,
            anomalies_max=anomalies_max,
        )
        there = {name: frame for name, frame in frames.items() if self._has(name)}
        schema = tables.spark_schema(output.OUTPUT)
        yield exchanged(there, self._tasks).mapInArrow(engine.judge, schema)

    @property
    def _asked(self) -> output.Asked:
        there = [name for name in TABLES if self._has(name)]
        return output.Asked(
            plan(thorough=self.thorough, transactions=self._transactions, tables=there),
            transactions=self._transactions,
            rw=self.thorough,
        )

    def _has(self, table: str) -> bool:
        return table not in TABLES or any(m.files[table] for m in self.materials)

    def _frames(self) -> dict[str, DataFrame]:
        """What is spread over the tasks."""
        return {
            tables.RECORDED: tables.operations(self.spark, self.materials),
            "replicas": tables.replicas(self.spark, self.materials),
            "fetch_rounds": tables.fetch_rounds(self.spark, self.materials),
            "messages": tables.messages(self.spark, self.materials),
            "final_reads": tables.final_reads(self.spark, self.materials),
        }

    def _facts(self) -> dict[str, pa.Table]:
        """What is said of whole runs: every task has it."""
        steps = tables.NEMESIS_STEPS.empty_table()
        if self.thorough or self._has("fetch_rounds"):
            steps = tables.nemesis_steps(self.spark, self.materials)
        ends = tables.OVERTAKEN_ENDS.empty_table()
        if self._has("messages"):
            ends = tables.overtaken_ends(self.spark, self.materials)
        return {
            "runs": tables.runs(self.materials),
            "nemesis_steps": steps,
            "overtaken_ends": ends,
        }

    def _framed(self, facts: Mapping[str, pa.Table]) -> dict[str, DataFrame]:
        return {name: tables.framed(self.spark, table) for name, table in facts.items()}

    @contextmanager
    def _everything(self) -> Iterator[DataFrame]:
        """All anomalies, found once more: rows of output.OUTPUT."""
        with sized_for(self.spark, self.materials), self._output(None) as rows:
            yield self._searched(rows, None).where(F.col("what") == output.ANOMALY)


def _take(counted: Counted, rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        run = row["run"]
        match row["what"]:
            case output.PARTITION:
                facts = json.loads(row["text"])
                place = {"topic": row["topic"], "partition": row["partition"]}
                counted.partitions[run].append(PartitionCounts(**place, **facts))
            case output.COUNT:
                counted.anomalies[run][row["name"]] += row["number"]
            case output.ANOMALY:
                counted.rows.append(row)
            case output.REPLICA:
                counted.replicas[_place(row)].append(json.loads(row["text"]))
            case output.ROUND:
                counted.rounds[_place(row)].append(json.loads(row["text"]))
            case output.LOG:
                counted.logs[run].add((row["topic"], row["partition"], row["number"]))
            case output.MISFIT:
                counted.misfits[run].append((row["text"], row["number"]))
            case output.MANY:
                counted.many_edges.append(run)
    _raise_first(row["text"] for row in rows if row["what"] == output.FAILED)


def _raise_first(failures: Iterable[str]) -> None:
    for reason in failures:
        if reason == output.EXPIRED:
            raise TimeoutError(reason)
        raise TasksFailedError(reason)


def _place(row: dict[str, Any]) -> Place:
    return row["run"], row["topic"], row["partition"], row["log_offset"]
