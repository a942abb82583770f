"""Measures: what is told about a run without judging it. Rows like anomalies, in `measures/`.

Taken where asked (`--thorough`): they take another pass over the values.

- `availability`: one row per partition and fault window, which is the time from one step of the
  nemesis to the next. Evidence: the window (`from_ns`, `to_ns`), the step that began it (`fault`,
  absent before the first), how its sends ended (`acked`, `failed`, `indeterminate`), and the
  longest time in it without an acknowledged write (`longest_gap_ns`, from `gap_from_ns`).
- `unseen-over-time`: records that were acknowledged and not yet read by anyone, at up to `POINTS`
  moments of a run, where the number changed (`at_ns`, `unseen`).

The rule: bounded by partitions times faults, and by partitions times `POINTS`, however long the
run. A send belongs to the window in which it completed, or, if it never did, was invoked.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.frames import PARTITION, Frames, case, found

AVAILABILITY: Final = "availability"
UNSEEN: Final = "unseen-over-time"
MEASURES: Final = (AVAILABILITY, UNSEEN)

POINTS: Final = 200


def availability(frames: Frames, partition_facts: DataFrame) -> DataFrame:
    """How long each partition took no acknowledged write, by fault window."""
    ended = frames.operations.where("f = 'send' AND partition IS NOT NULL").selectExpr(
        *PARTITION, "coalesce(completed_ns, invoked_ns) AS at_ns", "type", "NULL AS fault"
    )
    steps = frames.operations.where("f = 'nemesis' AND row = 0").selectExpr(
        "run", "invoked_ns AS at_ns", "value AS fault"
    )
    written = partition_facts.where("sends > 0").select(*PARTITION, "last_ns")
    bounds = (
        written.join(F.broadcast(steps), "run")
        .selectExpr(*PARTITION, "at_ns", "'step' AS type", "fault")
        .unionAll(written.selectExpr(*PARTITION, "last_ns AS at_ns", "'end' AS type", "NULL"))
    )
    windowed = frames.spread(ended.unionAll(bounds)).selectExpr(
        *PARTITION, "at_ns", "type", "fault",
        f"sum(IF(type = 'step', 1, 0)) OVER ({_IN_TIME} {_SO_FAR}) AS window",
        f"coalesce(max(IF(type IN ('ok', 'step'), at_ns, NULL)) OVER ({_IN_TIME} {_BEFORE}), 0L)"
        " AS since_ns",
        f"coalesce(lead(IF(type = 'step', at_ns, NULL)) OVER ({_IN_TIME}), at_ns) AS until_ns",
    )  # fmt: skip
    gaps = windowed.selectExpr(
        "*", "IF(type IN ('ok', 'step'), at_ns, since_ns) AS open_ns"
    ).selectExpr(
        "*",
        "IF(type = 'step', 0L, at_ns - since_ns) AS before_ns",
        "until_ns - open_ns AS after_ns",
    )
    told = gaps.groupBy(*PARTITION, "window").agg(
        *[F.expr(f"{how} AS {name}") for name, how in _WINDOW.items()]
    )
    return found(told, "NULL", _AVAILABILITY)


def unseen_over_time(profile: DataFrame) -> DataFrame:
    """How many acknowledged records nobody had read yet."""
    unread = profile.where(
        "acknowledged_ns IS NOT NULL AND coalesce(first_read_ns > acknowledged_ns, true)"
    ).selectExpr(*PARTITION, "last_ns", "acknowledged_ns", "first_read_ns")
    changes = unread.selectExpr(
        *PARTITION, "last_ns",
        "inline(array(struct(acknowledged_ns AS at_ns, 1L AS more),"
        " struct(first_read_ns AS at_ns, -1L AS more)))",
    ).where("at_ns IS NOT NULL")  # fmt: skip
    point = f"ceil(at_ns * {POINTS} / greatest(last_ns, 1))"
    points = (
        changes.groupBy(*PARTITION, "last_ns", F.expr(f"{point} AS point"))
        .agg(F.expr("sum(more) AS more"))
        .selectExpr(
            *PARTITION, "more",
            f"CAST(point * last_ns / {POINTS} AS BIGINT) AS at_ns",
            "sum(more) OVER (PARTITION BY run, topic, partition ORDER BY point) AS unseen",
        )
    )  # fmt: skip
    return found(points, "NULL", _UNSEEN)


_IN_TIME: Final = (
    "PARTITION BY run, topic, partition"
    " ORDER BY at_ns, CASE type WHEN 'step' THEN 1 WHEN 'end' THEN 2 ELSE 0 END"
)
_SO_FAR: Final = "ROWS UNBOUNDED PRECEDING"
_BEFORE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

# A row ends a time without acknowledgement (`before_ns`), and the last row of a window also begins
# the one that lasts until the next step (`after_ns`).
_WINDOW: Final = {
    "fault": "max(fault)",
    "from_ns": "min(IF(type = 'step', at_ns, IF(window = 0, 0L, NULL)))",
    "to_ns": "max(until_ns)",
    "acked": "count_if(type = 'ok')",
    "failed": "count_if(type = 'fail')",
    "indeterminate": "count_if(type IN ('info', 'invoke'))",
    "longest_gap_ns": "max(greatest(before_ns, after_ns))",
    "gap_from_ns": "max_by(IF(after_ns > before_ns, open_ns, since_ns), "
    "greatest(before_ns, after_ns))",
}
_AVAILABILITY: Final = case(
    f"'{AVAILABILITY}'",
    "true",
    offset="NULL",
    operation="NULL",
    evidence="from_ns, to_ns, fault, acked, failed, indeterminate, longest_gap_ns, gap_from_ns",
)
_UNSEEN: Final = case(
    f"'{UNSEEN}'",
    "more <> 0",
    offset="NULL",
    operation="NULL",
    evidence="at_ns, unseen",
)
