"""The rules of the workloads once more, in plain Python, as close to their sentences as can be.

Over the rows of a story. `known` places, final reads and who is vouched for are those of
`tests.checkers.oracle_history`. Each function says in its first lines what its anomaly is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.checkers.histories import Story, operation_rows
from tests.checkers.oracle_history import History, Part, of_story

Found = tuple[str, int | None, str | None]  # anomaly, offset, value
Row = Mapping[str, Any]
Rows = Sequence[Row]


def judge(story: Story) -> Counter[Found]:
    """What these rules find in a story: a bag of (anomaly, offset, value), of all its parts."""
    rows = [row for n, op in enumerate(story.ops) for row in operation_rows(n, op)]
    history = of_story(story)
    found: Counter[Found] = Counter()
    for part in sorted({_part(row) for row in rows if row.get("partition") is not None}):
        mine = [row for row in rows if row.get("partition") is not None and _part(row) == part]
        for rule in _RULES:
            found.update(rule(history, part, mine))
    return found


def _part(row: Row) -> Part:
    return row["topic"], row["partition"]


def _of(rows: Rows, *kinds: str) -> list[Row]:
    """Of what is known to be so; settings are nobody's operations."""
    always = ("setting", "send", "poll", "commit")
    return [r for r in rows if r["f"] in kinds and (r["type"] == "ok" or r["f"] in always)]


def _setting(rows: Rows, key: str) -> str | None:
    said = [row["value"] for row in _of(rows, "setting") if row["key"] == key]
    return max(said) if said else None


def _finals(rows: Rows) -> list[Row]:
    return [
        r for r in _of(rows, "poll")
        if r["phase"] == "final" and r["type"] == "ok" and r.get("offset") is not None
    ]  # fmt: skip


def newest_lost(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """In a compacted part that was read to its end: a key of which the acknowledged value with the
    greatest offset is not read at the end, nor any value of this key behind it."""
    if "compact" not in (_setting(rows, "cleanup.policy") or "") or not history.log(part).complete:
        return
    acked = [
        r for r in _of(rows, "send")
        if r["type"] == "ok" and r.get("key") is not None and r.get("offset") is not None
    ]  # fmt: skip
    for key in {r["key"] for r in acked}:
        newest = max((r for r in acked if r["key"] == key), key=lambda r: int(r["offset"]))
        behind = [r for r in _finals(rows) if r.get("key") == key]
        is_there = any(r["offset"] >= newest["offset"] for r in behind)
        if newest["value"] is not None and not is_there:
            yield "newest-lost", newest["offset"], newest["value"]


def torn_transactions(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """A record of a transaction that no final read of a complete part found, where a record of the
    same transaction was read by an ok poll: in this part, or anywhere if its end is not known.
    Only where it is said how long a transaction may last."""
    if _setting(rows, "transaction.timeout.ms") is None or not history.log(part).complete:
        return
    for operation in history.operations:
        sent = [row for row in operation.rows if row.f == "send" and row.value is not None]
        is_transaction = any(r["operation"] == operation.number and r.get("mop") is not None
                             for r in rows)  # fmt: skip
        if operation.type == "fail" or not is_transaction:
            continue
        for row in sent:
            if row.part != part or (part, row.value) in history.read_finally:
                continue
            others = [other for other in sent if other is not row]
            if operation.type == "ok":
                others = [other for other in others if other.part == part]
            if any((other.part, other.value) in history.read_ok for other in others):
                yield "torn-transaction", row.offset, row.value


def wrong_sums(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """A reader that said to have read all below an offset, or that read at the end, and had read
    records that do not add up to 0: those of transactions whose last known record lies below."""
    audits = [(row["process"], row["offset"]) for row in _of(rows, "sum")]
    if not audits:
        return
    last: dict[int, int] = {}  # of each transaction, where its last record lies
    sender: dict[str, int] = {}
    for operation, row in history.sends:
        if row.part != part or row.value is None:
            continue
        sender[row.value] = operation.number
        places = history.places.get((part, row.value), [])
        last[operation.number] = max([last.get(operation.number, -1), *places])
    read: dict[int, dict[int, str]] = defaultdict(dict)
    for polled in _of(rows, "poll"):
        known = polled.get("offset") is not None and polled["value"] in sender
        if polled["type"] == "ok" and known:
            read[polled["process"]][polled["offset"]] = polled["value"]
    for process in {row["process"] for row in _finals(rows)}:
        behind = max((last[sender[value]] for value in read[process].values()), default=-1)
        audits.append((process, behind + 1))
    for process, end in audits:
        seen = [value for value in read[process].values() if last[sender[value]] < end]
        if sum(int(value.partition("/")[0]) for value in seen):
            yield "wrong-sum", end, None


def hanging_transactions(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """After healing, the last look at a part found its last stable offset below its high watermark,
    and it had been there for longer than a transaction may last."""
    looks = [row for row in _of(rows, "stable") if row["phase"] == "final"]
    timeout_ms = _setting(rows, "transaction.timeout.ms")
    if not looks or timeout_ms is None:
        return
    last = max(looks, key=lambda row: (row["completed_ns"], row["operation"]))
    since = min(row["completed_ns"] for row in looks if row["offset"] == last["offset"])
    is_below = last["offset"] < int(last["value"])
    if is_below and last["completed_ns"] - since > int(timeout_ms) * 1_000_000:
        yield "hanging-transaction", last["offset"], None


def streams(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """`input-twice`: an output whose input has an output already. `input-missing`: before an output
    or before the end of the inputs, in the order of inputs, some have none. `unproven-stream`: who
    has each input in an output does not say where they end."""
    ends = {row["key"]: row["offset"] for row in _of(rows, "source")}
    if _setting(rows, "each.input") is not None and not ends:
        yield "unproven-stream", None, None
    for source, end in ends.items():
        outputs = sorted(
            (int(row["key"].rpartition("@")[2]), row["offset"], row["value"])
            for row in _finals(rows)
            if (row.get("key") or "").rpartition("@")[0] == source
        )
        before = -1
        for number, offset, value in outputs:
            if number == before:
                yield "input-twice", offset, value
            elif number > before + 1 and history.log(part).complete:
                yield "input-missing", offset, value
            before = number
        if end > before + 1 and end > 0 and history.log(part).complete:
            yield "input-missing", None, None


def processing(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """A record that is known to be in the log and was processed more often than once and once for
    each reset back over it; or never, although the group claims to have come past it."""
    delivery = _setting(rows, "delivery")
    if delivery is None:
        return
    for group in {row["key"] for row in _of(rows, "process", "commit", "committed")}:
        mine = [row for row in rows if row.get("key") == group]
        claimed = list(_claimed(mine, _setting(rows, "auto.offset.reset")))
        done = _of(mine, "process")
        for offset, values in history.known.get(part, {}).items():
            times = [row for row in done if row["offset"] == offset]
            if _is_unexplained(times, mine):
                name = "processed-twice" if delivery == "at-most-once" else "processed-again"
                yield name, offset, min(values)
            elif not times and any(offset in offsets for offsets in claimed):
                name = "unprocessed" if delivery == "at-least-once" else "skipped-by-commit"
                yield name, offset, min(values)


def _resets(rows: Rows) -> list[Row]:
    """All that may have been done, in the order in which they began."""
    resets = [row for row in rows if row["f"] == "reset" and row["type"] != "fail"]
    return sorted(resets, key=lambda row: (row["invoked_ns"], row["operation"]))


def _before(reset: Row) -> int:
    return -1 if reset.get("value") is None else int(reset["value"])


def _claimed(rows: Rows, reset_to: str | None) -> Iterator[range]:
    """Between two resets the group goes from where the first one led to the highest position that
    it is known to have had: all there it has processed. (It began at 0, or where the first record
    is that it processed. Who does not know whether a reset was done claims what is behind both of
    its ends, and behind what was claimed if it was not done.)"""
    resets = _resets(rows)
    borders = [-1, *(reset["invoked_ns"] for reset in resets), float("inf")]
    begun: int | None = None
    for number, (since, until) in enumerate(pairwise(borders)):
        here = [row for row in rows if since <= row["invoked_ns"] < until]
        done = [row["offset"] for row in _of(here, "process")]
        positions = [
            row["offset"] for row in _of(here, "commit", "committed")
            if row["type"] == "ok" and row["offset"] is not None
        ]  # fmt: skip
        if number == 0:
            begun = 0 if reset_to == "earliest" else min(done, default=None)
        elif resets[number - 1]["type"] == "ok":
            begun = resets[number - 1]["offset"]
        else:
            reset = resets[number - 1]
            begun = max(reset["offset"], _before(reset), -1 if begun is None else begun)
        if begun is not None:
            yield range(begun, max(positions, default=begun))


def _is_unexplained(times: Rows, rows: Rows) -> bool:
    in_time = sorted(times, key=lambda row: (row["invoked_ns"], row["operation"]))
    for nth, row in enumerate(in_time, 1):
        back = [
            reset for reset in _resets(rows)
            if reset["invoked_ns"] <= row["invoked_ns"] and reset["offset"] <= row["offset"]
            and (reset["type"] != "ok" or row["offset"] < _before(reset))
        ]  # fmt: skip
        if nth > 1 + len(back):
            return True
    return False


def owners(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """A member to which a part was assigned at a moment at which another one owned it: between its
    own assignment and its letting go, or, where it did not let go, its last acknowledged commit."""
    turns = sorted(
        _of(rows, "assigned", "revoked", "lost"), key=lambda r: (r["invoked_ns"], r["operation"])
    )
    for later in _of(turns, "assigned"):
        for earlier in _of(turns, "assigned"):
            if earlier["process"] == later["process"] or earlier["key"] != later["key"]:
                continue
            if earlier["operation"] >= later["operation"]:
                continue
            until = _owned_until(earlier, turns, rows)
            if until is not None and earlier["completed_ns"] <= later["completed_ns"] < until:
                yield "owned-twice", None, None
                break


def _owned_until(assigned: Row, turns: Rows, rows: Rows) -> int | None:
    after = [
        row for row in turns
        if row["process"] == assigned["process"] and row["key"] == assigned["key"]
        and row["operation"] > assigned["operation"]
    ]  # fmt: skip
    if after and after[0]["f"] == "revoked":
        return int(after[0]["invoked_ns"])
    limit = after[0]["invoked_ns"] if after else None
    commits = [
        row["invoked_ns"] for row in _of(rows, "commit")
        if row["type"] == "ok" and row["process"] == assigned["process"]
        and row["key"] == assigned["key"] and row["invoked_ns"] >= assigned["completed_ns"]
        and (limit is None or row["invoked_ns"] < limit)
    ]  # fmt: skip
    return max(commits, default=None)


def share_groups(history: History, part: Part, rows: Rows) -> Iterator[Found]:
    """`delivered-after-acknowledgement`: a member was given a record by a poll that it began after
    a member had learned that it was accepted or rejected. `skipped-by-share-group`: a known record
    that nobody was given or has acknowledged, where a member rested in the end. `unproven-…`: no
    member did."""
    moments = [r for r in rows if r["f"] in ("acquire", "acknowledge", "share-rest")]
    rested = False
    for group in {row["key"] for row in moments}:
        mine = [row for row in moments if row["key"] == group]
        given = [row for row in mine if row["f"] == "acquire"]
        for offset in {row["offset"] for row in mine if row["f"] != "share-rest"}:
            ended = [
                row["completed_ns"] for row in mine
                if row["f"] == "acknowledge" and row.get("offset") == offset and row["type"] == "ok"
                and row["value"] != "release"
            ]  # fmt: skip
            late = [r for r in given if r["offset"] == offset and ended]
            if any(row["invoked_ns"] > min(ended) for row in late):
                values = history.known.get(part, {}).get(offset)
                yield "delivered-after-acknowledgement", offset, min(values) if values else None
        known = history.known.get(part, {})
        if not _came_to_rest(mine, given, max(known, default=-1)):
            continue
        rested = True
        for offset in known.keys() - {row.get("offset") for row in mine}:
            yield "skipped-by-share-group", offset, min(known[offset])
    if _setting(rows, "share.group") is not None and not rested:
        yield "unproven-share-group", None, None


def _came_to_rest(mine: Rows, given: Rows, last: int) -> bool:
    until = max((row["completed_ns"] for row in given), default=-1)
    has_all = max((row["offset"] for row in given), default=-1) >= last
    rests = [row["invoked_ns"] for row in mine if row["f"] == "share-rest"]
    return has_all and any(since >= until for since in rests)


_RULES = (
    newest_lost, torn_transactions, wrong_sums, hanging_transactions, streams, processing, owners,
    share_groups,
)  # fmt: skip
NAMES = frozenset(
    {
        "newest-lost", "torn-transaction", "wrong-sum", "hanging-transaction", "input-twice",
        "input-missing", "unproven-stream", "unprocessed", "skipped-by-commit", "processed-twice",
        "processed-again", "owned-twice", "delivered-after-acknowledgement",
        "skipped-by-share-group", "unproven-share-group",
    }
)  # fmt: skip
