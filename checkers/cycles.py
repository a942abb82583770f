"""Cycles of transactions over what the log shows: `G0`, `G1c`, `G-single`, `G2`, and with orders.

Edges, as in Jepsen's Kafka workload: ww from the sender of a record to the sender of the next in
the log; wr from the sender of a record to who read it; rw (only where asked: polls are no
snapshots) from an operation to the sender of the record behind the last that it read. Spark makes
the edges and drops what cannot lie on a cycle; networkx does the rest (`neaptide.checkers.graph`).

The rule: only runs with transactions are searched, since an operation that only sends one record or
only polls closes no cycle; `checkers.values` tells the one exception, a record read before it was
sent. At most `EDGES_MAX` edges of a run are brought to the driver; what is more makes the run
unknown where such cycles count, and is told where they never do.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from neaptide.checkers.frames import ACKED, PARTITION, READ, SEND
from neaptide.checkers.graph import Cycle, Edge, When, ordered_cycles, plain_cycles

EDGES_MAX: Final = 300_000
ROUNDS_MAX: Final = 8  # of trimming; a round shortens a chain by its ends only
SMALL_EDGES: Final = 20_000

_END: Final = ("run", "operation")
_EDGE: Final = ("source", "target", "kind", "topic", "partition", "value")
_WHEN: Final = ("operation", "process", "invoked_ns", "completed_ns")


def cycle_anomalies(operations: DataFrame, *, rw: bool) -> list[dict[str, Any]]:
    """All cycles of the runs with transactions, one row per component."""
    edges = data_edges(operations, rw=rw).persist()
    try:
        rows = [
            *_plain(edges.where("`inner` AND kind = 'wr'"), counts=True),
            *_plain(edges.where("`inner`"), counts=False),
            *_ordered(edges.where("kind = 'wr'"), operations),
        ]
    finally:
        edges.unpersist()
    unique = {(row["run"], row["anomaly"], row["evidence"]): row for row in rows}
    return [unique[key] for key in sorted(unique)]


def data_edges(operations: DataFrame, *, rw: bool) -> DataFrame:
    """Edges between operations: run, source, target, kind, inner, topic, partition, value.

    inner: between two that may close a cycle without order.
    """
    of_values = operations.where("value IS NOT NULL AND partition IS NOT NULL")
    writers = (
        of_values.where(SEND)
        .groupBy(*PARTITION, "value")
        .agg(
            F.expr("min(operation) AS writer"),
            F.expr(f"{'true' if rw else 'max(mop IS NOT NULL)'} AS writer_inner"),
        )
    )
    inner = "true" if rw else "mop IS NOT NULL"
    reads = of_values.where(READ).selectExpr(
        *PARTITION, "value", "offset", "operation", f"{inner} AS reader_inner"
    )
    vouched = of_values.where(f"{ACKED} OR {READ}").where("offset IS NOT NULL")
    log = _log(vouched, writers)
    ww = log.selectExpr(*_edge("ww", "writer", "next_writer", "next_value", "true"))
    wr = reads.join(writers, [*PARTITION, "value"]).selectExpr(
        *_edge("wr", "writer", "operation", "value", "writer_inner AND reader_inner")
    )
    edges = ww.unionAll(wr)
    if rw:
        last = reads.groupBy(*PARTITION, "operation").agg(F.expr("max(offset) AS offset"))
        edges = edges.unionAll(
            last.join(log, [*PARTITION, "offset"]).selectExpr(
                *_edge("rw", "operation", "next_writer", "next_value", "true")
            )
        )
    return edges.where("source <> target").dropDuplicates(["run", "source", "target", "kind"])


def _log(known: DataFrame, writers: DataFrame) -> DataFrame:
    """Records in the order of the log, with their senders and the next ones.

    A send of one record leads from one neighbour to the other only: it is left out, unless both are
    the same transaction, which then has another's record in between.
    """
    order = "PARTITION BY run, topic, partition ORDER BY offset"
    # What follows is asked of the reverse order: a frame that shrinks is counted anew for each row.
    earlier = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    sender = "IF(writer_inner, writer, NULL), true"
    versions = known.groupBy(*PARTITION, "offset").agg(F.expr("min(value) AS value"))
    return (
        versions.join(writers, [*PARTITION, "value"])
        .selectExpr(
            "*",
            f"last({sender}) OVER ({order} {earlier}) AS inner_before",
            f"last({sender}) OVER ({order} DESC {earlier}) AS inner_after",
        )
        .where("writer_inner OR inner_before = inner_after")
        .selectExpr(
            "*",
            f"lead(writer) OVER ({order}) AS next_writer",
            f"lead(value) OVER ({order}) AS next_value",
        )
    )


def _edge(kind: str, source: str, target: str, value: str, inner: str) -> list[str]:
    return [
        "run", f"{source} AS source", f"{target} AS target", f"'{kind}' AS kind",
        f"{inner} AS `inner`", "topic", "partition", f"{value} AS value",
    ]  # fmt: skip


def _plain(edges: DataFrame, *, counts: bool) -> Iterable[dict[str, Any]]:
    """Cycles without order: those over wr edges alone count, the others never do."""
    left = trimmed(edges)
    few, left_out = _sizes(left)
    for run, found in _by_run(left, few):
        for cycle in plain_cycles(found):
            if (cycle.name == "G1c") == counts:
                yield _row(run, cycle)
    yield from _unsearched(left_out, counts=counts)


def trimmed(edges: DataFrame) -> DataFrame:
    """Drop, round by round, edges from where none leads to, or to where none leads on."""
    count = edges.count()
    for _ in range(ROUNDS_MAX):
        if count <= SMALL_EDGES:
            break
        targets = edges.selectExpr("run", "target AS source").distinct()
        sources = edges.selectExpr("run", "source AS target").distinct()
        edges = (
            edges.join(targets, ["run", "source"], "left_semi")
            .join(sources, ["run", "target"], "left_semi")
            .localCheckpoint()
        )
        left = edges.count()
        if left == count:
            break
        count = left
    return edges


def _ordered(edges: DataFrame, operations: DataFrame) -> Iterable[dict[str, Any]]:
    """Cycles that real time closes: each has an edge that leads back in time.

    Every operation gets a moment inside its span; real time only leads to later moments. So whoever
    lies on a cycle has its moment between the two ends of an edge that leads back.
    """
    moments = (
        operations.where(f"({SEND} OR f = 'poll') AND type <> 'fail'")
        .groupBy(*_END)
        .agg(
            F.expr("min(process) AS process"),
            F.expr("min(invoked_ns) AS invoked_ns"),
            F.expr("max(IF(type = 'ok', completed_ns, NULL)) AS completed_ns"),
            F.expr(f"count_if({READ}) AS reads"),
        )
        .selectExpr("*", "IF(reads > 0, coalesce(completed_ns, invoked_ns), invoked_ns) AS at_ns")
    )
    sources = moments.selectExpr("run", "operation AS source", "at_ns AS source_ns")
    targets = moments.selectExpr("run", "operation AS target", "at_ns AS target_ns")
    timed = edges.join(sources, ["run", "source"]).join(targets, ["run", "target"])
    back = timed.where("target_ns <= source_ns").select("run", "source_ns", "target_ns").persist()
    try:
        if back.isEmpty():
            return
        inside = _inside(moments, back).persist()
        try:
            yield from _search_in_time(timed, inside)
        finally:
            inside.unpersist()
    finally:
        back.unpersist()


def _inside(moments: DataFrame, back: DataFrame) -> DataFrame:
    """Operations whose moment lies between the ends of an edge that leads back."""
    ends = back.selectExpr(
        "run", "inline(array(struct(target_ns AS at_ns, 0 AS turn, 1 AS opens),"
        " struct(source_ns AS at_ns, 2 AS turn, -1 AS opens)))",
    )  # fmt: skip
    columns = [
        "run",
        "at_ns",
        "turn",
        "opens",
        "operation",
        "process",
        "invoked_ns",
        "completed_ns",
    ]
    all_ends = ends.selectExpr(
        *columns[:4], "CAST(NULL AS BIGINT)", "CAST(NULL AS INT)", "CAST(NULL AS BIGINT)",
        "CAST(NULL AS BIGINT)",
    ).toDF(*columns)  # fmt: skip
    rows = moments.selectExpr(
        "run", "at_ns", "1 AS turn", "0 AS opens", "operation", "process", "invoked_ns",
        "completed_ns",
    ).unionAll(all_ends)  # fmt: skip
    opened = "sum(opens) OVER (PARTITION BY run ORDER BY at_ns, turn ROWS UNBOUNDED PRECEDING)"
    return rows.selectExpr("*", f"{opened} AS opened").where("operation IS NOT NULL AND opened > 0")


def _search_in_time(timed: DataFrame, inside: DataFrame) -> Iterable[dict[str, Any]]:
    kept = inside.select(*_END)
    sources, targets = (kept.withColumnRenamed("operation", end) for end in ("source", "target"))
    edges = timed.join(sources, ["run", "source"], "left_semi").join(
        targets, ["run", "target"], "left_semi"
    )
    few, left_out = _sizes(edges)
    crowded = inside.groupBy("run").count().where(f"count > {EDGES_MAX}").select("run").collect()
    too_many = sorted({*left_out, *(row["run"] for row in crowded)})
    for run, found in _by_run(edges, sorted({*few} - {*too_many})):
        rows = inside.where(F.col("run") == run).select(*_WHEN).toLocalIterator()
        for cycle in ordered_cycles(found, [When(**row.asDict()) for row in rows]):
            yield _row(run, cycle)
    yield from _unsearched(too_many, counts=True)


def _sizes(edges: DataFrame) -> tuple[list[str], list[str]]:
    """Runs whose edges may be brought here, and those that have too many."""
    sizes = {row["run"]: row["count"] for row in edges.groupBy("run").count().collect()}
    few = sorted(run for run, size in sizes.items() if size <= EDGES_MAX)
    return few, sorted(set(sizes) - set(few))


def _by_run(edges: DataFrame, runs: Sequence[str]) -> Iterator[tuple[str, list[Edge]]]:
    """The edges of one run after the other, never of two at a time."""
    if not runs:
        return
    rows = edges.where(F.col("run").isin(list(runs))).orderBy("run", "source", "target", "kind")
    for run, found in itertools.groupby(rows.toLocalIterator(), key=lambda row: str(row["run"])):
        yield run, [Edge(**{name: row[name] for name in _EDGE}) for row in found]


def _row(run: str, cycle: Cycle) -> dict[str, Any]:
    steps = [
        {name: item for name in _EDGE if (item := getattr(edge, name)) is not None}
        for edge in cycle.edges
    ]
    return _anomaly(run, cycle.name, cycle.edges[0].source, {"steps": steps})


def _unsearched(runs: Iterable[str], *, counts: bool) -> Iterable[dict[str, Any]]:
    name = "cycles-unsearched" if counts else "normal-cycles-unsearched"
    for run in runs:
        yield _anomaly(run, name, None, {"edges_max": EDGES_MAX})


def _anomaly(run: str, name: str, operation: int | None, evidence: object) -> dict[str, Any]:
    return {
        "run": run,
        "anomaly": name,
        "topic": None,
        "partition": None,
        "offset": None,
        "value": None,
        "operation": operation,
        "evidence": json.dumps(evidence, separators=(",", ":")),
    }
