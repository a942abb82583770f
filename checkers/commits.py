"""Committed positions of consumer groups: `commit-regression`.

Three ways to break what a group was promised: its position goes back although nobody sought; asking
for it gives less than was acknowledged before; it lies beyond the end of the log, so that what it
stood behind was truncated. Jepsen's workload does not look at committed offsets.

The rule of order: two operations that overlap in time prove nothing. A seek (with the group as its
key, or of the same process) starts anew.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found


def positions(frames: Frames) -> DataFrame:
    """Each acknowledged commit, or answer about one, with the one before it in its group."""
    rows = frames.operations.where(
        "f IN ('commit', 'committed', 'seek') AND type = 'ok' AND partition IS NOT NULL"
        " AND (f <> 'commit' OR offset IS NOT NULL)"
    ).selectExpr("*", "coalesce(key, concat('process ', process)) AS group")
    previous = f"lag(struct(f, offset, operation, completed_ns)) OVER ({_IN_ORDER}) AS previous"
    return frames.spread(rows).selectExpr("*", previous).where("f <> 'seek'")


def commit_anomalies(position: DataFrame, partition_facts: DataFrame) -> DataFrame:
    """Positions that went back, were lost, or lie beyond the log end."""
    facts = partition_facts.select(*PARTITION, "complete", "end_offset")
    judged = position.join(F.broadcast(facts), list(PARTITION), "left").selectExpr(
        "*",
        "previous.f <> 'seek' AND previous.offset IS NOT NULL"
        " AND coalesce(offset, -1) < previous.offset AND previous.completed_ns <= invoked_ns"
        " AS went_back",
        "f = 'commit' AND coalesce(complete, false) AND offset > end_offset AS truncated",
    )
    return found(judged, "NULL", _REGRESSION)


_IN_ORDER: Final = (
    "PARTITION BY run, topic, partition, coalesce(key, concat('process ', process))"
    " ORDER BY completed_ns, operation, row"
)
_REGRESSION: Final = case(
    "'commit-regression'",
    "coalesce(went_back, false) OR coalesce(truncated, false)",
    offset="offset",
    operation="operation",
    evidence="IF(coalesce(went_back, false), IF(f = 'commit', 'went back', 'lost'), 'truncated')"
    " AS how, group, process, previous.offset AS previous_offset,"
    " previous.operation AS previous_operation, end_offset",
)
