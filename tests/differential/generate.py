"""Valid histories by chance: clients of a little log, as Jepsen's Kafka workload would record them.

One number makes one history. Operations overlap; each takes effect at one moment between its
invocation and its completion (an indeterminate one perhaps later, or never), all at once, so that
nothing is ever read before it is committed. Markers of transactions leave gaps in the offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.differential.history import Entry, Mop


@dataclass(frozen=True)
class Shape:
    """What kind of history is made."""

    keys: int
    threads: int
    operations: int
    transactions: bool  # several micro-operations an operation
    subscribes: bool
    info: float  # how many operations end so
    fail: float
    crash: float
    unnumbered: bool  # whether some acknowledgements are without an offset


@dataclass
class Log:
    records: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def append(self, value: int) -> int:
        self.records.append((self.end, value))
        self.end += 1
        return self.end - 1

    def read(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        return tuple(r for r in self.records if r[0] >= position)[:count]


@dataclass
class Pending:
    entry: Entry
    ends: str  # ok | info | fail | never
    takes_effect: bool
    done: tuple[Mop, ...] | None = None  # the value after it took effect
    positions: dict[int, int] = field(default_factory=dict)
    rebalanced: tuple[int, ...] = ()


@dataclass
class Thread:
    process: int
    assigned: tuple[int, ...] = ()
    positions: dict[int, int] = field(default_factory=dict)
    pending: Pending | None = None


@dataclass
class World:
    chance: Random
    shape: Shape
    logs: dict[int, Log]
    threads: list[Thread]
    entries: list[Entry] = field(default_factory=list)
    late: list[Pending] = field(default_factory=list)  # indeterminate, not yet in the log
    values: Counter[int] = field(default_factory=Counter)
    time: int = 0

    def record(self, entry: Entry) -> None:
        self.time += self.chance.choice((0, 1, 1, 5, 40))
        self.entries.append(replace(entry, time=self.time))


def shape(chance: Random) -> Shape:
    return Shape(
        keys=chance.randint(1, 4),
        threads=chance.randint(1, 5),
        operations=chance.choice((4, 8, 15, 30, 60)),
        transactions=chance.random() < 0.7,
        subscribes=chance.random() < 0.3,
        info=chance.choice((0.0, 0.1, 0.3)),
        fail=chance.choice((0.0, 0.1, 0.3)),
        crash=chance.choice((0.0, 0.05)),
        unnumbered=chance.random() < 0.15,
    )


def history(seed: int) -> tuple[Entry, ...]:
    """The history that the number stands for."""
    chance = Random(seed)
    shaped = shape(chance)
    world = World(
        chance,
        shaped,
        {key: Log() for key in range(shaped.keys)},
        [Thread(process) for process in range(shaped.threads)],
    )
    for _ in range(shaped.operations * 2):
        _step(world)
    for thread in world.threads:
        _complete(world, thread)
    for late in world.late:
        _effect(world, late, {})
    _final_polls(world)
    return tuple(world.entries)


def _step(world: World) -> None:
    chance = world.chance
    if world.late and chance.random() < 0.3:
        late = world.late.pop(chance.randrange(len(world.late)))
        _effect(world, late, {})
    if chance.random() < 0.03:
        world.record(Entry("info", "nemesis", chance.choice(("kill", "start")), None))
    thread = chance.choice(world.threads)
    if thread.pending is None:
        _invoke(world, thread)
    elif thread.pending.done is None and thread.pending.takes_effect and chance.random() < 0.5:
        _effect(world, thread.pending, thread.positions)
    else:
        _complete(world, thread)


def _invoke(world: World, thread: Thread) -> None:
    chance = world.chance
    if (not thread.assigned and chance.random() < 0.9) or chance.random() < 0.06:
        _assign(world, thread)
        return
    if chance.random() < world.shape.crash:
        _crash(world, thread)
        return
    f, mops = _mops(world)
    entry = Entry("invoke", thread.process, f, mops)
    world.record(entry)
    luck = chance.random()
    info, fail = world.shape.info, world.shape.fail
    ends = "info" if luck < info else "fail" if luck < info + fail else "ok"
    takes_effect = ends == "ok" or (ends == "info" and chance.random() < 0.6)
    thread.pending = Pending(entry, ends, takes_effect)


def _mops(world: World) -> tuple[str, tuple[Mop, ...]]:
    chance = world.chance
    count = chance.randint(1, 4) if world.shape.transactions else 1
    mops: list[Mop] = []
    for _ in range(count):
        if chance.random() < 0.5:
            mops.append(("poll",))
        else:
            key = chance.randrange(world.shape.keys)
            world.values[key] += 1
            mops.append(("send", key, world.values[key]))
    words = {mop[0] for mop in mops}
    return (words.pop() if len(words) == 1 else "txn"), tuple(mops)


def _assign(world: World, thread: Thread) -> None:
    chance = world.chance
    f = "subscribe" if world.shape.subscribes else "assign"
    keys = tuple(chance.sample(range(world.shape.keys), chance.randint(1, world.shape.keys)))
    entry = Entry("invoke", thread.process, f, keys)
    world.record(entry)
    if chance.random() < 0.1:
        world.record(replace(entry, type="fail"))
        return
    world.record(replace(entry, type="ok"))
    thread.assigned = keys
    thread.positions = {
        key: thread.positions.get(key, chance.choice((0, 0, world.logs[key].end))) for key in keys
    }


def _crash(world: World, thread: Thread) -> None:
    entry = Entry("invoke", thread.process, "crash", None)
    world.record(entry)
    world.record(replace(entry, type="info"))
    _reborn(world, thread)


def _reborn(world: World, thread: Thread) -> None:
    thread.process += world.shape.threads
    thread.assigned = ()
    thread.positions = {}


def _effect(world: World, pending: Pending, positions: dict[int, int]) -> None:
    """All reads, then all writes, at one moment; sometimes the writes of two at once."""
    pending.positions = dict(positions)
    mops = [_read(world, pending, mop) for mop in pending.entry.value or ()]
    pending.done = tuple(_append(world, mop) for mop in mops)
    if len(mops) > 1:
        for key in {mop[1] for mop in mops if mop[0] == "send"}:
            world.logs[key].end += world.chance.choice((0, 1, 1))


def _read(world: World, pending: Pending, mop: Mop) -> Mop:
    if mop[0] != "poll":
        return mop
    chance = world.chance
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for key in sorted(pending.positions):
        if world.shape.subscribes and chance.random() < 0.05:
            pending.positions[key] = chance.randint(0, world.logs[key].end)
            pending.rebalanced = (*pending.rebalanced, key)
        records = world.logs[key].read(pending.positions[key], chance.randint(0, 4))
        if records:
            found[key] = records
            pending.positions[key] = records[-1][0] + 1
    return ("poll", found) if found or chance.random() < 0.5 else ("poll", {})


def _append(world: World, mop: Mop) -> Mop:
    if mop[0] != "send":
        return mop
    return ("send", mop[1], (world.logs[mop[1]].append(mop[2]), mop[2]))


def _complete(world: World, thread: Thread) -> None:
    pending = thread.pending
    if pending is None:
        return
    thread.pending = None
    _ENDS[pending.ends](world, thread, pending)


def _end_ok(world: World, thread: Thread, pending: Pending) -> None:
    if pending.done is None:
        _effect(world, pending, thread.positions)
    thread.positions = pending.positions
    chance = world.chance
    hide = world.shape.unnumbered and chance.random() < 0.3
    done = tuple(_unnumbered(mop) if hide else mop for mop in pending.done or ())
    world.record(replace(pending.entry, type="ok", value=done, rebalanced=pending.rebalanced))


def _end_info(world: World, thread: Thread, pending: Pending) -> None:
    """Its value as it was invoked, or with all or some of what it came to know, up to a point."""
    value = pending.entry.value or ()
    if pending.done is not None:
        known = world.chance.randint(0, len(value))
        value = (*pending.done[:known], *value[known:])
    elif pending.takes_effect:
        world.late.append(pending)
    world.record(replace(pending.entry, type="info", value=value, rebalanced=pending.rebalanced))
    _reborn(world, thread)


def _end_fail(world: World, thread: Thread, pending: Pending) -> None:
    """Aborted: its sends took offsets that nobody sees; what it read it may say."""
    chance = world.chance
    pending.positions = dict(thread.positions)
    value: list[Mop] = []
    says = chance.random() < 0.6
    for mop in pending.entry.value or ():
        if mop[0] == "poll":
            value.append(_read(world, pending, mop) if says else mop)
            continue
        log = world.logs[mop[1]]
        if chance.random() < 0.3:
            value.append(("send", mop[1], (log.end, mop[2])))
            log.end += 1
        else:
            value.append(mop)
    world.record(
        replace(pending.entry, type="fail", value=tuple(value), rebalanced=pending.rebalanced)
    )


_ENDS: dict[str, Callable[[World, Thread, Pending], None]] = {
    "ok": _end_ok,
    "info": _end_info,
    "fail": _end_fail,
}


def _unnumbered(mop: Mop) -> Mop:
    return ("send", mop[1], (None, mop[2][1])) if mop[0] == "send" else mop


def _final_polls(world: World) -> None:
    """Each thread, or some, read all there is as a new process."""
    chance = world.chance
    readers = chance.sample(world.threads, chance.randint(1, len(world.threads)))
    for thread in readers:
        _crash(world, thread)
        keys: tuple[Any, ...] = tuple(range(world.shape.keys))
        assign = Entry("invoke", thread.process, "assign", keys)
        world.record(assign)
        world.record(replace(assign, type="ok"))
        position = {key: 0 for key in keys}
        while any(position[key] < world.logs[key].end for key in keys):
            found = {}
            for key in keys:
                if records := world.logs[key].read(position[key], chance.randint(1, 6)):
                    found[key] = records
                    position[key] = records[-1][0] + 1
                else:
                    position[key] = world.logs[key].end
            entry = Entry("invoke", thread.process, "poll", (("poll",),))
            world.record(entry)
            world.record(replace(entry, type="ok", value=(("poll", found),)))
