"""Measures: what is told about a run without judging it. Rows like anomalies, in `measures/`.

Taken where asked (`--thorough`).

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

from neaptide.checkers.cases import case, found
from neaptide.checkers.relations import ACKED, FAILED, READ

AVAILABILITY: Final = "availability"
UNSEEN: Final = "unseen-over-time"
MEASURES: Final = (AVAILABILITY, UNSEEN)

POINTS: Final = 200

_IN_TIME: Final = (
    "PARTITION BY part ORDER BY at_ns, CASE what WHEN 'step' THEN 1 WHEN 'end' THEN 2 ELSE 0 END"
)
_SO_FAR: Final = "ROWS UNBOUNDED PRECEDING"
_BEFORE: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

# Sends as they ended, steps of the nemesis, and the end of the run; each with the window that it is
# in, since when there was no acknowledgement, and until when the window lasts after it.
_MOMENTS: Final = f"""
    SELECT part, at_ns, what, fault,
        sum(CASE WHEN what = 'step' THEN 1 ELSE 0 END) OVER ({_IN_TIME} {_SO_FAR}) AS fault_window,
        coalesce(max(CASE WHEN what IN ('ok', 'step') THEN at_ns END)
            OVER ({_IN_TIME} {_BEFORE}), 0) AS since_ns,
        coalesce(lead(CASE WHEN what = 'step' THEN at_ns END) OVER ({_IN_TIME}), at_ns) AS until_ns
    FROM (
        SELECT part, coalesce(completed_ns, invoked_ns) AS at_ns,
            CASE kind WHEN {ACKED} THEN 'ok' WHEN {FAILED} THEN 'fail' ELSE 'info' END AS what,
            NULL AS fault
        FROM records WHERE kind < {READ}
        UNION ALL
        SELECT facts.part, steps.at_ns, 'step', steps.fault
        FROM facts JOIN run_steps AS steps USING (run) WHERE is_written
        UNION ALL
        SELECT part, last_ns, 'end', NULL FROM facts WHERE is_written
    )
"""
_GAPS: Final = f"""
    SELECT *, CASE WHEN what = 'step' THEN 0 ELSE at_ns - since_ns END AS before_ns,
        until_ns - open_ns AS after_ns
    FROM (
        SELECT *, CASE WHEN what IN ('ok', 'step') THEN at_ns ELSE since_ns END AS open_ns
        FROM ({_MOMENTS})
    )
"""
# A row ends a time without acknowledgement (`before_ns`), and the last row of a window also begins
# the one that lasts until the next step (`after_ns`).
_WINDOWS: Final = f"""
    SELECT part, fault_window, max(fault) AS fault,
        min(CASE WHEN what = 'step' THEN at_ns WHEN fault_window = 0 THEN 0 END) AS from_ns,
        max(until_ns) AS to_ns,
        count(*) FILTER (what = 'ok') AS acked,
        count(*) FILTER (what = 'fail') AS failed,
        count(*) FILTER (what = 'info') AS indeterminate,
        max(greatest(before_ns, after_ns)) AS longest_gap_ns,
        arg_max(CASE WHEN after_ns > before_ns THEN open_ns ELSE since_ns END,
            greatest(before_ns, after_ns)) AS gap_from_ns
    FROM ({_GAPS}) GROUP BY part, fault_window
"""
# How long each partition took no acknowledged write, by fault window.
BY_FAULT: Final = found(
    f"({_WINDOWS})",
    "NULL",
    case(
        f"'{AVAILABILITY}'",
        "true",
        offset="NULL",
        operation="NULL",
        evidence="from_ns, to_ns, fault, acked, failed, indeterminate, longest_gap_ns, gap_from_ns",
    ),
)

_CHANGES: Final = """
    SELECT part, last_ns, acknowledged_ns, first_read_ns FROM profiles JOIN facts USING (part)
    WHERE acknowledged_ns IS NOT NULL AND coalesce(first_read_ns > acknowledged_ns, true)
"""
_POINTS: Final = f"""
    SELECT part, last_ns, ceil(at_ns * {POINTS} / greatest(last_ns, 1)) AS point, sum(more) AS more
    FROM (
        SELECT part, last_ns, acknowledged_ns AS at_ns, 1 AS more FROM ({_CHANGES})
        UNION ALL
        SELECT part, last_ns, first_read_ns, -1 FROM ({_CHANGES}) WHERE first_read_ns IS NOT NULL
    ) GROUP BY part, last_ns, point
"""
# How many acknowledged records nobody had read yet.
OVER_TIME: Final = found(
    f"""(
        SELECT part, CAST(more AS BIGINT) AS more,
            CAST(trunc(point * last_ns / {POINTS}) AS BIGINT) AS at_ns,
            CAST(sum(more) OVER (PARTITION BY part ORDER BY point) AS BIGINT) AS unseen
        FROM ({_POINTS})
    )""",
    "NULL",
    case(f"'{UNSEEN}'", "more <> 0", offset="NULL", operation="NULL", evidence="at_ns, unseen"),
)
