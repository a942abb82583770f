"""Every anomaly in the smallest history that shows it, and its twin that must be silent.

All stories are checked in one Spark job; each test then looks at its own. A story's name says what
happens in it. Compared is the whole table of anomalies, as (name, offset, value).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.results.run import Converged, FinalRead
from tests.checkers.conftest import Judge
from tests.checkers.histories import (
    RETENTION,
    Op,
    Story,
    answered,
    appended,
    asked,
    asked_to_end,
    final,
    held,
    marked,
    nemesis,
    poll,
    reached,
    seek,
    send,
    setting,
    state,
)
from tests.checkers.reading import Judged

pytestmark = pytest.mark.spark

Found = set[tuple[str, int | None, str | None]]


def story(*ops: Op, **rest: Any) -> Story:
    return Story(ops, **rest)


def in_isr(
    *rounds: dict[str, Any],
    acks: str = "all",
    version: int | None = None,
    then: tuple[Op, ...] = (),
) -> Story:
    """B is in A's ISR, two records are acknowledged at 15 and 25, and somebody asks."""
    before = state(0, 0, 1, version=version)
    sends = (send("a", 0, acks=acks), send("b", 1, acks=acks))
    return story(before, *sends, *then, final((0, "a"), (1, "b")), rounds=rounds)


def joining(*rounds: dict[str, Any]) -> Story:
    """Two records are acknowledged, somebody asks, and at 35 B is seen to be in the ISR."""
    read = final((0, "a"), (1, "b"))
    return story(state(0, 0), send("a", 0), send("b", 1), state(0, 0, 1), read, rounds=rounds)


def electing(
    *states: Op, unclean: str | None = "false", asks: tuple[dict[str, Any], ...] = ()
) -> Story:
    """A leads, B is in the ISR, C is not: and then."""
    settings = () if unclean is None else (setting("unclean.leader.election.enable", unclean),)
    ops = (*settings, state(0, 0, 1), send("a", 0), *states, final((0, "a")))
    return story(*ops, rounds=[asked(1, at=22), *asks])


def talking(*messages: tuple[dict[str, Any], ...]) -> Story:
    """A record is acknowledged, and producers and coordinators say something."""
    every = [row for rows in messages for row in rows]
    return story(send("a", 0), final((0, "a")), messages=every)


SILENT: Found = set()
KILLED = nemesis('{"kill": {"broker": "B"}}')
NEVER_LEVEL = {"converged": Converged(False, "broker 2 stayed behind")}

# name -> (history, outcome, anomalies)
STORIES: dict[str, tuple[Story, str, Found]] = {
    # lost-write: acknowledged, at or below the highest offset read, in no final read
    "acked-but-the-offset-holds-nothing": (
        story(send("a", 0), send("b", 1), send("c", 2), final((0, "a"), (2, "c"))),
        "lost",
        {("lost-write", 1, "b"), ("int-poll-skip", 2, "c")},
    ),
    "acked-and-read-to-the-end": (
        story(send("a", 0), send("b", 1), send("c", 2), final((0, "a"), (1, "b"), (2, "c"))),
        "held",
        SILENT,
    ),
    "acks-0-leaves-no-offset-and-the-value-is-gone": (
        story(send("a", None, acks="0"), send("b", 0), final((0, "b"))),
        "lost",
        {("lost-write", None, "a")},
    ),
    "acks-0-leaves-no-offset-but-the-value-is-there": (
        story(send("a", None, acks="0"), send("b", 1), final((0, "a"), (1, "b"))),
        "held",
        SILENT,
    ),
    "indeterminate-and-gone": (
        story(send("a", 0), send("b", None, type="info"), final((0, "a"))),
        "held",
        SILENT,
    ),
    "never-completed-but-there": (
        story(send("a", 0), send("b", None, type="invoke"), final((0, "a"), (1, "b"))),
        "held",
        SILENT,
    ),
    "deleted-by-retention-below-the-log-start": (
        story(
            send("a", 0),
            send("b", 1),
            final((1, "b")),
            RETENTION,
            run={"final_reads": (FinalRead("t", 0, 2, True, start_offset=1),)},
        ),
        "held",
        SILENT,
    ),
    "deleted-between-two-polls": (
        story(
            *(send(value, offset) for offset, value in enumerate("abc")),
            poll((0, "a")),
            poll((2, "c")),
            final((2, "c")),
            RETENTION,
            run={"final_reads": (FinalRead("t", 0, 3, True, start_offset=2),)},
        ),
        "held",
        SILENT,
    ),
    "skipped-although-not-deleted": (
        story(
            *(send(value, offset) for offset, value in enumerate("abc")),
            poll((0, "a")),
            poll((2, "c")),
            final((1, "b"), (2, "c")),
            RETENTION,
            run={"final_reads": (FinalRead("t", 0, 3, True, start_offset=1),)},
        ),
        "skipped",
        {("poll-skip", 2, "c")},
    ),
    "lost-above-the-log-start": (
        story(
            *(send(value, offset) for offset, value in enumerate("abc")),
            final((2, "c")),
            RETENTION,
            run={"final_reads": (FinalRead("t", 0, 3, True, start_offset=1),)},
        ),
        "lost",
        {("lost-write", 1, "b")},
    ),
    # null values: known by their key
    "a-null-value-is-gone": (
        story(send(None, 0, key="k"), send("b", 1), final((1, "b"))),
        "lost",
        {("lost-write", 0, "⟨null, key k⟩")},
    ),
    "a-null-value-at-the-end-is-gone": (
        story(send("a", 0), send(None, 1), final((0, "a"))),
        "lost",
        {("unseen", 1, "⟨null⟩")},
    ),
    "a-null-value-without-an-offset-is-gone": (
        story(send(None, None, key="k", acks="0"), send("b", 0), final((0, "b"))),
        "lost",
        {("lost-write", None, "⟨null, key k⟩")},
    ),
    "null-values-are-there": (
        story(
            send(None, 0, key="k"),
            send(None, 1, key="l"),
            send(None, 2),
            send("", 3),
            send("b", 4),
            final((0, None, "k"), (1, None, "l"), (2, None), (3, ""), (4, "b")),
        ),
        "held",
        SILENT,
    ),
    "another-key-was-deleted": (
        story(send(None, 0, key="k"), send("b", 1), final((0, None, "l"), (1, "b"))),
        "lost",
        {
            ("inconsistent-offsets", 0, "⟨null, key k⟩"),
            ("lost-write", 0, "⟨null, key k⟩"),
            ("phantom", 0, "⟨null, key l⟩"),
        },
    ),
    "an-empty-value-is-no-null": (
        story(send(None, 0), send("b", 1), final((0, ""), (1, "b"))),
        "lost",
        {
            ("inconsistent-offsets", 0, ""),
            ("lost-write", 0, "⟨null⟩"),
            ("phantom", 0, ""),
        },
    ),
    # sent-twice: nobody knows which of two records with one value was read
    "two-sends-of-one-value-and-one-is-gone": (
        story(
            send("paid", 0),
            send("paid", 1),
            send("z", None, type="info", process=2),
            final((0, "paid"), (1, "z")),
            replicas=[held(0, (0, "paid"), (1, "z"))],
        ),
        "lost",
        {("sent-twice", 0, "paid"), ("inconsistent-offsets", 1, "paid")},
    ),
    "two-sends-of-one-value-of-which-nobody-knows-whether-one-happened": (
        story(
            send("paid", 0),
            send("paid", None, type="info", process=2),
            final((0, "paid")),
            replicas=[held(0, (0, "paid"))],
        ),
        "unknown",
        {("sent-twice", 0, "paid")},
    ),
    "none-of-two-sends-of-one-value-is-there": (
        story(
            send("paid", 0),
            send("paid", 1),
            send("y", None, type="info", process=2),
            send("z", None, type="info", process=3),
            final((0, "y"), (1, "z")),
            replicas=[held(0, (0, "y"), (1, "z"))],
        ),
        "lost",
        {
            ("sent-twice", 0, "paid"),
            ("inconsistent-offsets", 0, "paid"),
            ("inconsistent-offsets", 1, "paid"),
            ("lost-write", 0, "paid"),
        },
    ),
    "a-value-that-was-sent-again-because-it-surely-failed": (
        story(
            send("paid", None, type="fail"),
            send("paid", 0),
            final((0, "paid")),
            replicas=[held(0, (0, "paid"))],
        ),
        "held",
        SILENT,
    ),
    "two-marks-of-one-value-and-one-is-gone": (
        story(
            send("paid ⟨1⟩", 0),
            send("paid ⟨2⟩", 1),
            send("b", 2),
            send("z", None, type="info", process=2),
            final((0, "paid ⟨1⟩"), (1, "z"), (2, "b")),
            replicas=[held(0, (0, "paid ⟨1⟩"), (1, "z"), (2, "b"))],
        ),
        "lost",
        {("lost-write", 1, "paid ⟨2⟩"), ("inconsistent-offsets", 1, "paid ⟨2⟩")},
    ),
    # G0-realtime: below what was acknowledged before it was sent
    "acknowledged-below-an-earlier-acknowledgement": (
        story(
            send("x", 0),
            send("a", 2),
            send("b", 1, process=2),
            final((0, "x"), (1, "b"), (2, "a")),
            replicas=[held(0, (0, "x"), (1, "b"), (2, "a"))],
        ),
        "reordered",
        {("G0-realtime", 1, "b")},
    ),
    "acknowledged-below-one-that-was-still-under-way": (
        story(
            send("x", 0),
            replace(send("a", 2), at=(10, 15)),
            replace(send("b", 1, process=2), at=(15, 20)),
            final((0, "x"), (1, "b"), (2, "a")),
            replicas=[held(0, (0, "x"), (1, "b"), (2, "a"))],
        ),
        "held",
        SILENT,
    ),
    # unseen: acknowledged above everything that was ever read
    "acked-tail-that-nobody-read": (
        story(send("a", 0), send("b", 1), final((0, "a"))),
        "lost",
        {("unseen", 1, "b")},
    ),
    "acked-but-the-log-is-empty": (
        story(send("a", 0), final(), run={"final_reads": (reached(0),)}),
        "lost",
        {("unseen", 0, "a")},
    ),
    # committed-then-lost: a consumer had it
    "read-then-gone": (
        story(send("a", 0), send("b", 1), poll((0, "a"), (1, "b")), final((0, "a"))),
        "lost",
        {("lost-write", 1, "b"), ("committed-then-lost", 1, "b")},
    ),
    "read-and-still-there": (
        story(send("a", 0), send("b", 1), poll((0, "a"), (1, "b")), final((0, "a"), (1, "b"))),
        "held",
        SILENT,
    ),
    "indeterminate-was-read-then-gone": (
        story(send("a", 0), send("b", type="info"), poll((0, "a"), (1, "b")), final((0, "a"))),
        "lost",
        {("committed-then-lost", 1, "b")},
    ),
    # inconsistent-offsets: one offset, two records
    "overwritten-after-the-ack": (
        story(send("a", 0), send("b", 1), send("c", 1), final((0, "a"), (1, "c"))),
        "lost",
        {("lost-write", 1, "b"), ("inconsistent-offsets", 1, "b")},
    ),
    "two-readers-disagree": (
        story(
            send("a", 0),
            send("b", type="info"),
            poll((0, "a")),
            poll((0, "b"), process=2),
            final((0, "a")),
        ),
        "lost",
        {("inconsistent-offsets", 0, "a"), ("committed-then-lost", 0, "b")},
    ),
    "two-partitions-share-an-offset": (
        story(
            send("a", 0),
            send("b", 0, partition=1),
            final((0, "a")),
            final((0, "b"), partition=1),
            run={"final_reads": (reached(), reached(partition=1))},
        ),
        "held",
        SILENT,
    ),
    # duplicate: one record, two offsets
    "sent-once-there-twice": (
        story(send("a", 0), final((0, "a"), (1, "a"))),
        "duplicated",
        {("duplicate", 1, "a")},
    ),
    "sent-once-there-twice-at-least-once-was-asked-for": (
        story(
            send("a", 0), final((0, "a"), (1, "a")), run={"clients": {"idempotence": False}}
        ),
        "held",
        {("duplicate", 1, "a")},
    ),
    "read-twice-at-one-offset": (
        story(send("a", 0), poll((0, "a")), poll((0, "a"), process=2), final((0, "a"))),
        "held",
        SILENT,
    ),
    # nonmonotonic-poll, and inside one poll
    "consumer-goes-back": (
        story(
            send("a", 0), send("b", 1), poll((1, "b")), poll((0, "a")), final((0, "a"), (1, "b"))
        ),
        "duplicated",
        {("nonmonotonic-poll", 0, "a")},
    ),
    "consumer-goes-back-after-a-seek": (
        story(
            send("a", 0), send("b", 1), poll((1, "b")), seek(), poll((0, "a")),
            final((0, "a"), (1, "b")),
        ),
        "held",
        SILENT,
    ),
    "another-consumer-begins-anew": (
        story(
            send("a", 0), send("b", 1), poll((1, "b")), poll((0, "a"), process=2),
            final((0, "a"), (1, "b"), process=1),
        ),
        "held",
        SILENT,
    ),
    "one-poll-goes-back": (
        story(send("a", 0), send("b", 1), poll((1, "b"), (0, "a")), final((0, "a"), (1, "b"))),
        "reordered",
        {("int-nonmonotonic-poll", 0, "a")},
    ),
    "group-consumer-goes-back": (
        story(
            send("a", 0), send("b", 1), poll((1, "b")), poll((0, "a")), final((0, "a"), (1, "b")),
            run={"clients": {"subscribe": True}},
        ),
        "held",
        {("nonmonotonic-poll", 0, "a")},
    ),
    # poll-skip: over a record that is known to be there
    "consumer-skips-a-record": (
        story(
            send("a", 0), send("b", 1), send("c", 2), poll((0, "a")), poll((2, "c")),
            final((0, "a"), (1, "b"), (2, "c")),
        ),
        "skipped",
        {("poll-skip", 2, "c")},
    ),
    "consumer-skips-a-transaction-marker": (
        story(
            send("a", 0), send("c", 2), poll((0, "a")), poll((2, "c")), final((0, "a"), (2, "c"))
        ),
        "held",
        SILENT,
    ),
    "skips-behind-an-offset-that-holds-two-records": (
        story(
            send("a", 0), send("x", 0), send("b", 1), send("c", 2), poll((0, "a")), poll((2, "c")),
            final((0, "a"), (1, "b"), (2, "c")),
        ),
        "lost",
        {("inconsistent-offsets", 0, "a"), ("lost-write", 0, "x"), ("poll-skip", 2, "c")},
    ),
    "a-null-value-that-nobody-sent-is-read": (
        story(send("c", 2), poll((0, None)), poll((2, "c")), final((2, "c"))),
        "lost",
        {("phantom", 0, "⟨null⟩"), ("committed-then-lost", 0, "⟨null⟩")},
    ),
    # reordered: two acknowledged sends of one process, swapped in the log
    "one-process-overtaken-by-its-retry": (
        story(send("a", 1), send("b", 0), final((0, "b"), (1, "a"))),
        "reordered",
        {("reordered", 0, "b"), ("nonmonotonic-send", 0, "b"), ("G0-realtime", 0, "b")},
    ),
    "one-process-overtaken-by-its-retry-where-no-order-was-asked-for": (
        story(
            send("a", 1), send("b", 0), final((0, "b"), (1, "a")),
            run={"clients": {"idempotence": False}},
        ),
        "held",
        {("reordered", 0, "b"), ("nonmonotonic-send", 0, "b"), ("G0-realtime", 0, "b")},
    ),
    "two-processes-in-any-order": (
        story(
            replace(send("a", 1), at=(0, 10)),
            replace(send("b", 0, process=5), at=(5, 15)),
            final((0, "b"), (1, "a")),
        ),
        "held",
        SILENT,
    ),
    "two-processes-one-after-the-other": (  # which Jepsen allows, in histories of its own
        story(send("a", 1), send("b", 0, process=5), final((0, "b"), (1, "a"))),
        "held",
        {("G0-realtime", 0, "b")},
    ),
    "sent-at-a-lower-offset-after-a-loss": (
        story(send("a", 0), send("b", 1), send("c", 2), send("d", 1), final((0, "a"), (1, "d"))),
        "lost",
        {
            ("lost-write", 1, "b"), ("unseen", 2, "c"), ("inconsistent-offsets", 1, "b"),
            ("nonmonotonic-send", 1, "d"), ("G0-realtime", 1, "d"),
        },
    ),
    # G1a: surely failed, and there
    "failed-but-read": (
        story(send("a", 0), send("b", type="fail"), final((0, "a"), (1, "b"))),
        "anomalous",
        {("G1a", 1, "b")},
    ),
    "failed-and-not-read": (
        story(send("a", 0), send("b", type="fail"), final((0, "a"))),
        "held",
        SILENT,
    ),
    # phantom: nobody sent it
    "read-but-never-sent": (
        story(send("a", 0), final((0, "a"), (1, "ghost"))),
        "anomalous",
        {("phantom", 1, "ghost")},
    ),
    # replica-divergence
    "two-replicas-differ-at-one-offset": (
        story(
            send("a", 0), send("b", 1), final((0, "a"), (1, "b")),
            replicas=[held(0, (0, "a"), (1, "b")), held(1, (0, "a"), (1, "x"))],
        ),
        "diverged",
        {("replica-divergence", 1, "b")},
    ),
    "one-replica-is-shorter": (
        story(
            send("a", 0), send("b", 1), final((0, "a"), (1, "b")),
            replicas=[held(0, (0, "a"), (1, "b")), held(1, (0, "a")), held(2)],
        ),
        "diverged",
        {("replica-hole", 1, None), ("replica-hole", 0, None)},
    ),
    "same-record-under-two-epochs": (
        story(
            send("a", 0), final((0, "a")),
            replicas=[held(0, (0, "a"), epoch=1), held(1, (0, "a"), epoch=2)],
        ),
        "diverged",
        {("replica-divergence", 0, "a")},
    ),
    "same-record-in-a-format-without-epochs": (
        story(
            send("a", 0), final((0, "a")),
            replicas=[held(0, (0, "a"), epoch=1), held(1, (0, "a"), epoch=None)],
        ),
        "held",
        SILENT,
    ),
    "never-level-but-differ-below-the-high-watermark": (
        story(
            send("a", 0), final((0, "a")),
            replicas=[held(0, (0, "a"), hw=1), held(1, (0, "x"), hw=1)], run=NEVER_LEVEL,
        ),
        "diverged",
        {("replica-divergence", 0, "a")},
    ),
    "never-level-and-differ-above-the-high-watermark": (
        story(
            send("a", 0), final((0, "a")),
            replicas=[held(0, (0, "a"), hw=1), held(1, (0, "x"), hw=0)], run=NEVER_LEVEL,
        ),
        "unknown",
        {("unproven-difference", 0, "a")},
    ),
    # protocol-violation: a member of the ISR lacks what was acknowledged
    "a-member-of-the-isr-lacks-a-record": (
        in_isr(asked(1, at=30)),
        "anomalous",
        {("protocol-violation", 1, None)},
    ),
    "a-member-of-the-isr-has-all": (in_isr(asked(2, at=30)), "held", SILENT),
    "a-member-asked-before-it-was-acknowledged": (in_isr(asked(1, at=24)), "held", SILENT),
    "who-is-not-in-the-isr-may-lack-it": (in_isr(asked(1, at=30, follower=2)), "held", SILENT),
    "a-request-to-an-earlier-leader-says-nothing": (
        in_isr(asked(1, at=30, leader=2), asked(1, at=31, epoch=-1)),
        "held",
        SILENT,
    ),
    "what-one-replica-acknowledged-others-may-lack": (
        in_isr(asked(1, at=30), acks="1"),
        "held",
        SILENT,
    ),
    "who-leaves-the-isr-may-have-left-before-that-is-seen": (
        in_isr(asked(1, at=30), then=(state(0, 0),)),
        "held",
        SILENT,
    ),
    "it-stays-in-the-isr": (
        in_isr(asked(1, at=30), then=(state(0, 0, 1, 2),)),
        "anomalous",
        {("protocol-violation", 1, None)},
    ),
    "a-state-was-missed-in-which-it-may-have-left": (
        in_isr(asked(1, at=30), version=1, then=(state(0, 0, 1, version=3),)),
        "held",
        SILENT,
    ),
    "no-state-was-missed": (
        in_isr(asked(1, at=30), version=1, then=(state(0, 0, 1, 2, version=2),)),
        "anomalous",
        {("protocol-violation", 1, None)},
    ),
    "a-power-failure-takes-records-away": (
        in_isr(asked(1, at=40), then=(nemesis('{"power_off": {"broker": "B"}}'),)),
        "held",
        {("explained-violation", 1, None)},
    ),
    "a-power-failure-that-came-later-explains-nothing": (
        in_isr(asked(1, at=29), then=(nemesis('{"power_off": {"broker": "B"}}'),)),
        "anomalous",
        {("protocol-violation", 1, None)},
    ),
    "a-kill-takes-nothing-away": (
        in_isr(asked(1, at=40), then=(nemesis('{"kill": {"broker": "B"}}'),)),
        "anomalous",
        {("protocol-violation", 1, None)},
    ),
    "taken-into-the-isr-too-early": (
        joining(asked(1, at=28, delivered=False)),
        "anomalous",
        {("protocol-violation", 1, None)},
    ),
    "taken-into-the-isr-when-it-had-asked-for-the-rest": (
        joining(asked(1, at=26), asked(2, at=29, round=2)),
        "held",
        SILENT,
    ),
    "the-request-by-which-it-joined-is-not-recorded": (joining(asked(1, at=28)), "held", SILENT),
    # protocol-violation: an unclean election
    "one-outside-the-isr-is-elected": (
        electing(state(2, 2, epoch=1)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "one-of-the-isr-is-elected": (electing(state(1, 1, epoch=1)), "held", SILENT),
    "nobody-is-elected": (electing(state(None, 0, epoch=1)), "held", SILENT),
    "who-leads-loses-a-follower": (electing(state(0, 0, epoch=1)), "held", SILENT),
    "one-that-is-eligible-is-elected": (
        electing(state(None, epoch=1, eligible=(2,)), state(2, 2, epoch=2)),
        "held",
        SILENT,
    ),
    "one-that-is-not-eligible-is-elected": (
        electing(state(None, epoch=1, eligible=(1,)), state(2, 2, epoch=2)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "the-last-known-leader-is-elected-where-nobody-is-left-who-might-lead": (
        electing(state(None, epoch=1, eligible=(0,)), state(None, epoch=2), state(0, 0, epoch=3)),
        "held",
        {("explained-violation", None, None)},
    ),
    "another-is-elected-where-nobody-is-left-who-might-lead": (
        electing(state(None, epoch=1, eligible=(0,)), state(None, epoch=2), state(1, 1, epoch=3)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "the-last-known-leader-is-elected-where-another-might-lead": (
        electing(state(None, epoch=1, eligible=(1,)), state(0, 0, epoch=2)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "the-last-known-leader-is-elected-and-who-might-lead-was-killed": (
        electing(KILLED, state(None, epoch=1, eligible=(1,)), state(0, 0, epoch=2)),
        "held",
        {("explained-violation", None, None)},
    ),
    "the-last-known-leader-is-elected-and-who-might-lead-was-killed-before-it-led": (
        electing(
            KILLED,
            state(0, 0, 1, epoch=1),
            state(None, epoch=2, eligible=(1,)),
            state(0, 0, epoch=3),
        ),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "the-last-known-leader-is-elected-and-one-of-the-isr-was-killed": (
        electing(KILLED, state(None, 1, epoch=1), state(0, 0, epoch=2)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "another-is-elected-and-who-might-lead-was-killed": (
        electing(KILLED, state(None, epoch=1, eligible=(1,)), state(2, 2, epoch=2)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "one-outside-the-isr-is-elected-which-is-allowed": (
        electing(state(2, 2, epoch=1), unclean="true"),
        "held",
        {("explained-violation", None, None)},
    ),
    "one-outside-the-isr-is-elected-and-nobody-knows-whether-it-is-allowed": (
        electing(state(2, 2, epoch=1), unclean=None),
        "held",
        {("explained-violation", None, None)},
    ),
    "one-outside-the-isr-is-elected-as-somebody-wanted": (
        electing(nemesis('{"elect": {"election": "unclean"}}'), state(2, 2, epoch=1)),
        "held",
        {("explained-violation", None, None)},
    ),
    "one-outside-the-isr-is-elected-and-another-election-was-wanted": (
        electing(nemesis('{"elect": {"election": "preferred"}}'), state(2, 2, epoch=1)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "the-state-in-which-it-joined-may-have-been-missed": (
        electing(state(0, 0, 1, version=1), state(2, 2, epoch=1, version=3)),
        "held",
        SILENT,
    ),
    "a-reassignment-ends-with-a-new-leader": (
        electing(state(0, 0, replicas=(0, 2)), state(2, 2, epoch=1, replicas=(2,))),
        "held",
        SILENT,
    ),
    "after-an-unclean-election-records-are-missing": (
        electing(
            state(2, 2, epoch=1),
            state(2, 2, 1, epoch=1),
            asks=(asked(0, at=70, leader=2, epoch=1) | {"high_watermark": 1},),
        ),
        "anomalous",
        {("protocol-violation", None, None), ("explained-violation", 0, None)},
    ),
    # protocol-violation: two leaders in one epoch
    "two-lead-in-one-epoch": (
        story(send("a", 0), final((0, "a")), rounds=[asked(1, at=30), asked(1, at=40, leader=2)]),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "two-lead-one-after-the-other": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[asked(1, at=30), asked(1, at=40, leader=2, epoch=1)],
        ),
        "held",
        SILENT,
    ),
    # protocol-violation: a marker ends what was written after it was sent
    "a-late-marker-ends-a-later-write": (
        talking(appended(10), marked(20, 50), appended(30, sequence=1)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "a-late-marker-ends-a-later-write-although-another-came-before": (
        talking(appended(10), marked(20, 50), marked(22, 24), appended(30, sequence=1)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "a-marker-ends-what-was-written-before": (
        talking(appended(10), appended(30, sequence=1), marked(40, 50)),
        "held",
        SILENT,
    ),
    "a-late-marker-comes-when-the-later-transaction-has-ended": (
        talking(appended(10), marked(20, 50), appended(30, sequence=1), marked(40, 42)),
        "held",
        SILENT,
    ),
    "a-late-marker-comes-before-the-later-write": (
        talking(appended(10), marked(20, 25), appended(30, sequence=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-never-comes": (
        talking(appended(10), marked(20), appended(30, sequence=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-and-the-later-write-is-refused": (
        talking(appended(10), marked(20, 50), appended(30, sequence=1, error=48)),
        "held",
        SILENT,
    ),
    "a-late-marker-and-nobody-answers-the-later-write": (
        talking(appended(10), marked(20, 50), appended(30, sequence=1, error=None)),
        "held",
        SILENT,
    ),
    "a-late-marker-is-refused": (
        talking(appended(10), marked(20, 50, error=47), marked(22, 24), appended(30, sequence=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-and-nobody-answers-it": (
        talking(appended(10), marked(20, 50, error=None), appended(30, sequence=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-of-another-producer": (
        talking(appended(10), marked(20, 50), appended(30, producer=8)),
        "held",
        SILENT,
    ),
    "a-late-marker-of-an-earlier-epoch": (
        talking(appended(10), marked(20, 50), appended(30, epoch=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-of-another-partition": (
        talking(appended(10), marked(20, 50, partition=1), appended(30, sequence=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-for-who-led-before": (
        talking(appended(10), marked(20, 50), appended(30, sequence=1, leader=1)),
        "held",
        SILENT,
    ),
    "a-late-marker-and-a-later-write-without-a-transaction": (
        talking(appended(10), marked(20, 50), appended(30, sequence=1, transactional=False)),
        "held",
        SILENT,
    ),
    "a-write-that-is-sent-again-was-sent-when-it-was-sent-first": (
        talking(appended(10, error=None), marked(20, 50), appended(30)),
        "held",
        SILENT,
    ),
    # protocol-violation: a request to end a transaction ends the next one
    "a-late-request-to-end-ends-a-later-write": (
        talking(asked_to_end(10, 50), asked_to_end(12, 13), appended(30), marked(60, 62)),
        "anomalous",
        {("protocol-violation", None, None)},
    ),
    "a-request-to-end-is-sent-after-the-write": (
        talking(asked_to_end(10, 13), appended(30), asked_to_end(40, 50), marked(60, 62)),
        "held",
        SILENT,
    ),
    "a-late-request-to-end-and-the-right-one": (
        talking(asked_to_end(10, 50), appended(30), asked_to_end(40, 41), marked(60, 62)),
        "held",
        SILENT,
    ),
    "a-late-request-to-end-comes-before-the-write": (
        talking(asked_to_end(10, 25), appended(30), marked(60, 62)),  # as where its time was over
        "held",
        SILENT,
    ),
    "a-late-request-to-end-comes-after-the-marker": (
        talking(asked_to_end(10, 65), appended(30), marked(60, 62)),
        "held",
        SILENT,
    ),
    "a-late-request-to-end-never-comes": (
        talking(asked_to_end(10), appended(30), marked(60, 62)),
        "held",
        SILENT,
    ),
    "a-late-request-to-end-of-an-earlier-epoch": (
        talking(asked_to_end(10, 50), appended(30, epoch=1), marked(60, 62, epoch=1)),
        "held",
        SILENT,
    ),
    "a-late-request-to-end-and-the-write-is-refused": (
        talking(asked_to_end(10, 50), appended(30, error=48), marked(60, 62)),
        "held",
        SILENT,
    ),
    "a-late-request-to-end-of-another-producer": (
        talking(asked_to_end(10, 50, producer=8), appended(30), marked(60, 62)),
        "held",
        SILENT,
    ),
    "who-does-not-lead-refuses": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[asked(1, at=30), asked(1, at=40, leader=2) | {"error": 6}],
        ),
        "held",
        SILENT,
    ),
    # high-watermark-regression
    "one-leader-takes-its-high-watermark-back": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[answered(2, at=10), answered(1, at=20, round=2)],
        ),
        "anomalous",
        {("high-watermark-regression", 1, None)},
    ),
    "responses-to-two-followers-overtake-each-other": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[answered(2, at=10, follower=1), answered(1, at=20, follower=2)],
        ),
        "held",
        SILENT,
    ),
    "a-new-leader-begins-behind": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[answered(2, at=10), answered(1, at=20, leader=1, follower=0, epoch=1)],
        ),
        "held",
        {("high-watermark-regression-at-election", 1, None)},
    ),
    "nobody-knows-the-epoch": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[answered(2, at=10, epoch=None), answered(1, at=20, epoch=None)],
        ),
        "held",
        SILENT,
    ),
    "an-error-carries-no-high-watermark": (
        story(
            send("a", 0), final((0, "a")),
            rounds=[answered(2, at=10), answered(-1, at=15, error=6), answered(0, at=16, error=6),
                    answered(2, at=20)],
        ),
        "held",
        SILENT,
    ),
    # nothing was ever acknowledged
    "no-write-was-ever-acked": (
        story(send("a", type="fail"), send("b", type="info"), final()),
        "unavailable",
        SILENT,
    ),
    "nobody-wrote": (story(final()), "unknown", SILENT),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> dict[str, Judged]:
    return judge({name: anomalous_story for name, (anomalous_story, _, _) in STORIES.items()})


@pytest.mark.parametrize("name", STORIES)
def test_story(verdicts: dict[str, Judged], name: str) -> None:
    _, outcome, anomalies = STORIES[name]
    assert verdicts[name].found == anomalies
    assert len(verdicts[name].rows) == len(anomalies)
    assert verdicts[name].verdict.outcome == outcome, verdicts[name].verdict.reasons


def test_verdict_follows_what_counts(verdicts: dict[str, Judged]) -> None:
    assert verdicts["read-then-gone"].verdict.verdict == "anomalous"
    assert verdicts["read-and-still-there"].verdict.verdict == "valid"
    assert verdicts["a-new-leader-begins-behind"].verdict.verdict == "valid"
    assert verdicts["group-consumer-goes-back"].verdict.verdict == "valid"
    assert verdicts["failed-but-read"].verdict.verdict == "anomalous"


def test_every_operation_is_counted_once(verdicts: dict[str, Judged]) -> None:
    assert verdicts["acked-and-read-to-the-end"].verdict.operations == 4
    assert verdicts["nobody-wrote"].verdict.operations == 1


def test_a_loss_says_who_acknowledged_and_who_read(verdicts: dict[str, Judged]) -> None:
    assert verdicts["read-then-gone"].evidence("lost-write") == {
        "acks": "all",
        "acknowledged_ns": 15,
        "first_read_ns": 25,
        "highest_read": 1,
    }


def test_a_divergence_says_who_holds_what(verdicts: dict[str, Judged]) -> None:
    evidence = verdicts["two-replicas-differ-at-one-offset"].evidence("replica-divergence")
    assert evidence["differs"] == "record"
    assert (evidence["broker"], evidence["other_broker"]) == (0, 1)
    assert evidence["other_value"] == "x"
    epochs = verdicts["same-record-under-two-epochs"].evidence("replica-divergence")
    assert epochs["differs"] == "leader_epoch"


def test_two_values_at_one_offset_are_both_named(verdicts: dict[str, Judged]) -> None:
    evidence = verdicts["overwritten-after-the-ack"].evidence("inconsistent-offsets")
    assert evidence["other_value"] == "c"
    assert (evidence["sent_by"], evidence["other_sent_by"]) == (1, 2)
