"""Who else saw it: the replicas and fetch rounds that bear witness of an anomaly's offset.

Added to the evidence of the first `WITNESSED` anomalies of a run that count and name an offset:

- `replicas`: what each broker's log had at that offset at the end (`broker`, `value`,
  `leader_epoch`). Empty: the logs were read, and none has the offset.
- `rounds`: of each leader epoch and follower, the first fetch round that asked for what is behind
  the offset, so that the follower had it (`had_in_round`), and the first delivered one that told
  a high watermark above it (`told_in_round`). At most `ROUNDS`, the earliest epochs first.

Not the finding of anomalies. The rule: one more pass over replicas and rounds, and only where
something was found.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.anomalies import ANOMALIES
from checkers.frames import OFFSET, PARTITION, Frames

WITNESSED: Final = 50
ROUNDS: Final = 24


def with_witnesses(frames: Frames, anomalies: DataFrame) -> DataFrame:
    """The same rows, with more evidence."""
    places = F.broadcast(_places(anomalies))
    witnesses = (
        places.join(F.broadcast(_replicas(frames, places)), list(OFFSET), "left")
        .join(F.broadcast(_rounds(frames, places)), list(OFFSET), "left")
        .join(F.broadcast(_written(frames)), "run", "left")
        .selectExpr(
            *OFFSET,
            "to_json(struct(coalesce(replicas, IF(written, array(), NULL)) AS replicas, rounds))"
            " AS witnesses",
        )
    )
    return anomalies.join(F.broadcast(witnesses), list(OFFSET), "left").withColumn(
        "evidence", F.expr(_MERGED)
    )


def _places(anomalies: DataFrame) -> DataFrame:
    """The offsets that are witnessed: a bounded number a run."""
    counting = ", ".join(f"'{one.name}'" for one in ANOMALIES.values() if one.counts or one.doubt)
    return (
        anomalies.where(f"offset IS NOT NULL AND anomaly IN ({counting})")
        .select(*OFFSET)
        .distinct()
        .selectExpr("*", "row_number() OVER (PARTITION BY run ORDER BY topic, partition, offset) n")
        .where(f"n <= {WITNESSED}")
        .drop("n")
    )


def _written(frames: Frames) -> DataFrame:
    """Runs whose replicas' logs were read."""
    return frames.replicas.select("run").distinct().selectExpr("run", "true AS written")


def _replicas(frames: Frames, places: DataFrame) -> DataFrame:
    held = frames.replicas.select(*OFFSET, "broker", "value", "leader_epoch")
    return (
        held.join(places, list(OFFSET))
        .groupBy(*OFFSET)
        .agg(F.expr("sort_array(collect_list(struct(broker, value, leader_epoch))) AS replicas"))
    )


def _rounds(frames: Frames, places: DataFrame) -> DataFrame:
    had, told = "fetch_offset > offset", "high_watermark > offset AND delivered_ns IS NOT NULL"
    rounds = frames.fetch_rounds.select(
        *PARTITION, "leader_epoch", "leader", "follower", "round", "fetch_offset",
        "high_watermark", "delivered_ns",
    )  # fmt: skip
    first = (
        rounds.join(places, list(PARTITION))
        .where(f"({had}) OR ({told})")
        .groupBy(*OFFSET, "leader_epoch", "leader", "follower")
        .agg(
            F.expr(f"min(IF({had}, round, NULL)) AS had_in_round"),
            F.expr(f"min(IF({told}, round, NULL)) AS told_in_round"),
        )
    )
    seen = "struct(leader_epoch, leader, follower, had_in_round, told_in_round)"
    return first.groupBy(*OFFSET).agg(
        F.expr(f"slice(sort_array(collect_list({seen})), 1, {ROUNDS}) AS rounds")
    )


# Two JSON objects made one.
_MERGED: Final = (
    "CASE WHEN coalesce(witnesses, '{}') = '{}' THEN evidence"
    " WHEN evidence = '{}' THEN witnesses"
    " ELSE concat(left(evidence, length(evidence) - 1), ',', substring(witnesses, 2)) END"
)
