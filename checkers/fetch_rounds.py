"""The high watermark as leaders told it on the wire: `high-watermark-regression`.

Within one leader epoch a leader's high watermark only grows. Responses to one follower come over
one connection in the order in which they were made; those to two followers may overtake each other
on their way to the gate, so each follower is judged by itself. Rounds whose leader epoch nobody
knows are not judged: one broker may have led twice.

Across epochs a lower one is normal (KIP-101, KIP-207): told, not counted.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.cases import case, found

# The rounds that tell a high watermark of a known leader epoch.
TOLD: Final = """
    SELECT * FROM rounds
    WHERE responded_ns IS NOT NULL AND coalesce(error, 0) = 0
        AND high_watermark >= 0 AND leader_epoch IS NOT NULL
"""

# Rounds that told less than the round before.
REGRESSIONS: Final = found(
    """(
        SELECT *, lag(high_watermark) OVER (
            PARTITION BY part, leader_epoch, leader, follower ORDER BY responded_ns, round
        ) AS previous_high_watermark FROM told
    )""",
    "NULL",
    case(
        "'high-watermark-regression'",
        "high_watermark < previous_high_watermark",
        offset="high_watermark",
        operation="NULL",
        evidence="leader, leader_epoch, follower, round, responded_ns, previous_high_watermark",
    ),
)

# Epochs that began with a lower high watermark than an earlier epoch had told.
REGRESSIONS_AT_ELECTION: Final = found(
    """(
        SELECT *, max(struct_pack(greatest := greatest, leader_epoch := leader_epoch)) OVER (
            PARTITION BY part ORDER BY leader_epoch
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earlier
        FROM (
            SELECT part, leader_epoch, arg_min(high_watermark, responded_ns) AS least_first,
                max(high_watermark) AS greatest
            FROM told GROUP BY part, leader_epoch
        )
    )""",
    "NULL",
    case(
        "'high-watermark-regression-at-election'",
        "least_first < earlier.greatest",
        offset="least_first",
        operation="NULL",
        evidence="leader_epoch, earlier.leader_epoch AS earlier_leader_epoch,"
        " earlier.greatest AS earlier_high_watermark",
    ),
)
