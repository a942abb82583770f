"""The tables of runs as DataFrames: one way in for paths, URIs, one run or ten thousand.

Every frame has the column `run`, the number of the run among those that are checked together; a
row's run is known from the path of its file, so that one scan reads all runs. Columns are pruned
and filtered by Spark: `explain()` shows what is read.

The rule: columns come from `neaptide.results.schema` alone. Long keys and values are shortened here
as `neaptide.results.long_texts` does it, so that no later step carries them, and a record whose
value is null gets the name by which rules know it (`neaptide.results.record_texts`). A row that is
not in the words of the schema is not dropped: it comes with what is wrong with it (`misfit`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from neaptide.checkers.material import Material
from neaptide.checkers.pipeline.limits import sees_files
from neaptide.checkers.rules.conditions import text_of
from neaptide.results.long_texts import LONG_BYTES, SHORTENED_SQL
from neaptide.results.record_texts import IDENTITY_SQL, identified
from neaptide.results.schema import OF_PARTITIONS, TABLES
from neaptide.results.schema import RECORDED as COLUMNS
from neaptide.results.schema import Column as Described

# What rules see of each table: its own columns under the names of `neaptide.results.schema`, but
# for words that SQL has taken.
RENAMED: Final = {"offset": "log_offset", "row": "position"}
_NOT_READ: Final = {"error"}  # of operations

# Of a check: what the driver's Java has to hold for a moment.
TRAVELLING_ROWS: Final = 1_000_000

RUNS: Final = pa.schema(
    [
        pa.field("run", pa.int32()),
        pa.field("whole", pa.bool_()),  # all operations were recorded and are readable
        pa.field("level", pa.bool_()),  # all replicas were level when their logs were read
        pa.field("transactions", pa.bool_()),  # some of its operations are transactions
        # Others have set up its brokers: what these delete or compact by default nobody knows here.
        pa.field("is_foreign", pa.bool_()),
        pa.field("by_jepsen", pa.bool_()),  # a history that Jepsen recorded: judged as it does
    ]
)
NEMESIS_STEPS: Final = pa.schema(
    [RUNS.field("run"), pa.field("at_ns", pa.int64()), pa.field("fault", pa.string())]
)
OVERTAKEN_ENDS: Final = pa.schema(
    [
        RUNS.field("run"),
        pa.field("producer_id", pa.string()),
        pa.field("producer_epoch", pa.string()),
        pa.field("sent_ns", pa.int64()),
        pa.field("at_ns", pa.int64()),
    ]
)
FINAL_READS: Final = pa.schema(
    [
        pa.field("run", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("reached", pa.bool_()),
        pa.field("start_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),
    ]
)


def spark_schema(columns: pa.Schema) -> StructType:
    """The schema of an Arrow table as Spark has it."""
    return from_arrow_schema(pa.schema([pa.field(f.name, _plain(f.type)) for f in columns]))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def read(spark: SparkSession, table: str, materials: Sequence[Material]) -> DataFrame:
    """One table of all runs, with the number of the run."""
    having = [(number, m) for number, m in enumerate(materials) if m.files[table]]
    if not having:
        return small(spark, pa.schema([*_plain_schema(table), RUNS.field("run")]), [])
    of_here = [(number, m) for number, m in having if _is_here(m)]
    if not _travels(spark, [material for _, material in of_here]):
        return _scanned(spark, table, having)
    sent = framed(spark, pa.concat_tables(_loaded(table, *one) for one in of_here))
    elsewhere = [one for one in having if one not in of_here]
    if not elsewhere:
        return sent
    return sent.unionByName(_scanned(spark, table, elsewhere))


def _scanned(spark: SparkSession, table: str, having: Sequence[tuple[int, Material]]) -> DataFrame:
    """Read where the work is done."""
    columns = spark_schema(TABLES[table])
    rows = spark.read.schema(columns).parquet(*(_uri(p) for _, m in having for p in m.files[table]))
    if len(having) == 1:  # a constant costs nothing a row
        return rows.withColumn("run", F.lit(having[0][0]))
    names = [{"run": number, "name": material.name} for number, material in having]
    numbers = small(spark, pa.schema([RUNS.field("run"), pa.field("name", pa.string())]), names)
    before = f"substring_index(_metadata.file_path, '/{table}/', 1)"
    named = rows.selectExpr("*", f"substring_index({before}, '/', -1) AS name")
    return named.join(F.broadcast(numbers), "name").drop("name")


def _plain_schema(table: str) -> pa.Schema:
    return pa.schema([pa.field(f.name, _plain(f.type)) for f in TABLES[table]])


def _travels(spark: SparkSession, materials: Sequence[Material]) -> bool:
    """Whether the rows of runs on this machine go with the check: few, to executors that may see
    another file system. Many are read by the executors, which have to see the files."""
    few = 0 < sum(material.rows for material in materials) <= TRAVELLING_ROWS
    return few and not sees_files(spark)


def _is_here(material: Material) -> bool:
    """Whether its files lie on this machine."""
    return all(isinstance(file, Path) for of in material.files.values() for file in of)


def _loaded(table: str, number: int, material: Material) -> pa.Table:
    files = [pq.read_table(file, schema=TABLES[table]) for file in material.files.get(table, ())]
    rows = pa.concat_tables([TABLES[table].empty_table(), *files]).cast(_plain_schema(table))
    return rows.append_column(
        RUNS.field("run"), pa.repeat(pa.scalar(number, pa.int32()), len(rows))
    )


def in_memory(table: str, material: Material) -> pa.Table:
    """The rows of a run of this machine as the rules see them, but for what is wrong with them."""
    rows = identified(_loaded(table, 0, material))
    rows = rows.rename_columns([RENAMED.get(name, name) for name in rows.column_names])
    if table == "operations":
        at = rows.column_names.index("log_offset")
        known = pc.if_else(pc.equal(rows["log_offset"], -1), None, rows["log_offset"])
        rows = rows.set_column(at, "log_offset", known)
    return rows


def _uri(file: Path | str) -> str:
    """A path without a scheme would be one of Spark's default file system."""
    return f"file://{file}" if isinstance(file, Path) else file


# Columns that do not travel where they say nothing: of runs without transactions, and without
# anything that was seen on the wire.
OF_TRANSACTIONS: Final[Mapping[str, str]] = {
    "mop": "CAST(NULL AS INT)",
    "committed": "type = 'ok'",
}
OF_THE_WIRE: Final[Mapping[str, str]] = {"leader_epoch": "CAST(NULL AS INT)"}


def operations(spark: SparkSession, materials: Sequence[Material]) -> DataFrame:
    """The operations as the rules see them: renamed, and with `committed`."""
    rows = _renamed("operations", read(spark, "operations", materials), _NOT_READ)
    rows = rows.withColumn("log_offset", F.expr("nullif(log_offset, -1)"))
    if not any(material.files["fetch_rounds"] for material in materials):
        rows = rows.drop(*OF_THE_WIRE)
    if not any(material.has_open_sends for material in materials):
        return rows.drop(*OF_TRANSACTIONS)
    committed = F.broadcast(_committed(spark, rows)).withColumn("is_open", F.lit(True))
    return (
        rows.join(committed, ["run", "operation"], "left")
        .withColumn("committed", (F.col("type") == "ok") | F.coalesce("is_open", F.lit(False)))
        .drop("is_open")
    )


RECORDED: Final = "recorded_operations"  # what travels


def operations_view(columns: Collection[str]) -> str:
    """The `operations` of the rules out of what travelled."""
    optional = {**OF_TRANSACTIONS, **OF_THE_WIRE}
    lacking = [f"{sql} AS {name}" for name, sql in optional.items() if name not in columns]
    return f"SELECT {', '.join(['*', *lacking])} FROM {RECORDED}"


def _committed(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Transactions that must have committed, by `committed.sql`."""
    open_sends = rows.where(
        "f = 'send' AND (mop IS NOT NULL OR log_offset IS NOT NULL) AND type IN ('info', 'invoke')"
        " AND value IS NOT NULL"
    ).select("run", "topic", "partition", "value", "operation")
    reads = rows.where("f = 'poll' AND type = 'ok' AND value IS NOT NULL").select(
        "run", "topic", "partition", "value"
    )
    open_sends.hint("broadcast").createOrReplaceTempView("open_sends")
    reads.createOrReplaceTempView("reads")
    return spark.sql(text_of("committed"))


def replicas(spark: SparkSession, materials: Sequence[Material]) -> DataFrame:
    rows = read(spark, "replicas", materials)
    return _renamed("replicas", rows, {"batch_base_offset", "timestamp_ms"})


def fetch_rounds(spark: SparkSession, materials: Sequence[Material]) -> DataFrame:
    return _renamed(
        "fetch_rounds",
        read(spark, "fetch_rounds", materials),
        {"forwarded_ns", "log_start_offset", "records_bytes", "request_fate", "response_fate",
         "held_ns"},
    )  # fmt: skip


def messages(spark: SparkSession, materials: Sequence[Material]) -> DataFrame:
    rows = read(spark, "messages", materials)
    return _renamed("messages", rows, {"version", "fate"})


def nemesis_steps(spark: SparkSession, materials: Sequence[Material]) -> pa.Table:
    """When which fault began, of all runs: there are few."""
    steps = read(spark, "operations", materials).where("f = 'nemesis' AND row = 0")
    return steps.selectExpr("run", "invoked_ns AS at_ns", "value AS fault").toArrow()


def overtaken_ends(spark: SparkSession, materials: Sequence[Material]) -> pa.Table:
    """When which producer asked to end a transaction, and when its coordinator had that: of all
    producers of which a later request was there before an earlier one. There are few."""
    asked = messages(spark, materials).where(
        "api = 'end_txn' AND message = 'request' AND forwarded_ns IS NOT NULL"
    )
    named = asked.selectExpr(
        "run",
        """regexp_extract(fields, '"producer_id": ([0-9]+)', 1) AS producer_id""",
        """regexp_extract(fields, '"producer_epoch": ([0-9]+)', 1) AS producer_epoch""",
        "received_ns AS sent_ns",
        "forwarded_ns AS at_ns",
    )
    of_producer = "OVER (PARTITION BY run, producer_id, producer_epoch"
    later = f"{of_producer} ORDER BY sent_ns ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    ends = named.selectExpr("*", f"min(at_ns) {later} < at_ns AS is_overtaken")
    ends = ends.selectExpr("*", f"max(is_overtaken) {of_producer}) AS kept")
    return ends.where("kept").select(*OVERTAKEN_ENDS.names).toArrow().cast(OVERTAKEN_ENDS)


def final_reads(spark: SparkSession, materials: Sequence[Material]) -> DataFrame:
    """How far the reads after healing got."""
    rows = [
        {"run": number, "topic": read.topic, "partition": read.partition, "reached": read.reached,
         "start_offset": read.start_offset, "end_offset": read.end_offset}
        for number, material in enumerate(materials)
        for read in material.final_reads.values()
    ]  # fmt: skip
    return small(spark, FINAL_READS, rows)


def runs(materials: Sequence[Material]) -> pa.Table:
    """What a run says of itself."""
    rows = [
        {"run": number, "whole": m.whole, "level": m.level, "transactions": m.transactions,
         "is_foreign": m.is_foreign, "by_jepsen": m.by_jepsen}
        for number, m in enumerate(materials)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=RUNS)


def small(
    spark: SparkSession, schema: pa.Schema, rows: Sequence[Mapping[str, object]]
) -> DataFrame:
    """A frame out of the driver's memory."""
    return framed(spark, pa.Table.from_pylist([*rows], schema=schema))


def framed(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The same of a table. Spark Connect finds no columns in one without rows."""
    if not table.num_rows:
        return spark.createDataFrame([], spark_schema(table.schema))
    return spark.createDataFrame(table)


def _renamed(table: str, rows: DataFrame, left_out: set[str]) -> DataFrame:
    if table in IDENTITY_SQL:
        rows = rows.withColumn("value", F.expr(IDENTITY_SQL[table]))
    columns = [f"{misfit(table)} AS misfit"]
    for name in rows.columns:
        if name in left_out:
            continue
        if name in ("key", "value"):
            shortened = SHORTENED_SQL.format(column=name)
            columns.append(
                f"IF(octet_length({name}) > {LONG_BYTES}, {shortened}, {name}) AS {name}"
            )
        else:
            columns.append(f"{_bounded(table, name)} AS `{RENAMED.get(name, name)}`")
    return rows.selectExpr(*columns)


def _bounded(table: str, name: str) -> str:
    """A column of numbers without those that cannot be (their rows are misfits), so that rules
    calculate with whatever there is."""
    for column in COLUMNS[table]:
        if column.name == name and column.type == pa.int64() and column.least is not None:
            most = column.most if column.most is not None else 2**63 - 1
            if name.endswith("_ns"):  # it is still before, or behind, all others
                bounded = f"least(greatest(`{name}`, {column.least}), {most})"
                return f"CASE WHEN `{name}` IS NOT NULL THEN {bounded} END"
            return f"CASE WHEN `{name}` BETWEEN {column.least} AND {most} THEN `{name}` END"
    return f"`{name}`"


# What is wrong although each column by itself is right: which column is named, and when.
_WRONG: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "operations": (
        ("topic", "topic IS NULL AND (partition IS NOT NULL OR f = 'send')"),
        ("process", "process < 0 AND f IN ('send', 'poll')"),
        (
            "partition",
            "partition IS NULL AND f = 'poll' AND (offset IS NOT NULL OR value IS NOT NULL)",
        ),
        ("partition", f"partition IS NULL AND f IN {OF_PARTITIONS}"),
        ("offset", "offset = -1 AND f NOT IN ('send', 'committed')"),
        ("completed_ns", "completed_ns IS NULL AND type = 'ok'"),
        ("value", "f = 'leader' AND (try_parse_json(value) IS NULL OR value NOT LIKE '{%')"),
    ),
    "replicas": (
        ("offset", "offset < log_start_offset OR offset >= log_end_offset"),
        ("log_start_offset", "log_start_offset > log_end_offset"),
    ),
    "fetch_rounds": (),
    "messages": (),
}
_WHERE: Final[Mapping[str, Sequence[str]]] = {
    "operations": ("operation", "row"),
    "replicas": ("broker", "offset"),
    "fetch_rounds": ("leader", "follower", "round"),
    "messages": ("api", "correlation_id"),
}


def misfit(table: str) -> str:
    """SQL: what of a row is not in the words of the schema, and which row it is; null: nothing."""
    wrong = [(c.name, f"NOT ({_fits(c)})") for c in COLUMNS[table]] + [*_WRONG[table]]
    where = ", ', ', ".join(f"'{name} ', {_shown(name)}" for name in _WHERE[table])
    whens = "".join(
        f" WHEN {condition} THEN concat('{table}: {name} is ', {_shown(name)}, ' (', {where}, ')')"
        for name, condition in wrong
    )
    return f"CASE{whens} END"


def _fits(column: Described) -> str:
    name = f"`{column.name}`"
    conditions = []
    if column.words:
        words = ", ".join(f"'{word}'" for word in column.words)
        conditions.append(f"{name} IN ({words})")
    if column.least is not None:
        conditions.append(f"{name} >= {column.least}")
    if column.most is not None:
        conditions.append(f"{name} <= {column.most}")
    fits = " AND ".join(conditions)
    if not column.nullable:
        return f"{name} IS NOT NULL AND {fits}" if fits else f"{name} IS NOT NULL"
    return f"{name} IS NULL OR ({fits})" if fits else "true"


def _shown(name: str) -> str:
    return f"coalesce(left(CAST(`{name}` AS STRING), 80), 'null')"
