"""Looks at a run while it is still going, and reports an anomaly as soon as it is proved.

Structured Streaming over the Parquet files of its tables, which appear whole. All that is kept
between two looks is Spark's state, in RocksDB. Not the verdict: that is the batch check's
(`neaptide.checkers.check`), once the run is over.

Three queries:

- `_in_turn`: `applyInPandasWithState` by writer (the order of each process and group) and by
  partition (the greatest acknowledgement), with the rules of `early`.
- `_claims`: an aggregate by offset, and one by value, in windows of `WINDOW` under a watermark:
  one offset with two values is `inconsistent-offsets`, one value read at two offsets is a
  `duplicate`, unless an application sends it, which may send it twice (`clients.client`). What is
  in no window together is left to the verdict.
- `_rounds`: `applyInPandasWithState` by leader epoch and follower.

The rule: nothing that later rows could take back is reported, so some is left to the end.
`phantom`: the row of a send is written when the send ends, which may be long after it was read.
`moved`: read once more where it was acknowledged, it is a `duplicate`. A loss after which nobody
writes. A high watermark that falls at an election: the first response of an epoch may be recorded
late, and in Kafka it is normal. Rows may come late, since every process of clients writes files of
its own: a comparison with what is not there yet is not made, and is not an accusation.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from neaptide.checkers.anomalies import counting
from neaptide.checkers.material import EDN_SYSTEM
from neaptide.checkers.pipeline import early
from neaptide.checkers.pipeline.limits import settings
from neaptide.checkers.pipeline.series import ACKED
from neaptide.checkers.pipeline.tables import spark_schema
from neaptide.results.compaction import ALL
from neaptide.results.record_texts import IDENTITY_SQL
from neaptide.results.run import Run, read_run
from neaptide.results.schema import FETCH_ROUNDS, OPERATIONS_READ
from neaptide.results.tables import table_files

LOOK_S: Final = 1
WINDOW: Final = "2 minutes"
LATE: Final = "1 minute"  # what comes later than this behind the newest may not be looked at
EPOCH_KEPT_MS: Final = 600_000  # without a response
FILES_AT_ONCE: Final = 64
REPORTED_MAX: Final = 100  # of one anomaly in one partition; the verdict counts them all
Found = dict[str, Any]  # columns of `neaptide.results.schema.ANOMALIES`

_FOUND: Final = (
    "anomaly STRING, topic STRING, partition INT, offset BIGINT, value STRING, operation BIGINT,"
    " evidence STRING"
)
_RULES: Final[Mapping[str, early.Rule]] = {
    "writer": early.by_writer,
    "partition": early.by_partition,
    "epoch": early.by_epoch,
}
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    # Nothing is said when time has passed, only when rows have come.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # The files of a run that is over are replaced by larger ones.
    "spark.sql.files.ignoreMissingFiles": "true",
}


def follow(
    spark: SparkSession,
    run_directory: Path,
    *,
    is_over: Callable[[], bool],
    report: Callable[[Found], None],
) -> None:
    """Returns when the run is over and everything it wrote was looked at.

    `is_over` is asked about once in `LOOK_S`. Raises RunUnreadableError, and PySparkException where
    Spark cannot go on.
    """
    reporter = _Reporter(run_directory.name, read_run(run_directory), report)
    with tempfile.TemporaryDirectory(prefix="neaptide-follow-") as scratch:
        looks = _Looks(spark, run_directory, Path(scratch), reporter)
        spark.streams.resetTerminated()  # of those that somebody started before
        try:
            while not is_over():
                looks.start_what_is_there()
                spark.streams.awaitAnyTermination(LOOK_S)  # raises where one has failed
            looks.start_what_is_there()
            looks.finish()
        finally:
            looks.stop()


@dataclass
class _Looks:
    """The queries over the tables that are there by now."""

    spark: SparkSession
    run: Path
    scratch: Path
    reporter: _Reporter
    queries: dict[str, StreamingQuery] = field(default_factory=dict)

    def start_what_is_there(self) -> None:
        for name, (table, query) in _QUERIES.items():
            if name not in self.queries and table_files(self.run / table):
                with settings(self.spark, SETTINGS):  # a query keeps the settings of its start
                    self.queries[name] = self._start(name, query(self.spark, self.run))

    def _start(self, name: str, found: DataFrame) -> StreamingQuery:
        looks = (
            found.writeStream.queryName(name)
            .outputMode("update")
            .foreachBatch(self.reporter.take)
            .option("checkpointLocation", str(self.scratch / name))
            .trigger(processingTime=f"{LOOK_S} seconds")
        )
        return looks.start()

    def finish(self) -> None:
        for query in self.queries.values():
            query.processAllAvailable()

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()


class _Reporter:
    """Reports each thing once, and of what there is much the first only."""

    def __init__(self, name: str, run: Run, report: Callable[[Found], None]) -> None:
        self._name = name
        self._run = run
        self._report = report
        self._reported: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}

    def take(self, batch: DataFrame, _: int) -> None:
        ranked = batch.dropDuplicates(_WHAT).selectExpr("*", _TURN)
        some = ranked.where(f"turn <= {REPORTED_MAX}").drop("turn")
        for row in some.orderBy("topic", "partition", "operation", "anomaly", "offset").collect():
            found = {"run": self._name, **row.asDict()}
            if self._counts(found["anomaly"]) and self._is_new(found):
                self._report(found)

    def _counts(self, anomaly: str) -> bool:
        subscribed, at_least_once = self._run.subscribes, self._run.at_least_once
        by_jepsen = self._run.system == EDN_SYSTEM
        if anomaly == "duplicate" and self._run.of_application:
            return False
        return bool(
            counting(
                [anomaly],
                subscribed=subscribed,
                at_least_once=at_least_once,
                by_jepsen=by_jepsen,
            )
        )

    def _is_new(self, found: Found) -> bool:
        place = found["anomaly"], found["topic"], found["partition"]
        reported = self._reported.setdefault(place, set())
        what: tuple[Any, ...] = found["offset"], found["value"], found["operation"]
        match found["anomaly"]:  # of one that has more rows by now, the evidence has changed
            case "inconsistent-offsets":
                what = (found["offset"],)
            case "duplicate":
                what = (found["value"],)
        if what in reported or len(reported) >= REPORTED_MAX:
            return False
        reported.add(what)
        return True


_WHAT: Final = ["anomaly", "topic", "partition", "offset", "value", "operation"]
_TURN: Final = (
    "row_number() OVER (PARTITION BY anomaly, topic, partition ORDER BY operation, offset, value)"
    " AS turn"
)


# --- the order of processes, groups and logs -----------------------------------------------------


def _in_turn(spark: SparkSession, run: Path) -> DataFrame:
    of_partition = (
        f"IF({ACKED} AND offset IS NOT NULL AND partition IS NOT NULL,"
        " struct('partition' AS rule, concat(topic, '-', partition) AS place), NULL)"
    )
    keys = f"inline(filter(array(struct('writer' AS rule, writer AS place), {of_partition}), {_IS})"
    rows = _operations(spark, run).selectExpr(*_COLUMNS, "file", f"{keys})")
    groups = rows.groupBy("rule", "place")
    return groups.applyInPandasWithState(
        _judge, _FOUND, "kept STRING", "update", GroupStateTimeout.NoTimeout
    )


_IS: Final = "key -> key IS NOT NULL"
_COLUMNS: Final = (
    "operation", "row", "process", "f", "type", "invoked_ns", "completed_ns", "topic", "partition",
    "offset", "key", "value", "phase", "coalesce(rebalanced, false) AS rebalanced",
)  # fmt: skip


def _rounds(spark: SparkSession, run: Path) -> DataFrame:
    rows = _stream(spark, run, "fetch_rounds").selectExpr(
        "'epoch' AS rule", "topic", "partition", "leader", "leader_epoch", "follower", "round",
        "responded_ns", "high_watermark", "error",
    )  # fmt: skip
    groups = rows.where("leader_epoch IS NOT NULL").groupBy(
        "rule", "topic", "partition", "leader", "leader_epoch", "follower"
    )
    return groups.applyInPandasWithState(
        _judge, _FOUND, "kept STRING", "update", GroupStateTimeout.ProcessingTimeTimeout
    )


def _judge(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """What new rows prove together with what is kept."""
    if state.hasTimedOut:
        state.remove()
        return
    rule = str(key[0])
    kept = json.loads(state.get[0]) if state.exists else {}
    rows = [row for frame in frames for row in _rows(frame)]
    found = _RULES[rule](kept, rows)
    state.update((json.dumps(kept),))
    if rule == "epoch":
        state.setTimeoutDuration(EPOCH_KEPT_MS)
    if found:
        yield pd.DataFrame(found).astype({"offset": "Int64", "operation": "Int64"})


def _rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    columns = {str(name): _plain(frame[name]) for name in frame.columns}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _plain(column: pd.Series) -> Sequence[Any]:
    """Whole numbers with nulls among them are floats in pandas: exact up to 2**53."""
    values: list[Any] = column.tolist()
    if column.dtype.kind != "f":
        return values
    return [None if pd.isna(value) else int(value) for value in values]


# --- two claims about one thing ------------------------------------------------------------------


def _claims(spark: SparkSession, run: Path) -> DataFrame:
    """Each row claims a value of an offset, and an offset of a value.

    Values are compared by their hashes: where these differ, they do. Only numbers are kept of what
    is claimed, which is the faster by far; the two operations that differ are named.
    """
    known = f"({ACKED} OR f = 'poll') AND offset IS NOT NULL AND value IS NOT NULL"
    claims = (
        _operations(spark, run)
        .where(f"{known} AND partition IS NOT NULL")
        .selectExpr(
            "timestamp_micros(coalesce(completed_ns, invoked_ns) DIV 1000) AS ended",
            "topic", "partition", "operation", "f = 'send' AS is_send", f"inline({_CLAIMED})",
        )
        .withWatermark("ended", LATE)
    )  # fmt: skip
    compared = claims.groupBy(
        F.window("ended", WINDOW), "topic", "partition", "is_offset", "about"
    ).agg(
        F.expr("min(IF(is_send, claim, NULL)) AS least_sent"),
        F.expr("max(IF(is_send, claim, NULL)) AS greatest_sent"),
        F.expr("min(IF(is_send, NULL, claim)) AS least_read"),
        F.expr("max(IF(is_send, NULL, claim)) AS greatest_read"),
        F.expr("count_if(is_send) > 1 AS is_repeated"),
        F.expr("min_by(operation, claim) AS operation"),
        F.expr("max_by(operation, claim) AS other_operation"),
    )
    least, greatest = "least(least_sent, least_read)", "greatest(greatest_sent, greatest_read)"
    twice = "(NOT is_repeated AND least_read < greatest_read)"
    return compared.where(f"IF(is_offset, {least} < {greatest}, {twice})").selectExpr(
        "IF(is_offset, 'inconsistent-offsets', 'duplicate') AS anomaly", "topic", "partition",
        f"IF(is_offset, CAST(about AS BIGINT), {greatest}) AS offset",
        "IF(is_offset, NULL, about) AS value", "operation",
        "to_json(named_struct('other_operation', other_operation,"
        f" 'least', IF(is_offset, NULL, {least}))) AS evidence",
    )  # fmt: skip


_CLAIMED: Final = (
    "array("
    "struct(true AS is_offset, CAST(offset AS STRING) AS about, xxhash64(value) AS claim),"
    "struct(false AS is_offset, value AS about, offset AS claim))"
)


# --- tables and settings -------------------------------------------------------------------------


def _operations(spark: SparkSession, run: Path) -> DataFrame:
    """With the writer of each row, and the number of its file; what was compacted is known."""
    name = "regexp_extract(_metadata.file_name, '^part-(.+)-([0-9]+)[.]parquet$', {})"
    return (
        _stream(spark, run, "operations")
        .selectExpr("*", f"{name.format(1)} AS writer", f"{name.format(2)} AS number")
        .where(f"writer NOT IN ('', '{ALL}')")
        .selectExpr("*", "CAST(number AS INT) AS file")
        .withColumn("value", F.expr(IDENTITY_SQL["operations"]))
    )


def _stream(spark: SparkSession, run: Path, table: str) -> DataFrame:
    columns = {"operations": OPERATIONS_READ, "fetch_rounds": FETCH_ROUNDS}[table]
    reader = spark.readStream.schema(spark_schema(columns))
    return reader.option("maxFilesPerTrigger", FILES_AT_ONCE).parquet(
        f"file://{(run / table).absolute()}"
    )


_QUERIES: Final[Mapping[str, tuple[str, Callable[[SparkSession, Path], DataFrame]]]] = {
    "in-turn": ("operations", _in_turn),
    "claims": ("operations", _claims),
    "rounds": ("fetch_rounds", _rounds),
}
