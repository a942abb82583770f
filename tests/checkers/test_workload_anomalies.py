"""Anomalies of the workloads: each in a tiny history, beside a twin that is silent.

Keys, transactions, banks, streams, groups: what is found beside what other rules find there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.checkers import oracle_workloads
from tests.checkers.conftest import Judge
from tests.checkers.histories import (
    COMPACT,
    Op,
    Story,
    commit,
    committed,
    final,
    poll,
    reached,
    reset,
    send,
    setting,
    txn,
)
from tests.checkers.reading import Judged

pytestmark = pytest.mark.spark

END = {"final_reads": (reached(9),)}


def story(*ops: Op, **run: Any) -> Story:
    return Story(in_one_moment(ops), run=run or END)


def in_one_moment(ops: Sequence[Op]) -> tuple[Op, ...]:
    """A commit right behind a reset is its own: it begins with it, and ends before it."""
    return tuple(
        replace(op, at=(10 * (n - 1), 10 * (n - 1) + 4))
        if (ops[n - 1].f, op.f, op.at) == ("reset", "commit", None)
        else op
        for n, op in enumerate(ops)
    )


def row(f: str, *, process: int = 1, phase: str = "main", **fields: Any) -> Op:
    return Op(f, process, "ok", ({"topic": "t", "partition": 0, **fields},), phase)


def keyed(op: Op, *keys: str) -> Op:
    """The same with a key for each of its rows."""
    rows = tuple({**one, "key": key} for one, key in zip(op.rows, keys, strict=True))
    return Op(op.f, op.process, op.type, rows, op.phase)


def stable(offset: int, high_watermark: int, phase: str = "final") -> Op:
    return row("stable", offset=offset, value=str(high_watermark), phase=phase)


def summed(offset: int, process: int = 1) -> Op:
    return row("sum", offset=offset, process=process)


def process(offset: int, by: int = 1) -> Op:
    return row("process", offset=offset, key="g", process=by)


def acquired(*offsets: int, by: int = 1, count: int = 1, group: str = "s") -> Op:
    """A member of a share group is given records."""
    at = {"topic": "t", "partition": 0, "key": group, "value": str(count)}
    return Op("acquire", by, "ok", tuple({**at, "offset": offset} for offset in offsets))


def acknowledged(
    *offsets: int, how: str = "accept", by: int = 1, type: str = "ok", group: str = "s"
) -> Op:
    at = {"topic": "t", "partition": 0, "key": group, "value": how}
    return Op("acknowledge", by, type, tuple({**at, "offset": offset} for offset in offsets))


def rests(by: int = 1, group: str = "s") -> Op:
    return row("share-rest", key=group, process=by)


def owner(f: str, by: int) -> Op:
    return row(f, key="g", process=by)


def sets(before: int | None, to: int, type: str = "ok") -> tuple[Op, ...]:
    """As a member resets the position of its group: it asks for it, resets, and commits."""
    return committed(before), reset(to, before, type=type), replace(commit(to), type=type)


TIMEOUT = setting("transaction.timeout.ms", "0")
AT_LEAST = (setting("delivery", "at-least-once"), setting("auto.offset.reset", "earliest"))
AT_MOST = (setting("delivery", "at-most-once"), setting("auto.offset.reset", "earliest"))
NEITHER = (setting("delivery", "neither"), setting("auto.offset.reset", "other"))
PAID = txn(("send", 0, "5/a"), ("send", 1, "-5/b"))
TWO_PAID = (PAID, txn(("send", 2, "7/c"), ("send", 3, "-7/d"), process=2))
ALL_PAID = final((0, "5/a"), (1, "-5/b"), (2, "7/c"), (3, "-7/d"))
SENT = (send("a", 0), send("b", 1))
AB = final((0, "a"), (1, "b"))
SENT3 = (*SENT, send("c", 2))
ABC = final((0, "a"), (1, "b"), (2, "c"))
OUTPUT = setting("each.input", "in")
SHARED = (setting("share.group", "s"), *SENT)


def source(end: int) -> Op:
    return row("source", offset=end, key="in-0")


def outputs(*sources: int) -> tuple[Op, Op]:
    """Sent and read: the n-th output is of this input."""
    keys = [f"in-0@{n}" for n in sources]
    sent = txn(*(("send", n, f"o{n}") for n in range(len(sources))))
    return keyed(sent, *keys), keyed(final(*((n, f"o{n}") for n in range(len(sources)))), *keys)


def done_both(position: int = 2) -> tuple[Op, ...]:
    """Committed either way, so that it is fine at least once and at most once."""
    return commit(position), process(0), process(1), commit(position)


def of_another(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(replace(op, rows=tuple({**row, "key": "other"} for row in op.rows)) for op in ops)


def final_at(op: Op, invoked_ns: int) -> Op:
    return replace(op, at=(invoked_ns, invoked_ns + 5))


# name -> (history, names of the anomalies found, verdict)
STORIES: dict[str, tuple[Story, set[str], str]] = {
    # --- keys
    "the-newest-value-of-a-key-is-gone": (
        story(
            COMPACT, keyed(send("a", 0), "k"), keyed(send("b", 1), "k"), keyed(final((0, "a")), "k")
        ),
        {"newest-lost", "unseen"}, "anomalous",
    ),
    "the-newest-value-of-a-key-is-there": (
        story(
            COMPACT, keyed(send("a", 0), "k"), keyed(send("b", 1), "k"), keyed(final((1, "b")), "k")
        ),
        set(), "valid",
    ),
    "a-later-value-that-nobody-acknowledged-is-there": (
        story(
            COMPACT, keyed(send("a", 0), "k"), keyed(send("b", 1), "k"),
            keyed(send("c", type="info"), "k"), keyed(final((2, "c")), "k"),
        ),
        set(), "valid",
    ),
    "an-older-value-is-gone-that-nobody-compacts": (
        story(keyed(send("a", 0), "k"), keyed(send("b", 1), "k"), keyed(final((1, "b")), "k")),
        {"lost-write"}, "anomalous",
    ),
    "a-consumer-reads-over-what-was-compacted": (
        story(
            COMPACT, keyed(send("a", 0), "k"), keyed(send("b", 1), "j"), keyed(send("c", 2), "j"),
            keyed(poll((0, "a"), (2, "c")), "k", "j"), keyed(final((0, "a"), (2, "c")), "k", "j"),
        ),
        set(), "valid",
    ),
    "what-was-compacted-had-been-read": (
        story(
            COMPACT, keyed(send("a", 0), "k"), keyed(send("b", 1), "k"),
            keyed(poll((0, "a"), (1, "b")), "k", "k"), keyed(final((1, "b")), "k"),
        ),
        set(), "valid",
    ),
    # --- transactions
    "of-an-unknown-transaction-one-record-is-there": (
        story(
            TIMEOUT, txn(("send", None, "a"), ("send", None, "b"), type="info"), final((0, "a"))
        ),
        {"torn-transaction"}, "anomalous",
    ),
    "of-an-unknown-transaction-both-records-are-there": (
        story(TIMEOUT, txn(("send", None, "a"), ("send", None, "b"), type="info"), AB),
        set(), "unknown",
    ),
    "of-a-committed-transaction-one-record-is-there": (
        story(TIMEOUT, txn(("send", 0, "a"), ("send", 1, "b")), final((0, "a"))),
        {"torn-transaction", "unseen"}, "anomalous",
    ),
    "a-committed-transaction-is-gone": (
        story(
            TIMEOUT, send("x", 2, process=3),
            txn(("send", 0, "a"), ("send", 1, "b")), final((2, "x"))
        ),
        {"lost-write", "G0-realtime"}, "anomalous",
    ),
    # --- banks
    "a-reader-sees-half-a-transfer": (
        story(
            *TWO_PAID, poll((0, "5/a"), (2, "7/c"), (3, "-7/d")), summed(4), ALL_PAID,
        ),
        {"wrong-sum", "int-poll-skip"}, "anomalous",
    ),
    "a-reader-sees-whole-transfers": (
        story(*TWO_PAID, poll((0, "5/a"), (1, "-5/b")), summed(2), ALL_PAID), set(), "valid",
    ),
    "a-transfer-reaches-beyond-what-was-read": (
        story(
            txn(("send", 0, "5/a"), ("send", 2, "-5/b")), txn(("send", 1, "7/c"), process=2),
            poll((0, "5/a")), summed(1), final((0, "5/a"), (1, "7/c"), (2, "-5/b")),
        ),
        # 7 was sent without its other half
        {"wrong-sum", "int-send-skip", "G0", "G0-realtime"}, "anomalous",
    ),
    "two-transfers-in-each-other": (
        story(
            txn(("send", 0, "5/a"), ("send", 2, "-5/b")),
            txn(("send", 1, "7/c"), ("send", 3, "-7/d"), process=2),
            poll((0, "5/a")), summed(1), poll((1, "7/c"), (2, "-5/b")), summed(3),
            final((0, "5/a"), (1, "7/c"), (2, "-5/b"), (3, "-7/d")),
        ),
        {"int-send-skip", "G0", "G0-realtime"}, "valid",
    ),
    # --- last stable offsets
    "the-last-stable-offset-stands-still": (
        story(TIMEOUT, *SENT, stable(1, 2), stable(1, 2), AB), {"hanging-transaction"}, "anomalous",
    ),
    "the-last-stable-offset-moves-at-last": (
        story(TIMEOUT, *SENT, stable(1, 2), stable(1, 2), stable(2, 2), AB), set(), "valid",
    ),
    "the-last-stable-offset-stands-still-for-less": (
        story(
            setting("transaction.timeout.ms", "10000"), *SENT, stable(1, 2), stable(1, 2), AB
        ),
        set(), "valid",
    ),
    # --- streams
    "an-input-has-two-outputs": (
        story(OUTPUT, *outputs(0, 1, 1), source(2)), {"input-twice"}, "anomalous",
    ),
    "each-input-has-one-output": (story(OUTPUT, *outputs(0, 1, 2), source(3)), set(), "valid"),
    "an-input-has-no-output": (
        story(OUTPUT, *outputs(0, 2), source(3)), {"input-missing"}, "anomalous",
    ),
    "the-first-input-has-no-output": (
        story(OUTPUT, *outputs(1, 2), source(3)), {"input-missing"}, "anomalous",
    ),
    "the-last-input-has-no-output": (
        story(OUTPUT, *outputs(0, 1), source(3)), {"input-missing"}, "anomalous",
    ),
    "nobody-says-which-inputs-there-were": (
        story(OUTPUT, *outputs(0, 1)), {"unproven-stream"}, "unknown",
    ),
    # --- groups
    "a-committed-position-passes-over-a-record": (
        story(*AT_LEAST, *SENT, process(0), commit(2), AB), {"unprocessed"}, "anomalous",
    ),
    "a-record-behind-the-position-is-not-processed-yet": (
        story(*AT_LEAST, *SENT, process(0), commit(1), AB), set(), "valid",
    ),
    "at-most-once-passes-over-a-record": (
        story(*AT_MOST, *SENT, process(0), commit(2), AB), {"skipped-by-commit"}, "valid",
    ),
    "before-where-a-group-began-nothing-is-passed-over": (
        story(*NEITHER, *SENT, process(1), commit(2), AB), set(), "valid",
    ),
    "at-most-once-processes-twice": (
        story(*AT_MOST, *SENT, process(0), process(1), process(1, 2), commit(2), AB),
        {"processed-twice"}, "anomalous",
    ),
    "at-least-once-processes-again": (
        story(*AT_LEAST, *SENT, process(0), process(1), process(1, 2), commit(2), AB),
        {"processed-again"}, "valid",
    ),
    # --- groups that reset their positions
    "a-record-is-processed-again-behind-a-reset-back-over-it": (
        story(*AT_MOST, *SENT, *done_both(), *sets(2, 1), process(1), commit(2), AB),
        set(), "valid",
    ),
    "and-a-third-time": (
        story(*AT_MOST, *SENT, *done_both(), *sets(2, 1), process(1), process(1), commit(2), AB),
        {"processed-twice"}, "anomalous",
    ),
    "and-the-record-before-it-too": (
        story(*AT_MOST, *SENT, *done_both(), *sets(2, 1), process(0), process(1), commit(2), AB),
        {"processed-twice"}, "anomalous",
    ),
    "a-record-is-processed-again-before-the-reset": (
        story(*AT_MOST, *SENT, *done_both(), process(1), *sets(2, 1), commit(2), AB),
        {"processed-twice"}, "anomalous",
    ),
    "a-record-is-processed-again-that-the-position-was-not-behind": (
        story(*AT_MOST, *SENT, *done_both(1), *sets(1, 0), process(0), process(1), AB),
        {"processed-twice"}, "anomalous",
    ),
    "at-least-once-a-record-is-processed-again-behind-a-reset": (
        story(*AT_LEAST, *SENT, *done_both(), *sets(2, 0), process(0), process(1), AB),
        set(), "valid",
    ),
    "at-least-once-a-record-is-processed-again-that-was-not-reset": (
        story(*AT_LEAST, *SENT, *done_both(), *sets(2, 1), process(0), process(1), AB),
        {"processed-again"}, "valid",
    ),
    "a-reset-to-the-present-position-explains-nothing-again": (
        story(*AT_MOST, *SENT, *done_both(), *sets(2, 2), process(1), commit(2), AB),
        {"processed-twice"}, "anomalous",
    ),
    "a-reset-back-that-nobody-acknowledged-may-have-been-done": (
        story(*AT_MOST, *SENT, *done_both(), *sets(2, 1, "info"), process(1), commit(2), AB),
        set(), "valid",
    ),
    "a-reset-that-nobody-acknowledged-may-be-done-later": (
        story(
            *AT_MOST, *SENT, commit(1), process(0), *sets(1, 0, "info"), commit(2), process(1),
            process(1), AB,
        ),
        set(), "valid",
    ),
    "a-reset-that-surely-failed-explains-nothing": (
        story(*AT_MOST, *SENT, *done_both(), *sets(2, 1, "fail"), process(1), commit(2), AB),
        {"processed-twice"}, "anomalous",
    ),
    "a-reset-of-another-group-explains-nothing": (
        story(
            *AT_MOST, *SENT, *done_both(), *of_another(sets(2, 1)[1:2]), process(1), commit(2), AB
        ),
        {"processed-twice"}, "anomalous",
    ),
    "a-reset-forward-passes-over-a-record": (
        story(*AT_LEAST, *SENT3, process(0), commit(1), *sets(1, 2), process(2), commit(3), ABC),
        set(), "valid",
    ),
    "a-reset-forward-passes-over-less": (
        story(*AT_LEAST, *SENT3, *sets(None, 1), process(2), commit(3), ABC),
        {"unprocessed"}, "anomalous",
    ),
    "a-record-before-the-reset-was-passed-over": (
        story(*AT_LEAST, *SENT3, commit(1), *sets(1, 2), process(2), commit(3), ABC),
        {"unprocessed"}, "anomalous",
    ),
    "a-reset-to-the-present-position-passes-over-nothing": (
        story(*AT_LEAST, *SENT3, process(0), commit(1), *sets(1, 1), process(2), commit(3), ABC),
        {"unprocessed"}, "anomalous",
    ),
    "what-the-group-had-come-past-when-it-was-reset-is-claimed": (
        story(*AT_LEAST, *SENT3, process(0), *sets(2, 2), process(2), commit(3), ABC),
        {"unprocessed"}, "anomalous",  # only the answer before the reset says so
    ),
    "what-was-passed-over-is-passed-again-behind-a-reset-back": (
        story(
            *AT_LEAST, *SENT3, process(0), commit(1), *sets(1, 3), *sets(3, 1), process(2),
            commit(3), ABC,
        ),
        {"unprocessed"}, "anomalous",
    ),
    "at-most-once-a-reset-forward-passes-over-a-record": (
        story(*AT_MOST, *SENT3, commit(1), process(0), *sets(1, 2), commit(3), process(2), ABC),
        set(), "valid",
    ),
    "at-most-once-a-record-is-passed-over-that-was-not-reset": (
        story(*AT_MOST, *SENT3, commit(1), process(0), *sets(1, 2), commit(3), ABC),
        {"skipped-by-commit"}, "valid",
    ),
    "a-reset-forward-that-nobody-acknowledged-may-have-been-done": (
        story(
            *AT_LEAST, *SENT3, process(0), commit(1), *sets(1, 2, "info"), process(2), commit(3),
            ABC,
        ),
        set(), "valid",
    ),
    "or-not-and-what-is-behind-both-ends-is-claimed": (
        story(
            *AT_LEAST, *SENT3, process(0), commit(1), *sets(1, 2, "info"), process(1), commit(3),
            ABC,
        ),
        {"unprocessed"}, "anomalous",
    ),
    "a-reset-back-that-nobody-acknowledged-claims-what-was-claimed-before": (
        story(
            *AT_LEAST, *SENT3, process(0), commit(1), *sets(1, 0, "info"), process(2), commit(3),
            ABC,
        ),
        {"unprocessed"}, "anomalous",
    ),
    "a-reset-that-was-not-done-after-one-that-was-claims-no-more": (
        story(
            *AT_LEAST, *SENT3, *sets(0, 2), *sets(0, 1, "info")[1:], process(2), commit(3), ABC
        ),
        set(), "valid",
    ),
    "a-reset-back-that-was-not-done-claims-from-where-the-group-was": (
        story(*NEITHER, *SENT3, *sets(2, 0, "info"), process(2), commit(3), ABC), set(), "valid",
    ),
    "who-begins-elsewhere-claims-from-its-first-record": (
        story(*NEITHER, *SENT3, process(0), process(2), commit(3), ABC),
        {"skipped-by-commit"}, "valid",
    ),
    "who-begins-elsewhere-claims-from-its-first-record-before-a-reset": (
        story(
            *NEITHER, *SENT3, process(2), commit(3), *sets(3, 0), process(0), commit(1), ABC
        ),
        set(), "valid",
    ),
    # --- committed positions around resets
    "a-reset-leads-back": (
        story(*AT_LEAST, *SENT, *done_both(), *sets(2, 0), committed(0), AB), set(), "valid",
    ),
    "behind-a-reset-the-position-goes-back": (
        story(*AT_LEAST, *SENT, *done_both(), *sets(2, 1), committed(0), AB),
        {"commit-regression"}, "anomalous",
    ),
    "before-a-reset-the-position-had-gone-back": (
        story(*AT_LEAST, *SENT, *done_both(), *sets(1, 1), committed(1), AB),
        {"commit-regression"}, "anomalous",
    ),
    "an-older-commit-is-acknowledged-behind-the-reset": (
        story(
            *AT_LEAST, *SENT, process(0), process(1), replace(commit(2), at=(80, 125)),
            *(replace(op, at=(100 + n, 110 + n)) for n, op in enumerate(sets(1, 0)[1:])),
            replace(committed(0), at=(130, 140)), final_at(AB, 150),
        ),
        set(), "valid",
    ),
    "behind-a-reset-that-nobody-acknowledged-the-position-is-anywhere": (
        story(
            *AT_LEAST, *SENT, *done_both(), *sets(2, 0, "info"), commit(1), committed(0), AB
        ),
        set(), "valid",
    ),
    "until-the-next-reset": (
        story(
            *AT_LEAST, *SENT, *done_both(), *sets(2, 0, "info"), *sets(0, 1), committed(0),
            AB,
        ),
        {"commit-regression"}, "anomalous",
    ),
    "two-members-own-a-partition": (
        story(*SENT, owner("assigned", 1), owner("assigned", 2), owner("revoked", 1), AB),
        {"owned-twice"}, "anomalous",
    ),
    "a-member-lets-go-first": (
        story(*SENT, owner("assigned", 1), owner("revoked", 1), owner("assigned", 2), AB),
        set(), "valid",
    ),
    "a-member-learns-too-late-what-it-was-assigned": (
        story(
            *SENT, owner("assigned", 1), replace(owner("assigned", 2), type="info"),
            owner("revoked", 1), AB,
        ),
        set(), "valid",
    ),
    "a-member-lost-it-and-learns-so-late": (
        story(*SENT, owner("assigned", 1), owner("assigned", 2), owner("lost", 1), AB),
        set(), "valid",
    ),
    "a-member-that-lost-it-commits-still": (
        story(
            *SENT, owner("assigned", 1), owner("assigned", 2), commit(1), owner("lost", 1), AB
        ),
        {"owned-twice"}, "anomalous",
    ),
    # --- share groups
    "a-record-that-was-accepted-comes-again": (
        story(
            *SHARED, acquired(0, 1), acknowledged(0, 1), acquired(0, by=2, count=2), rests(), AB
        ),
        {"delivered-after-acknowledgement"}, "anomalous",
    ),
    "a-record-that-was-rejected-comes-again": (
        story(
            *SHARED, acquired(0, 1), acknowledged(1), acknowledged(0, how="reject"), acquired(0),
            rests(), AB,
        ),
        {"delivered-after-acknowledgement"}, "anomalous",
    ),
    "a-record-that-was-released-comes-again": (
        story(
            *SHARED, acquired(0, 1), acknowledged(1), acknowledged(0, how="release"),
            acquired(0, count=2), acknowledged(0), rests(), AB,
        ),
        set(), "valid",
    ),
    "a-record-comes-again-and-nobody-knows-whether-it-was-accepted": (
        story(
            *SHARED, acquired(0, 1), acknowledged(0, 1, type="info"), acquired(0, count=2),
            acknowledged(0), rests(), AB,
        ),
        set(), "valid",
    ),
    "a-record-was-given-to-another-before-it-was-accepted": (
        story(
            *SHARED, acquired(0, 1), acquired(0, by=2, count=2), acknowledged(0, 1), rests(), AB
        ),
        set(), "valid",
    ),
    "another-share-group-is-given-it-too": (
        story(
            *SHARED, acquired(0, 1), acknowledged(0, 1), acquired(0, 1, by=2, group="r"), rests(),
            AB,
        ),
        set(), "valid",
    ),
    "a-share-group-passes-over-a-record": (
        story(*SHARED, acquired(1), acknowledged(1), rests(), AB),
        {"skipped-by-share-group"}, "anomalous",
    ),
    "what-a-killed-member-has-acknowledged-it-was-given": (
        story(*SHARED, acknowledged(0, by=2, type="info"), acquired(1), rests(), AB),
        set(), "valid",
    ),
    "a-share-group-is-given-something-while-one-of-it-rests": (
        story(*SHARED, rests(), acquired(1), AB),
        {"unproven-share-group"}, "unknown",
    ),
    "a-share-group-does-not-come-to-rest": (
        story(*SHARED, acquired(1), acknowledged(1), AB),
        {"unproven-share-group"}, "unknown",
    ),
    "a-share-group-rests-before-the-last-record": (
        story(*SHARED, acquired(0), acknowledged(0), rests(), AB),
        {"unproven-share-group"}, "unknown",
    ),
    "a-share-group-rests-where-nothing-was-sent": (
        story(
            setting("share.group", "s"), rests(), send("a", 0, partition=1),
            final((0, "a"), partition=1), final_reads=(reached(0), reached(1, partition=1)),
        ),
        set(), "valid",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> dict[str, Judged]:
    return judge({name: reported for name, (reported, _, _) in STORIES.items()})


@pytest.mark.parametrize("name", STORIES)
def test_story(verdicts: dict[str, Judged], name: str) -> None:
    _, anomalies, verdict = STORIES[name]
    found = verdicts[name]
    assert {row["anomaly"] for row in found.rows} == anomalies
    assert found.verdict.verdict == verdict


@pytest.mark.parametrize("name", STORIES)
def test_the_oracle_finds_the_same(verdicts: dict[str, Judged], name: str) -> None:
    found = Counter(
        (row["anomaly"], row["offset"], row["value"])
        for row in verdicts[name].rows
        if row["anomaly"] in oracle_workloads.NAMES
    )
    assert oracle_workloads.judge(STORIES[name][0]) == found


# --- histories that nobody thought of ------------------------------------------------------------

GENERATED = 150


def transfers(chance: random.Random) -> Story:
    """Transfers, of which some are torn, in each other, read in part, or of unknown end."""
    place, ops, log = 0, [TIMEOUT], []
    for number in range(chance.randint(1, 4)):
        amount, kind = chance.randint(1, 9), chance.choice(("ok", "ok", "info", "fail"))
        gap = chance.randint(0, 1)
        legs = [(place, f"{amount}/{number}a"), (place + 1 + gap, f"-{amount}/{number}b")]
        place += chance.randint(1, 3)
        mops = [("send", at if kind == "ok" else None, value) for at, value in legs]
        ops.append(txn(*mops, process=10 + number, type=kind))
        log += [leg for leg in legs if chance.random() < 0.85 and kind != "fail"]
    taken: dict[int, str] = {}
    for at, value in sorted(log):
        taken.setdefault(at, value)
    records = sorted(taken.items())
    cut = chance.randint(0, len(records))
    end = records[cut - 1][0] + 1 if cut else 0
    more = [poll(*records[:cut]), summed(end)] if cut else []
    looks = [stable(chance.randint(1, 2), 2) for _ in range(chance.randint(0, 3))]
    return story(*ops, *more, *looks, final(*records))


def streamed(chance: random.Random) -> Story:
    inputs = sorted(chance.choices(range(5), k=chance.randint(1, 5)))
    ends = [source(chance.randint(0, 6))] if chance.random() < 0.8 else []
    return story(OUTPUT, *outputs(*inputs), *ends)


def group(chance: random.Random) -> Story:
    """Members that are assigned, lose, process and commit as it comes."""
    ops: list[Op] = [*chance.choice((AT_LEAST, AT_MOST, NEITHER)), *SENT]
    for _ in range(chance.randint(2, 9)):
        by = chance.randint(1, 3)
        ops.append(
            chance.choice(
                (
                    owner("assigned", by), owner("revoked", by), owner("lost", by),
                    process(chance.randint(0, 1), by), commit(chance.randint(0, 2), process=by),
                )
            )
        )  # fmt: skip
    return story(*ops, AB)


def share_group(chance: random.Random) -> Story:
    """Members that are given records, acknowledge them and rest as it comes."""
    ops: list[Op] = [*SHARED]
    for _ in range(chance.randint(1, 8)):
        by, offset = chance.randint(1, 2), chance.randint(0, 1)
        how = chance.choice(("accept", "accept", "release", "reject"))
        type = chance.choice(("ok", "ok", "info"))
        ops.append(
            chance.choice(
                (
                    acquired(offset, by=by), acquired(0, 1, by=by), rests(by),
                    acknowledged(offset, how=how, by=by, type=type),
                )
            )
        )  # fmt: skip
    return story(*ops, *chance.choice(((), (rests(),))), AB)


def reset_group(chance: random.Random) -> Story:
    """Members that process, commit and reset as it comes, some at one moment."""
    ops: list[Op] = [*chance.choice((AT_LEAST, AT_MOST, NEITHER)), *SENT3]
    for _ in range(chance.randint(3, 10)):
        before = chance.choice((None, 0, 1, 2, 3))
        kind = chance.choice(("ok", "ok", "info", "invoke", "fail"))
        done = sets(before, chance.randint(0, 3), kind)[chance.randint(0, 1) :]
        alone = chance.choice(
            (process(chance.randint(0, 2)), commit(chance.randint(0, 3)), committed(before))
        )
        ops += chance.choice((done, (alone,), (alone,)))
    ends = len(ops) * 10
    timed = [
        replace(op, at=(10 * n, 10 * n + chance.choice((5, 15, 25))))
        if op.f in ("commit", "committed", "reset") and chance.random() < 0.5 else op
        for n, op in enumerate(ops)
    ]  # fmt: skip
    return story(*timed, final_at(ABC, ends + 100))


def of_keys(chance: random.Random) -> Story:
    keys = [chance.choice("jk") for _ in range(4)]
    sent = [
        keyed(send(f"v{n}", n) if chance.random() < 0.8 else send(f"v{n}", type="info"), key)
        for n, key in enumerate(keys)
    ]
    kept = [n for n in range(4) if chance.random() < 0.6] or [0]
    read = keyed(final(*((n, f"v{n}") for n in kept)), *(keys[n] for n in kept))
    return story(*([COMPACT] if chance.random() < 0.8 else []), *sent, read)


def test_the_oracle_agrees_with_what_chance_makes(judge: Judge) -> None:
    made = {
        f"{kind.__name__}-{n}": kind(random.Random(f"{kind.__name__}/{n}"))
        for kind in (transfers, streamed, group, reset_group, of_keys, share_group)
        for n in range(GENERATED // 5)
    }
    found = judge(made)
    wrong = {}
    names: set[str] = set()
    for name, one in made.items():
        expected = oracle_workloads.judge(one)
        by_spark = Counter(
            (row["anomaly"], row["offset"], row["value"])
            for row in found[name].rows
            if row["anomaly"] in oracle_workloads.NAMES
        )
        names |= {anomaly for anomaly, _, _ in expected}
        if by_spark != expected:
            wrong[name] = (by_spark - expected, expected - by_spark)
    assert wrong == {}
    assert names == oracle_workloads.NAMES  # chance makes all of them
