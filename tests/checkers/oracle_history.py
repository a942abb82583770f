"""What a run says, as the oracle's rules need it: plain Python over rows, whatever they are.

Words that all rules use:

- *part*: a topic partition. *value*: what was sent; rows without one prove nothing.
- An operation is *ok*, *fail* or *info*; one without a completion is info.
- A send is *vouched* for when its operation is ok, or is info and some ok operation read some value
  that this operation sent: then it did commit, and all that it says of its sends holds
  (`must-have-committed?` in Jepsen).
- *Known* is what is said to be in the log: (part, offset, value) of each vouched send with an
  offset and of each read, of whatever type the reading operation was, for Kafka never shows a
  consumer what is not in the log. `least` and `greatest` are the ends of the offsets of one value.
- A *final* read is one of phase "final" by an ok operation. A part is *complete* where final reads
  are said to have reached its end, and there are some, or the log is empty or its end was never
  said (a history of Jepsen's, of which all polls are final: what they do not hold is gone), or all
  that was sent to it was sent in transactions that failed (or of which only aborts are on disks),
  and nothing was read.
- A part *deletes* if its topic has a limit of retention, or records were deleted by request.
- Before: an operation is before another when it is ok and its completion comes before the other's
  invocation; where both have the same time, the one with the lower number is the earlier.

`Reading` names the points in which Jepsen reads a history otherwise, on purpose or not; with
`JEPSENS` the same rules say what Jepsen says, which is how each difference is proved to be what it
is called (`tests.differential`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neaptide.results.run import Run
from tests.checkers.clojure_sets import first_of
from tests.checkers.histories import Story, operation_rows, run_of

Part = tuple[str, int]


@dataclass(frozen=True)
class Reading:
    """Points in which a history can be read in two ways; the first one of each is ours."""

    # Sends before and after an assign (a `seek` of the part) are compared or, as in Jepsen, not.
    assign_ends_order: bool = False
    # A record stands where it was read or acknowledged or, as in Jepsen, where its value is known
    # last; of two values at one offset Jepsen takes one.
    last_place: bool = False
    # Of a value that was sent twice every send is looked at or, as in Jepsen, the last only; it is
    # aborted where all of them failed or, in Jepsen, where one did.
    last_send_only: bool = False
    # After an indeterminate send a process is a new one or, as Jepsen takes what it is given, not.
    same_after_info: bool = False


OURS = Reading()
JEPSENS = Reading(True, True, True, True)


@dataclass(frozen=True)
class Row:
    """A record that was sent or read, or a seek."""

    f: str
    part: Part
    offset: int | None
    value: str | None
    phase: str
    rebalanced: bool
    acks: str | None
    place: int  # in its operation


@dataclass(frozen=True, eq=False)
class Operation:
    number: int
    process: int
    type: str  # ok | fail | info
    invoked: int
    completed: int | None
    rows: tuple[Row, ...]
    moves: bool  # sends or polls, even if nothing came of it

    def before(self, other: Operation) -> bool:
        if self.type != "ok" or self.completed is None:
            return False
        return (self.completed, self.number) < (other.invoked, other.number)


@dataclass(frozen=True)
class Log:
    """What the run says of one part beside its operations."""

    complete: bool
    start: int = 0  # what is below was deleted on purpose; 0 where nothing deletes
    end: int | None = None
    compacts: bool = False
    deletes: bool = False


@dataclass(frozen=True)
class History:
    operations: tuple[Operation, ...]  # in the order of their invocations
    logs: Mapping[Part, Log]
    leaders: Mapping[Part, int]
    replicas: Sequence[Mapping[str, Any]] = ()
    positions: Sequence[Mapping[str, Any]] = ()
    level: bool = True
    reading: Reading = OURS
    by_jepsen: bool = True

    @cached_property
    def repeated(self) -> list[tuple[Part, str]]:
        """Values that were sent more than once, not counting what surely failed."""
        if self.by_jepsen:
            return []
        sent = Counter((r.part, str(r.value)) for op, r in self.sends if op.type != "fail")
        return [key for key, times in sent.items() if times > 1]

    @cached_property
    def sends(self) -> list[tuple[Operation, Row]]:
        return [(op, row) for op, row in self._rows("send") if row.value is not None]

    @cached_property
    def reads(self) -> list[tuple[Operation, Row]]:
        return [(op, row) for op, row in self._rows("poll") if row.value is not None]

    def _rows(self, f: str) -> Iterator[tuple[Operation, Row]]:
        return ((op, row) for op in self.operations for row in op.rows if row.f == f)

    @cached_property
    def senders(self) -> dict[tuple[Part, str], list[tuple[Operation, Row]]]:
        """Who sent a value, in the order of completion; those without one come first."""
        found = defaultdict(list)
        for op, row in sorted(
            self.sends, key=lambda sent: (sent[0].completed or -1, sent[0].number)
        ):
            found[row.part, str(row.value)].append((op, row))
        if self.reading.last_send_only:
            return {key: sent[-1:] for key, sent in found.items()}
        return dict(found)

    @cached_property
    def readers(self) -> dict[tuple[Part, str], list[tuple[Operation, Row]]]:
        found = defaultdict(list)
        for op, row in self.reads:
            found[row.part, str(row.value)].append((op, row))
        return dict(found)

    @cached_property
    def read_ok(self) -> set[tuple[Part, str]]:
        return {
            key for key, reads in self.readers.items() if any(op.type == "ok" for op, _ in reads)
        }

    @cached_property
    def read_finally(self) -> set[tuple[Part, str]]:
        return {
            key
            for key, reads in self.readers.items()
            if any(op.type == "ok" and row.phase == "final" for op, row in reads)
        }

    @cached_property
    def vouched(self) -> set[Operation]:
        """Operations whose sends are surely in the log."""
        return {
            op
            for op, row in self.sends
            if op.type == "ok" or (op.type == "info" and (row.part, row.value) in self.read_ok)
        }

    @cached_property
    def acknowledged(self) -> dict[tuple[Part, str], set[int]]:
        """Offsets that vouched sends say."""
        found = defaultdict(set)
        for op, row in self.sends:
            if op in self.vouched and row.offset is not None:
                found[row.part, str(row.value)].add(row.offset)
        return found

    @cached_property
    def known(self) -> dict[Part, dict[int, set[str]]]:
        """What is said to be at each offset."""
        log: dict[Part, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for (part, value), offsets in self.acknowledged.items():
            for offset in offsets:
                log[part][offset].add(value)
        for _, row in self.reads:
            if row.offset is not None:
                log[row.part][row.offset].add(str(row.value))
        return log

    @cached_property
    def places(self) -> dict[tuple[Part, str], list[int]]:
        """The known offsets of each value, in order."""
        found = defaultdict(list)
        for part, log in self.known.items():
            for offset in sorted(log):
                for value in log[offset]:
                    found[part, value].append(offset)
        return dict(found)

    @cached_property
    def last_places(self) -> dict[tuple[Part, str], int]:
        """Where Jepsen takes a value to be: where it is known last, as the one that it takes."""
        return {
            (part, first_of(log[offset])): offset
            for part, log in self.known.items()
            for offset in sorted(log)
        }

    @cached_property
    def parts(self) -> set[Part]:
        return {row.part for op in self.operations for row in op.rows} | set(self.logs)

    def log(self, part: Part) -> Log:
        return self.logs.get(part, Log(False))

    def gap(self, part: Part, one: int, other: int) -> bool:
        """Whether a record is known to lie between two offsets."""
        return any(one < offset < other for offset in self.known.get(part, ()))


def of_story(story: Story, reading: Reading = OURS) -> History:
    rows = [row for n, op in enumerate(story.ops) for row in operation_rows(n, op)]
    replicas = [row for log in story.replicas for row in log]
    # As `Story.write` has it.
    by_jepsen = not replicas and story.run.get("system", "jepsen") == "jepsen"
    return of_rows(rows, run_of(**story.run), replicas, reading, by_jepsen=by_jepsen)


def of_rows(
    rows: Iterable[Mapping[str, Any]],
    run: Run,
    replicas: Sequence[Mapping[str, Any]] = (),
    reading: Reading = OURS,
    *,
    by_jepsen: bool = True,
) -> History:
    grouped: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["operation"]].append(row)
    in_order = sorted(grouped.items(), key=lambda one: (one[1][0]["invoked_ns"], one[0]))
    operations = tuple(_operation(number, mine) for number, mine in in_order)
    final = {
        row.part for op in operations for row in op.rows if row.f == "poll" and row.phase == "final"
    }
    every = [row for mine in grouped.values() for row in mine]
    logs = {}
    for r in run.final_reads:
        part = r.topic, r.partition
        of_part = [row for row in every if (row.get("topic"), row.get("partition")) == part]
        empty = (r.end_offset or 0) <= r.start_offset
        below = _deleted_below(of_part)
        logs[part] = Log(
            r.reached and (part in final or empty or _all_aborted(part, of_part, replicas)),
            min(r.start_offset, below),
            r.end_offset,
            any("compact" in value for value in _settings(of_part, "cleanup.policy")),
            below > 0,
        )
    return History(
        operations,
        logs,
        _leaders(every),
        replicas,
        [row for row in every if row["f"] in ("commit", "committed", "seek", "reset")],
        run.converged is None or run.converged.level,
        reading=reading,
        by_jepsen=by_jepsen,
    )


def _settings(rows: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    return [str(row["value"]) for row in rows if row["f"] == "setting" and row["key"] == key]


def _deleted_below(rows: Sequence[Mapping[str, Any]]) -> int:
    """Below which offset records may have been deleted on purpose."""
    policy = max(_settings(rows, "cleanup.policy"), default="delete")
    limits = [*_settings(rows, "retention.ms"), *_settings(rows, "retention.bytes")]
    if "delete" in policy and any(not limit.startswith("-") for limit in limits):
        return 2**63 - 1
    asked = (row for row in rows if row["f"] == "delete-records" and row["type"] != "fail")
    return max((int(row["offset"]) for row in asked), default=0)


def _all_aborted(
    part: Part, rows: Iterable[Mapping[str, Any]], replicas: Iterable[Mapping[str, Any]]
) -> bool:
    sent = [row for row in rows if row["f"] == "send"]
    if any(row["f"] == "poll" and row.get("offset") is not None for row in rows):
        return False
    in_transactions = [row for row in sent if row.get("mop") is not None]
    unsure = [row for row in sent if row["type"] != "fail"]
    markers = {
        row.get("value")
        for row in replicas
        if (row["topic"], row["partition"]) == part and row.get("control")
    }
    is_aborted = markers == {"abort"} and all(
        row in in_transactions and row["type"] != "ok" for row in unsure
    )
    return bool(in_transactions) and (not unsure or is_aborted)


def _operation(number: int, rows: list[Mapping[str, Any]]) -> Operation:
    first = rows[0]
    kept = sorted((row for row in rows if _is_record(row)), key=lambda row: row["row"])
    return Operation(
        number,
        first["process"],
        "info" if first["type"] == "invoke" else first["type"],
        first["invoked_ns"],
        first["completed_ns"],
        tuple(
            Row(
                row["f"],
                (row["topic"], row["partition"]),
                row.get("offset"),
                value_of(row),
                row.get("phase") or "main",
                bool(row.get("rebalanced")),
                row.get("acks"),
                row["row"],
            )
            for row in kept
        ),
        any(row["f"] in ("send", "poll") for row in rows),
    )


def value_of(row: Mapping[str, Any]) -> str | None:
    """Of a null value what it is called, with its key; of an operation's record, or a replica's."""
    value: str | None = row.get("value")
    f = row.get("f", "replica")
    is_there = f in ("poll", "replica") and row.get("offset") is not None
    if value is None and not row.get("control") and (f == "send" or is_there):
        return "⟨null⟩" if row.get("key") is None else f"⟨null, key {row['key']}⟩"
    return value


def _is_record(row: Mapping[str, Any]) -> bool:
    if row.get("topic") is None or row.get("partition") is None:
        return False
    if row["f"] == "poll":
        return row.get("offset") is not None or row.get("value") is not None
    return row["f"] in ("send", "seek")


def _leaders(rows: Iterable[Mapping[str, Any]]) -> dict[Part, int]:
    """The last leader of each part that the coordination service named."""
    found: dict[Part, int] = {}
    for row in sorted(rows, key=lambda row: (row["invoked_ns"], row["operation"])):
        if row["f"] == "leader" and row.get("topic") is not None and row.get("value"):
            found[row["topic"], row["partition"]] = json.loads(row["value"]).get("leader")
    return found
