"""Sends that others' records came between: `send-skip`, `int-send-skip`; own reads before commit.

Sends that go back are told by the profiles of values (`checkers.values`). A skip never counts:
several producers write to one partition, and Kafka interleaves the writes of transactions.

The rules are Jepsen's, which looks at skips inside one operation only; `send-skip`, between two
operations of one process, is told once a process and partition, with how many there were.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found
from checkers.offsets import with_next_known
from checkers.places import READ, SEND
from checkers.values import MAY_STAND

_STEP: Final = (*PARTITION, "process", "value", "send_operation", "place", "previous_send")


def steps(profile: DataFrame) -> DataFrame:
    """Each send whose offset is known with the one before it, where it went over an offset."""
    forward = f"{MAY_STAND} AND previous_send.place + 1 < coalesce(acked_offset, least)"
    return (
        profile.where(forward)
        .selectExpr("*", "coalesce(acked_offset, least) AS place")
        .select(*_STEP)
    )


def skips(step: DataFrame, broken: DataFrame, *, between_operations: bool) -> DataFrame:
    """Steps over a record that is known to be there."""
    previous = step.withColumn("previous_offset", F.expr("previous_send.place"))
    over = with_next_known(previous, broken).where("next_known < place")
    inside = found(over.where("send_operation = previous_send.operation"), "value", _INSIDE)
    if not between_operations:
        return inside
    firsts = (
        over.where("send_operation <> previous_send.operation")
        .groupBy(*PARTITION, "process")
        .agg(
            F.expr(
                "min_by(struct(value, place, send_operation, next_known), send_operation) AS first"
            ),
            F.expr("count(*) AS skips"),
        )
        .selectExpr("*", "first.value AS value")
    )
    return inside.unionAll(found(firsts, "value", _BETWEEN))


def precommitted_reads(frames: Frames) -> DataFrame:
    """Values that the transaction which sent them had read."""
    rows = frames.operations.where(f"mop IS NOT NULL AND value IS NOT NULL AND ({SEND} OR {READ})")
    both = (
        frames.spread(rows)
        .groupBy(*PARTITION, "value", "operation")
        .agg(
            F.expr(f"count_if({SEND}) AS sends"),
            F.expr(f"count_if({READ}) AS reads"),
            F.expr(f"min(IF({READ}, offset, NULL)) AS offset"),
            F.expr("min(process) AS process"),
        )
    )
    return found(both, "value", _PRECOMMITTED)


_INSIDE: Final = case(
    "'int-send-skip'",
    "true",
    offset="place",
    operation="send_operation",
    evidence="process, previous_send.value AS previous_value, previous_offset, "
    "next_known AS skipped_offset",
)
_BETWEEN: Final = case(
    "'send-skip'",
    "true",
    offset="first.place",
    operation="first.send_operation",
    evidence="process, skips, first.next_known AS skipped_offset",
)
_PRECOMMITTED: Final = case(
    "'precommitted-read'",
    "sends > 0 AND reads > 0",
    offset="offset",
    operation="operation",
    evidence="process, reads",
)
