"""A run or a history that lies where only Spark can read it: `s3a://…`, `hdfs://…`, `file://…`.

The tables of a run stay there; its `run.json` is copied, and what a check writes (verdict,
evidence, series, report) goes into a local directory of the same name. A history is copied, since
who reads a part of it looks at what is before. Not for runs on this machine's own paths, of which
more can be said when a file is damaged (`neaptide.checkers.material`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from neaptide.checkers.material import PLAIN_NAME, Material, by_writer
from neaptide.checkers.pipeline.tables import spark_schema
from neaptide.results.errors import RunNotFoundError, RunUnreadableError
from neaptide.results.run import RUN_FILE, Run, Written, parse_run
from neaptide.results.schema import OPERATIONS_OPTIONAL, TABLES
from neaptide.results.store import write_run

_SEPARATOR: Final = "://"
_NOT_THERE: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


def is_remote_path(text: str) -> bool:
    return _SEPARATOR in text


def open_remote(spark: SparkSession, uri: str, runs: Path) -> Material:
    """The run at `uri`, judged in `runs`. Raises RunNotFoundError or RunUnreadableError."""
    uri = uri.rstrip("/")
    name = uri.rpartition("/")[2]
    if not PLAIN_NAME.fullmatch(name):
        raise RunUnreadableError(
            f"The last part of {uri} must be the name of a run: letters, digits, dot, dash and"
            " underscore"
        )
    run = _run(spark, uri)
    tables = {table: _table(spark, uri, table) for table in TABLES}
    operations = tables["operations"]
    reasons = []
    if operations is None:
        reasons.append(f"{uri}/operations has no Parquet file.")
    if run.replicas_written and tables["replicas"] is None:
        reasons.append(f"{uri}/replicas has no Parquet file, although run.json says otherwise.")
    directory = (runs / name).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    write_run(directory, run)
    return Material(
        directory,
        run,
        {table: () if frame is None else (f"{uri}/{table}",) for table, frame in tables.items()},
        tuple(reasons),
        run.status == "finished" and operations is not None,
        operations is not None and not operations.where("mop IS NOT NULL").isEmpty(),
        {table: _written(frame) for table, frame in tables.items() if frame is not None},
    )


def _written(rows: DataFrame) -> dict[str, Written]:
    files = rows.groupBy("_metadata.file_name").count().collect()
    return by_writer({row["file_name"]: row["count"] for row in files})


def _run(spark: SparkSession, uri: str) -> Run:
    path = f"{uri}/{RUN_FILE}"
    try:
        [row] = spark.read.text(path, wholetext=True).collect()
        return parse_run(json.loads(row[0]))
    except (ValueError, RunUnreadableError) as error:
        raise RunUnreadableError(f"{path} cannot be understood: {error}") from error
    except Exception as error:  # of Hadoop, through Spark
        raise _not_read(path, error, "name a run directory") from error


def _not_read(path: str, error: Exception, instead: str) -> RunNotFoundError | RunUnreadableError:
    """No permission, no such scheme, …"""
    if isinstance(error, AnalysisException) and error.getCondition() in _NOT_THERE:
        return RunNotFoundError(f"There is no {path}: {instead}.")
    first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return RunUnreadableError(f"Spark cannot read {path}: {first_line}")


def copy_history(spark: SparkSession, uri: str, file: Path) -> None:
    """Copy the lines at `uri` into a file of this machine, one part of them after the other.

    Raises RunNotFoundError or RunUnreadableError.
    """
    try:
        lines = spark.read.text(uri, lineSep="\n").select(
            F.col("value").cast("binary").alias("line"),
            F.col("_metadata.file_block_start").alias("start"),
        )
        parts = lines.mapInArrow(_joined, "start BIGINT, text BINARY").orderBy("start")
        with file.open("wb") as copy:
            for part in parts.toLocalIterator():
                copy.write(part["text"])
    except Exception as error:  # of Hadoop, through Spark
        raise _not_read(uri, error, "name a history") from error


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the lines of a batch as one text, and a place in the file that is theirs."""
    read: dict[int, int] = {}  # bytes, of each part of the file
    for batch in batches:
        starts, lines = batch["start"].to_pylist(), batch["line"].to_pylist()
        for start in dict.fromkeys(starts):
            of_part = [line for line, its in zip(lines, starts, strict=True) if its == start]
            text = b"".join(line + b"\n" for line in of_part)
            place = start + read.get(start, 0)
            read[start] = read.get(start, 0) + len(text)
            yield pa.RecordBatch.from_pydict({"start": [place], "text": [text]})


def _table(spark: SparkSession, uri: str, table: str) -> DataFrame | None:
    """None: it is not there."""
    path = f"{uri}/{table}"
    try:
        found = spark.read.parquet(path).schema
    except AnalysisException as error:
        if error.getCondition() in _NOT_THERE:
            return None
        raise
    wanted = spark_schema(TABLES[table])
    for field in wanted:
        if field.name in found.names:
            kind = found[field.name].dataType
            if kind != field.dataType:
                raise RunUnreadableError(
                    f"{path} has {kind.simpleString()} in the column {field.name!r},"
                    f" not {field.dataType.simpleString()}"
                )
        elif field.name not in OPERATIONS_OPTIONAL.names:
            raise RunUnreadableError(f"{path} lacks the column {field.name!r}")
    return spark.read.schema(wanted).parquet(path)
