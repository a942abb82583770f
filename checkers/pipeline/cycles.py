"""Cycles of transactions: the edges of a run come to one task, which searches all of them.

Edges and vertices are lists in rows of the output of the rules (`edges.sql`, `vertices.sql`); all
other rows go on as they are. Nothing of a graph comes to the driver but the cycles.

The rule: only runs with transactions are searched, since an operation that only sends one record or
only polls closes no cycle but one that the rule `G1c-realtime` finds. What is more than a task can
hold is trimmed by Spark first; where that is not enough, the run is unknown, with the figure.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from neaptide.checkers.pipeline.graph import (
    KINDS,
    Cycle,
    Graph,
    Numbers,
    Step,
    When,
    cycles,
    graph_of,
)
from neaptide.checkers.pipeline.kept import kept
from neaptide.checkers.pipeline.output import (
    ANOMALY,
    COUNT,
    EDGES,
    MANY,
    OUTPUT,
    VERTICES,
)
from neaptide.checkers.pipeline.tables import spark_schema

EDGES_MAX: Final = 20_000_000  # of a run in one task
ROUNDS_MAX: Final = 8  # of trimming; a round shortens a chain by its ends only

UNSEARCHED: Final = "cycles-unsearched"

_PLACE: Final = ("run", "topic", "partition", "name")


def searched(output: DataFrame, tasks: int, anomalies_max: int | None) -> DataFrame:
    """The output of the rules with cycles in place of edges and vertices; where a run has too many
    edges, with one row that says how many (MANY)."""
    search = Search(EDGES_MAX, anomalies_max)
    return output.repartition(tasks, "run").mapInArrow(search.search, spark_schema(OUTPUT))


def trimmed_and_searched(output: DataFrame, run: int) -> pa.Table:
    """The cycles of a run with too many edges, as rows of OUTPUT."""
    rows = output.where(F.col("run") == run)
    lists = ("operations", "targets", "records")
    each = F.explode(F.arrays_zip(*lists)).alias("edge")
    edges = trimmed(
        rows.where(F.col("what") == EDGES)
        .select(*_PLACE, each)
        .select(*_PLACE, *(f"edge.{name}" for name in lists))
    )
    left = edges.count()
    if left > EDGES_MAX:
        evidence = json.dumps({"edges": left, "edges_max": EDGES_MAX})
        return pa.Table.from_batches([_found([(run, UNSEARCHED, None, evidence)], None)])
    listed = edges.groupBy(*_PLACE).agg(*(F.collect_list(name).alias(name) for name in lists))
    again = listed.withColumn("what", F.lit(EDGES)).unionByName(
        rows.where(F.col("what") == VERTICES), allowMissingColumns=True
    )
    return searched(again.select(*OUTPUT.names), 1, None).toArrow()


def trimmed(edges: DataFrame) -> DataFrame:
    """Drop, round by round, edges from where none leads to, or to where none leads on.

    Each round reads them three times: without keeping them first, the rules would run as often.
    """
    columns = edges.columns
    edges = kept(edges)
    count = edges.count()
    for _ in range(ROUNDS_MAX):
        ends = edges.selectExpr("targets AS operations").distinct()
        begins = edges.selectExpr("operations AS targets").distinct()
        edges = kept(
            edges.join(ends, "operations", "left_semi")
            .join(begins, "targets", "left_semi")
            .select(*columns)
        )
        left = edges.count()
        if left == count:
            break
        count = left
    return edges


@dataclass(slots=True)
class _Gathered:
    """What has come of one run: pieces of columns."""

    edges: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)  # topic and partition
    place: list[Numbers] = field(default_factory=list)  # of each edge, in `places`
    kind: list[Numbers] = field(default_factory=list)
    source: list[Numbers] = field(default_factory=list)
    target: list[Numbers] = field(default_factory=list)
    records: list[pa.Array] = field(default_factory=list)
    vertex: list[Numbers] = field(default_factory=list)
    invoked_ns: list[Numbers] = field(default_factory=list)
    completed_ns: list[Numbers] = field(default_factory=list)

    def take_edges(self, rows: pa.RecordBatch) -> None:
        many = pc.list_value_length(rows["operations"]).to_numpy()
        kinds = pc.index_in(rows["name"], pa.array(KINDS)).to_numpy()
        first = len(self.places)
        self.places += zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
        self.place.append(np.repeat(np.arange(first, len(self.places), dtype=np.int32), many))
        self.kind.append(np.repeat(kinds.astype(np.int8), many))
        self.source.append(_flat(rows["operations"]))
        self.target.append(_flat(rows["targets"]))
        self.records.append(pc.list_flatten(rows["records"]))

    def take_vertices(self, rows: pa.RecordBatch) -> None:
        self.vertex.append(_flat(rows["operations"]))
        self.invoked_ns.append(_flat(rows["invoked_ns"]))
        self.completed_ns.append(_flat(rows["completed_ns"]))

    def drop_edges(self) -> None:
        for pieces in (self.places, self.place, self.kind, self.source, self.target, self.records):
            pieces.clear()

    @property
    def graph(self) -> Graph:
        return graph_of(_joined(self.source), _joined(self.target), _joined(self.kind))

    @property
    def when(self) -> When:
        """An operation on several partitions has come several times."""
        operation, first = np.unique(_joined(self.vertex), return_index=True)
        return When(
            operation, _joined(self.invoked_ns)[first], _joined(self.completed_ns)[first]
        )  # fmt: skip


def _flat(column: pa.Array) -> Numbers:
    numbers: Numbers = pc.list_flatten(column).to_numpy(zero_copy_only=False)
    return numbers


def _joined(pieces: list[Numbers]) -> Numbers:
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Search:
    """In a task: all cycles of the runs that came to it."""

    edges_max: int
    anomalies_max: int | None  # how many rows of them are passed on; None: all

    def search(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runs: dict[int, _Gathered] = defaultdict(_Gathered)
        for batch in batches:
            of_graph = pc.is_in(batch["what"], pa.array([EDGES, VERTICES]))
            yield batch.filter(pc.invert(of_graph)).cast(OUTPUT)
            self._gather(runs, batch.filter(of_graph))
        for run in sorted(runs):
            gathered = runs.pop(run)
            if gathered.edges > self.edges_max:
                yield _rows_of([{"what": MANY, "run": run, "number": gathered.edges}])
            else:
                yield _found(_cycles(run, gathered), self.anomalies_max)

    def _gather(self, runs: dict[int, _Gathered], rows: pa.RecordBatch) -> None:
        for run in pc.unique(rows["run"]).to_pylist():
            gathered = runs[run]
            of_run = rows.filter(pc.equal(rows["run"], run))
            edges = of_run.filter(pc.equal(of_run["what"], EDGES))
            gathered.edges += pc.sum(pc.list_value_length(edges["operations"])).as_py() or 0
            gathered.take_vertices(of_run.filter(pc.equal(of_run["what"], VERTICES)))
            if gathered.edges <= self.edges_max:
                gathered.take_edges(edges)
            else:
                gathered.drop_edges()


_Found = tuple[int, str, int | None, str]  # run, name, operation, evidence


def _cycles(run: int, gathered: _Gathered) -> list[_Found]:
    graph = gathered.graph
    found = cycles(graph, gathered.when)
    records = _Records(gathered, graph) if found else None
    return sorted((_row(run, cycle, records) for cycle in found), key=lambda row: (row[1], row[3]))


def _found(rows: list[_Found], anomalies_max: int | None) -> pa.RecordBatch:
    counts = Counter((run, name) for run, name, _, _ in rows)
    return _rows_of(
        [
            *({"what": COUNT, "run": run, "name": name, "number": number}
              for (run, name), number in counts.items()),
            *({"what": ANOMALY, "run": run, "name": name, "operation": operation, "text": evidence}
              for run, name, operation, evidence in rows[:anomalies_max]),
        ]
    )  # fmt: skip


def _rows_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=OUTPUT)


class _Records:
    """The records that prove edges: of several that prove one, the first by name is shown."""

    def __init__(self, gathered: _Gathered, graph: Graph) -> None:
        self._places = gathered.places
        self._place = _joined(gathered.place)
        self._records = pa.chunked_array(gathered.records, pa.string())
        self._graph = graph
        self._order = np.lexsort((graph.target, graph.source))
        self._source = graph.source[self._order]

    def of(self, step: Step) -> dict[str, Any]:
        first, behind = np.searchsorted(self._source, [step.source, step.source + 1])
        edges = self._order[first:behind]
        proves = (self._graph.target[edges] == step.target) & (
            self._graph.kind[edges] == KINDS.index(step.kind)
        )
        named = [(*self._places[self._place[edge]], self._records[edge]) for edge in edges[proves]]
        records = [(topic, partition, value.as_py()) for topic, partition, value in named]
        return dict(zip(("topic", "partition", "value"), min(records, key=repr), strict=True))


def _row(run: int, cycle: Cycle, records: _Records | None) -> _Found:
    evidence = {"steps": [_step(step, records) for step in cycle.steps]}
    text = json.dumps(evidence, separators=(",", ":"), ensure_ascii=False)
    return run, cycle.name, cycle.steps[0].source, text


def _step(step: Step, records: _Records | None) -> dict[str, Any]:
    named: dict[str, Any] = {"source": step.source, "target": step.target, "kind": step.kind}
    if step.edge >= 0 and records is not None:
        named |= records.of(step)
    return named
