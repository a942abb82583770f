"""The story of a run, as the fetch-round diagram shows it: moments in order of time. Pure.

From operations, fetch rounds and faults it follows every replica's log (what it holds, its LEO, its
HW), so that each moment can say what changed. Rounds that moved nothing are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from neaptide.results.report.rounds import anchor, request_in_words, response_in_words
from neaptide.results.report.rows import Row, fault_of

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
Tone = Literal["plain", "good", "bad", "quiet"]


@dataclass(frozen=True, slots=True)
class LogState:
    """The end of a replica's log: records as (offset, value), LEO and HW."""

    records: tuple[tuple[int, str], ...]
    log_end_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message from one lifeline to another; `lost`: it was held or dropped and never arrived."""

    at_ns: int
    source: str
    destination: str
    text: str
    tone: Tone = "plain"
    lost: bool = False
    anchor: str = field(default="", compare=False)  # its id in a page; empty: it has none
    says: str = field(default="", compare=False)  # all of the message, in words


@dataclass(frozen=True, slots=True)
class Badge:
    """Something that happens to a broker: SIGKILL, a start, a new role."""

    at_ns: int
    lifeline: str
    text: str
    tone: Tone = "plain"
    anchor: str = field(default="", compare=False)
    says: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Cells:
    """A replica's log has changed."""

    at_ns: int
    lifeline: str
    state: LogState


@dataclass(frozen=True, slots=True)
class Line:
    """A line across: a new leader epoch, or a remark."""

    at_ns: int
    text: str
    tone: Tone = "quiet"


Moment = Arrow | Badge | Cells | Line


@dataclass(slots=True)
class _Replica:
    values: dict[int, str] = field(default_factory=dict)
    log_end_offset: int = 0
    high_watermark: int = 0

    def state(self) -> LogState:
        shown = sorted(self.values.items())[-4:]
        return LogState(tuple(shown), self.log_end_offset, self.high_watermark)

    def truncate(self, offset: int) -> None:
        self.values = {o: v for o, v in self.values.items() if o < offset}
        self.log_end_offset = min(self.log_end_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)


class Story:
    """Feed it the rows of one partition, in order of time; take `moments`.

    `sent_to`: by value, the broker that a step of the scenario names. Whom other clients ask no row
    says: a send is drawn to the leader of the moment at which it began.
    """

    def __init__(
        self, names: Mapping[int, str], partition: int, sent_to: Mapping[str, str] | None = None
    ) -> None:
        self.moments: list[Moment] = []
        self._names = names
        self._partition = partition
        self._replicas = {name: _Replica() for name in names.values()}
        self._leader: str | None = None
        self._sent_to = {v: name for v, name in (sent_to or {}).items() if name in self._replicas}
        self._asked: dict[tuple[int, int], str | None] = {}  # by operation and row of a send

    def in_order(self, operations: Iterable[Row], rounds: Iterable[Row]) -> list[Moment]:
        """The moments of a whole run."""
        happenings: list[tuple[int, int, Any, Row]] = []
        next_offsets = _next_fetch_offsets(rounds := list(rounds))
        for row in operations:
            self._queue_operation(row, happenings)
        for number, row in enumerate(rounds):
            happenings.append((row["requested_ns"], 3, self._requested, row))
            if row["responded_ns"] is not None:
                at_ns = row["delivered_ns"] or row["responded_ns"]
                answered = dict(row) | {"next_offset": next_offsets[number]}
                happenings.append((at_ns, 4, self._answered, answered))
        happenings.sort(key=lambda happening: happening[:2])
        for at_ns, _, add, row in happenings:
            add(at_ns, row)
        return self.moments

    def _queue_operation(self, row: Row, happenings: list[tuple[int, int, Any, Row]]) -> None:
        match row["f"]:
            case "send" if row["partition"] == self._partition:
                happenings.append((row["invoked_ns"], 2, self._sent, row))
                if row["completed_ns"] is not None:
                    happenings.append((row["completed_ns"], 5, self._completed, row))
            case "poll" if row["partition"] == self._partition:
                happenings.append((row["completed_ns"] or row["invoked_ns"], 6, self._polled, row))
            case "nemesis":
                happenings.append((row["invoked_ns"], 0, self._fault, row))
            case "leader" if row["partition"] == self._partition:
                happenings.append((row["invoked_ns"], 1, self._leader_changed, row))

    # --- clients ---

    def _sent(self, at_ns: int, row: Row) -> None:
        asked = self._sent_to.get(row["value"], self._leader)
        self._asked[row["operation"], row["row"]] = asked
        if asked is None:
            return
        self._message(at_ns, PRODUCER, asked, f"{row['value']}", row, part="sent")
        if row["offset"] is not None:
            replica = self._replicas[asked]
            replica.values[row["offset"]] = row["value"]
            replica.log_end_offset = max(replica.log_end_offset, row["offset"] + 1)
            self._show(at_ns, asked)

    def _completed(self, at_ns: int, row: Row) -> None:
        asked = self._asked.get((row["operation"], row["row"]))
        if row["type"] == "ok":
            self._acknowledged(at_ns, row, self._sent_to.get(row["value"], self._leader or asked))
            return
        text = f"{row['value']}: {row['error'] or 'no answer'} ({row['type']})"
        if asked is None:
            self._at_producer(at_ns, text, row, "bad")
        else:
            self._message(at_ns, asked, PRODUCER, text, row, "bad", part="answered", lost=True)

    def _acknowledged(self, at_ns: int, row: Row, broker: str | None) -> None:
        where = "" if row["offset"] is None else f" at offset {row['offset']}"
        text = f"ack {row['value']}{where} (acks={row['acks']})"
        if broker is None:
            self._at_producer(at_ns, text, row, "good")
            return
        self._message(at_ns, broker, PRODUCER, text, row, "good", part="answered")
        if row["acks"] == "all" and row["offset"] is not None:
            self._raise(at_ns, broker, row["offset"] + 1)

    def _at_producer(self, at_ns: int, text: str, row: Row, tone: Tone) -> None:
        """The end of a send of which nobody knows which broker was asked."""
        place = f"operation-{row['operation']}-answered"
        said = _operation_in_words(row)
        self.moments.append(Badge(at_ns, PRODUCER, text, tone, place, said))

    def _polled(self, at_ns: int, row: Row) -> None:
        final = "final read: " if row["phase"] == "final" else ""
        text = f"{final}{row['value']} at offset {row['offset']}"
        leader = self._leader or CONSUMER
        self._message(at_ns, leader, CONSUMER, text, row, "good", part=f"read-{row['row']}")

    def _message(
        self,
        at_ns: int,
        source: str,
        destination: str,
        text: str,
        row: Row,
        tone: Tone = "plain",
        *,
        part: str,
        lost: bool = False,
    ) -> None:
        """Between a client and its broker."""
        place = f"operation-{row['operation']}-{part}"
        said = _operation_in_words(row)
        self.moments.append(Arrow(at_ns, source, destination, text, tone, lost, place, said))

    # --- the wire ---

    def _requested(self, at_ns: int, row: Row) -> None:
        follower, leader = self._names[row["follower"]], self._names[row["leader"]]
        replica = self._replicas[follower]
        offset = row["fetch_offset"]
        if offset < replica.log_end_offset:
            to = "its HW, " if offset == replica.high_watermark else ""
            text = f"has truncated to {to}{offset}"
            said = (
                f"{follower} had fetched to offset {replica.log_end_offset}, and asks from {offset}"
                f" now: what lies between is no longer in its log."
            )
            place = anchor(row, "truncation")
            self.moments.append(Badge(at_ns, follower, text, "bad", place, said))
            replica.truncate(offset)
            self._show(at_ns, follower)
        text = f"fetch from {offset} (round {row['round']})"
        message = anchor(row, "request"), request_in_words(row, self._names)
        if row["request_fate"] != "passed":
            lost = row["forwarded_ns"] is None
            text = f"{text}: {_fate(row['request_fate'], row['held_ns'])}"
            self.moments.append(Arrow(at_ns, follower, leader, text, "bad", lost, *message))
        elif row["responded_ns"] is not None and self._moves(row):
            self.moments.append(Arrow(at_ns, follower, leader, text, "plain", False, *message))

    def _moves(self, row: Row) -> bool:
        """Whether a round brings its follower anything, or would have."""
        replica = self._replicas[self._names[row["follower"]]]
        mark = row["high_watermark"]
        news = mark is not None and mark > replica.high_watermark
        return bool(row["records_bytes"]) or news or row["response_fate"] != "passed"

    def _answered(self, at_ns: int, row: Row) -> None:
        if not self._moves(row):
            return
        follower, leader = self._names[row["follower"]], self._names[row["leader"]]
        replica, source = self._replicas[follower], self._replicas[leader]
        mark = row["high_watermark"]
        end = row["next_offset"]
        if row["records_bytes"] and end is None:
            end = source.log_end_offset
        last = min(end or row["fetch_offset"], row["fetch_offset"] + _BROUGHT_MAX)
        offsets = range(row["fetch_offset"], last)
        brought = [source.values.get(offset, f"offset {offset}") for offset in offsets]
        records = ", ".join(brought[:3]) + (" …" if len(brought) > 3 else "")
        text = ", ".join(part for part in (records, f"HW {mark}") if part)
        if mark is not None and mark > source.high_watermark:
            self._raise(at_ns, leader, mark)
        message = anchor(row, "response"), response_in_words(row, self._names)
        if row["delivered_ns"] is None:
            text = f"{text}: {_fate(row['response_fate'], row['held_ns'])}"
            self.moments.append(Arrow(at_ns, leader, follower, text, "bad", True, *message))
            return
        tone: Tone = "plain"
        if row["response_fate"] == "held":
            text, tone = f"{text}: {_fate('held', row['held_ns'])}", "bad"
        self.moments.append(Arrow(at_ns, leader, follower, text, tone, False, *message))
        replica.values.update(zip(offsets, brought, strict=True))
        replica.log_end_offset = max(replica.log_end_offset, end or 0)
        if mark is not None:
            replica.high_watermark = min(mark, replica.log_end_offset)
        self._show(at_ns, follower)

    # --- faults and leaders ---

    def _fault(self, at_ns: int, row: Row) -> None:
        verb, fields = fault_of(row)
        broker = fields.get("broker")
        if broker is not None:
            name = str(broker)
            text = _BADGES.get(verb, verb)
            if verb == "power_off":
                lost = sum(fields.get("lost", {}).values())
                text = f"power off, {lost} lost" if lost else "power off"
                if name in self._replicas:
                    replica = self._replicas[name]
                    replica.truncate(replica.log_end_offset - fields["lost"].get(self._key(), 0))
            tone: Tone = "good" if verb in _UNDOING else "bad"
            self.moments.append(Badge(at_ns, name, text, tone))
            return
        if verb == "release" and not fields.get("messages"):
            return  # the rule held nothing any more
        self.moments.append(Line(at_ns, _sentence(verb, fields), "bad"))

    def _key(self) -> str:
        return str(self._partition)

    def _leader_changed(self, at_ns: int, row: Row) -> None:
        value = json.loads(row["value"])
        leader = value["leader"]
        isr = "{" + ", ".join(self._names.get(b, str(b)) for b in sorted(value["isr"])) + "}"
        name = None if leader is None else self._names.get(leader, str(leader))
        if name == self._leader:
            self.moments.append(Line(at_ns, f"ISR {isr}"))
            return
        self._leader = name
        self.moments.append(Line(at_ns, f"epoch {row['leader_epoch']}, ISR {isr}"))
        if name is None:
            self.moments.append(Line(at_ns, "the partition has no leader", "bad"))
        else:
            self.moments.append(Badge(at_ns, name, f"leader, epoch {row['leader_epoch']}"))
            if row["leader_epoch"] == 0 or self._replicas[name].log_end_offset:
                self._show(at_ns, name)  # else rows are left out: its log is not known

    # --- logs ---

    def _raise(self, at_ns: int, name: str, mark: int) -> None:
        replica = self._replicas.get(name)
        if replica is not None and mark > replica.high_watermark:
            replica.high_watermark = min(mark, replica.log_end_offset)
            self._show(at_ns, name)

    def _show(self, at_ns: int, name: str) -> None:
        self.moments.append(Cells(at_ns, name, self._replicas[name].state()))


_BROUGHT_MAX: Final = 10_000  # records of one response that are looked at
_UNDOING: Final = ("restart", "resume", "add_voter")
_BADGES: Final = {
    "kill": "SIGKILL",
    "pause": "paused",
    "resume": "resumed",
    "restart": "started",
    "stop": "stopped",
    "remove_voter": "no voter",
    "add_voter": "voter again",
}


def _operation_in_words(row: Row) -> str:
    """A send or a poll of one record: what was asked, and how it ended."""
    where = f"{row['topic']}-{row['partition']}"
    who = f"operation {row['operation']} of process {row['process']}"
    begun = f"Begun at {row['invoked_ns'] / 1e9:.3f} s"
    ended = row["completed_ns"]
    over = f", over at {ended / 1e9:.3f} s." if ended is not None else ", never over."
    if row["f"] == "poll":
        phase = "final read" if row["phase"] == "final" else "poll"
        found = f"{row['value']} at offset {row['offset']}"
        return f"A {phase} of {where} returned {found} ({who}). {begun}{over}"
    how = {"ok": "acknowledged", "fail": "failed", "info": "its end is not known"}
    at = "" if row["offset"] is None else f" at offset {row['offset']}"
    error = f", {row['error']}" if row["error"] else ""
    said = how.get(row["type"], "no completion was recorded")
    return (
        f"{row['value']} to {where}, acks={row['acks']} ({who}): {said}{at}{error}. {begun}{over}"
    )


def _fate(fate: str, held_ns: int) -> str:
    seconds = f"{held_ns / 1e9:.1f} s" if held_ns >= 1e8 else f"{held_ns / 1e6:.0f} ms"
    if fate == "held":
        return f"held {seconds}"
    return f"held {seconds}, {fate}" if held_ns else fate


def _sentence(verb: str, fields: Mapping[str, Any]) -> str:
    what = fields.get("response") or fields.get("request")
    if what:
        kind = "responses" if "response" in fields else "requests"
        where = f" where {fields['where']}" if fields.get("where") else ""
        if verb == "hit":  # what a rule has done to one message
            verb, kind = f"{fields['rule']}: {fields['how'].replace('_', ' ')}", kind[:-1]
        return f"{verb} {what} {kind} {fields['from']} → {fields['to']}{where}"
    if verb == "measured":
        return f"measured: {fields['times']} × {fields['unit']} ({fields['elapsed_ms']} ms)"
    if verb == "aim":
        return f"aimed at partition {fields.get('partition')}: {fields.get('shape')}"
    if verb == "clock":
        return f"{fields.get('broker')}'s clock is {fields.get('ahead_ms'):+} ms from the real one"
    if verb == "damage":
        return f"{fields.get('broker')}'s disk: {fields.get('kind')}, {fields.get('what')}"
    if verb in ("inject", "end_injections", "keep_snapshot", "put_back"):
        said = [f"{name} {value}" for name, value in fields.items() if value and name != "broker"]
        return f"{verb.replace('_', ' ')} {fields.get('broker')}: {', '.join(said)}".rstrip(": ")
    if verb == "gave_up":
        return f"{fields.get('broker')} ended itself: {fields.get('why')}"
    if verb == "stuck":
        return f"{fields.get('broker')} is restarted: {fields.get('why')}"
    if verb == "missed":
        return f"missed: {fields.get('why')}"
    ends = [str(fields[key]) for key in ("from", "to", "client") if fields.get(key)]
    purpose = f" ({fields['purpose']})" if fields.get("purpose") else ""
    rule = f" {fields['rule']}" if fields.get("rule") else ""
    return f"{verb}{rule} {' → '.join(ends)}{purpose}".strip()


def _next_fetch_offsets(rounds: list[Row]) -> list[int | None]:
    """For each round, the offset of the same follower's next request to the same leader."""
    found: list[int | None] = [None] * len(rounds)
    latest: dict[tuple[int, int], int] = {}
    for number in sorted(range(len(rounds)), key=lambda n: rounds[n]["requested_ns"]):
        row = rounds[number]
        key = (row["follower"], row["leader"])
        if key in latest:
            found[latest[key]] = row["fetch_offset"]
        latest[key] = number
    return found
