"""What a history says as rows of `results.schema.OPERATIONS_READ`, read in plain Python.

The second importer beside the one that ships. Times become strictly increasing along the lines, for
the lines are the order (two of one time keep their order, a clock that went back is put right). A
completion without invocation was invoked before all else. A process that is assigned or subscribes
loses its place in every other part that it ever touched: a seek.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from neaptide.results.run import FinalRead, Run
from tests.checkers.histories import run_of
from tests.differential.history import Entry, polled, sends

TOPIC: Final = "jepsen"
Row = dict[str, Any]


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with times that increase from one to the next."""
    made: list[Entry] = []
    for entry in entries:
        least = made[-1].time + 1 if made else 0
        made.append(replace(entry, time=max(entry.time, least)))
    return made


def rows(entries: Sequence[Entry]) -> list[Row]:
    touched = _touched(entries)
    made: list[Row] = []
    open_: dict[int, tuple[int, Entry]] = {}
    for index, entry in enumerate(ordered(entries)):
        if not isinstance(entry.process, int):
            continue
        if entry.type == "invoke":
            if entry.process in open_:
                made += _rows(*open_.pop(entry.process), None, touched)
            open_[entry.process] = index, entry
            continue
        number, invocation = open_.pop(entry.process, (index, replace(entry, time=-1)))
        made += _rows(number, invocation, entry, touched)
    for number, entry in open_.values():
        made += _rows(number, entry, None, touched)
    return made


def _touched(entries: Iterable[Entry]) -> Mapping[int | str, set[int]]:
    found: dict[int | str, set[int]] = defaultdict(set)
    for entry in entries:
        found[entry.process] |= {key for key, _, _ in (*sends(entry), *polled(entry))}
    return found


def _rows(
    number: int, invocation: Entry, completion: Entry | None, touched: Mapping[int | str, set[int]]
) -> Iterator[Row]:
    entry = completion if completion and completion.value else invocation
    shared = {
        "operation": number,
        "process": invocation.process,
        "type": completion.type if completion else "invoke",
        "invoked_ns": invocation.time,
        "completed_ns": completion.time if completion else None,
        "phase": "main",
        "f": invocation.f,
    }
    own: list[Row] = [{}]
    if entry.moves:
        own = list(_records(entry, completion.rebalanced if completion else ())) or [{}]
    elif entry.f in ("assign", "subscribe") and completion and completion.type in ("ok", "info"):
        lost = touched[entry.process] - set(entry.value or ())
        own += [{"f": "seek", "topic": TOPIC, "partition": key} for key in sorted(lost)]
    return (shared | {"row": place} | row for place, row in enumerate(own))


def _records(entry: Entry, rebalanced: Sequence[int]) -> Iterator[Row]:
    mops = entry.value or ()
    many = entry.f == "txn" or len(mops) > 1
    for place, mop in enumerate(mops):
        one = replace(entry, value=(mop,))
        mine: list[Row] = [
            {"f": "send", "topic": TOPIC, "partition": key, "offset": offset, "value": str(value)}
            for key, offset, value in sends(one)
        ] + [
            {"f": "poll", "topic": TOPIC, "partition": key, "offset": offset, "value": str(value),
             "phase": "final", "rebalanced": key in rebalanced}
            for key, offset, value in polled(one)
        ]  # fmt: skip
        for row in mine or [{"f": "poll", "phase": "final"}]:
            yield row | {"mop": place if many else None}


def run(entries: Sequence[Entry]) -> Run:
    keys = {key for e in entries for key, _, _ in (*sends(e), *polled(e))}
    return run_of(
        system="jepsen",
        host="none",
        kind="random",
        brokers={},
        final_reads=tuple(FinalRead(TOPIC, key, None, True) for key in sorted(keys)),
        clients={"subscribe": any(entry.f == "subscribe" for entry in entries)},
        converged=None,
    )
