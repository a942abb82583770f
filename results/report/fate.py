"""How an acknowledged record was lost, in a sentence: who had it, and when it was decided. Pure.

It is decided when a broker becomes leader that does not have the record: whoever still has it
truncates it when it follows that leader. Why the new leader does not have it is shown by its own
fetch rounds: it never got it, it truncated it, or it lost it with its power.

What the rows do not show is not said: without an election there is no sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from neaptide.results.report.rows import Row, RunData, fault_of

_LOST: Final = ("lost-write", "unseen", "committed-then-lost", "inconsistent-offsets")
_LOOKED_AT: Final = 40
_BEFORE_NS: Final = 10_000_000_000
_AFTER_NS: Final = 60_000_000_000
_DOWN: Final = {
    "kill": "was killed",
    "power_off": "lost its power",
    "pause": "was paused",
    "stop": "was stopped",
}
_UP: Final = ("restart", "resume")


@dataclass(frozen=True, slots=True)
class Held:
    """One replica and the record, up to the moment of decision. Times are ns of the run."""

    name: str
    since_ns: int | None = None  # None: it never had it
    truncated_ns: int | None = None
    truncated_to: int | None = None
    to_high_watermark: bool = False
    power_ns: int | None = None  # it had not flushed it when its power failed
    down_ns: int | None = None  # it was down at the moment of decision, since then
    down_how: str = ""

    @property
    def has(self) -> bool:
        return self.since_ns is not None and self.truncated_ns is None and self.power_ns is None


@dataclass(frozen=True, slots=True)
class Fate:
    record: str
    offset: int
    acks: str
    acknowledged_ns: int
    leader: str  # that acknowledged it
    decided_ns: int
    heir: Held  # the leader without it
    epoch: int
    others: tuple[Held, ...]

    def __str__(self) -> str:
        first = (
            f"{self.record} (offset {self.offset}, acknowledged at {_s(self.acknowledged_ns)} by"
            f" {self.leader}, acks={self.acks}) was lost at {_s(self.decided_ns)}, when"
            f" {self.heir.name} became leader of epoch {self.epoch} without it."
        )
        return " ".join([first, _of_heir(self.heir), *map(_of_other, self.others)])


def fates(data: RunData, most: int) -> list[Fate]:
    """Of the records that were lost, one for each moment at which some were; of the first records
    only, for there may be thousands."""
    table = data.operations
    few = table.filter(pc.is_in(table["f"], pa.array(["nemesis", "leader"]))).to_pylist()
    if not any(row["f"] == "leader" for row in few):
        return []
    found: dict[tuple[str, int, int], Fate] = {}
    for row in [one for one in data.anomalies if one["anomaly"] in _LOST][:_LOOKED_AT]:
        if row["value"] is None or row["partition"] is None or len(found) == most:
            continue
        place = str(row["topic"]), int(row["partition"])
        fate = _fate_in(data, few, str(row["value"]), *place)
        if fate is not None:
            found.setdefault((*place, fate.decided_ns), fate)
    return list(found.values())


def _fate_in(data: RunData, few: list[Row], record: str, topic: str, partition: int) -> Fate | None:
    table, rounds = data.operations, data.fetch_rounds
    own = table.filter(pc.equal(table["value"], record)).to_pylist()
    acked_ns = [row["completed_ns"] for row in own if row["f"] == "send" and row["type"] == "ok"]
    if not acked_ns or acked_ns[0] is None:
        return None
    near = pc.and_(
        pc.and_(pc.equal(rounds["partition"], partition), pc.equal(rounds["topic"], topic)),
        pc.and_(
            pc.greater_equal(rounds["requested_ns"], acked_ns[0] - _BEFORE_NS),
            pc.less_equal(rounds["requested_ns"], acked_ns[0] + _AFTER_NS),
        ),
    )
    rows = rounds.filter(near).to_pylist()
    return fate_of(record, topic, partition, [*few, *own], rows, data.names)


def fate_of(
    record: str,
    topic: str,
    partition: int,
    operations: Iterable[Row],
    rounds: Iterable[Row],
    brokers: Mapping[int, str],
) -> Fate | None:
    """`operations`: of the record, of leaders and of faults. `brokers`: names by id.

    None: it was not acknowledged at an offset, or no leader is known to be without it.
    """
    rows = sorted(operations, key=lambda row: row["invoked_ns"])
    acks = [r for r in rows if r["f"] == "send" and r["type"] == "ok" and r["value"] == record]
    if not acks or acks[0]["offset"] is None or acks[0]["completed_ns"] is None:
        return None
    ack = acks[0]
    offset, acked_ns = int(ack["offset"]), int(ack["completed_ns"])
    leaders = [
        (row["invoked_ns"], json.loads(row["value"])["leader"], row["leader_epoch"])
        for row in rows
        if row["f"] == "leader" and (row["topic"], row["partition"]) == (topic, partition)
    ]
    before = [one for one in leaders if one[0] <= acked_ns and one[1] is not None]
    if not before:
        return None
    _, first, _ = before[-1]
    mine = sorted(
        (r for r in rounds if (r["topic"], r["partition"]) == (topic, partition)),
        key=lambda r: r["requested_ns"],
    )
    elections = [one for one in leaders if one[0] > acked_ns and one[1] is not None]
    for at_ns, heir, epoch in elections:
        held = {
            broker: _held(broker, name, offset, partition, first, acked_ns, at_ns, mine, rows)
            for broker, name in brokers.items()
        }
        if heir in held and not held[heir].has:
            others = tuple(one for broker, one in held.items() if broker != heir)
            leader = brokers.get(first, str(first))
            return Fate(
                record, offset, str(ack["acks"]), acked_ns, leader, at_ns, held[heir], epoch, others
            )
    return None


def _held(
    broker: int,
    name: str,
    offset: int,
    partition: int,
    leader: int,
    acked_ns: int,
    until_ns: int,
    rounds: Sequence[Row],
    operations: Sequence[Row],
) -> Held:
    down_ns, how = _down(name, until_ns, operations)
    power_ns = _lost_with_power(name, rows=operations, partition=partition, until_ns=until_ns)
    if broker == leader:
        power_ns = power_ns if power_ns is not None and power_ns > acked_ns else None
        return Held(name, acked_ns, power_ns=power_ns, down_ns=down_ns, down_how=how)
    since_ns = truncated_ns = truncated_to = None
    mark = 0  # the high watermark that it was given last
    to_mark = False
    for row in rounds:
        if row["follower"] != broker or row["requested_ns"] > until_ns:
            continue
        asked = row["fetch_offset"]
        if since_ns is None:
            if row["leader"] == leader and asked > offset:
                since_ns = row["requested_ns"]
        elif truncated_ns is None and asked <= offset:
            truncated_ns, truncated_to = row["requested_ns"], asked
            to_mark = asked == mark
        if row["delivered_ns"] is not None and row["high_watermark"] is not None:
            mark = row["high_watermark"]
    if since_ns is None or power_ns is None or not since_ns < power_ns < (truncated_ns or until_ns):
        power_ns = None
    return Held(name, since_ns, truncated_ns, truncated_to, to_mark, power_ns, down_ns, how)


def _lost_with_power(name: str, rows: Sequence[Row], partition: int, until_ns: int) -> int | None:
    """When the broker last lost records of the partition so, up to a moment."""
    found = None
    for row in rows:
        if row["f"] == "nemesis" and row["invoked_ns"] <= until_ns:
            verb, fields = fault_of(row)
            lost = fields.get("lost") if verb == "power_off" else None
            if str(fields.get("broker")) == name and (lost or {}).get(str(partition)):
                found = row["invoked_ns"]
    return found


def _down(name: str, at_ns: int, operations: Sequence[Row]) -> tuple[int | None, str]:
    """Since when it is down at a moment, and how."""
    since_ns, how = None, ""
    for row in operations:
        if row["f"] != "nemesis" or row["invoked_ns"] > at_ns:
            continue
        verb, fields = fault_of(row)
        if str(fields.get("broker")) != name:
            continue
        if verb in _DOWN:
            since_ns, how = row["invoked_ns"], _DOWN[verb]
        elif verb in _UP:
            since_ns, how = None, ""
    return since_ns, how


def _of_heir(held: Held) -> str:
    if held.since_ns is None:
        return f"{held.name} never got it."
    if held.power_ns is not None:
        return (
            f"{held.name} had it from {_s(held.since_ns)}, and lost it with its power at"
            f" {_s(held.power_ns)}."
        )
    where = "its high watermark, " if held.to_high_watermark else ""
    return (
        f"{held.name} had it from {_s(held.since_ns)}, and truncated to {where}offset"
        f" {held.truncated_to}, at {_s(held.truncated_ns)}."
    )


def _of_other(held: Held) -> str:
    if held.since_ns is None:
        return f"{held.name} never got it."
    if not held.has:
        return _of_heir(held)
    if held.down_ns is None:
        return f"{held.name} had it, and was not elected."
    return f"{held.name} had it, and {held.down_how} at {_s(held.down_ns)}."


def _s(ns: int | None) -> str:
    return "?" if ns is None else f"{ns / 1e9:.3f} s"
