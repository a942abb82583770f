"""What a report reads of a run: small things as rows, large things as columns.

A run directory that is cut off in the middle still gives what is there: a table that is missing or
cannot be read is empty. Judging that is the checkers' matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results import schema
from results.run import Run, read_run
from results.tables import table_files

VERDICT_FILE: Final = "verdict.json"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunData:
    run: Run
    verdict: Mapping[str, Any]
    operations: pa.Table
    fetch_rounds: pa.Table
    replicas: pa.Table
    anomalies: list[Row]

    @property
    def names(self) -> dict[int, str]:
        return {number: name for name, number in self.run.brokers.items()}

    def rows_of(self, f: str) -> list[Row]:
        """Operations of one kind, in order of invocation. For kinds that are few."""
        chosen = self.operations.filter(pc.equal(_plain(self.operations["f"]), f))
        return sorted(chosen.to_pylist(), key=lambda row: (row["invoked_ns"], row["row"]))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def load(directory: Path) -> RunData:
    """Raises RunUnreadableError where there is no readable run.json."""
    verdict_file = directory / VERDICT_FILE
    verdict: Mapping[str, Any] = {}
    if verdict_file.exists():
        verdict = json.loads(verdict_file.read_text(encoding="utf-8"))
    return RunData(
        run=read_run(directory),
        verdict=verdict,
        operations=_table(directory / "operations", schema.OPERATIONS),
        fetch_rounds=_table(directory / "fetch_rounds", schema.FETCH_ROUNDS),
        replicas=_table(directory / "replicas", schema.REPLICAS),
        anomalies=_table(directory / "anomalies", schema.ANOMALIES).to_pylist(),
    )


def _table(directory: Path, columns: pa.Schema) -> pa.Table:
    plain = pa.schema(
        [
            pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
            for f in columns
        ]
    )
    parts = []
    for file in table_files(directory) if directory.is_dir() else []:
        try:
            table = pq.read_table(file)
        except (OSError, pa.ArrowException):
            continue
        names = [name for name in plain.names if name in table.column_names]
        arrays = {name: table[name].cast(plain.field(name).type) for name in names}
        missing = [name for name in plain.names if name not in names]
        for name in missing:
            arrays[name] = pa.nulls(table.num_rows, plain.field(name).type)
        parts.append(pa.table({name: arrays[name] for name in plain.names}))
    return pa.concat_tables(parts) if parts else plain.empty_table()
