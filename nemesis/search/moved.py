"""Where each consumer of the simulation went: back, or over a record that is known to be there.

The rules are those of checkers/rules/steps.sql, on the few polls of one world: `int-` inside one
poll, without the prefix between two of one read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from neaptide.clusters.simulation.clients import Poll

Step = tuple[int, int, bool]  # the offset before, the offset, whether one poll brought both


def poll_anomalies(
    polls: Iterable[Poll], known: Collection[int], start_offset: int
) -> Counter[str]:
    """`known`: offsets at which something was acknowledged or read. A step to the log start, or to
    what lies below it, is over records that were deleted meanwhile."""
    found: Counter[str] = Counter()
    offsets = sorted(known)
    for before, offset, is_inside in _steps(polls):
        if offset == before + 1:
            continue
        prefix = "int-" if is_inside else ""
        if offset <= before:
            found[f"{prefix}nonmonotonic-poll"] += 1
            continue
        following = bisect_right(offsets, before)
        skips = following < len(offsets) and offsets[following] < offset
        if skips and offset > start_offset:
            found[f"{prefix}poll-skip"] += 1
    return found


def _steps(polls: Iterable[Poll]) -> Iterator[Step]:
    """Each record of a read with the one before it."""
    last: dict[tuple[int, str], int] = {}
    for poll in polls:
        sequence = (poll.read, poll.phase)
        for row, (offset, _) in enumerate(poll.records):
            before = last.get(sequence)
            if before is not None:
                yield before, offset, row > 0
            last[sequence] = offset
