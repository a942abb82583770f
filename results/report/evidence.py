"""The records that a verdict is about: who acknowledged, who read, who still has them. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from neaptide.results.report.rows import Row, RunData

RECORDS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class RecordEvidence:
    """One record (or offset) with all anomalies about it."""

    anomalies: str
    record: str
    place: str
    acknowledged: str
    read: str
    on_disk: str
    about: Row  # the first of the anomalies


def anomaly_counts(data: RunData) -> list[tuple[str, int]]:
    return Counter(row["anomaly"] for row in data.anomalies).most_common()


def nowhere(data: RunData) -> list[str]:
    """Records at issue that are on no replica's disk; none where the disks were not read."""
    if data.replicas.num_rows == 0:
        return []
    named = dict.fromkeys(row["value"] for row in data.anomalies if row["value"] is not None)
    found = {row["value"] for row in _with_values(data.replicas, list(named))}
    return [value for value in named if value not in found]


def records(data: RunData) -> tuple[list[RecordEvidence], int]:
    """The first records, and how many more there are."""
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in data.anomalies:
        key = (row["topic"], row["partition"], row["value"], row["offset"])
        if row["value"] is not None:
            key = (*key[:3], None)
        grouped.setdefault(key, []).append(row)
    shown = list(grouped.items())[:RECORDS_MAX]
    values = [key[2] for key, _ in shown if key[2] is not None]
    operations = _with_values(data.operations, values)
    replicas = _with_values(data.replicas, values)
    evidence = [_evidence(data, key, rows, operations, replicas) for key, rows in shown]
    return evidence, len(grouped) - len(shown)


def _with_values(table: pa.Table, values: list[str]) -> list[Row]:
    chosen = table.filter(pc.is_in(table["value"], pa.array(values, pa.string())))
    rows: list[Row] = chosen.to_pylist()
    return rows


def _seconds(ns: int | None) -> str:
    return "?" if ns is None else f"{ns / 1e9:.3f} s"


def _evidence(
    data: RunData,
    key: tuple[Any, ...],
    rows: list[Row],
    operations: list[Row],
    replicas: list[Row],
) -> RecordEvidence:
    topic, partition, value, _ = key
    offsets = sorted({row["offset"] for row in rows if row["offset"] is not None})
    mine = [row for row in operations if value is not None and row["value"] == value]
    acks = [row for row in mine if row["f"] == "send" and row["type"] == "ok"]
    polls = [row for row in mine if row["f"] == "poll"]
    disks = [row for row in replicas if value is not None and row["value"] == value]
    place = "-" if topic is None else f"{topic}-{partition}"
    if offsets:
        place += f" offset {', '.join(str(offset) for offset in offsets[:4])}"
    names = ", ".join(dict.fromkeys(row["anomaly"] for row in rows))
    if value is None:
        return RecordEvidence(names, _details(rows[0]), place, "", "", "", rows[0])
    return RecordEvidence(
        anomalies=names,
        record=value,
        place=place,
        acknowledged="; ".join(
            f"{_seconds(row['completed_ns'])}, acks={row['acks']}" for row in acks[:2]
        )
        or "never",
        read=_reads(polls) or "never",
        on_disk=_disks(data, disks) or "nowhere",
        about=rows[0],
    )


def _details(row: Row) -> str:
    """The evidence of an anomaly that is about no record."""
    found: dict[str, Any] = json.loads(row["evidence"])
    return ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in found.items()
        if not isinstance(value, list)
    )


def _reads(polls: Iterable[Row]) -> str:
    return "; ".join(
        f"{'final read' if row['phase'] == 'final' else _seconds(row['completed_ns'])}"
        f" at offset {row['offset']}"
        for row in list(polls)[:3]
    )


def _disks(data: RunData, rows: Iterable[Row]) -> str:
    return "; ".join(
        f"{data.names.get(row['broker'], row['broker'])} at offset {row['offset']}"
        for row in list(rows)[:6]
    )
