"""What a report reads of a run: small things as rows, large things as columns.

A run directory that is cut off in the middle still gives what is there: a table that is missing or
cannot be read is empty. Judging that is the checkers' matter.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neaptide.results import schema
from neaptide.results.errors import RunUnreadableError
from neaptide.results.left_out import StepsLeftOut, read_left_out
from neaptide.results.long_texts import shortened
from neaptide.results.record_texts import identified
from neaptide.results.run import Run, read_run
from neaptide.results.tables import table_files
from neaptide.results.verdicts import allowed_in, read_verdict, why_not_believed

OFFSETS_TOPIC: Final = "__consumer_offsets"
# Of a longer table the first so many rows are looked at: a report takes bounded memory.
ROWS_MAX: Final = 2_000_000
_OF_INTEREST: Final = ("f", "key", "value", "partition", "offset")
ANOMALIES_MAX: Final = 10_000
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunData:
    run: Run
    verdict: Mapping[str, Any]
    operations: pa.Table
    fetch_rounds: pa.Table
    replicas: pa.Table
    anomalies: list[Row]
    series: pa.Table
    operation_rows: int  # in all files, whether looked at or not
    left_out: StepsLeftOut | None = None  # which step matters; None: nobody asked

    @property
    def names(self) -> dict[int, str]:
        return {number: name for name, number in self.run.brokers.items()}

    @property
    def is_cut(self) -> bool:
        """Whether there may be more than was read."""
        rounds: int = self.fetch_rounds.num_rows
        return max(self.operation_rows, rounds) >= ROWS_MAX

    def rows_of(self, f: str) -> list[Row]:
        """Operations of one kind, in order of invocation. For kinds that are few."""
        chosen = self.operations.filter(pc.equal(_plain(self.operations["f"]), f))
        return sorted(chosen.to_pylist(), key=lambda row: (row["invoked_ns"], row["row"]))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def fault_of(row: Row) -> tuple[str, Mapping[str, Any]]:
    """Verb and fields of a step of the nemesis; of a foreign history its text, and no fields."""
    try:
        step = json.loads(row["value"])
    except (TypeError, ValueError):
        return str(row["value"]), {}
    if not isinstance(step, dict) or len(step) != 1:
        return str(row["value"]), {}
    [(verb, fields)] = step.items()
    return verb, fields if isinstance(fields, dict) else {}


def load(directory: Path) -> RunData:
    """Raises RunUnreadableError where there is no readable run.json."""
    run, verdict = read_run(directory), _verdict(directory)
    anomalies = load_anomalies(directory, ANOMALIES_MAX, allowed_in(verdict))
    # Of a run under load only what happened to it, and to the records in question, is shown.
    named = {row["value"] for row in anomalies if row["value"] is not None}
    values = None if run.kind == "scenario" else named
    operations = _table(directory / "operations", schema.OPERATIONS, values=values)
    return RunData(
        run=run,
        verdict=verdict,
        operations=operations,
        operation_rows=_rows_in(directory / "operations"),
        fetch_rounds=_table(directory / "fetch_rounds", schema.FETCH_ROUNDS),
        replicas=_table(directory / "replicas", schema.REPLICAS),
        anomalies=anomalies,
        series=_table(directory / "series", schema.SERIES, rows_max=ANOMALIES_MAX),
        left_out=read_left_out(directory),
    )


def load_anomalies(directory: Path, rows_max: int, allowed: Collection[str] = ()) -> list[Row]:
    """The first anomalies of a run, whether it can be read otherwise or not; none that is allowed
    there."""
    table = _table(directory / "anomalies", schema.ANOMALIES)
    is_allowed = pc.is_in(table["anomaly"], pa.array(sorted(allowed), pa.string()))
    rows: list[Row] = table.filter(pc.invert(is_allowed)).slice(0, rows_max).to_pylist()
    return rows


def _verdict(directory: Path) -> Mapping[str, Any]:
    """Without an outcome where there is none to be believed; the reason says why."""
    try:
        found = read_verdict(directory)
        doubt = why_not_believed(directory, found)
    except RunUnreadableError as error:
        return {"reasons": [f"Unknown: {error}."]}
    if found is not None and doubt is None:
        return found
    return {"reasons": [f"Unknown: {doubt}."], "is_there": found is not None}


def _rows_in(directory: Path) -> int:
    """In all files that can be read."""
    rows = 0
    for file in table_files(directory) if directory.is_dir() else []:
        try:
            rows += pq.read_metadata(file).num_rows
        except (OSError, pa.ArrowException):
            continue
    return rows


def _table(
    directory: Path,
    columns: pa.Schema,
    rows_max: int = ROWS_MAX,
    values: Collection[str] | None = None,
) -> pa.Table:
    """With values: of the operations only those of the nemesis, of leaders and of these values."""
    plain = pa.schema(
        [
            pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
            for f in columns
        ]
    )
    parts: list[pa.Table] = []
    missing = rows_max
    for file in table_files(directory) if directory.is_dir() else []:
        try:
            of_file, looked_at = _row_groups(file, plain, missing, values)
        except (OSError, pa.ArrowException):
            continue
        parts += of_file
        missing -= looked_at
    return pa.concat_tables(parts).slice(0, rows_max) if parts else plain.empty_table()


def _row_groups(
    file: Path, plain: pa.Schema, rows_wanted: int, values: Collection[str] | None
) -> tuple[list[pa.Table], int]:
    """As many row groups as are needed, and how many rows were looked at; columns that the file
    lacks are null."""
    found: list[pa.Table] = []
    looked_at = 0
    with pq.ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):
            if looked_at >= rows_wanted:
                break
            table = _of_interest(parquet, group, values)
            arrays = [
                table[field.name].cast(field.type)
                if field.name in table.column_names
                else pa.nulls(table.num_rows, field.type)
                for field in plain
            ]
            found.append(_of_records(_named(pa.table(arrays, names=plain.names))))
            looked_at += parquet.metadata.row_group(group).num_rows
    return found, looked_at


def _of_interest(parquet: pq.ParquetFile, group: int, values: Collection[str] | None) -> pa.Table:
    """All columns are read only where there is a row to be shown."""
    if values is None:
        return parquet.read_row_group(group)
    thin = identified(parquet.read_row_group(group, columns=[*_OF_INTEREST]))
    wanted = pc.or_(
        pc.is_in(_plain(thin["f"]), pa.array(["nemesis", "leader"])),
        pc.is_in(shortened(thin["value"]), pa.array(sorted(values), pa.string())),
    )
    if not pc.any(wanted).as_py():
        return parquet.schema_arrow.empty_table()
    return parquet.read_row_group(group).filter(wanted)


def _named(table: pa.Table) -> pa.Table:
    """Records as anomalies name them."""
    if not {"key", "value", "partition"} <= {*table.column_names}:
        return table
    table = identified(table)
    for name in ("key", "value"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, shortened(table[name]))
    return table


def _of_records(table: pa.Table) -> pa.Table:
    """Without what is about the positions of groups, which a report draws nowhere."""
    if "topic" not in table.column_names:
        return table
    return table.filter(pc.fill_null(pc.not_equal(table["topic"], OFFSETS_TOPIC), True))
