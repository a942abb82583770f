"""What Jepsen's checker and ours say of one history, and why they differ where they do.

Three answers are compared: the judge's; that of the oracle read as Jepsen reads (`JEPSENS`), which
must be the same in all that both name; and the oracle's own. Between the last two every difference
has a reason out of `REASONS`: a point of `Reading` is a reason only where changing that point alone
changes the answer, any other where exactly what it names differs and nothing else.

Where Jepsen throws, it is asked about the twin: the same history in which what made it throw is
spelt out (a missing completion is indeterminate; a phantom was sent by somebody, indeterminate).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from neaptide.checkers.anomalies import ANOMALIES
from tests.checkers import oracle
from tests.checkers.oracle import Reported
from tests.checkers.oracle_history import JEPSENS, OURS, History, Reading, of_rows
from tests.differential import rows
from tests.differential.history import Entry, polled, sends
from tests.differential.jepsen import SETS, Said

# Names that Jepsen does not have, or does not have so; what is left is compared one to one.
_NOT_JEPSENS: Final = frozenset({"G1c-ww", "reordered", "phantom"})
_CYCLES_EXIST: Final = "-cycle-exists"
_EMPTY: Final = "empty-transaction-graph"
_POINTS: Final = {
    "assign_ends_order": "order of sends across an assign",
    "last_place": "place of a value",
    "last_send_only": "a value sent twice",
    "same_after_info": "a process that goes on after an indeterminate send",
}
_NOBODY: Final = "no operation of a client"
_NO_PLACE: Final = "no offset of what was read is known"
REASONS: Final = (
    *_POINTS.values(),
    _NO_PLACE,
    _NOBODY,
    "named once",
    "acknowledged without an offset",
    "moved",
    "reordered",
    "phantom",
    "no completion",
    "nothing depends on anything",
    "a key that nobody sent to",
)


@dataclass(frozen=True)
class Answer:
    """Types and the records that they name, as Jepsen would count them."""

    types: frozenset[str]
    sets: Mapping[str, frozenset[tuple[int, int]]]


@dataclass(frozen=True)
class Compared:
    reasons: frozenset[str]
    unexplained: tuple[str, ...]


def reported(entries: Sequence[Entry], reading: Reading = OURS) -> list[Reported]:
    return oracle.reported(_history(entries, reading))


def _history(entries: Sequence[Entry], reading: Reading) -> History:
    return of_rows(rows.rows(entries), rows.run(entries), reading=reading)


def counting(found: Iterable[Reported], *, subscribed: bool) -> set[str]:
    """Those of the anomalies that make a history invalid."""
    new = {"moved": True, "replica-hole": True, "unproven-loss": False}
    names = {name for name, *_ in found}
    return {
        name
        for name in names
        if (
            new[name]
            if name in new
            else ANOMALIES[name].counts and ANOMALIES[name].counts_by_jepsen
        )
        and (name in new or ANOMALIES[name].counts_when_subscribed or not subscribed)
    }


def invalid(entries: Sequence[Entry]) -> bool:
    """Whether the oracle finds anything that counts."""
    return bool(counting(reported(entries), subscribed=any(e.f == "subscribe" for e in entries)))


def acknowledges(entries: Sequence[Entry]) -> bool:
    """Whether anything was acknowledged, so that it could be lost."""
    return bool(_completed(entries, "ok", sends))


def twin(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The history with all that Jepsen needs to be spelt out."""
    sent, _ = _sent(entries)
    read = {(key, value) for e in entries for key, _, value in polled(e)}
    free = max((e.process for e in entries if isinstance(e.process, int)), default=0) + 1
    first = min((e.time for e in entries), default=0)
    begins = [
        Entry(type, free + n, "send", (("send", key, value),), first)
        for n, (key, value) in enumerate(sorted(read - sent))
        for type in ("invoke", "info")
    ]
    return (*begins, *_answered(entries))


def _answered(entries: Sequence[Entry]) -> list[Entry]:
    """Each invocation without a completion has one before its process goes on, or at the end."""
    open_: dict[int | str, Entry] = {}
    made: list[Entry] = []
    for entry in entries:
        before = open_.pop(entry.process, None)
        if before and entry.type == "invoke":
            made.append(replace(before, type="info", time=entry.time))
        if entry.type == "invoke" and isinstance(entry.process, int):
            open_[entry.process] = entry
        made.append(entry)
    return made + [replace(e, type="info", time=made[-1].time) for e in open_.values()]


def _sent(entries: Sequence[Entry]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Keys and values that were sent by any operation, and by those that were completed."""
    completed = [e for e in entries if e.type != "invoke"]
    every = [e for e in _answered(entries) if e.type != "invoke"]
    one, other = ({(k, v) for e in some for k, _, v in sends(e)} for some in (every, completed))
    return one, other


def as_jepsen_names(entries: Sequence[Entry], reading: Reading = JEPSENS) -> Answer:
    """What the oracle finds, in Jepsen's words."""
    history = _history(entries, reading)
    found = oracle.reported(history)
    graph = oracle.graph(history)
    acknowledged = _completed(entries, "ok", sends)
    read = _completed(entries, "ok", polled)
    unseen = (acknowledged - read) | _never_sent(entries)
    lost = {
        key for key in _named(found, "lost-write") if (_part(key), str(key[1])) in history.places
    }
    sets = {
        "lost-write": frozenset(lost),
        "unseen": frozenset(unseen),
        "duplicate": _named(found, "duplicate") | _named(found, "moved"),
        "inconsistent-offsets": frozenset(
            (part[1], offset) for n, part, offset, _ in found if n == "inconsistent-offsets"
            and part and offset is not None
        ),
        "G1a": _named(found, "G1a"),
    }  # fmt: skip
    types = {n for n, *_ in found} - {*_NOT_JEPSENS, *sets, "moved", "G0", "G0-realtime"}
    types |= {name for name, named in sets.items() if named}
    ended = {n for n, op in graph.by_number.items() if op.completed is not None}
    if not any(target in ended for _, target in graph.wr | graph.time):
        types.add(_EMPTY)
    return Answer(frozenset(types), sets)


def _part(key: tuple[int, int]) -> tuple[str, int]:
    return rows.TOPIC, key[0]


def _named(found: Iterable[Reported], name: str) -> frozenset[tuple[int, int]]:
    return frozenset(
        (part[1], int(value)) for n, part, _, value in found if n == name and part and value
    )


def _completed(entries: Iterable[Entry], type: str, records: object) -> set[tuple[int, int]]:
    assert records in (sends, polled)
    return {
        (key, value)
        for entry in entries
        if entry.type == type
        for key, _, value in (sends(entry) if records is sends else polled(entry))
    }


def _never_sent(entries: Sequence[Entry]) -> set[tuple[int, int]]:
    """What the very last ok operation was the first to read of a key that none had sent to.

    Jepsen calls all of it unseen.
    """
    done = [e for e in entries if e.type == "ok" and e.moves and isinstance(e.process, int)]
    if not done:
        return set()
    earlier = {key for e in done[:-1] for key, _, _ in polled(e)}
    sent = {key for e in done for key, _, _ in sends(e)}
    return {(k, v) for k, _, v in polled(done[-1]) if k not in earlier and k not in sent}


def as_said(said: Said) -> Answer:
    types = {name for name in said.errors if not name.endswith(_CYCLES_EXIST)}
    return Answer(frozenset(types), {name: said.sets[name] for name in SETS})


def differences(one: Answer, other: Answer, who: str) -> list[str]:
    said = [
        f"{name}: {'only the oracle' if name in one.types else 'only ' + who}"
        for name in sorted(one.types ^ other.types)
    ]
    return said + [
        f"{name}: {sorted(one.sets[name] ^ other.sets[name])}"
        for name in one.sets
        if one.sets[name] != other.sets[name] and name in one.types & other.types
    ]


def against_jepsen(entries: Sequence[Entry], said: Said, of_twin: Said | None) -> Compared:
    """The oracle against the judge; `of_twin` is asked for where the judge threw."""
    if said.throws and not any(isinstance(e.process, int) for e in entries):
        return Compared(frozenset({_NOBODY}), ())
    unexplained: list[str] = []
    reasons: set[str] = set()
    spelt = entries
    if said.throws:
        spelt = twin(entries)
        reasons |= _thrown(entries, unexplained, said)
        said = of_twin or said
    if said.throws and "IndexOutOfBounds" in said.throws and _without_place(spelt):
        return Compared(frozenset({*reasons, _NO_PLACE}), tuple(unexplained))
    if said.throws:
        return Compared(frozenset(reasons), (*unexplained, f"throws: {said.throws}"))
    unexplained += differences(as_jepsen_names(spelt), as_said(said), "Jepsen")
    if ("G0" in said.errors_ww) != ("G0" in {n for n, *_ in reported(spelt, JEPSENS)}):
        unexplained.append("G0")
    if spelt is not entries:
        # Whoever sent the phantom stands in the order of writes, over which no cycle counts.
        normal = {"phantom", *(("G0", "G1c-ww") if "phantom" in reasons else ())}
        ours, others = (
            {n for n in reported(some) if n[0] not in normal} for some in (entries, spelt)
        )
        if ours ^ others:
            unexplained.append(f"the twin: {sorted(map(str, ours ^ others))}")
    reasons |= _points(spelt)
    more, why = _ours_against_model(spelt, said)
    return Compared(frozenset(reasons | why), (*unexplained, *more))


def _thrown(entries: Sequence[Entry], unexplained: list[str], said: Said) -> set[str]:
    """Why Jepsen threw: it found a value and no completed operation that sent it."""
    sent, completed = _sent(entries)
    read = {(key, value) for e in entries for key, _, value in polled(e)}
    reasons = set()
    if read - sent:
        reasons.add("phantom")
    if (read & sent) - completed:
        reasons.add("no completion")
    if "double-invoke" in said.throws:
        reasons.add("no completion")
    if "IndexOutOfBounds" in said.throws and _without_place(entries):
        reasons.add(_NO_PLACE)
    if not reasons:
        unexplained.append(f"throws: {said.throws}")
    return reasons


def _without_place(entries: Sequence[Entry]) -> set[int]:
    """Keys of which ok operations read records, and not one at a known offset."""
    places = _history(entries, JEPSENS).places
    read = _completed(entries, "ok", polled)
    known = {key for key, value in read if (_part((key, value)), str(value)) in places}
    return {key for key, _ in read} - known


def _points(entries: Sequence[Entry]) -> set[str]:
    """The points of reading that make a difference here, each by itself."""
    ours = set(reported(entries))
    return {
        _POINTS[point.name]
        for point in fields(Reading)
        if set(reported(entries, replace(OURS, **{point.name: True}))) != ours
    }


def _ours_against_model(entries: Sequence[Entry], said: Said) -> tuple[list[str], set[str]]:
    """The verdict, and each name that only one of the two has."""
    subscribed = any(e.f == "subscribe" for e in entries)
    found = reported(entries)
    read_as_jepsen = reported(entries, JEPSENS)
    history = _history(entries, OURS)
    names = {name for name, *_ in found}
    why = set()
    acknowledged = _completed(entries, "ok", sends)
    if {(k, v) for k, v in _named(found, "lost-write")} & acknowledged:
        why.add("named once")
    if any((_part(key), str(key[1])) not in history.places for key in _named(found, "lost-write")):
        why.add("acknowledged without an offset")
    if _EMPTY in said.errors:
        why.add("nothing depends on anything")
    if _never_sent(entries):
        why.add("a key that nobody sent to")
    why |= names & {"moved", "reordered"}
    ours, jepsens = counting(found, subscribed=subscribed), set(said.bad) - {_EMPTY}
    if said.sets["unseen"] <= _never_sent(entries):
        jepsens -= {"unseen"}
    if bool(ours) == bool(jepsens):
        return [], why
    if set(map(str, found)) != set(map(str, read_as_jepsen)):
        by_model = counting(
            [one for one in read_as_jepsen if one[0] not in _NOT_JEPSENS], subscribed=subscribed
        )
        if bool(by_model) == bool(jepsens):
            return [], why
    return [f"verdict: oracle {sorted(ours)}, Jepsen {sorted(jepsens)}"], why
