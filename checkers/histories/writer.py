"""A run as a history of Jepsen's Kafka workload: our tables in, one EDN file out.

One line an invocation, one a completion, in the order of time, so that `jepsen.tests.kafka` can
judge the same history. Keys are the topic partitions, numbered from 0 in the order of their names.
A transaction is one operation, `:txn`, with its sends and polls in their order; a send names its
offset wherever one came back, also where the transaction was aborted.

What Jepsen has no word for: a seek becomes an `assign` to all other keys of its process (its
checker then expects nothing of that key's next poll); the reads after healing are done by processes
of their own, numbered from `FINAL_PROCESSES`; committed positions are left out. A process of Jepsen
does one operation at a time, and none after one of unknown end: what a producer sends before it has
all earlier answers is of further processes, numbered from the highest one on. An operation without
a completion (its client was killed) gets one of type `:info`. A null value is nil; one that has a
key or a mark is a string that names it, for Jepsen knows a record by its value alone.

The rule: Spark makes and sorts the text; the driver only puts parts one behind the other.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.material import open_run
from neaptide.checkers.pipeline.tables import read
from neaptide.results.errors import RunUnreadableError
from neaptide.results.record_texts import IDENTITY_SQL, NULL

FINAL_PROCESSES: Final = 1_000_000
_TEXT: Final = pa.schema([("text", pa.binary())])
_NEVER: Final = 2**63 - 1  # the end of what nobody knows the end of
_OPERATION: Final = ("operation", "at_process", "type", "invoked_ns", "completed_ns")


def export_history(spark: SparkSession, run: Path, path: Path) -> None:
    """Write the operations of a run as EDN."""
    material = open_run(run)
    if not material.files["operations"]:
        raise RunUnreadableError(" ".join(material.reasons))
    operations = read(spark, "operations", [material])
    joined = lines(operations).mapInArrow(_as_text, "text BINARY")
    with tempfile.TemporaryDirectory(prefix=".edn-", dir=path.absolute().parent) as staging:
        whole = Path(staging) / path.name
        with whole.open("wb") as target:
            for row in joined.toLocalIterator(prefetchPartitions=True):
                target.write(row["text"])
        whole.replace(path)


def _as_text(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: lines as text. It writes no file: its disk may be another machine's."""
    for batch in batches:
        text = "".join(f"{line}\n" for line in batch["line"].to_pylist()).encode()
        yield pa.RecordBatch.from_pydict({"text": [text]}, _TEXT)


def lines(operations: DataFrame) -> DataFrame:
    """The lines of the history, sorted."""
    numbered = "CAST(row_number() OVER (ORDER BY topic, partition) - 1 AS INT) AS key_number"
    keys = (
        operations.where("partition IS NOT NULL")
        .select("topic", "partition")
        .distinct()
        .selectExpr("*", numbered)
    )
    ours = operations.join(F.broadcast(keys), ["topic", "partition"], "left").selectExpr(
        "*", f"process + IF(phase = 'final', {FINAL_PROCESSES}, 0) AS at_process"
    )
    rows = (
        _of_clients(_one_at_a_time(ours)).unionAll(_assignments(ours)).unionAll(_of_nemesis(ours))
    )
    return rows.orderBy("at_ns", "operation", "turn").select("line")


# --- one operation of a process at a time ---------------------------------------------------------


def _one_at_a_time(ours: DataFrame) -> DataFrame:
    """What begins before its process has ended all else is of a further process."""
    operations = (
        ours.where("process >= 0 AND f IN ('send', 'poll')")
        .groupBy("at_process", "operation")
        .agg(
            F.expr("min(invoked_ns) AS invoked_ns"),
            F.expr(
                f"max(IF(type IN ('ok', 'fail'), coalesce(completed_ns, invoked_ns), {_NEVER}))"
                " AS ended_ns"
            ),
        )
    )
    lanes = operations.groupBy("at_process").applyInPandas(
        _with_lanes, "at_process INT, operation LONG, lane INT"
    )
    highest = ours.agg(F.expr("max(at_process) AS highest"))
    number = "CAST(highest + dense_rank() OVER (ORDER BY at_process, lane) AS INT) AS number"
    moved = lanes.where("lane > 0").crossJoin(F.broadcast(highest)).selectExpr("operation", number)
    return (
        ours.join(moved, "operation", "left")
        .withColumn("at_process", F.expr("coalesce(number, at_process)"))
        .drop("number")
    )


def _with_lanes(operations: pd.DataFrame) -> pd.DataFrame:
    ordered = operations.sort_values(["invoked_ns", "operation"])
    times = zip(*(ordered[n] for n in ("invoked_ns", "ended_ns", "operation")), strict=True)
    return ordered[["at_process", "operation"]].assign(lane=lanes_of(times))


def lanes_of(operations: Iterable[tuple[int, int, int]]) -> list[int]:
    """For each (begun, ended, number), in the order in which they begin: which of the processes
    from 0 on does it, the least one that does nothing else then.

    Of one moment, what has the lower number comes first.
    """
    busy: list[tuple[int, int, int]] = []  # until when, with which operation, which process
    free: list[int] = []
    lanes: list[int] = []
    for begun, ended, number in operations:
        while busy and busy[0][:2] < (begun, number):
            heapq.heappush(free, heapq.heappop(busy)[2])
        lane = heapq.heappop(free) if free else len(busy)
        lanes.append(lane)
        heapq.heappush(busy, (ended, number, lane))
    return lanes


# --- lines ----------------------------------------------------------------------------------------


def _of_clients(ours: DataFrame) -> DataFrame:
    """Invocation and completion of every operation that sends or polls."""
    records = (
        ours.where("process >= 0 AND f IN ('send', 'poll')")
        .withColumn("value", F.expr(IDENTITY_SQL["operations"]))
        .withColumn("quoted", _quoted(F.col("value")))
    )
    rows = records.select(
        *_OPERATION, "f", "row", "key_number", "mop",
        F.expr("coalesce(mop, IF(f = 'send', row, 0)) AS mop_number"),
        F.expr(f"IF(value = '{NULL}⟩', 'nil', quoted)").alias("quoted"), "offset",
    )  # fmt: skip
    pair = "concat('[', coalesce(CAST(offset AS STRING), 'nil'), ' ', coalesce(quoted, 'nil'), ']')"
    by_key = rows.groupBy(*_OPERATION, "mop_number", "f", "key_number").agg(
        F.expr("min(row) AS row"),
        F.expr("max(mop IS NOT NULL) AS transaction"),
        F.expr(f"{_joined(f'struct(row, {pair} AS text)')} AS pairs"),
        F.expr("min(quoted) AS quoted"),
        F.expr("min(offset IS NOT NULL) AS has_offset"),
    )
    by_mop = by_key.groupBy(*_OPERATION, "mop_number", "f").agg(
        F.expr("max(transaction) AS transaction"),
        F.expr("concat('[:send ', min(key_number), ' ', min(quoted), ']') AS sent"),
        F.expr("concat('[:send ', min(key_number), ' ', min(pairs), ']') AS placed"),
        F.expr("min(has_offset) AS has_offset"),
        F.expr(f"{_joined(_POLLED, ', ')} AS polled"),
    )
    completed = (
        "CASE WHEN f = 'poll' THEN concat('[:poll {', polled, '}]')"
        " WHEN type = 'ok' OR has_offset THEN placed ELSE sent END"
    )
    whole = by_mop.groupBy(*_OPERATION).agg(
        F.expr("IF(max(transaction), ':txn', concat(':', min(f))) AS f"),
        F.expr(f"{_joined(f'struct(mop_number, {_INVOKED} AS text)')} AS invoked"),
        F.expr(f"{_joined(f'struct(mop_number, {completed} AS text)')} AS completed"),
    )
    ended_ns = "coalesce(completed_ns, invoked_ns)"
    invocation = _line("':invoke'", "f", "invoked", "invoked_ns")
    completion = _line(_COMPLETED_AS, "f", "completed", ended_ns)
    return whole.selectExpr(
        "operation",
        f"inline(array(struct(invoked_ns AS at_ns, 0 AS turn, {invocation}),"
        f" struct({ended_ns} AS at_ns, 1 AS turn, {completion})))",
    ).select("at_ns", "operation", "turn", "line")


def _assignments(ours: DataFrame) -> DataFrame:
    """A process that seeks is assigned to all that it polls, and at a seek to all but that."""
    seeks = ours.where("f = 'seek' AND key_number IS NOT NULL")
    polled = (
        ours.where("f = 'poll' AND key_number IS NOT NULL")
        .groupBy("process")
        .agg(
            F.expr("array_sort(collect_set(key_number)) AS all_keys"),
            F.expr("min(invoked_ns) AS first_ns"),
        )
    )
    of_seekers = polled.join(seeks.select("process").distinct(), "process")
    first = of_seekers.selectExpr(
        "first_ns AS at_ns", "-1L AS operation", "process AS at_process", "all_keys AS keys"
    )
    later = seeks.join(F.broadcast(of_seekers), "process").selectExpr(
        "invoked_ns AS at_ns", "operation", "process AS at_process",
        "array_except(all_keys, array(key_number)) AS keys",
    )  # fmt: skip
    assigned = first.unionAll(later).selectExpr(
        "at_ns", "operation", "at_process", "concat('[', array_join(keys, ' '), ']') AS value",
    )  # fmt: skip
    both = [
        assigned.selectExpr(
            "at_ns", "operation", f"{turn} AS turn", _line(kind, "':assign'", "value", "at_ns")
        )
        for turn, kind in enumerate(("':invoke'", "':ok'"))
    ]
    return both[0].unionAll(both[1])


def _of_nemesis(ours: DataFrame) -> DataFrame:
    """Steps of the nemesis, as text."""
    steps = ours.where("f = 'nemesis' AND row = 0").select(
        "operation", "invoked_ns", F.lit(":nemesis").alias("at_process"),
        F.coalesce(_quoted(F.col("value")), F.lit("nil")).alias("value"),
    )  # fmt: skip
    return steps.selectExpr(
        "invoked_ns AS at_ns", "operation", "0 AS turn",
        _line("':info'", "':nemesis'", "value", "invoked_ns"),
    )  # fmt: skip


def _quoted(text: Column) -> Column:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = F.replace(text, F.lit(plain), F.lit(escaped))
    return F.concat(F.lit('"'), text, F.lit('"'))


def _joined(struct: str, between: str = " ") -> str:
    """The texts of a group, in the order of what stands before them."""
    return (
        f"array_join(transform(array_sort(collect_list({struct})), one -> one.text), '{between}')"
    )


def _line(kind: str, f: str, value: str, at_ns: str) -> str:
    """One operation; `value` is the inside of a vector unless it is a whole value."""
    inside = value in ("invoked", "completed")
    whole = f"'[', {value}, ']'" if inside else value
    return (
        f"concat('{{:type ', {kind}, ', :f ', {f}, ', :value ', {whole}, ', :time ', {at_ns}, "
        "', :process ', at_process, '}') AS line"
    )


_POLLED: Final = (
    "IF(key_number IS NULL, NULL, struct(row, concat(key_number, ' [', pairs, ']') AS text))"
)
_COMPLETED_AS: Final = "concat(':', IF(type = 'invoke', 'info', type))"
_INVOKED: Final = "IF(f = 'poll', '[:poll]', sent)"
