"""A history of Jepsen's Kafka workload as a run: EDN in, the tables that checks read out.

Tasks of Spark read the parts of the file, and give back what they read as the content of Parquet
files, which this process writes: their disks may be those of other machines. A file of one part
needs no task, nor does one that they cannot see.

What differs from a run of our own: Jepsen records no final reads and no log ends, so every poll is
taken for one that belongs to the end, and what was never polled counts as gone: that is the rule of
Jepsen's checker. A partition that an `assign` or `subscribe` drops begins anew, which is a seek.

The rule: a run is there when every line was read; a line that cannot be is named by its number.
Order is that of the lines, as Jepsen's checker has it: where the times of a history do not rise
from line to line, the places of the lines stand for them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from neaptide.checkers.histories.splits import (
    LineRefusedError,
    Split,
    TimesNotRisingError,
    read_split,
    refusal,
    splits,
)
from neaptide.checkers.material import EDN_SYSTEM
from neaptide.results.run import FinalRead, Run, Written
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.store import create_run, point_latest_at, write_run
from neaptide.results.tables import TableWriter, table_files

_DONE: Final = pa.schema(
    [
        ("writer", pa.string()),
        ("files", pa.int32()),
        ("rows", pa.int64()),
        ("subscribes", pa.bool_()),
        ("topics", pa.list_(pa.string())),  # with `partitions`: what the part is about
        ("partitions", pa.list_(pa.int32())),
        ("refused", pa.int64()),  # where a line begins that cannot be read; null: none
        ("why", pa.string()),
        ("text", pa.string()),
        ("times_rise", pa.bool_()),
        ("seen", pa.bool_()),  # the file was there
    ]
)
_FILE: Final = pa.schema([("name", pa.string()), ("content", pa.binary())])
_OUTPUT: Final = pa.schema([*_DONE, *_FILE])  # one row a part, and one for each file of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of one part, as `_DONE`."""

    writer: str
    files: int = 0
    rows: int = 0
    subscribes: bool = False
    topics: Sequence[str] = ()
    partitions: Sequence[int] = ()
    refused: int | None = None
    why: str = ""
    text: str = ""
    times_rise: bool = True
    seen: bool = True


Write = Callable[[Sequence[Split], Path], Sequence[Done]]


def import_history(spark: SparkSession, path: Path, *, version: str, utc: datetime) -> Path:
    """Make a run directory out of a history, and return it. Raises RunUnreadableError."""
    parts = splits(path)
    run = create_run(path.stem, EDN_SYSTEM, 0, utc, is_latest=False)
    try:
        write = partial(_by_spark, spark) if len(parts) > 1 else write_parts
        fill_run(run, path, parts, write, version=version, utc=utc)
    except BaseException:
        shutil.rmtree(run)
        raise
    point_latest_at(run)
    return run


def fill_run(
    run: Path, path: Path, parts: Sequence[Split], write: Write, *, version: str, utc: datetime
) -> None:
    """Make a directory a run; `write` has the parts of the history written to a table."""
    table = run / "operations"
    done = write([replace(part, times="rising") for part in parts], table)
    if not all(one.times_rise for one in done):  # then the order of the lines is the only one
        shutil.rmtree(table, ignore_errors=True)
        done = write([replace(part, times="lines") for part in parts], table)
    refused = [one for one in done if one.refused is not None]
    if refused:
        first = min(refused, key=lambda one: one.refused or 0)
        raise refusal(str(path), first.refused or 0, first.why, first.text)
    if not any(one.files for one in done):
        done = [_write_nothing(table)]
    write_run(run, _run(path, done, version, utc))


def write_parts(parts: Sequence[Split], table: Path) -> list[Done]:
    """Write what parts of a file hold, one after the other, in this process."""
    return [_write_part(part, table) for part in parts]


def _by_spark(spark: SparkSession, parts: Sequence[Split], table: Path) -> Sequence[Done]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from _read_apart(parts[number])

    tasks = spark.range(0, len(parts), numPartitions=len(parts))
    # With an exchange, so that all tasks read at once: what comes is one part after the other.
    rows = tasks.mapInArrow(read, from_arrow_schema(_OUTPUT)).repartition(len(parts), "writer")
    done = []
    table.mkdir(parents=True, exist_ok=True)
    for row in rows.toLocalIterator():
        if row["name"] is not None:
            (table / row["name"]).write_bytes(row["content"])
        else:
            done.append(Done(**{name: row[name] for name in _DONE.names}))
    if not all(one.seen for one in done):  # only this machine has it
        shutil.rmtree(table)
        return write_parts(parts, table)
    return sorted(done, key=lambda one: one.writer)


def _read_apart(part: Split) -> Iterator[pa.RecordBatch]:
    """In a task: rows of _OUTPUT."""
    with tempfile.TemporaryDirectory(prefix="neaptide-history-") as scratch:
        try:
            done = _write_part(part, Path(scratch))
        except FileNotFoundError:
            done = Done(writer=_writer(part), seen=False)
        yield pa.RecordBatch.from_pylist([asdict(done)], schema=_OUTPUT)
        for file in table_files(Path(scratch)) if done.files else ():
            content = {"writer": done.writer, "name": file.name, "content": file.read_bytes()}
            yield pa.RecordBatch.from_pylist([content], schema=_OUTPUT)


def _writer(part: Split) -> str:
    return f"edn.{part.number:03d}"


def _write_part(part: Split, table: Path) -> Done:
    writer = _writer(part)
    places: set[tuple[str, int]] = set()
    subscribes = False
    try:
        with TableWriter(table, OPERATIONS_READ, writer=writer) as written:
            for batch in read_split(part):
                written.write_table(pa.Table.from_batches([batch]))
                places |= _places(batch)
                subscribes = subscribes or "subscribe" in batch.column("f").dictionary.to_pylist()
    except TimesNotRisingError:
        return Done(writer=writer, times_rise=False)
    except LineRefusedError as error:
        return Done(writer=writer, refused=error.place, why=error.why, text=error.text)
    return Done(
        writer=writer,
        files=sum(file.name.startswith(f"part-{writer}-") for file in table_files(table)),
        rows=written.written.rows,
        subscribes=subscribes,
        topics=[topic for topic, _ in sorted(places)],
        partitions=[partition for _, partition in sorted(places)],
    )


def _write_nothing(table: Path) -> Done:
    """A table is there even if it has no rows."""
    with TableWriter(table, OPERATIONS_READ, writer="edn") as written:
        written.write_table(OPERATIONS_READ.empty_table())
    return Done(writer="edn", files=1)


def _places(batch: pa.RecordBatch) -> set[tuple[str, int]]:
    table = pa.Table.from_batches([batch.select(["topic", "partition"])])
    known = table.filter(pc.is_valid(table["partition"]))
    each = known.group_by(["topic", "partition"]).aggregate([])
    return set(zip(each["topic"].to_pylist(), each["partition"].to_pylist(), strict=True))


def _run(path: Path, done: Sequence[Done], version: str, utc: datetime) -> Run:
    places = {place for one in done for place in zip(one.topics, one.partitions, strict=True)}
    return Run(
        neaptide=version, name=path.stem, system=EDN_SYSTEM, host="none", seed=0,
        started_utc=utc.isoformat(), status="finished", kind="random", brokers={},
        title=f"A history of Jepsen's Kafka workload: {path.name}",
        final_reads=tuple(FinalRead(topic, p, None, True) for topic, p in sorted(places)),
        clients={"subscribe": any(one.subscribes for one in done)},
        written={
            "operations": {one.writer: Written(one.files, one.rows) for one in done if one.files}
        },
    )  # fmt: skip
