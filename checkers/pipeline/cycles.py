"""Cycles of transactions: the edges of a run come to one task, which searches all of them.

Edges and vertices are rows of the output of the rules (`edges.sql`, `vertices.sql`). Nothing of
them comes to the driver but the cycles.

The rule: only runs with transactions are searched, since an operation that only sends one record or
only polls closes no cycle but one that the rule `G1c-realtime` finds. What is more than a task can
hold is trimmed by Spark first; where that is not enough, the run is unknown, with the figure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    Step,
    When,
    cycles,
    graph_of,
)
from neaptide.checkers.pipeline.output import EDGE, VERTEX
from neaptide.checkers.pipeline.tables import spark_schema

EDGES_MAX: Final = 20_000_000  # of a run in one task
ROUNDS_MAX: Final = 8  # of trimming; a round shortens a chain by its ends only

UNSEARCHED: Final = "cycles-unsearched"

_FOUND: Final = pa.schema(
    [
        pa.field("run", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("operation", pa.int64()),
        pa.field("evidence", pa.string()),
    ]
)
_COLUMNS: Final = (
    "what", "run", "topic", "partition", "name", "value", "operation", "target", "invoked_ns",
     "completed_ns",
)  # fmt: skip


def found_cycles(output: DataFrame) -> list[dict[str, Any]]:
    """The cycles of all runs, one row a component: run, name, operation, evidence."""
    rows = output.where(F.col("what").isin(EDGE, VERTEX)).select(*_COLUMNS)
    sizes = rows.where(F.col("what") == EDGE).groupBy("run").count().collect()
    few = [row["run"] for row in sizes if row["count"] <= EDGES_MAX]
    many = [row["run"] for row in sizes if row["count"] > EDGES_MAX]
    found = _searched(rows, few)
    for run in many:
        found += _trimmed_and_searched(rows.where(F.col("run") == run), run)
    return sorted(found, key=lambda row: (row["run"], row["name"], row["evidence"]))


def _searched(rows: DataFrame, runs: Sequence[int]) -> list[dict[str, Any]]:
    if not runs:
        return []
    of_runs = rows.where(F.col("run").isin(list(runs)))
    found = of_runs.groupBy("run").applyInArrow(search, spark_schema(_FOUND)).collect()
    return [row.asDict() for row in found]


def _trimmed_and_searched(rows: DataFrame, run: int) -> list[dict[str, Any]]:
    edges = trimmed(rows.where(F.col("what") == EDGE))
    left = edges.count()
    if left > EDGES_MAX:
        evidence = json.dumps({"edges": left, "edges_max": EDGES_MAX})
        return [{"run": run, "name": UNSEARCHED, "operation": None, "evidence": evidence}]
    return _searched(edges.unionAll(rows.where(F.col("what") == VERTEX)), [run])


def trimmed(edges: DataFrame) -> DataFrame:
    """Drop, round by round, edges from where none leads to, or to where none leads on."""
    count = edges.count()
    for _ in range(ROUNDS_MAX):
        targets = edges.selectExpr("target AS operation").distinct()
        sources = edges.selectExpr("operation AS target").distinct()
        edges = (
            edges.join(targets, "operation", "left_semi")
            .join(sources, "target", "left_semi")
            .select(*_COLUMNS)
            .localCheckpoint()
        )
        left = edges.count()
        if left == count:
            break
        count = left
    return edges


def search(rows: pa.Table) -> pa.Table:
    """In a task: the cycles of one run."""
    is_edge = pc.equal(rows["what"], EDGE)
    edges, vertices = rows.filter(is_edge), rows.filter(pc.invert(is_edge))
    kind = pc.index_in(edges["name"], pa.array(KINDS))
    graph = graph_of(_numbers(edges, "operation"), _numbers(edges, "target"), _int64(kind))
    found = cycles(graph, _when(vertices))
    run = rows["run"][0].as_py()
    records = _Records(edges, graph) if found else None
    return pa.Table.from_pylist([_row(run, cycle, records) for cycle in found], schema=_FOUND)


class _Records:
    """The records that prove edges: of several that prove one, the first by name is shown."""

    def __init__(self, edges: pa.Table, graph: Graph) -> None:
        self._edges = edges
        self._graph = graph
        self._order = np.lexsort((graph.target, graph.source))
        self._source = graph.source[self._order]

    def of(self, step: Step) -> dict[str, Any]:
        first, behind = np.searchsorted(self._source, [step.source, step.source + 1])
        places = self._order[first:behind]
        proves = (self._graph.target[places] == step.target) & (
            self._graph.kind[places] == KINDS.index(step.kind)
        )
        rows = self._edges.take(pa.array(places[proves])).select(["topic", "partition", "value"])
        return min(rows.to_pylist(), key=lambda row: repr(tuple(row.values())))


def _when(vertices: pa.Table) -> When:
    return When(
        operation=_numbers(vertices, "operation"),
        invoked_ns=_numbers(vertices, "invoked_ns"),
        completed_ns=_numbers(vertices, "completed_ns", -1),
    )


def _numbers(rows: pa.Table, name: str, null: int = 0) -> Any:
    return _int64(pc.fill_null(rows[name].cast(pa.int64()), null))


def _int64(column: Any) -> Any:
    return column.cast(pa.int64()).to_numpy()


def _row(run: int, cycle: Cycle, records: _Records | None) -> dict[str, Any]:
    evidence = {"steps": [_step(step, records) for step in cycle.steps]}
    return {
        "run": run,
        "name": cycle.name,
        "operation": cycle.steps[0].source,
        "evidence": json.dumps(evidence, separators=(",", ":"), ensure_ascii=False),
    }


def _step(step: Step, records: _Records | None) -> dict[str, Any]:
    named: dict[str, Any] = {"source": step.source, "target": step.target, "kind": step.kind}
    if step.edge >= 0 and records is not None:
        named |= records.of(step)
    return named
