"""Positions of groups that went back, were lost, or lie beyond the end of the log.

The rules are those of checkers/rules/positions.sql, on the few operations of one world, where
nobody seeks. A position is compared with those that were acknowledged before it was asked for: a
group may have a second client, whose operations overlap with those of the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from neaptide.clusters.simulation.clients import GroupOperation


def commit_regressions(
    operations: Iterable[GroupOperation], end_offset: int | None, *, is_complete: bool
) -> int:
    """How many; `end_offset`: of the log that the final reads have found, if they are complete."""
    acknowledged: dict[tuple[str, int], list[tuple[int, int]]] = {}  # when, and the position
    found = 0
    for one in operations:
        if one.kind != "ok":
            continue
        known = acknowledged.setdefault((one.group, one.partition), [])
        offset = -1 if one.offset is None else one.offset
        before = max((at for when, at in known if when <= one.invoked_us), default=-1)
        is_beyond = one.f == "commit" and end_offset is not None and offset > end_offset
        found += offset < before or (is_complete and is_beyond)
        known.append((one.completed_us, offset))
    return found
