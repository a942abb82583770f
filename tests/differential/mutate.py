"""Ways to make a valid history wrong, or odd: each takes a history and changes one thing in it.

By chance, out of a seeded generator; none is sure to make an anomaly: that is for judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.differential.history import Entry, Mop, polled, sends

History = tuple[Entry, ...]
Mutation = Callable[[Random, History], History | None]
Record = tuple[int, int | None, int]  # key, offset, value


def mutated(seed: int, history: History) -> tuple[History, tuple[str, ...]]:
    """One to six changes, and their names."""
    chance = Random(seed)
    names = []
    for _ in range(chance.choice((1, 1, 1, 1, 2, 2, 3, 6))):
        name = chance.choice(tuple(MUTATIONS))
        changed = MUTATIONS[name](chance, history)
        if changed:
            history = changed
            names.append(name)
    return history, tuple(names)


def _pick(chance: Random, items: Iterable[Any]) -> Any:
    found = list(items)
    return chance.choice(found) if found else None


def _set(history: Sequence[Entry], index: int, entry: Entry) -> History:
    return (*history[:index], entry, *history[index + 1 :])


def _polls(history: Sequence[Entry], least: int = 1) -> list[tuple[int, int, int]]:
    """Entry, micro-operation and key of every poll with so many records of a key."""
    return [
        (index, place, key)
        for index, entry in enumerate(history)
        for place, mop in enumerate(entry.value or () if entry.moves else ())
        if mop[0] == "poll" and len(mop) > 1
        for key, pairs in mop[1].items()
        if len(pairs) >= least
    ]


def _sends(history: Sequence[Entry], *types: str) -> list[tuple[int, int]]:
    return [
        (index, place)
        for index, entry in enumerate(history)
        if entry.moves and (not types or entry.type in types)
        for place, mop in enumerate(entry.value or ())
        if mop[0] == "send"
    ]


def _with_pairs(history: History, at: tuple[int, int, int], pairs: Sequence[Any]) -> History:
    index, place, key = at
    entry = history[index]
    mops = list(entry.value or ())
    polls = dict(mops[place][1])
    polls[key] = tuple(pairs)
    if not pairs:
        del polls[key]
    mops[place] = ("poll", polls)
    return _set(history, index, replace(entry, value=tuple(mops)))


def _with_send(history: History, at: tuple[int, int], send: Mop) -> History:
    index, place = at
    entry = history[index]
    mops = list(entry.value or ())
    mops[place] = send
    return _set(history, index, replace(entry, value=tuple(mops)))


def _each_pair(
    history: History, change: Callable[[int, int, int | None, int], list[tuple[int | None, int]]]
) -> History:
    """Every polled record replaced by what `change(entry, key, offset, value)` makes of it."""

    def of(index: int, mop: Mop) -> Mop:
        if mop[0] != "poll" or len(mop) < 2:
            return mop
        made = {
            key: tuple(new for offset, value in pairs for new in change(index, key, offset, value))
            for key, pairs in mop[1].items()
        }
        return ("poll", {key: pairs for key, pairs in made.items() if pairs})

    return tuple(
        replace(e, value=tuple(of(n, mop) for mop in e.value)) if e.moves and e.value else e
        for n, e in enumerate(history)
    )


def _record(chance: Random, history: History) -> Record | None:
    found: Record | None = _pick(
        chance, [r for e in history if e.type == "ok" for r in (*sends(e), *polled(e))]
    )
    return found


def drop_from_polls(chance: Random, history: History) -> History | None:
    """A record that no poll sees from some moment on, or ever."""
    record = _record(chance, history)
    since = chance.choice((0, 0, chance.randrange(len(history) + 1)))
    return record and _each_pair(
        history,
        lambda n, k, o, v: [] if n >= since and (k, v) == (record[0], record[2]) else [(o, v)],
    )


def only_unsure_reads(chance: Random, history: History) -> History | None:
    """A record that failed and indeterminate polls alone have seen."""
    seen = [r for e in history if e.type in ("fail", "info") for r in polled(e)]
    record = _pick(chance, seen)
    return record and _each_pair(
        history,
        lambda n, k, o, v: (
            [] if history[n].type == "ok" and (k, v) == (record[0], record[2]) else [(o, v)]
        ),
    )


def drop_from_one_poll(chance: Random, history: History) -> History | None:
    at = _pick(chance, _polls(history))
    if at is None:
        return None
    pairs = list(_pairs(history, at))
    pairs.pop(chance.randrange(len(pairs)))
    return _with_pairs(history, at, pairs)


def repeat_in_poll(chance: Random, history: History) -> History | None:
    at = _pick(chance, _polls(history))
    if at is None:
        return None
    pairs = list(_pairs(history, at))
    pairs.insert(chance.randrange(len(pairs) + 1), chance.choice(pairs))
    return _with_pairs(history, at, pairs)


def _pairs(history: History, at: tuple[int, int, int]) -> tuple[tuple[int | None, int], ...]:
    index, place, key = at
    pairs: tuple[tuple[int | None, int], ...] = (history[index].value or ())[place][1][key]
    return pairs


def turn_poll_round(chance: Random, history: History) -> History | None:
    at = _pick(chance, _polls(history, 2))
    return at and _with_pairs(history, at, tuple(reversed(_pairs(history, at))))


def swap_polls(chance: Random, history: History) -> History | None:
    """Two completions of one process change what they say."""
    one = _pick(chance, [n for n, e in enumerate(history) if e.type == "ok" and any(polled(e))])
    if one is None:
        return None
    same = [
        n
        for n, e in enumerate(history)
        if n != one and e.process == history[one].process and e.type == "ok"
        and any(polled(e)) and not any(sends(e)) and not any(sends(history[one]))
    ]  # fmt: skip
    other = _pick(chance, same)
    if other is None:
        return None
    first, second = history[one], history[other]
    swapped = _set(history, one, replace(first, value=second.value))
    return _set(swapped, other, replace(second, value=first.value))


def move_record(chance: Random, history: History) -> History | None:
    """A record that polls (all, or one) see at another offset."""
    record = _record(chance, history)
    if record is None:
        return None
    new = chance.randrange(0, 12)
    only = chance.choice((None, _pick(chance, range(len(history)))))
    return _each_pair(
        history,
        lambda n, k, o, v: (
            [(new, v)] if (k, v) == (record[0], record[2]) and only in (None, n) else [(o, v)]
        ),
    )


def double_record(chance: Random, history: History) -> History | None:
    """A record that is also at another offset, mostly a free one at the end."""
    record = _record(chance, history)
    if record is None:
        return None
    highest = max((o for e in history for k, o, _ in polled(e) if k == record[0] and o), default=0)
    new = max(0, highest + chance.choice((1, 2, -1)))
    return _each_pair(
        history,
        lambda n, k, o, v: [(o, v), (new, v)] if (k, v) == (record[0], record[2]) else [(o, v)],
    )


def swap_offsets(chance: Random, history: History) -> History | None:
    """Two records change places, everywhere or in polls only."""
    one = _record(chance, history)
    other = _pick(
        chance,
        [r for e in history if e.type == "ok" for r in polled(e) if one and r[0] == one[0]],
    )
    if one is None or other is None:
        return None
    swapped = {(one[0], one[2]): other[2], (one[0], other[2]): one[2]}
    return _each_pair(history, lambda n, k, o, v: [(o, swapped.get((k, v), v))])


def swap_sends(chance: Random, history: History) -> History | None:
    """Two acknowledgements of one key change their offsets."""
    placed = [
        (at, (history[at[0]].value or ())[at[1]])
        for at in _sends(history, "ok", "info")
        if isinstance((history[at[0]].value or ())[at[1]][2], tuple)
    ]
    one = _pick(chance, placed)
    other = _pick(chance, [p for p in placed if one and p[1][1] == one[1][1] and p != one])
    if one is None or other is None:
        return None
    (a, (_, key, (x, v))), (b, (_, _, (y, w))) = one, other
    swapped = _with_send(history, a, ("send", key, (y, v)))
    swapped = _with_send(swapped, b, ("send", key, (x, w)))
    where = {(key, v): y, (key, w): x}
    if chance.random() < 0.6:
        return _each_pair(swapped, lambda n, k, o, u: [(where.get((k, u), o), u)])
    return swapped


def sends_back(chance: Random, history: History) -> History | None:
    """Two sends of one process stand in the reverse order; what lies between them varies."""
    placed: dict[tuple[int | str, int], list[tuple[int, int]]] = {}
    for at in _sends(history, "ok"):
        _, key, value = (history[at[0]].value or ())[at[1]]
        if isinstance(value, tuple):
            placed.setdefault((history[at[0]].process, key), []).append(at)
    process = _pick(chance, [who for who, ats in placed.items() if len(ats) > 1])
    if process is None:
        return None
    first = chance.randrange(len(placed[process]) - 1)
    a, b = placed[process][first : first + 2]
    if a[0] == b[0]:
        return None
    (_, key, (x, v)), (_, _, (y, w)) = ((history[i].value or ())[n] for i, n in (a, b))
    where = {(key, v): y, (key, w): x}
    changed = _with_send(history, a, ("send", key, (y, v)))
    changed = _with_send(changed, b, ("send", key, (x, w)))
    changed = _each_pair(changed, lambda n, k, o, u: [(where.get((k, u), o), u)])
    changed = _in_order(changed) if chance.random() < 0.7 else changed
    between = chance.choice(("nothing", "assign", "info", "info"))
    if between == "info":
        kind = chance.choice(("info", "info", "fail"))
        return _set(changed, a[0], replace(changed[a[0]], type=kind))
    if between == "assign":
        assign = Entry("invoke", process[0], "assign", (key + 1,), changed[a[0]].time)
        done = replace(assign, type=chance.choice(("ok", "ok", "info", "fail")))
        return (*changed[: a[0] + 1], assign, done, *changed[a[0] + 1 :])
    return changed


def _in_order(history: History) -> History:
    """Each poll has its records in the order of their offsets."""

    def of(mop: Mop) -> Mop:
        if mop[0] != "poll" or len(mop) < 2:
            return mop
        return ("poll", {key: tuple(sorted(pairs, key=_offset)) for key, pairs in mop[1].items()})

    return tuple(
        replace(e, value=tuple(map(of, e.value))) if e.moves and e.value else e for e in history
    )


def _offset(pair: tuple[int | None, int]) -> int:
    return -1 if pair[0] is None else pair[0]


def change_ack(chance: Random, history: History) -> History | None:
    """An acknowledgement with another offset, or without one."""
    at = _pick(chance, _sends(history, "ok", "info", "fail"))
    if at is None:
        return None
    _, key, value = (history[at[0]].value or ())[at[1]]
    plain = value[1] if isinstance(value, tuple) else value
    offset = chance.choice((None, chance.randrange(8)))
    return _with_send(history, at, ("send", key, (offset, plain)))


def strip_ack(chance: Random, history: History) -> History | None:
    at = _pick(chance, _sends(history, "ok", "info", "fail"))
    if at is None:
        return None
    _, key, value = (history[at[0]].value or ())[at[1]]
    return _with_send(history, at, ("send", key, value[1] if isinstance(value, tuple) else value))


def change_type(chance: Random, history: History) -> History | None:
    """An operation that ends otherwise than it did; its process goes on or becomes a new one."""
    index = _pick(chance, [n for n, e in enumerate(history) if e.moves and e.type != "invoke"])
    if index is None:
        return None
    entry = history[index]
    kind = chance.choice([t for t in ("ok", "info", "fail") if t != entry.type])
    changed = _set(history, index, replace(entry, type=kind))
    if kind == "info" and chance.random() < 0.8 and isinstance(entry.process, int):
        return _renamed(changed, index, entry.process, 1000 + index)
    return changed


def _renamed(history: History, after: int, process: int | str, new: int) -> History:
    return tuple(
        replace(e, process=new) if n > after and e.process == process else e
        for n, e in enumerate(history)
    )


def aborted(chance: Random, history: History) -> History | None:
    """The sender of something that was read had failed."""
    read = {(k, v) for e in history for k, _, v in polled(e)}
    senders = [
        n
        for n, e in enumerate(history)
        if e.type in ("ok", "info") and any((k, v) in read for k, _, v in sends(e))
    ]
    index = _pick(chance, senders)
    return None if index is None else _set(history, index, replace(history[index], type="fail"))


def indeterminate(chance: Random, history: History) -> History | None:
    """A transaction of several sends whose end nobody knows; some of it is not read."""
    many = [n for n, e in enumerate(history) if e.type == "ok" and len(list(sends(e))) > 1]
    index = _pick(chance, many)
    if index is None:
        return None
    changed = _set(history, index, replace(history[index], type="info"))
    mine = list(sends(history[index]))
    gone = {(k, v) for k, _, v in mine if chance.random() < 0.5}
    return _each_pair(changed, lambda n, k, o, v: [] if (k, v) in gone else [(o, v)])


def skip_ahead(chance: Random, history: History) -> History | None:
    """A poll that leaves out the first records that it had."""
    at = _pick(chance, _polls(history, 2))
    return at and _with_pairs(history, at, _pairs(history, at)[chance.choice((1, 1, 2)) :])


def go_back(chance: Random, history: History) -> History | None:
    """A poll that begins with records that its process had read before."""
    at = _pick(chance, _polls(history))
    if at is None:
        return None
    process, key = history[at[0]].process, at[2]
    earlier = [
        (o, v)
        for e in history[: at[0]]
        if e.process == process
        for k, o, v in polled(e)
        if k == key
    ]
    if not earlier:
        return None
    back = chance.randrange(len(earlier))
    return _with_pairs(history, at, (*earlier[back:], *_pairs(history, at)))


def own_read(chance: Random, history: History) -> History | None:
    """A transaction that reads what it sends."""
    at = _pick(chance, _sends(history, "ok", "info", "fail"))
    if at is None:
        return None
    entry = history[at[0]]
    _, key, value = (entry.value or ())[at[1]]
    offset, plain = value if isinstance(value, tuple) else (chance.randrange(8), value)
    mops = (*(entry.value or ()), ("poll", {key: ((offset, plain),)}))
    return _set(history, at[0], replace(entry, f="txn", value=mops))


def read_early(chance: Random, history: History) -> History | None:
    """A record that is read before it was sent, or by one that others read from: cycles."""
    record = _record(chance, history)
    index = _pick(chance, [n for n, e in enumerate(history) if e.moves and e.type != "invoke"])
    if record is None or index is None:
        return None
    entry = history[index]
    offset = next(
        (o for e in history for k, o, v in polled(e) if (k, v) == (record[0], record[2])), record[1]
    )
    mops = (*(entry.value or ()), ("poll", {record[0]: ((offset, record[2]),)}))
    return _set(
        history, index, replace(entry, f="txn" if entry.f == "send" else entry.f, value=mops)
    )


def read_each_other(chance: Random, history: History) -> History | None:
    """Two operations of which each reads what the other sent."""
    senders = [n for n, e in enumerate(history) if e.type != "invoke" and any(sends(e))]
    if len(senders) < 2:
        return None
    one, other = chance.sample(senders, 2)
    changed = history
    for reader, sender in ((one, other), (other, one)):
        key, offset, value = next(sends(history[sender]))
        entry = changed[reader]
        place = next(
            (o for e in history for k, o, v in polled(e) if (k, v) == (key, value)), offset
        )
        mops = (*(entry.value or ()), ("poll", {key: ((place, value),)}))
        changed = _set(changed, reader, replace(entry, f="txn", value=mops))
    return changed


def send_again(chance: Random, history: History) -> History | None:
    """A value that another operation sends too."""
    record = _pick(chance, [s for e in history for s in sends(e)])
    at = _pick(chance, _sends(history))
    if record is None or at is None:
        return None
    offset = chance.choice((record[1], chance.randrange(8), None))
    value = record[2] if chance.random() < 0.3 else (offset, record[2])
    return _with_send(history, at, ("send", record[0], value))


def phantom(chance: Random, history: History) -> History | None:
    at = _pick(chance, _polls(history))
    if at is None:
        return None
    pairs = list(_pairs(history, at))
    place = chance.randrange(len(pairs) + 1)
    pairs.insert(place, (chance.randrange(12), 900 + chance.randrange(9)))
    return _with_pairs(history, at, pairs)


def forget_offset(chance: Random, history: History) -> History | None:
    """A record that is read without its offset."""
    at = _pick(chance, _polls(history))
    if at is None:
        return None
    pairs = list(_pairs(history, at))
    place = chance.randrange(len(pairs))
    pairs[place] = (None, pairs[place][1])
    return _with_pairs(history, at, pairs)


def no_completion(chance: Random, history: History) -> History | None:
    """An operation that never ends; its process does not come back."""
    index = _pick(chance, [n for n, e in enumerate(history) if e.moves and e.type != "invoke"])
    if index is None:
        return None
    entry = history[index]
    left = (*history[:index], *history[index + 1 :])
    return _renamed(left, index - 1, entry.process, 2000 + index)


def cut_tail(chance: Random, history: History) -> History | None:
    return history[: chance.randrange(1, len(history))] if len(history) > 1 else None


def no_final_polls(chance: Random, history: History) -> History | None:
    polls = [n for n, e in enumerate(history) if e.type == "ok" and e.f == "poll"]
    gone = set(polls[-chance.randint(1, 4) :]) if polls else set()
    gone |= {n - 1 for n in gone if history[n - 1].process == history[n].process}
    return tuple(e for n, e in enumerate(history) if n not in gone)


def equal_times(chance: Random, history: History) -> History | None:
    first, width = chance.randrange(len(history)), chance.randint(2, 20)
    return tuple(
        replace(e, time=history[first].time) if first <= n < first + width else e
        for n, e in enumerate(history)
    )


def times_back(chance: Random, history: History) -> History | None:
    """Times that run against the order of the lines."""
    if chance.random() < 0.3:
        return tuple(replace(e, time=history[-1].time - e.time) for e in history)
    index = chance.randrange(len(history))
    return _set(history, index, replace(history[index], time=chance.randrange(200)))


def assign_in_between(chance: Random, history: History) -> History | None:
    """A process is assigned to one key only, some time in between."""
    ends = [n for n, e in enumerate(history) if e.type == "ok" and e.moves]
    index = _pick(chance, ends)
    if index is None:
        return None
    entry = history[index]
    f, kind = (
        chance.choice(("assign", "assign", "subscribe")),
        chance.choice(("ok", "ok", "info", "fail")),
    )
    assign = Entry("invoke", entry.process, f, (chance.randrange(3),), entry.time)
    return (*history[: index + 1], assign, replace(assign, type=kind), *history[index + 1 :])


def no_assign(chance: Random, history: History) -> History | None:
    index = _pick(chance, [n for n, e in enumerate(history) if e.f in ("assign", "subscribe")])
    if index is None:
        return None
    process = history[index].process
    return tuple(
        e for e in history if not (e.process == process and e.f in ("assign", "subscribe"))
    )


def rebalance(chance: Random, history: History) -> History | None:
    index = _pick(
        chance, [n for n, e in enumerate(history) if e.type != "invoke" and any(polled(e))]
    )
    if index is None:
        return None
    return _set(history, index, replace(history[index], rebalanced=(chance.randrange(3),)))


def subscribe(chance: Random, history: History) -> History | None:
    """All assigns become subscriptions, or the other way round."""
    other = {"assign": "subscribe", "subscribe": "assign"}
    return tuple(replace(e, f=other.get(e.f, e.f)) for e in history)


def one_process(chance: Random, history: History) -> History | None:
    """What two processes did one after the other, one did."""
    ids = sorted({e.process for e in history if isinstance(e.process, int)})
    if len(ids) < 2:
        return None
    one, other = chance.sample(ids, 2)
    first = [n for n, e in enumerate(history) if e.process == one]
    second = [n for n, e in enumerate(history) if e.process == other]
    if first[-1] > second[0] and second[-1] > first[0]:
        return None
    return tuple(replace(e, process=one) if e.process == other else e for e in history)


def swap_lines(chance: Random, history: History) -> History | None:
    """Two neighbouring lines of different processes change places."""
    places = [n for n in range(len(history) - 1) if history[n].process != history[n + 1].process]
    n = _pick(chance, places)
    if n is None:
        return None
    return (*history[:n], history[n + 1], history[n], *history[n + 2 :])


def gap_between(chance: Random, history: History) -> History | None:
    """All offsets of a key from some record on are higher: a gap, which is normal."""
    record = _record(chance, history)
    if record is None or record[1] is None:
        return None
    key, since = record[0], record[1]

    def moved(offset: int | None) -> int | None:
        return offset + 3 if offset is not None and offset >= since else offset

    def of(mop: Mop) -> Mop:
        if mop[0] == "send" and mop[1] == key and isinstance(mop[2], tuple):
            return ("send", key, (moved(mop[2][0]), mop[2][1]))
        return mop

    sent = tuple(
        replace(e, value=tuple(of(mop) for mop in e.value)) if e.moves and e.value else e
        for e in history
    )
    return _each_pair(sent, lambda n, k, o, v: [(moved(o) if k == key else o, v)])


MUTATIONS: Final[dict[str, Mutation]] = {
    f.__name__: f
    for f in (
        drop_from_polls, only_unsure_reads, drop_from_one_poll, repeat_in_poll, turn_poll_round,
        swap_polls, move_record, double_record, swap_offsets, swap_sends, sends_back,
        change_ack, strip_ack, change_type, aborted, indeterminate, skip_ahead, go_back,
        own_read, read_early, read_each_other, send_again, phantom, forget_offset,
        no_completion, cut_tail, no_final_polls, equal_times, times_back, assign_in_between,
        no_assign, rebalance, subscribe, one_process, swap_lines, gap_between,
    )
}  # fmt: skip
