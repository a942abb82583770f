"""The rules once more, in plain Python: slow, and as close to their sentences as can be.

Written from the meanings in `checkers.anomalies`, not from the queries. Works on the operations of
one story with one partition, and returns a bag of (anomaly, offset, value).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.checkers.histories import Op, Story

Found = tuple[str, int | None, str | None]


@dataclass(frozen=True)
class Read:
    operation: int
    process: int
    phase: str
    offset: int
    value: str


@dataclass(frozen=True)
class Sent:
    operation: int
    process: int
    type: str
    offset: int | None
    value: str


def judge(story: Story) -> Counter[Found]:
    reads = list(_reads(story.ops))
    sends = list(_sends(story.ops))
    complete = all(read.reached for read in story.run["final_reads"])
    complete = complete and any(r.phase == "final" for r in reads)
    found: list[Found] = []
    found += _about_acked(sends, reads, complete)
    found += _about_readers(sends, reads, complete)
    found += _about_offsets(sends, reads)
    found += _about_order(sends, reads)
    found += _about_places(sends, reads)
    for process in {(op.process, op.phase) for op in story.ops}:
        found += _about_moves(story.ops, process, sends, reads)
    return Counter(found)


def _reads(ops: list[Op]) -> Iterator[Read]:
    for n, op in enumerate(ops):
        for row in op.rows:
            if op.f == "poll" and "offset" in row:
                yield Read(n, op.process, op.phase, row["offset"], row["value"])


def _sends(ops: list[Op]) -> Iterator[Sent]:
    for n, op in enumerate(ops):
        for row in op.rows:
            if op.f == "send":
                yield Sent(n, op.process, op.type, row["offset"], row["value"])


def _about_acked(sends: list[Sent], reads: list[Read], complete: bool) -> Iterator[Found]:
    highest = max((r.offset for r in reads), default=-1)
    for send in sends:
        in_final = any(r.value == send.value for r in reads if r.phase == "final")
        if send.type != "ok" or not complete or in_final:
            continue
        ever_read = any(r.value == send.value for r in reads)
        above = send.offset is not None and send.offset > highest
        name = "unseen" if above and not ever_read else "lost-write"
        yield (name, send.offset, send.value)


def _about_readers(sends: list[Sent], reads: list[Read], complete: bool) -> Iterator[Found]:
    by_value = {send.value: send for send in sends}
    for value in {r.value for r in reads}:
        places = [r.offset for r in reads if r.value == value]
        main = [r.offset for r in reads if r.value == value and r.phase == "main"]
        final = [r.offset for r in reads if r.value == value and r.phase == "final"]
        outside = not final or max(main, default=-1) > max(final)
        outside = outside or min(main, default=max(final)) < min(final)
        if complete and main and outside:
            yield ("committed-then-lost", max(main), value)
        if value not in by_value:
            yield ("phantom", min(places), value)
        elif by_value[value].type == "fail":
            yield ("G1a", min(places), value)


def _about_offsets(sends: list[Sent], reads: list[Read]) -> Iterator[Found]:
    vouched = {(r.offset, r.value) for r in reads}
    vouched |= {(s.offset, s.value) for s in sends if s.type == "ok" and s.offset is not None}
    for value in {value for _, value in vouched}:
        offsets = [offset for offset, v in vouched if v == value]
        if len(offsets) > 1:
            yield ("duplicate", max(offsets), value)
    for offset in {offset for offset, _ in vouched}:
        values = [value for o, value in vouched if o == offset]
        if len(values) > 1:
            yield ("inconsistent-offsets", offset, min(values))


def _about_order(sends: list[Sent], reads: list[Read]) -> Iterator[Found]:
    final = [r for r in reads if r.phase == "final"]

    def place(value: str) -> int | None:
        return min((r.offset for r in final if r.value == value), default=None)

    for process in {s.process for s in sends}:
        mine = [s for s in sends if s.process == process and s.type == "ok"]
        standing = [(p, s.value) for s in mine if (p := place(s.value)) is not None]
        for (before, _), (after, value) in itertools.pairwise(standing):
            if after < before:
                yield ("reordered", after, value)


def _about_places(sends: list[Sent], reads: list[Read]) -> Iterator[Found]:
    """Where sends are in the log, by their acknowledgement or else by who read them."""

    def place(send: Sent) -> int | None:
        read = min((r.offset for r in reads if r.value == send.value), default=None)
        return send.offset if send.type == "ok" and send.offset is not None else read

    for process in sorted({s.process for s in sends}):
        mine = [s for s in sends if s.process == process and s.type != "fail"]
        for before, after in itertools.pairwise(mine):
            one, other = place(before), place(after)
            if one is not None and other is not None and other < one:
                inside = "int-" if before.operation == after.operation else ""
                yield (f"{inside}nonmonotonic-send", other, after.value)
    for send in sends:
        its_reads = [r for r in reads if r.value == send.value]
        if any(r.operation < send.operation for r in its_reads):
            yield ("G1c-realtime", min(r.offset for r in its_reads), send.value)


def _about_moves(
    ops: list[Op], consumer: tuple[int, str], sends: list[Sent], reads: list[Read]
) -> Iterator[Found]:
    known = {r.offset for r in reads}
    known |= {s.offset for s in sends if s.type == "ok" and s.offset is not None}
    at: tuple[int, int] | None = None  # (operation, offset) of the read before
    for n, op in enumerate(ops):
        if (op.process, op.phase) != consumer:
            continue
        if op.f == "seek":
            at = None
        for row in op.rows if op.f == "poll" else ():
            if "offset" not in row:
                continue
            offset, value = row["offset"], row["value"]
            if at is not None:
                inside = "int-" if at[0] == n else ""
                if offset <= at[1]:
                    yield (f"{inside}nonmonotonic-poll", offset, value)
                if any(at[1] < other < offset for other in known):
                    yield (f"{inside}poll-skip", offset, value)
            at = (n, offset)
