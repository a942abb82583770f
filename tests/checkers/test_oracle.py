"""The oracle on runs of our own: what histories of Jepsen's cannot have, each with a silent twin.

No Spark here; `tests.checkers.test_jepsen_corpus` has the histories that Jepsen judged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.results.run import Converged, FinalRead
from tests.checkers import oracle
from tests.checkers.histories import (
    RETENTION,
    Op,
    Story,
    commit,
    committed,
    final,
    held,
    poll,
    reached,
    reset,
    run_of,
    seek,
    send,
    txn,
)
from tests.checkers.oracle_history import of_rows

Found = set[tuple[str, int | None, str | None]]
SILENT: Found = set()
AB = final((0, "a"), (1, "b"))
DELETED = {"final_reads": (FinalRead("t", 0, 2, True, start_offset=1),)}
NEVER_LEVEL = {"converged": Converged(False, "broker 2 stayed behind")}


def leader(broker: int) -> Op:
    row = {"topic": "t", "partition": 0, "value": f'{{"leader": {broker}, "isr": [{broker}]}}'}
    return Op("leader", -1, "info", (row,))


def unsure(*records: tuple[int, str], type: str = "info", phase: str = "final") -> Op:
    return replace(poll(*records, phase=phase, process=8), type=type)


def story(*ops: Op, **rest: Any) -> Story:
    return Story(ops, **rest)


STORIES: dict[str, tuple[Story, Found]] = {
    # an unsure read is no final read
    "an-indeterminate-final-poll-alone-has-the-record": (
        story(send("a", 0), send("b", 1), unsure((0, "a")), final((1, "b"))),
        {("lost-write", 0, "a")},
    ),
    "an-indeterminate-final-poll-has-it-too": (
        story(send("a", 0), send("b", 1), unsure((0, "a")), AB), SILENT,
    ),
    "a-failed-poll-before-healing-alone-had-the-record": (
        story(send("b", 1), unsure((0, "x"), type="fail", phase="main"), final((1, "b"))),
        {("committed-then-lost", 0, "x"), ("phantom", 0, "x")},
    ),
    # what is lost, moved, doubled
    "acknowledged-at-five-and-found-at-one": (
        story(send("a", 5), final((1, "a"))), {("moved", 5, "a")},
    ),
    "acknowledged-at-one-and-found-there-and-at-five": (
        story(send("a", 1), final((1, "a"), (5, "a"))), {("duplicate", 5, "a")},
    ),
    "acknowledged-at-five-and-gone": (
        story(send("a", 5), send("b", 6), final((6, "b"))), {("lost-write", 5, "a")},
    ),
    "acks-0-and-gone": (
        story(send("a", None, acks="0"), send("b", 1), final((1, "b"))),
        {("lost-write", None, "a")},
    ),
    "acks-0-and-gone-where-records-were-deleted": (
        story(send("a", None, acks="0"), send("b", 1), final((1, "b")), RETENTION, run=DELETED),
        {("unproven-loss", None, "a")},
    ),
    "acks-0-and-gone-above-what-was-deleted": (
        story(
            send("a", None, acks="0"), send("b", 2), poll((1, "a")), final((2, "b")),
            RETENTION, run={"final_reads": (FinalRead("t", 0, 3, True, start_offset=1),)},
        ),
        {("lost-write", None, "a"), ("committed-then-lost", 1, "a")},
    ),
    # vouched for
    "one-write-of-an-indeterminate-transaction-is-read": (
        story(txn(("send", 0, "a"), ("send", 1, "b"), type="info"), final((1, "b"))),
        {("lost-write", 0, "a")},
    ),
    "no-write-of-an-indeterminate-transaction-is-read": (
        story(
            txn(("send", 0, "a"), ("send", 1, "b"), type="info"), send("c", 2), final((2, "c")),
        ),
        SILENT,
    ),
    "one-write-of-a-transaction-without-an-end-is-read": (
        story(txn(("send", 0, "a"), ("send", 1, "b"), type="invoke"), final((1, "b"))),
        {("lost-write", 0, "a")},
    ),
    # above the high watermark
    "unseen-and-the-leader-has-it": (
        story(
            leader(0), send("a", 0), send("b", 1, acks="1"), final((0, "a")),
            replicas=[held(0, (0, "a"), (1, "b"), hw=1), held(1, (0, "a"), hw=1)], run=NEVER_LEVEL,
        ),
        {("unproven-loss", 1, "b")},
    ),
    "unseen-and-only-a-follower-has-it": (
        story(
            leader(1), send("a", 0), send("b", 1, acks="1"), final((0, "a")),
            replicas=[held(0, (0, "a"), (1, "b"), hw=1), held(1, (0, "a"), hw=1)], run=NEVER_LEVEL,
        ),
        {("unproven-loss", 1, "b")},
    ),
    # order of sends
    "a-timed-out-send-arrives-after-the-next": (
        story(
            send("a", 0), send("A", None, type="info"), send("b", 1),
            final((0, "a"), (1, "b"), (2, "A")),
        ),
        SILENT,
    ),
    "a-failed-send-is-in-between": (
        story(send("a", 1), send("A", type="fail"), send("b", 0), final((0, "b"), (1, "a"))),
        {("nonmonotonic-send", 0, "b"), ("reordered", 0, "b"), ("G0-realtime", 0, "b")},
    ),
    "a-seek-is-in-between": (
        story(send("a", 1), seek(0), send("b", 0), final((0, "b"), (1, "a"))),
        {("nonmonotonic-send", 0, "b"), ("reordered", 0, "b"), ("G0-realtime", 0, "b")},
    ),
    # read before it was sent, whatever else there is
    "read-before-it-was-sent": (story(poll((0, "a")), send("a", 0), final((0, "a"))),
        {("G1c-realtime", None, None)}),
    "read-by-a-failed-poll-before-it-was-sent": (
        story(unsure((0, "a"), type="fail", phase="main"), send("a", 0), final((0, "a"))), SILENT,
    ),
    "read-by-a-failed-transaction-before-it-was-sent": (
        story(
            txn(("poll", 0, "a"), ("send", None, "x"), type="fail", process=7),
            send("a", 0), final((0, "a")),
        ),
        SILENT,
    ),
    # replicas that call themselves level
    "one-replica-lacks-a-record": (
        story(
            send("a", 0), send("b", 1), AB,
            replicas=[held(0, (0, "a"), (1, "b")), held(1, (1, "b"))],
        ),
        {("replica-hole", 0, None)},
    ),
    "one-replica-lacks-what-lies-below-its-start": (
        story(
            send("a", 0), send("b", 1), AB, RETENTION,
            replicas=[held(0, (0, "a"), (1, "b")), held(1, (1, "b"), start=1)],
        ),
        SILENT,
    ),
    "one-replica-lacks-a-record-and-was-never-level": (
        story(
            send("a", 0), send("b", 1), AB, run=NEVER_LEVEL,
            replicas=[held(0, (0, "a"), (1, "b")), held(1, (1, "b"))],
        ),
        SILENT,
    ),
    "all-replicas-are-empty-though-a-record-was-acknowledged": (
        story(send("a", 0), final((0, "a")), replicas=[held(0), held(1)]),
        {("replica-hole", 0, None)},
    ),
    "all-replicas-are-empty-and-nothing-was-acknowledged": (
        story(send("a", 0, type="fail"), final(), replicas=[held(0), held(1)]), SILENT,
    ),
    # positions of groups; operation n lasts from 10 n to 10 n + 5
    "a-commit-below-the-highest-before-it": (
        story(commit(10), commit(12), commit(8)), {("commit-regression", 8, None)},
    ),
    "an-answer-below-the-highest-before-it": (
        story(commit(10), committed(None)), {("commit-regression", None, None)},
    ),
    "a-commit-of-another-group": (story(commit(10), commit(8, group="other")), SILENT),
    "a-commit-after-a-seek": (story(commit(10), seek(), commit(8)), SILENT),
    "a-commit-after-a-reset": (story(commit(10), reset(8), commit(8)), SILENT),
    "a-commit-after-a-reset-of-another-group": (
        story(commit(10), reset(8, group="other"), commit(8)), {("commit-regression", 8, None)},
    ),
    "a-commit-after-a-reset-that-failed": (
        story(commit(10), reset(8, type="fail"), commit(8)), {("commit-regression", 8, None)},
    ),
    "a-commit-below-the-one-of-the-reset": (
        story(commit(10), reset(8), commit(8), commit(7)), {("commit-regression", 7, None)},
    ),
    "nobody-knows-whether-it-was-reset": (
        story(commit(10), reset(8, type="info"), commit(9), commit(8)), SILENT,
    ),
    "a-commit-that-failed-before": (story(replace(commit(10), type="fail"), commit(8)), SILENT),
    "a-commit-beyond-the-end": (
        story(send("a", 0), commit(5), final((0, "a")), run={"final_reads": (reached(1),)}),
        {("commit-regression", 5, None)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_a_story(name: str) -> None:
    reported, expected = STORIES[name]
    assert set(oracle.judge(reported)) == expected


def test_commits_that_overlap_are_compared_with_the_highest_before() -> None:
    """10 [2–10], 12 [5–20], 8 [15–25]: only the first was acknowledged when the last began."""
    spans = ((10, 2, 10), (12, 5, 20), (8, 15, 25))
    rows = [
        {
            "operation": n, "row": 0, "process": n, "f": "commit", "type": "ok", "key": "g",
            "topic": "t", "partition": 0, "offset": offset, "invoked_ns": invoked,
            "completed_ns": completed,
        }
        for n, (offset, invoked, completed) in enumerate(spans)
    ]  # fmt: skip
    found = oracle.reported(of_rows(rows, run_of()))
    assert found == [("commit-regression", ("t", 0), 8, None)]
    overlapping = [row | {"invoked_ns": 9} for row in rows]
    assert oracle.reported(of_rows(overlapping, run_of())) == []
