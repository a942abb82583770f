"""Committed positions of consumer groups: `commit-regression`.

Three ways to break what a group was promised: its position goes back although nobody sought; asking
for it gives less than was acknowledged before; it lies beyond the end of the log, so that what it
stood behind was truncated. Jepsen's workload does not look at committed offsets.

The rule of order: two operations that overlap in time prove nothing. A seek (with the group as its
key, or of the same process) starts anew.
"""

from __future__ import annotations

from typing import Final

from neaptide.checkers.cases import case, found

# Each acknowledged commit, or answer about one, with the one before it in its group.
_POSITIONS: Final = """
    SELECT *, lag(struct_pack(f := f, log_offset := log_offset, operation := operation,
        completed_ns := completed_ns)) OVER (
            PARTITION BY part, group_name ORDER BY completed_ns, operation, "row"
        ) AS previous
    FROM positions
"""
_JUDGED: Final = f"""
    SELECT *,
        coalesce(previous.f <> 'seek' AND previous.log_offset IS NOT NULL
            AND coalesce(log_offset, -1) < previous.log_offset
            AND previous.completed_ns <= invoked_ns, false) AS went_back,
        coalesce(f = 'commit' AND complete AND log_offset > end_offset, false) AS truncated
    FROM ({_POSITIONS}) JOIN facts USING (part)
    WHERE f <> 'seek'
"""

REGRESSIONS: Final = found(
    f"({_JUDGED})",
    "NULL",
    case(
        "'commit-regression'",
        "went_back OR truncated",
        offset="log_offset",
        operation="operation",
        evidence="CASE WHEN NOT went_back THEN 'truncated' WHEN f = 'commit' THEN 'went back'"
        " ELSE 'lost' END AS how, group_name AS group, process,"
        " previous.log_offset AS previous_offset, previous.operation AS previous_operation,"
        " end_offset",
    ),
)
