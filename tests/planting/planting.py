"""Valid histories of any size, with chosen anomalies planted at known places.

For tests, benchmarks, and whoever tests a checker of their own. Not a simulation: nothing is
executed, the history is written down as it would have been recorded.

A partition is a row of batches of `BATCH` offsets: one process sends them, another polls them, the
final reads find them again. A plant changes one batch and says which anomalies follow, all of them:
whoever finds more has a false alarm, whoever finds fewer has missed something. The only one that
needs the end of a partition is `unseen`.

The rule: a batch is a pure function of its place and plant; valid ones are written many at a time
(`tests.planting.tables`). Memory is bounded by the number of plants, not by the history.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from neaptide.checkers.material import EDN_SYSTEM, open_run
from neaptide.results.run import Converged, FinalRead, Run
from neaptide.results.schema import OPERATIONS_READ
from neaptide.results.store import write_run
from neaptide.results.tables import TableWriter
from tests.planting.tables import (
    BATCH,
    CONSUMERS,
    FINAL,
    TOPIC,
    Shape,
    final_batches,
    polled_batches,
    write_ops,
)

_SITE: Final = 5  # where in its batch a plant is

# Processes that only plants have, from these numbers on.
_TRANSACTIONS: Final = 10_000_000
_LONERS: Final = 100_000_000  # by offset
_STRANGERS: Final = 1_000_000_000  # by offset


@dataclass(frozen=True, slots=True)
class Planted:
    """One anomaly that must be found; without a place: one that is about several records."""

    anomaly: str
    partition: int | None
    offset: int | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Op:
    """One operation to be written."""

    process: int
    rows: tuple[Mapping[str, Any], ...]
    type: str = "ok"
    phase: str = "main"


@dataclass(frozen=True, slots=True)
class Batch:
    """What happens around `BATCH` offsets of one partition."""

    sends: tuple[Op, ...]
    polls: tuple[Op, ...]
    log: tuple[tuple[int, str], ...]  # as the final reads find it
    planted: tuple[Planted, ...] = ()
    keys: Mapping[int, str] = field(default_factory=dict)  # of records that the final reads find
    looks: tuple[Op, ...] = ()  # at the end, beside the final reads


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch is; `at` is the offset of its plant."""

    partition: int
    base: int
    value_bytes: int = 0

    @property
    def at(self) -> int:
        return self.base + _SITE

    def value(self, offset: int) -> str:
        return f"{self.partition}-{offset}".ljust(self.value_bytes, ".")

    def found(self, anomaly: str, offset: int | None, value: str | None = None) -> Planted:
        return Planted(anomaly, self.partition, offset, value)

    def at_offset(self, anomaly: str, offset: int) -> Planted:
        return self.found(anomaly, offset, self.value(offset))

    def row(self, f: str, offset: int | None, value: str | None, **more: Any) -> dict[str, Any]:
        return {
            "f": f, "topic": TOPIC, "partition": self.partition, "offset": offset, "value": value,
            "acks": "all" if f == "send" else None, **more,
        }  # fmt: skip

    def send(
        self, offset: int | None, value: str, type: str = "ok", *, process: int | None = None
    ) -> Op:
        by = self.partition if process is None else process
        return Op(by, (self.row("send", offset, value),), type)

    def poll(self, *records: tuple[int, str], process: int | None = None) -> Op:
        by = CONSUMERS + self.partition if process is None else process
        return Op(by, tuple(self.row("poll", offset, value) for offset, value in records))

    def strangers_poll(self, *records: tuple[int, str]) -> Op:
        """A poll by a consumer that polls once: its number is that of the offset."""
        return self.poll(*records, process=_STRANGERS + self.at)

    def transaction(self, *mops: tuple[str, int, str], number: int = 0) -> Op:
        rows = tuple(self.row(f, offset, value, mop=n) for n, (f, offset, value) in enumerate(mops))
        return Op(_TRANSACTIONS + 2 * self.partition + number, rows)

    def commit(self, offset: int) -> Op:
        row = {**self.row("commit", offset, None), "key": f"group-{self.partition}"}
        return Op(CONSUMERS + self.partition, (row,))


@dataclass(slots=True)
class _Draft:
    """A batch in the making: valid, until a plant changes it."""

    place: Place
    sends: dict[int, Op | None]
    log: list[tuple[int, str]]
    seen: list[tuple[int, str]]  # by the consumer before the end
    polls: list[Op] = field(default_factory=list)  # beside the one of the consumer
    before: list[Op] = field(default_factory=list)
    planted: tuple[Planted, ...] = ()
    keys: dict[int, str] = field(default_factory=dict)
    looks: list[Op] = field(default_factory=list)
    split: int | None = None  # the consumer polls twice, the second time from here


def batch(place: Place, plant: str | None) -> Batch:
    """One batch, valid or with one plant."""
    offsets = range(place.base, place.base + BATCH)
    records = [(offset, place.value(offset)) for offset in offsets]
    draft = _Draft(
        place,
        {offset: place.send(offset, value) for offset, value in records},
        list(records),
        list(records),
    )
    if plant is not None:
        draft.planted = _ALL[plant](draft)
    cut = len(draft.seen) if draft.split is None else draft.split
    parts = [part for part in (draft.seen[:cut], draft.seen[cut:]) if part]
    sends = [op for op in draft.sends.values() if op is not None]
    return Batch(
        (*draft.before, *sends),
        (*(place.poll(*part) for part in parts), *draft.polls),
        tuple(draft.log),
        draft.planted,
        draft.keys,
        tuple(draft.looks),
    )


def _lost_write(d: _Draft) -> tuple[Planted, ...]:
    gone = (d.place.at, d.place.value(d.place.at))
    d.log.remove(gone)
    d.seen.remove(gone)
    skip = d.place.at_offset("int-poll-skip", d.place.at + 1)
    return (d.place.at_offset("lost-write", d.place.at), skip, skip)


def _committed_then_lost(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    d.sends[p.at] = p.send(None, p.value(p.at), "info")
    d.log.remove((p.at, p.value(p.at)))
    return (p.at_offset("committed-then-lost", p.at), p.at_offset("int-poll-skip", p.at + 1))


def _duplicate(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    d.sends[p.at + 1] = None
    for log in (d.log, d.seen):
        log[_SITE + 1] = (p.at + 1, p.value(p.at))
    return (p.found("duplicate", p.at + 1, p.value(p.at)),)


def _inconsistent_offsets(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    other = f"{p.value(p.at)}-other"
    d.before.append(p.send(None, other, "info", process=_STRANGERS + p.at))
    d.polls.append(p.strangers_poll((p.at, other)))
    return (
        p.at_offset("inconsistent-offsets", p.at), p.found("committed-then-lost", p.at, other)
    )  # fmt: skip


def _nonmonotonic_poll(d: _Draft) -> tuple[Planted, ...]:
    d.polls.append(d.place.poll(d.seen[-1]))
    return (d.place.found("nonmonotonic-poll", *d.seen[-1]),)


def _int_nonmonotonic_poll(d: _Draft) -> tuple[Planted, ...]:
    d.seen.insert(_SITE, d.seen[_SITE])
    return (d.place.at_offset("int-nonmonotonic-poll", d.place.at),)


def _poll_skip(d: _Draft) -> tuple[Planted, ...]:
    del d.seen[_SITE]
    d.split = _SITE
    return (d.place.at_offset("poll-skip", d.place.at + 1),)


def _int_poll_skip(d: _Draft) -> tuple[Planted, ...]:
    del d.seen[_SITE]
    return (d.place.at_offset("int-poll-skip", d.place.at + 1),)


def _swap(d: _Draft) -> tuple[int, str, int, str]:
    """The record that was sent first comes second in the log."""
    p = d.place
    first, second = p.value(p.at), p.value(p.at + 1)
    for log in (d.log, d.seen):
        log[_SITE : _SITE + 2] = [(p.at, second), (p.at + 1, first)]
    return p.at, second, p.at + 1, first


def _reordered(d: _Draft) -> tuple[Planted, ...]:
    low, second, high, first = _swap(d)
    d.sends[low], d.sends[high] = d.place.send(high, first), d.place.send(low, second)
    names = ("reordered", "nonmonotonic-send", "G0-realtime")
    return tuple(d.place.found(name, low, second) for name in names)


def _nonmonotonic_send(d: _Draft) -> tuple[Planted, ...]:
    low, second, high, first = _swap(d)
    d.sends[low] = d.place.send(high, first)
    d.sends[high] = d.place.send(None, second, "info")
    return (d.place.found("nonmonotonic-send", low, second),)


def _g1a(d: _Draft) -> tuple[Planted, ...]:
    d.sends[d.place.at] = d.place.send(None, d.place.value(d.place.at), "fail")
    return (d.place.at_offset("G1a", d.place.at),)


def _phantom(d: _Draft) -> tuple[Planted, ...]:
    d.sends[d.place.at] = None
    return (d.place.at_offset("phantom", d.place.at),)


def _commit_regression(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    d.polls += [p.commit(p.at + 2), p.commit(p.at)]
    return (p.found("commit-regression", p.at),)


def _precommitted_read(d: _Draft) -> tuple[Planted, ...]:
    p, value = d.place, d.place.value(d.place.at)
    d.sends[p.at] = p.transaction(("send", p.at, value), ("poll", p.at, value))
    d.sends[p.at] = _alone(d.sends[p.at], p)
    return (p.at_offset("precommitted-read", p.at),)


def _int_nonmonotonic_send(d: _Draft) -> tuple[Planted, ...]:
    low, second, high, first = _swap(d)
    d.sends[low] = d.place.transaction(("send", high, first), ("send", low, second))
    d.sends[high] = None
    names = ("reordered", "int-nonmonotonic-send")
    return tuple(d.place.found(name, low, second) for name in names)


def _int_send_skip(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    d.sends[p.at] = p.transaction(
        ("send", p.at, p.value(p.at)), ("send", p.at + 2, p.value(p.at + 2))
    )
    d.sends[p.at + 2] = None
    between = p.at_offset("G0-realtime", p.at + 1)  # it is sent when the transaction has ended
    return (p.at_offset("int-send-skip", p.at + 2), between, Planted("G0", None, None, None))


def _g1c(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    one, other = (p.at, p.value(p.at)), (p.at + 1, p.value(p.at + 1))
    d.sends[p.at] = _alone(p.transaction(("send", *one), ("poll", *other)), p)
    d.sends[p.at + 1] = _alone(p.transaction(("send", *other), ("poll", *one), number=1), p)
    return (Planted("G1c", None, None, None),)


def _torn_transaction(d: _Draft) -> tuple[Planted, ...]:
    """Its end is not known, one of its records is there: then it did commit."""
    p = d.place
    gone = p.value(p.at + 1)
    sent = p.transaction(("send", p.at, p.value(p.at)), ("send", p.at + 1, gone))
    rows = tuple({**row, "offset": None} for row in sent.rows)
    setting = {**p.row("setting", None, "10000"), "key": "transaction.timeout.ms"}
    d.before.append(Op(-1, (setting,), "info"))
    d.sends[p.at] = Op(sent.process + _LONERS + 2 * p.at, rows, "info")
    d.sends[p.at + 1] = None
    d.log.remove((p.at + 1, gone))
    d.seen.remove((p.at + 1, gone))
    return (p.found("torn-transaction", None, gone),)


def _processed_twice(d: _Draft) -> tuple[Planted, ...]:
    p = d.place
    setting = {**p.row("setting", None, "at-most-once"), "key": "delivery"}
    done = {**p.row("process", p.at, None), "key": f"group-{p.partition}-{p.at}"}
    d.before.append(Op(-1, (setting,), "info"))
    d.polls += [Op(_STRANGERS + p.at, (done,)) for _ in range(2)]
    return (p.at_offset("processed-twice", p.at),)


def _skipped_by_commit(d: _Draft) -> tuple[Planted, ...]:
    """A group that promises at most once has committed past a record that nobody processed."""
    p, group = d.place, f"group-{d.place.partition}-{d.place.at}"
    setting = {**p.row("setting", None, "at-most-once"), "key": "delivery"}
    done = {**p.row("process", p.at, None), "key": group}
    position = {**p.row("commit", p.at + 2, None), "key": group}
    d.before.append(Op(-1, (setting,), "info"))
    d.polls += [Op(_STRANGERS + p.at, (row,)) for row in (done, position)]
    return (p.at_offset("skipped-by-commit", p.at + 1),)


def _processed_twice_behind_a_reset(d: _Draft) -> tuple[Planted, ...]:
    """Two records are processed again, and the reset led back over the second one alone."""
    p, group = d.place, f"group-{d.place.partition}-{d.place.at}"
    setting = {**p.row("setting", None, "at-most-once"), "key": "delivery"}
    first, second = (
        {**p.row("process", offset, None), "key": group} for offset in (p.at, p.at + 1)
    )
    reset = {**p.row("reset", p.at + 1, str(p.at + 2)), "key": group}
    d.before.append(Op(-1, (setting,), "info"))
    d.polls += [Op(_STRANGERS + p.at, of) for of in ((first, second), (reset,), (second, first))]
    return (p.at_offset("processed-twice", p.at),)


def _skipped_behind_a_reset(d: _Draft) -> tuple[Planted, ...]:
    """A reset passes over two records, and then the group passes over another one."""
    p, group = d.place, f"group-{d.place.partition}-{d.place.at}"
    setting = {**p.row("setting", None, "at-most-once"), "key": "delivery"}
    ways = (
        (("process", p.at, None), ("commit", p.at + 1, None)),
        (("reset", p.at + 3, str(p.at + 1)),),
        (("process", p.at + 3, None), ("commit", p.at + 5, None)),
    )
    d.before.append(Op(-1, (setting,), "info"))
    for way in ways:
        rows = tuple({**p.row(*one), "key": group} for one in way)
        d.polls.append(Op(_STRANGERS + p.at, rows))
    return (p.at_offset("skipped-by-commit", p.at + 4),)


def _owned_twice(d: _Draft) -> tuple[Planted, ...]:
    p = d.place

    def turn(f: str, member: int) -> Op:
        row = {**p.row(f, None, None), "key": f"group-{p.partition}-{p.at}"}
        return Op(_STRANGERS + p.at + member, (row,))

    d.polls += [turn("assigned", 0), turn("assigned", 1), turn("revoked", 0)]
    return (p.found("owned-twice", None),)


def _group(d: _Draft, promise: str, *ways: tuple[str, int, str | None]) -> None:
    """What one member of a group did there, each its own operation."""
    p, group = d.place, f"group-{d.place.partition}-{d.place.at}"
    setting = {**p.row("setting", None, promise), "key": "delivery"}
    d.before.append(Op(-1, (setting,), "info"))
    d.polls += [Op(_STRANGERS + p.at, ({**p.row(*way), "key": group},)) for way in ways]


def _processed_again(d: _Draft) -> tuple[Planted, ...]:
    at = d.place.at
    _group(d, "at-least-once", ("process", at, None), ("process", at, None))
    return (d.place.at_offset("processed-again", at),)


def _unprocessed(d: _Draft) -> tuple[Planted, ...]:
    at = d.place.at
    _group(d, "at-least-once", ("process", at, None), ("commit", at + 2, None))
    return (d.place.at_offset("unprocessed", at + 1),)


def _wrong_sum(d: _Draft) -> tuple[Planted, ...]:
    """A reader has half a transfer where all of it lies below."""
    p = d.place
    paid = [(p.at, f"5/{p.value(p.at)}"), (p.at + 1, f"-5/{p.value(p.at + 1)}")]
    d.sends[p.at] = _alone(p.transaction(*(("send", *one) for one in paid)), p)
    d.sends[p.at + 1] = None
    for log in (d.log, d.seen):
        log[_SITE : _SITE + 2] = paid
    reader = _STRANGERS + p.at
    d.polls += [p.strangers_poll(paid[0]), Op(reader, (p.row("sum", p.at + 2, None),))]
    return (p.found("wrong-sum", p.at + 2),)


def _stream(d: _Draft, *inputs: int, end: int) -> None:
    """Records that follow each other are the outputs of these inputs of a source of their own."""
    p, source = d.place, f"in-{d.place.partition}-{d.place.at}"
    each = {**p.row("setting", None, "in"), "key": "each.input"}
    d.before.append(Op(-1, (each,), "info"))
    d.keys.update({p.at + n: f"{source}@{one}" for n, one in enumerate(inputs)})
    d.looks.append(Op(_STRANGERS + p.at, ({**p.row("source", end, None), "key": source},)))


def _input_twice(d: _Draft) -> tuple[Planted, ...]:
    _stream(d, 0, 1, 1, end=2)
    return (d.place.at_offset("input-twice", d.place.at + 2),)


def _input_missing(d: _Draft) -> tuple[Planted, ...]:
    _stream(d, 0, 2, end=3)
    return (d.place.at_offset("input-missing", d.place.at + 1),)


def _newest_lost(d: _Draft) -> tuple[Planted, ...]:
    """Of two values of a key the final reads find the older one, which may be removed.

    A consumer that steps over an offset there has skipped nothing: a value may have been removed.
    """
    p = d.place
    compact = {**p.row("setting", None, "compact"), "key": "cleanup.policy"}
    d.before.append(Op(-1, (compact,), "info"))
    for offset in (p.at, p.at + 1):
        sent = {**p.row("send", offset, p.value(offset)), "key": f"k{p.at}"}
        d.sends[offset] = Op(p.partition, (sent,))
    d.keys[p.at] = f"k{p.at}"
    gone = (p.at + 1, p.value(p.at + 1))
    d.log.remove(gone)
    d.seen.remove(gone)
    return tuple(p.at_offset(name, p.at + 1) for name in ("newest-lost", "lost-write"))


def _hanging_transaction(d: _Draft) -> tuple[Planted, ...]:
    """The last stable offset is seen to stand still: once in a partition."""
    p = d.place
    timeout = {**p.row("setting", None, "0"), "key": "transaction.timeout.ms"}
    d.before.append(Op(-1, (timeout,), "info"))
    stands = p.row("stable", p.at, str(p.at + 1))
    d.looks += [Op(_STRANGERS + p.at, (stands,), phase="final") for _ in range(2)]
    return (p.found("hanging-transaction", p.at),)


def _alone(op: Op | None, place: Place) -> Op:
    """By a process that does nothing else, so that its poll follows no other."""
    assert op is not None
    return Op(op.process + _LONERS + 2 * place.at, op.rows, op.type)


# name -> changes a valid batch, and says what must be found there
PLANTS: Final[Mapping[str, Callable[[_Draft], tuple[Planted, ...]]]] = {
    "lost-write": _lost_write,
    "committed-then-lost": _committed_then_lost,
    "duplicate": _duplicate,
    "inconsistent-offsets": _inconsistent_offsets,
    "nonmonotonic-poll": _nonmonotonic_poll,
    "int-nonmonotonic-poll": _int_nonmonotonic_poll,
    "poll-skip": _poll_skip,
    "int-poll-skip": _int_poll_skip,
    "reordered": _reordered,
    "nonmonotonic-send": _nonmonotonic_send,
    "G1a": _g1a,
    "phantom": _phantom,
    "commit-regression": _commit_regression,
    "precommitted-read": _precommitted_read,
    "int-nonmonotonic-send": _int_nonmonotonic_send,
    "int-send-skip": _int_send_skip,
    "G1c": _g1c,
    "torn-transaction": _torn_transaction,
    "processed-twice": _processed_twice,
    "skipped-by-commit": _skipped_by_commit,
    "processed-twice-behind-a-reset": _processed_twice_behind_a_reset,
    "skipped-behind-a-reset": _skipped_behind_a_reset,
    "owned-twice": _owned_twice,
}
UNSEEN: Final = "unseen"

# Those that belong to a workload. What a partition is, a setting says for all of it: each of these
# sets goes into a history of its own.
GROUPS: Final[Mapping[str, Callable[[_Draft], tuple[Planted, ...]]]] = {
    "processed-again": _processed_again,
    "unprocessed": _unprocessed,
    "wrong-sum": _wrong_sum,
    "input-twice": _input_twice,
    "input-missing": _input_missing,
}
KEYED: Final[Mapping[str, Callable[[_Draft], tuple[Planted, ...]]]] = {"newest-lost": _newest_lost}
HANGING: Final = {"hanging-transaction": _hanging_transaction}  # once in a partition
_ALL: Final = {**PLANTS, **GROUPS, **KEYED, **HANGING}


def plant(
    directory: Path,
    operations: int,
    plants: Mapping[str, int],
    *,
    partitions: int = 4,
    seed: int = 0,
    value_bytes: int = 0,
) -> list[Planted]:
    """Write a run directory of about so many operations; what must be found in it, and no more.

    `value_bytes` is the least size of a value.
    """
    batches = max(2, operations // (partitions * (BATCH + 1)))
    sites = _sites(batches, partitions, plants, seed)
    places = {n: Place(n % partitions, BATCH * (n // partitions), value_bytes) for n in sites}
    made = {n: batch(places[n], name) for n, name in sites.items()}
    planted = [one for n in sorted(made) for one in made[n].planted]
    shape = Shape(partitions, batches, value_bytes)
    with TableWriter(directory / "operations", OPERATIONS_READ) as table:
        for tables in (polled_batches(shape, set(sites)), final_batches(shape, set(sites))):
            for valid in tables:
                table.write_table(valid)
        for n, changed in sorted(made.items()):
            write_ops(table, shape.first_operation(n), (*changed.sends, *changed.polls))
            write_ops(table, shape.final_operation(n), (_final(places[n], changed),))
            write_ops(table, shape.look(n), changed.looks)
        for partition in range(plants.get(UNSEEN, 0)):
            tail = Place(partition, BATCH * batches, value_bytes)
            planted.append(tail.at_offset(UNSEEN, tail.base))
            last = shape.first_operation(batches * partitions + partition)
            write_ops(table, last, (tail.send(tail.base, tail.value(tail.base)),))
    run = _run(seed, plants, BATCH * batches, partitions)
    write_run(directory, replace(run, written=open_run(directory).written))
    return planted


def _sites(batches: int, partitions: int, plants: Mapping[str, int], seed: int) -> dict[int, str]:
    """What is planted in which batch; batches are counted partition by partition, then on."""
    unknown = sorted(set(plants) - {*_ALL, UNSEEN})
    if unknown:
        raise ValueError(f"{unknown[0]} cannot be planted: choose among {', '.join(_ALL)}.")
    wanted = [name for name in _ALL for _ in range(plants.get(name, 0))]
    if len(wanted) > batches * partitions or plants.get(UNSEEN, 0) > partitions:
        raise ValueError("There are more anomalies to plant than places: ask for more operations.")
    places = random.Random(seed).sample(range(batches * partitions), len(wanted))
    return dict(zip(places, wanted, strict=True))


def _final(place: Place, of: Batch) -> Op:
    rows = tuple(
        {**place.row("poll", offset, value), "key": of.keys.get(offset)} for offset, value in of.log
    )
    return Op(FINAL + place.partition, rows, phase="final")


def _run(seed: int, plants: Mapping[str, int], end: int, partitions: int) -> Run:
    return Run(
        neaptide="planted",
        name="planted",
        system=EDN_SYSTEM,  # it has no replicas either
        host="none",
        seed=seed,
        started_utc="2026-01-01T00:00:00+00:00",
        status="finished",
        kind="random",
        brokers={},
        schedule={"planted": dict(plants)},
        final_reads=tuple(
            FinalRead(TOPIC, partition, end + (partition < plants.get(UNSEEN, 0)), True)
            for partition in range(partitions)
        ),
        converged=Converged(True),
    )
