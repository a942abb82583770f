"""The rules once more, in plain Python: slow, and as close to their sentences as can be.

Over a run as `tests.checkers.oracle_history` reads it (which defines the words); whatever it says,
no rule fails. Each function says in its first lines what its anomaly is.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from tests.checkers.clojure_sets import first_of
from tests.checkers.histories import Story
from tests.checkers.oracle_history import History, Operation, Part, Row, of_story, value_of

Found = tuple[str, int | None, str | None]  # anomaly, offset, value
Reported = tuple[str, Part | None, int | None, str | None]  # the same with its part


def judge(story: Story) -> Counter[Found]:
    """All that is wrong in a story: a bag of (anomaly, offset, value), of all its parts."""
    return Counter((name, offset, value) for name, _, offset, value in reported(of_story(story)))


def reported(history: History) -> list[Reported]:
    """All that is wrong, with its parts."""
    return [
        *lost_and_unseen(history),
        *committed_then_lost(history),
        *doubled(history),
        *sent_twice(history),
        *overtaken(history),
        *inconsistent_offsets(history),
        *aborted_and_invented(history),
        *order_of_sends(history),
        *reordered(history),
        *moves(history),
        *own_reads(history),
        *cycles(history),
        *commit_regression(history),
        *holes(history),
        *unlike(history),
        *divergence(history),
    ]


def lost_and_unseen(history: History) -> Iterator[Reported]:
    """A vouched record that no final read of a complete part holds.

    (One that nobody acknowledged, but of whose transaction another write was read: no ok read.)

    `lost-write`: its greatest known offset is at or below the highest read one, which is the
    highest `least` of all values that an ok operation read; or it was acknowledged without an
    offset and no offset of it is known. `unseen`: it was acknowledged (its operation is ok), and
    the first does not hold. What lay below the log start was deleted on purpose; of a record
    without a known offset nothing is proved where anything was deleted, nor of one that a replica's
    disk holds at or above the end that was read: `unproven-loss`.
    """
    for (part, value), sent in history.senders.items():
        log, places = history.log(part), history.places.get((part, value), [])
        vouched = [(op, row) for op, row in sent if op in history.vouched]
        acked = any(op.type == "ok" for op, _ in vouched)
        found = history.read_finally if acked else history.read_ok
        if not log.complete or not vouched or (part, value) in found:
            continue
        if places and places[-1] < log.start:
            continue
        offset = min((row.offset for _, row in vouched if row.offset is not None), default=None)
        if (not places and log.start > 0) or _above_the_end(history, part, offset, value):
            if acked:
                yield "unproven-loss", part, offset, value
        elif places[-1] <= highest_read(history, part) if places else acked:
            yield "lost-write", part, offset, value
        elif acked:
            yield "unseen", part, offset, value


def highest_read(history: History, part: Part) -> int:
    return max(
        (
            history.places[key][0]
            for key in history.read_ok & history.places.keys()
            if key[0] == part
        ),
        default=-1,
    )


def _above_the_end(history: History, part: Part, offset: int | None, value: str) -> bool:
    end = history.log(part).end
    if offset is None or (end is not None and offset < end):
        return False
    return any(
        ((row["topic"], row["partition"]), row.get("offset"), value_of(row))
        == (part, offset, value)
        for row in history.replicas
    )


def committed_then_lost(history: History) -> Iterator[Reported]:
    """A consumer read a record before the final reads where these do not find it.

    Of any type of operation: at an offset (not below the log start) greater than all of its final
    reads, or less than all of them; or there is no final read of it.
    """
    for (part, value), reads in history.readers.items():
        log = history.log(part)
        main = [r.offset for _, r in reads if r.phase != "final" and r.offset is not None]
        final = [
            r.offset
            for op, r in reads
            if r.phase == "final" and op.type == "ok" and r.offset is not None
        ]
        if not log.complete or not main:
            continue
        above = max(main) >= log.start and (not final or max(main) > max(final))
        below = bool(final) and min(main) >= log.start and min(main) < min(final)
        if above or below:
            yield "committed-then-lost", part, max(main), value


def doubled(history: History) -> Iterator[Reported]:
    """A value that is known at two offsets.

    `moved`: vouched sends say one offset, reads say one other and never this. `duplicate`: else.
    """
    for (part, value), places in history.places.items():
        if len(places) < 2 or (part, value) in history.repeated:
            continue
        acknowledged = history.acknowledged.get((part, value), set())
        read = {r.offset for _, r in history.readers.get((part, value), ())} - {None}
        moved = len(acknowledged) == 1 and len(read) == 1
        yield ("moved" if moved else "duplicate"), part, places[-1], value


def sent_twice(history: History) -> Iterator[Reported]:
    """A value that was sent more than once (a send that surely failed does not count): nobody
    knows which of them a read has found. Jepsen's checker takes them for one."""
    for part, value in history.repeated:
        least = history.places.get((part, value), [None])[0]
        yield "sent-twice", part, least, value


def overtaken(history: History) -> Iterator[Reported]:
    """`G0-realtime`: an acknowledged send lies at a lower offset than one that was acknowledged
    before it began; of several at its offset the one that began last is named."""
    for part in history.parts:
        acked = [
            (op, row)
            for op in history.operations
            for row in op.rows
            if (row.f, row.part, op.type) == ("send", part, "ok") and row.offset is not None
        ]
        latest: dict[int, tuple[Operation, Row]] = {}
        for op, row in acked:
            assert row.offset is not None
            if row.offset not in latest or latest[row.offset][0].invoked < op.invoked:
                latest[row.offset] = op, row
        for offset, (op, row) in latest.items():
            if any(
                other.offset is not None
                and other.offset > offset
                and before.completed is not None
                and before.completed < op.invoked
                for before, other in acked
            ):
                yield "G0-realtime", part, offset, row.value


def inconsistent_offsets(history: History) -> Iterator[Reported]:
    """Two values are known at one offset; the lesser one is named."""
    for part, log in history.known.items():
        for offset, values in log.items():
            if len(values) > 1:
                yield "inconsistent-offsets", part, offset, min(values)


def aborted_and_invented(history: History) -> Iterator[Reported]:
    """`G1a`: an ok operation read a value all of whose sends failed.

    `phantom`: an operation of any type read a value that no operation, of any type, sent.
    """
    failed = Counter((row.part, row.value) for op, row in history.sends if op.type == "fail")
    sent = Counter((row.part, row.value) for _, row in history.sends)
    for (part, value), reads in history.readers.items():
        key = part, value
        offset = min((r.offset for _, r in reads if r.offset is not None), default=None)
        if not sent[key]:
            yield "phantom", part, offset, value
        all_failed = failed[key] > 0 and (
            history.reading.last_send_only or failed[key] == sent[key]
        )
        if all_failed and key in history.read_ok:
            least = history.places.get(key, [None])[0]
            yield "G1a", part, least, value


def order_of_sends(history: History) -> Iterator[Reported]:
    """Sends of one process to one part, in the order in which it did them, stand in that order.

    The place of a send is the offset that it says, if it is vouched for, or else the least offset
    at which its value was read. `int-nonmonotonic-send`: inside one operation, of any type (a
    failed one too: what was read of it has a place), the next send is in a lower place.
    `nonmonotonic-send`: the first send of an operation to a part is in a lower place than the last
    of the operation before, failed ones left out; if that one was indeterminate, its process has
    come to an end, and nothing is compared. `int-send-skip` (normal): inside one operation a record
    is known between.
    """
    for part in history.parts:
        before: dict[int, tuple[Operation, Row]] = {}
        for op in history.operations:
            mine = [row for row in op.rows if row.f == "send" and row.part == part and row.value]
            if history.reading.assign_ends_order and _seeks(op, part):
                before.pop(op.process, None)
            for one, other in itertools.pairwise(mine):
                yield from _inside(history, part, (op, one), (op, other))
            if not mine or op.type == "fail":
                continue
            last = before.get(op.process)
            goes_on = last and (last[0].type == "ok" or history.reading.same_after_info)
            if last and goes_on and _goes_back(history, last, (op, mine[0])):
                yield "nonmonotonic-send", part, _place(history, op, mine[0]), mine[0].value
            before[op.process] = op, mine[-1]


def _seeks(op: Operation, part: Part) -> bool:
    return any(row.f == "seek" and row.part == part for row in op.rows)


def _inside(
    history: History, part: Part, one: tuple[Operation, Row], other: tuple[Operation, Row]
) -> Iterator[Reported]:
    first, second = _place(history, *one), _place(history, *other)
    if _goes_back(history, one, other):
        yield "int-nonmonotonic-send", part, second, other[1].value
    elif first is not None and second is not None and history.gap(part, first, second):
        yield "int-send-skip", part, second, other[1].value


def _goes_back(history: History, one: tuple[Operation, Row], other: tuple[Operation, Row]) -> bool:
    first, second = _place(history, *one), _place(history, *other)
    if first is None or second is None:
        return False
    return second < first or (second == first and history.reading.last_place)


def _place(history: History, op: Operation, send: Row) -> int | None:
    key = send.part, str(send.value)
    if history.reading.last_place:
        return history.last_places.get(key)
    if op in history.vouched and send.offset is not None:
        return send.offset
    read = (r.offset for _, r in history.readers.get(key, ()) if r.offset is not None)
    return min(read, default=None)


def reordered(history: History) -> Iterator[Reported]:
    """Two acknowledged sends of one process are in the final reads in the reverse order.

    Each is compared with the last one before that was acknowledged and finally read, unless an
    indeterminate send to this part came between: then its process has come to an end.
    """
    last: dict[tuple[int, Part], int] = {}
    for op, row in history.sends:
        key = op.process, row.part
        if op.type == "info":
            last.pop(key, None)
        reads = history.readers.get((row.part, str(row.value)), ())
        place = min(
            (
                r.offset
                for o, r in reads
                if o.type == "ok" and r.phase == "final" and r.offset is not None
            ),
            default=None,
        )
        if (row.part, row.value) in history.repeated:
            continue
        if op.type == "ok" and place is not None:
            if place < last.get(key, -1):
                yield "reordered", row.part, place, row.value
            last[key] = place


def moves(history: History) -> Iterator[Reported]:
    """Where the reads of a consumer (a process, before the final reads or in them) went in a part.

    `int-nonmonotonic-poll`, `int-poll-skip`: inside one operation, of any type, from one record to
    the next, unless the part was reassigned during it. Without `int-`: from the last record of the
    last ok operation to the first of the next, of any type; a seek starts anew. Back: to a lower
    offset, or the same. Skip: over a record that is known to lie between, unless the step leads to
    the log start or below it (what is skipped was deleted).
    """
    for part in history.parts:
        settled: dict[tuple[int, str], Row] = {}
        for op in history.operations:
            if _seeks(op, part):
                for phase in ("main", "final"):
                    settled.pop((op.process, phase), None)
            read = [row for row in op.rows if row.f == "poll" and row.part == part]
            if not read:
                continue
            consumer = op.process, "final" if read[0].phase == "final" else "main"
            if consumer in settled:
                yield from _step(history, settled[consumer], read[0], "")
            for one, other in itertools.pairwise(read):
                if not other.rebalanced:
                    yield from _step(history, one, other, "int-")
            if op.type == "ok":
                settled[consumer] = read[-1]


def _step(history: History, one: Row, other: Row, inside: str) -> Iterator[Reported]:
    here, there = one.offset, other.offset
    if history.reading.last_place:
        here, there = (history.last_places.get((r.part, str(r.value))) for r in (one, other))
    if here is None or there is None:
        return
    if there <= here:
        yield f"{inside}nonmonotonic-poll", one.part, other.offset, other.value
    elif history.gap(one.part, here, there) and there > history.log(one.part).start:
        yield f"{inside}poll-skip", one.part, other.offset, other.value


def own_reads(history: History) -> Iterator[Reported]:
    """`precommitted-read`: an operation of any type read a value that itself had sent."""
    for op in history.operations:
        sent = {(row.part, row.value) for row in op.rows if row.f == "send" and row.value}
        read = {(row.part, row.value) for row in op.rows if row.f == "poll"}
        for part, value in sent & read:
            offsets = [
                r.offset
                for r in op.rows
                if r.f == "poll" and (r.part, r.value) == (part, value) and r.offset is not None
            ]
            yield "precommitted-read", part, min(offsets, default=None), value


@dataclass(frozen=True)
class Graph:
    """Operations (of any type) and why one comes before another."""

    ww: frozenset[tuple[int, int]] = frozenset()
    wr: frozenset[tuple[int, int]] = frozenset()
    time: frozenset[tuple[int, int]] = frozenset()
    by_number: Mapping[int, Operation] = field(default_factory=dict)


def graph(history: History) -> Graph:
    """Vertices are the operations that send or read, of any type.

    wr: from the sender of a value to every other operation that read it. ww: from the sender of a
    known value to the sender of the one known at the next offset. time: from an ok operation to
    every one that was invoked after its completion, of any type; the order of a process is part of
    it. The sender of a value that was sent twice: the first that did not fail, or else the first.
    """
    taking_part = [op for op in history.operations if op.moves]
    by_number = {op.number: op for op in taking_part}
    sender = {key: _sender(sent).number for key, sent in history.senders.items()}
    wr = {
        (sender[key], op.number)
        for key, reads in history.readers.items()
        if key in sender
        for op, _ in reads
    }
    ww = set()
    for part, log in history.known.items():
        in_order = [(offset, _version(history, log[offset])) for offset in sorted(log)]
        for (_, one), (offset, other) in itertools.pairwise(in_order):
            if history.reading.last_place and history.last_places[part, other] != offset:
                continue
            if (part, one) in sender and (part, other) in sender:
                ww.add((sender[part, one], sender[part, other]))
    time = {(a.number, b.number) for a in taking_part for b in taking_part if a.before(b)}
    return Graph(_between_two(ww), _between_two(wr), _between_two(time), by_number)


def _between_two(edges: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    return frozenset(edge for edge in edges if edge[0] != edge[1])


def _sender(sent: Sequence[tuple[Operation, Row]]) -> Operation:
    did_not_fail = [op for op, _ in sent if op.type != "fail"]
    return min(did_not_fail or [op for op, _ in sent], key=lambda op: (op.invoked, op.number))


def _version(history: History, values: set[str]) -> str:
    return first_of(values) if history.reading.last_place else min(values)


def cycles(history: History) -> Iterator[Reported]:
    """Operations that each come before themselves: once for each strongly connected component.

    `G1c`: over wr edges. `G1c-realtime`: over wr edges and the order of time, where no wr edges
    alone close a cycle among the same operations. `G0` (normal): over ww edges. `G1c-ww` (normal):
    over ww and wr edges, where neither alone closes one among the same operations.
    """
    edges = graph(history)
    wr, ww = _components(edges.wr), _components(edges.ww)
    timed = [one for one in _components(edges.wr | edges.time) if not _holds(one, wr)]
    mixed = [one for one in _components(edges.ww | edges.wr) if not _holds(one, [*ww, *wr])]
    for name, found in (("G1c", wr), ("G1c-realtime", timed), ("G0", ww), ("G1c-ww", mixed)):
        yield from ((name, None, None, None) for _ in found)


def _components(edges: Iterable[tuple[int, int]]) -> list[set[int]]:
    found = nx.strongly_connected_components(nx.DiGraph(list(edges)))
    return [members for members in found if len(members) > 1]


def _holds(component: set[int], inner: Iterable[set[int]]) -> bool:
    return any(one <= component for one in inner)


def commit_regression(history: History) -> Iterator[Reported]:
    """The position of a group in a part is behind one that was acknowledged before it was invoked.

    Each ok commit, and each ok answer about one (none counts as -1), is compared with the highest
    position of an ok commit or answer of its group that completed before (or at the same time with
    a lower number) and after the last seek of the part by that group, or by a process that answers
    for that group in the part. Or: a commit lies beyond the end of a complete log.

    A reset of the group's position that began before is like a seek, and what was invoked before it
    does not count. After one that was not acknowledged nothing counts, until the next or a seek.
    """
    placed = [row for row in history.positions if row.get("topic") is not None]
    answers = sorted(
        (row for row in placed if row["type"] == "ok" or _is_reset(row)),
        key=lambda row: (_counts_from(row), row["operation"], row["row"]),
    )
    processes = {
        (row["process"], row.get("key"), row["topic"], row["partition"])
        for row in answers
        if row["f"] not in ("seek", "reset")
    }
    for row in answers:
        if row["f"] in ("seek", "reset"):
            continue
        part = row["topic"], row["partition"]
        highest = _highest_before(row, answers, processes)
        position = -1 if row.get("offset") is None else row["offset"]
        log = history.log(part)
        beyond = log.end is not None and log.complete and row["f"] == "commit"
        if position < highest or (beyond and position > (log.end or 0)):
            yield "commit-regression", part, row.get("offset"), None


def _highest_before(
    row: Mapping[str, Any],
    answers: Iterable[Mapping[str, Any]],
    processes: set[tuple[int, str | None, str, int]],
) -> int:
    highest, group, since_ns, is_known = -1, row.get("key"), -1, True
    for other in answers:
        if (_counts_from(other), other["operation"]) >= (row["invoked_ns"], row["operation"]):
            continue
        if (other["topic"], other["partition"]) != (row["topic"], row["partition"]):
            continue
        if other["f"] == "seek":
            place = row["topic"], row["partition"]
            if other.get("key") == group or (other["process"], group, *place) in processes:
                highest, is_known = -1, True
        elif other.get("key") != group or other.get("offset") is None:
            continue
        elif other["f"] == "reset":
            highest, since_ns, is_known = -1, other["invoked_ns"], other["type"] == "ok"
        elif other["invoked_ns"] >= since_ns:
            highest = max(highest, other["offset"])
    return highest if is_known else -1


def _is_reset(row: Mapping[str, Any]) -> bool:
    return bool(row["f"] == "reset" and row["type"] != "fail")


def _counts_from(row: Mapping[str, Any]) -> int:
    return int(row["invoked_ns" if row["f"] == "reset" else "completed_ns"])


def holes(history: History) -> Iterator[Reported]:
    """`replica-hole`: of replicas that call themselves level, one lacks what another holds.

    An offset that another replica holds, and that is not below its own log start where the part
    deletes or is compacted: the least one is named, once for each replica. (Not what may have been
    taken in a compacted part: a control record, one that deletes a key, one whose key any replica
    has again further on.) Or: all logs end at or before an offset that a final read found, or,
    where these are not complete, acknowledged, or before the end that it names. Or all begin above
    0, in a part that does neither; or none has anything at an offset, in one without compaction.
    """
    if not history.level:
        return
    by_part: dict[Part, dict[int, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in history.replicas:
        by_part[row["topic"], row["partition"]][row["broker"]].append(row)
    for part, logs in by_part.items():
        held = {
            b: {int(r["offset"]) for r in rows if r.get("offset") is not None}
            for b, rows in logs.items()
        }
        kept = not (history.log(part).deletes or history.log(part).compacts)
        start = {b: max(r["log_start_offset"] for r in rows) for b, rows in logs.items()}
        if kept and min(start.values()) > 0:
            yield "replica-hole", part, 0, None
        start = dict.fromkeys(logs, 0) if kept else start
        every = [row for rows in logs.values() for row in rows]
        for broker in sorted(logs):
            lacking = {
                int(row["offset"])
                for others in logs.values()
                for row in others
                if row.get("offset") is not None
                and start[broker] <= row["offset"]
                and row["offset"] not in held[broker]
                and not (history.log(part).compacts and _may_be_compacted(row, every))
            }
            if lacking:
                yield "replica-hole", part, min(lacking), None
        end = max(r["log_end_offset"] for rows in logs.values() for r in rows)
        if _greatest_known(history, part) >= end:
            yield "replica-hole", part, end, None
        if not history.log(part).compacts:
            begin = min(r["log_start_offset"] for rows in logs.values() for r in rows)
            nowhere = {*range(begin, end)}.difference(*held.values())
            if nowhere:
                yield "replica-hole", part, min(nowhere), None


def _may_be_compacted(row: Mapping[str, Any], log: Iterable[Mapping[str, Any]]) -> bool:
    key = row.get("key")
    if row.get("control") or (key is not None and row.get("value") is None):
        return True
    return key is not None and any(
        other.get("key") == key and (other.get("offset") or 0) > row["offset"] for other in log
    )


def _greatest_known(history: History, part: Part) -> int:
    """The greatest offset that the end must have behind it."""
    known = {
        row.offset
        for (p, _), reads in history.readers.items()
        for op, row in reads
        if p == part and op.type == "ok" and row.phase == "final" and row.offset is not None
    }
    if not history.log(part).complete:
        known |= {
            row.offset
            for (p, _), sent in history.senders.items()
            for op, row in sent
            if p == part and op.type == "ok" and row.offset is not None
        }
    end = history.log(part).end
    return max(known, default=-1) if end is None else max({*known, end - 1})


def unlike(history: History) -> Iterator[Reported]:
    """`log-mismatch`: replicas that call themselves level agree on another record, or a control
    record, where a final read found one; or none has anything there, although it lies before a log
    end, is not below a log start where the part deletes, and cannot have been compacted."""
    if not history.level:
        return
    at: dict[tuple[Part, int], list[Mapping[str, Any]]] = defaultdict(list)
    starts: dict[Part, int] = {}
    ends: dict[Part, int] = {}
    for row in history.replicas:
        part = row["topic"], row["partition"]
        starts[part] = max(starts.get(part, 0), row["log_start_offset"])
        ends[part] = max(ends.get(part, 0), row["log_end_offset"])
        if row.get("offset") is not None:
            at[part, row["offset"]].append(row)
    found: dict[tuple[Part, int], set[str]] = defaultdict(set)
    for (part, value), reads in history.readers.items():
        for op, read in reads:
            if op.type == "ok" and read.phase == "final" and read.offset is not None:
                found[part, read.offset].add(value)
    for (part, offset), values in found.items():
        if part not in ends:
            continue
        on_disk = {_contents(row)[::2] for row in at[part, offset]}  # control, value
        is_gone = not on_disk and offset < ends[part]
        if offset < starts[part] and history.log(part).deletes:
            is_gone = False
        if is_gone or _are_other(on_disk, values):
            yield "log-mismatch", part, offset, min(values)


def _are_other(on_disk: set[tuple[Any, ...]], read: set[str]) -> bool:
    if on_disk and all(control for control, _ in on_disk):
        return True
    if len(on_disk) != 1 or len(read) != 1:
        return False
    [(_, (is_there, value))] = on_disk
    return not (is_there and value in read)


def divergence(history: History) -> Iterator[Reported]:
    """One offset holds different records on two replicas, or one under two leader epochs.

    `replica-divergence`: they call themselves level, or it is below the high watermark of all
    that hold it (none counts as 0). Else `unproven-difference`. The value of the least is named.
    """
    at: dict[tuple[Part, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in history.replicas:
        if row.get("offset") is not None:
            at[(row["topic"], row["partition"]), row["offset"]].append(row)
    for (part, offset), held in at.items():
        epochs = {row.get("leader_epoch") for row in held} - {None}
        if len({_contents(row) for row in held}) > 1 or len(epochs) > 1:
            below = min(int(row.get("high_watermark") or 0) for row in held)
            proved = history.level or offset < below
            least = min(held, key=_contents)
            name = "replica-divergence" if proved else "unproven-difference"
            yield name, part, offset, least.get("value")


def _contents(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a record must be the same on all replicas; what is null comes first."""
    texts = (row.get("key"), row.get("value"))
    return bool(row.get("control")), *((text is not None, text or "") for text in texts)
