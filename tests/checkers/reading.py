"""What a check left behind in a run, as plain values to compare."""

from __future__ import annotations

import json
from collections import Counter
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


Found = Counter[tuple[str, int | None, str | None]]


def differences(found: Judged, expected: Found, *, transactions: bool) -> tuple[Found, Found]:
    """What the check found more than an oracle, and less.

    A run without transactions is not searched for cycles: the check names each record that was read
    before it was sent, where the oracle names a cycle, and no cycle over ww edges, which never
    counts.
    """
    rows = Counter((row["anomaly"], row["offset"], row["value"]) for row in found.rows)
    if transactions:
        return rows - expected, expected - rows
    read_too_early = ("G1c-realtime", None, None)
    plain = {
        name: Counter({one: n for one, n in of.items() if one[0] not in ("G0", "G1c-realtime")})
        for name, of in (("rows", rows), ("expected", expected))
    }
    for name, of in (("rows", rows), ("expected", expected)):
        if any(one[0] == "G1c-realtime" for one in of):
            plain[name][read_too_early] = 1
    return plain["rows"] - plain["expected"], plain["expected"] - plain["rows"]
