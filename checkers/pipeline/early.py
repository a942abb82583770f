"""What the rows that have come so far prove, whatever rows come later: the rules of `--follow`.

Definitions are those of `neaptide.checkers.rules`. Pure: rows in, what was found and what is kept
out. What is kept is small, and bounded by the rule below.

- `by_partition`: a send that began after another's acknowledgement was appended behind it, if the
  log still had it. Acknowledged at a lower offset, it proves that the log was cut between, or lies
  out of order (`G0-realtime`). Kept: the highest acknowledgement.
- `by_writer`: what rests on the order of one process or group, so on nothing being missing between:
  polls, sends, commits. All that a process does is in the files of one writer, which are numbered:
  where a number is missing, what was before it is forgotten. Sends of a process may be under way
  together, and one between two others may still end as unknown, after which nothing would be said:
  two are compared when every operation of the writer that began between them is here. A seek by
  anybody starts all groups of the partition anew. Kept: where each process, and each group, was.
- `by_epoch`: a response with a lower high watermark than one before it of the same leader epoch to
  the same follower. Kept: the highest of each.

The rule: what is forgotten can only make a rule silent. So everything that is kept is bounded: the
longest untouched goes first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Row = Mapping[str, Any]
Found = dict[str, Any]  # columns of `neaptide.results.schema.ANOMALIES` but for the run
State = dict[str, Any]  # as JSON has it
Rule = Callable[[State, Sequence[Row]], list[Found]]

PLACES_MAX: Final = 10_000  # processes and partitions, or groups and partitions, of one writer
RANGES_MAX: Final = 1_000  # gaps between the operations of one writer
GROUPS_MAX: Final = 100  # of one partition
STEPS_MAX: Final = 100  # of one group in one partition


def found(
    anomaly: str,
    row: Row,
    evidence: Mapping[str, Any],
    *,
    offset: int | None = None,
    value: str | None = None,
    operation: int | None = None,
) -> Found:
    return {
        "anomaly": anomaly,
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": offset,
        "value": value,
        "operation": operation,
        "evidence": json.dumps(evidence),
    }


# --- by partition --------------------------------------------------------------------------------


def by_partition(state: State, rows: Sequence[Row]) -> list[Found]:
    """At one and the same moment nothing is before anything: beginnings come first."""
    acked = [row for row in rows if _is_acked(row)]
    moments = sorted(
        [(row["completed_ns"], 1, row["operation"], row) for row in acked]
        + [(row["invoked_ns"], 0, row["operation"], row) for row in acked],
        key=lambda moment: moment[:3],
    )
    reported: list[Found] = []
    greatest: State | None = state.get("ack")
    for at_ns, is_end, _, row in moments:
        # Rows come late: one that is kept may have ended after this began.
        before = greatest if greatest is not None and greatest["at_ns"] < at_ns else None
        if not is_end and before is not None and before["offset"] > row["offset"]:
            reported.append(_overtaken(row, before))
        elif is_end and (greatest is None or row["offset"] > greatest["offset"]):
            greatest = {name: row[name] for name in ("offset", "value", "operation")}
            greatest["at_ns"] = at_ns
    if greatest is not None:
        state["ack"] = greatest
    return reported


def _is_acked(row: Row) -> bool:
    return bool(row["f"] == "send" and row["type"] == "ok" and row["offset"] is not None)


def _overtaken(row: Row, before: State) -> Found:
    evidence = {
        "sent_ns": row["invoked_ns"],
        "other_value": before["value"],
        "other_offset": before["offset"],
        "other_operation": before["operation"],
        "acknowledged_ns": before["at_ns"],
    }
    at = {name: row[name] for name in ("offset", "value", "operation")}
    return found("G0-realtime", row, evidence, **at)


# --- by writer -----------------------------------------------------------------------------------


def by_writer(state: State, rows: Sequence[Row]) -> list[Found]:
    """Rows of whole files of one writer, each with the number of its `file`."""
    seen = _Seen.of(state)
    reported: list[Found] = []
    of_file: dict[int, list[Row]] = {}
    for row in rows:
        of_file.setdefault(row["file"], []).append(row)
    for number, of_this in sorted(of_file.items()):
        if number < seen.next_file:
            continue  # it comes too late to be between what it was between
        if number > seen.next_file:
            seen = _Seen()
        seen.next_file = number + 1
        reported += _in_order(seen, of_this)
    seen.forget()
    state.clear()
    state.update(seen.to_json())
    return reported


@dataclass
class _Seen:
    """What is kept of a writer."""

    next_file: int = 0
    operations: list[list[int]] = field(default_factory=list)  # ranges, first and last
    places: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # the last touched last

    @classmethod
    def of(cls, state: State) -> _Seen:
        if not state:
            return cls()
        places = {tuple(key): place for key, place in state["places"]}
        return cls(state["next_file"], state["operations"], places)

    def to_json(self) -> State:
        return {
            "next_file": self.next_file,
            "operations": self.operations,
            "places": [[list(key), place] for key, place in self.places.items()],
        }

    def take(self, operations: Iterable[int]) -> None:
        ranges = sorted([*self.operations, *([number, number] for number in set(operations))])
        joined: list[list[int]] = []
        for first, last in ranges:
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
        self.operations = joined[-RANGES_MAX:]

    def has_between(self, first: int, last: int) -> bool:
        return any(low <= first and last <= high for low, high in self.operations)

    def place(self, *key: Any) -> Any:
        return self.places.get(key)

    def put(self, place: Any, *key: Any) -> None:
        self.places.pop(key, None)
        self.places[key] = place

    def drop(self, *key: Any) -> None:
        self.places.pop(key, None)

    def forget(self) -> None:
        for key in list(self.places)[: max(0, len(self.places) - PLACES_MAX)]:
            del self.places[key]


def _in_order(seen: _Seen, rows: Sequence[Row]) -> list[Found]:
    seen.take(row["operation"] for row in rows)
    reported: list[Found] = []
    placed = [row for row in rows if row["partition"] is not None]
    for row in sorted(placed, key=lambda row: (row["invoked_ns"], row["operation"], row["row"])):
        match row["f"]:
            case "poll" if row["offset"] is not None:
                reported += _polled(seen, row)
            case "send" if row["type"] != "fail":
                reported += _sent(seen, row)
            case "seek":
                _sought(seen, row)
    reported += _committed(seen, placed)
    return reported


def _polled(seen: _Seen, row: Row) -> list[Found]:
    key = ("poll", row["topic"], row["partition"], row["process"], row["phase"] == "final")
    before = seen.place(*key) or {"read": None, "settled": None}
    last = before["read"]
    inside = last is not None and last[0] == row["operation"]
    if not inside:
        last = before["settled"]
    read = [row["operation"], row["offset"]]
    settled = read if row["type"] == "ok" else before["settled"]
    seen.put({"read": read, "settled": settled}, *key)
    if last is None or row["offset"] > last[1] or (inside and row["rebalanced"]):
        return []
    name = "int-nonmonotonic-poll" if inside else "nonmonotonic-poll"
    return [_step(name, row, last)]


def _step(name: str, row: Row, last: Sequence[int]) -> Found:
    evidence = {
        "process": row["process"],
        "previous_offset": last[1],
        "previous_operation": last[0],
    }
    at = {name: row[name] for name in ("offset", "value", "operation")}
    return found(name, row, evidence, **at)


def _sought(seen: _Seen, row: Row) -> None:
    for is_final in (False, True):
        seen.drop("poll", row["topic"], row["partition"], row["process"], is_final)


def _sent(seen: _Seen, row: Row) -> list[Found]:
    key = ("send", row["topic"], row["partition"], row["process"])
    last = seen.place(*key)
    operation = row["operation"]
    if last is not None and (last[0] > operation or last[2] > row["invoked_ns"]):
        return []  # it began before one that is here already
    place = row["offset"] if row["type"] == "ok" else None
    seen.put([operation, place, row["invoked_ns"]], *key)
    if last is None or last[1] is None or place is None or place >= last[1]:
        return []
    if last[0] == operation:
        return [_step("int-nonmonotonic-send", row, last)]
    return [_step("nonmonotonic-send", row, last)] if seen.has_between(last[0], operation) else []


def _committed(seen: _Seen, rows: Sequence[Row]) -> list[Found]:
    """Each position is compared with those that were acknowledged before it was asked for."""
    reported: list[Found] = []
    asked = [row for row in rows if row["f"] in ("seek", "reset") or _is_position(row)]
    for row in sorted(asked, key=lambda row: (_counts_from(row), row["operation"])):
        of_partition = ("groups", row["topic"], row["partition"])
        groups = seen.place(*of_partition) or {}
        if row["f"] == "seek":
            seen.drop(*of_partition)
            continue
        group = row["key"] if row["key"] is not None else f"process {row['process']}"
        of_reset = ("reset", row["topic"], row["partition"], group)
        if row["f"] == "reset":
            if row["type"] != "fail":
                groups.pop(group, None)
                seen.put(groups, *of_partition)
                seen.put([row["invoked_ns"], row["type"] == "ok"], *of_reset)
            continue
        reset_ns, is_sure = seen.place(*of_reset) or [-1, True]
        if not is_sure or row["invoked_ns"] < reset_ns:
            continue  # of no order with the reset
        steps = groups.get(group, [])  # [when, highest so far], both rising
        offset = -1 if row["offset"] is None else row["offset"]
        highest = max((step[1] for step in steps if step[0] < row["invoked_ns"]), default=-1)
        if offset < highest:
            reported.append(_went_back(row, group, highest))
        if not steps or offset > steps[-1][1]:
            groups.pop(group, None)
            groups[group] = [*steps, [row["completed_ns"], offset]][-STEPS_MAX:]
        seen.put(dict(list(groups.items())[-GROUPS_MAX:]), *of_partition)
    return reported


def _is_position(row: Row) -> bool:
    asked = row["f"] == "committed" or (row["f"] == "commit" and row["offset"] is not None)
    return bool(asked and row["type"] == "ok")


def _counts_from(row: Row) -> int:
    """A reset starts anew where it begins, which is where its own commit does."""
    return int(row["invoked_ns"]) if row["f"] == "reset" else _ended(row)


def _ended(row: Row) -> int:
    ended: int | None = row["completed_ns"]
    return int(row["invoked_ns"]) if ended is None else ended


def _went_back(row: Row, group: str, highest: int) -> Found:
    evidence = {
        "how": "went back" if row["f"] == "commit" else "lost",
        "group": group,
        "process": row["process"],
        "acknowledged_before": highest,
    }
    return found(
        "commit-regression", row, evidence, offset=row["offset"], operation=row["operation"]
    )


# --- by epoch ------------------------------------------------------------------------------------


def by_epoch(state: State, rows: Sequence[Row]) -> list[Found]:
    """Responses of one leader epoch to one follower about one partition."""
    reported: list[Found] = []
    carried = [row for row in rows if _carries_a_high_watermark(row)]
    in_time = sorted(carried, key=lambda row: (row["responded_ns"], row["round"]))
    for row in in_time:
        now = {"at_ns": row["responded_ns"], "high_watermark": row["high_watermark"]}
        highest = state.get("highest")
        if highest is None or now["high_watermark"] > highest["high_watermark"]:
            state["highest"] = now
        elif now["high_watermark"] < highest["high_watermark"] and highest["at_ns"] < now["at_ns"]:
            reported.append(_fell(row, highest["high_watermark"]))
    return reported


def _carries_a_high_watermark(row: Row) -> bool:
    return bool(
        row["responded_ns"] is not None
        and not row["error"]
        and row["high_watermark"] is not None
        and row["high_watermark"] >= 0
        and row["leader_epoch"] is not None
    )


def _fell(row: Row, highest: int) -> Found:
    names = ("leader", "leader_epoch", "follower", "round", "responded_ns")
    evidence = {**{name: row[name] for name in names}, "previous_high_watermark": highest}
    return found("high-watermark-regression", row, evidence, offset=row["high_watermark"])
