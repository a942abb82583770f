"""Positions of groups that went back, were lost, or lie beyond the end of the log.

The rules are those of checkers/rules/positions.sql, on the few operations of one world, where
nobody seeks and one operation of a group follows the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from neaptide.clusters.simulation.clients import GroupOperation


def commit_regressions(
    operations: Iterable[GroupOperation], end_offset: int | None, *, is_complete: bool
) -> int:
    """How many; `end_offset`: of the log that the final reads have found, if they are complete."""
    last: dict[tuple[str, int], int | None] = {}
    found = 0
    for one in operations:
        if one.kind != "ok":
            continue
        key = (one.group, one.partition)
        before, offset = last.get(key), -1 if one.offset is None else one.offset
        went_back = before is not None and offset < before
        is_beyond = one.f == "commit" and end_offset is not None and offset > end_offset
        found += went_back or (is_complete and is_beyond)
        last[key] = one.offset
    return found
