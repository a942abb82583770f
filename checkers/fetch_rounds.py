"""The high watermark as leaders told it on the wire: `high-watermark-regression`.

Within one leader epoch a leader's high watermark only grows. Responses to one follower come over
one connection in the order in which they were made; those to two followers may overtake each other
on their way to the gate, so each follower is judged by itself. Rounds whose leader epoch nobody
knows are not judged: one broker may have led twice.

Across epochs a lower one is normal (KIP-101, KIP-207): told, not counted.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found


def told(frames: Frames) -> DataFrame:
    """The rounds that tell a high watermark of a known leader epoch."""
    rounds = frames.fetch_rounds.where(
        "responded_ns IS NOT NULL AND coalesce(error, 0) = 0"
        " AND high_watermark >= 0 AND leader_epoch IS NOT NULL"
    )
    return frames.spread(rounds).select(
        *PARTITION, "leader_epoch", "leader", "follower", "round", "responded_ns", "high_watermark"
    )


def regressions(rounds: DataFrame) -> DataFrame:
    """Rounds that told less than the round before."""
    previous = f"lag(high_watermark) OVER ({_TOLD_IN_ORDER}) AS previous_high_watermark"
    return found(rounds.selectExpr("*", previous), "NULL", _WITHIN_AN_EPOCH)


def regressions_at_election(rounds: DataFrame) -> DataFrame:
    """Epochs that began with a lower high watermark than an earlier epoch had told."""
    of_epoch = rounds.groupBy(*PARTITION, "leader_epoch").agg(
        F.expr("min_by(high_watermark, responded_ns) AS first"),
        F.expr("max(high_watermark) AS greatest"),
    )
    earlier = f"max(struct(greatest, leader_epoch)) OVER ({_EARLIER_EPOCHS}) AS earlier"
    return found(of_epoch.selectExpr("*", earlier), "NULL", _AT_AN_ELECTION)


_TOLD_IN_ORDER: Final = (
    "PARTITION BY run, topic, partition, leader_epoch, leader, follower"
    " ORDER BY responded_ns, round"
)
_EARLIER_EPOCHS: Final = (
    "PARTITION BY run, topic, partition ORDER BY leader_epoch"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
)

_WITHIN_AN_EPOCH: Final = case(
    "'high-watermark-regression'",
    "high_watermark < previous_high_watermark",
    offset="high_watermark",
    operation="NULL",
    evidence="leader, leader_epoch, follower, round, responded_ns, previous_high_watermark",
)
_AT_AN_ELECTION: Final = case(
    "'high-watermark-regression-at-election'",
    "first < earlier.greatest",
    offset="first",
    operation="NULL",
    evidence="leader_epoch, earlier.leader_epoch AS earlier_leader_epoch, "
    "earlier.greatest AS earlier_high_watermark",
)
