"""What a check left behind in a run, as plain values to compare."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from neaptide.checkers.verdict import RunVerdict
from neaptide.results.schema import ANOMALIES


@dataclass(frozen=True)
class Judged:
    """A verdict with its evidence."""

    verdict: RunVerdict
    rows: tuple[dict[str, Any], ...]

    @property
    def found(self) -> set[tuple[str, int | None, str | None]]:
        """(anomaly, offset, value) of each row."""
        return {(row["anomaly"], row["offset"], row["value"]) for row in self.rows}

    def evidence(self, anomaly: str) -> dict[str, Any]:
        (row,) = [row for row in self.rows if row["anomaly"] == anomaly]
        loaded: dict[str, Any] = json.loads(row["evidence"])
        return loaded


def judged(verdict: RunVerdict, directory: Path) -> Judged:
    table = pq.read_table(directory / "anomalies", schema=ANOMALIES)
    return Judged(verdict, tuple(table.to_pylist()))
