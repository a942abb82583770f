"""Runs of our own by chance, out of the same histories: for the oracle and the engines to agree on.

What a history of Jepsen's cannot have is added: reads before the final ones, final reads that are
missing or fall short, deleted log starts, replicas (level or not) that lack or change a record, the
leader at the end, committed positions, records without a value. One number makes one run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from neaptide.results.run import Converged, FinalRead, Run
from neaptide.results.schema import OPERATIONS_READ, REPLICAS
from neaptide.results.store import write_run
from neaptide.results.tables import write_table
from tests.checkers import oracle, oracle_history
from tests.checkers.histories import run_of, write_empty
from tests.differential import generate, mutate, rows
from tests.differential.history import Entry

Row = dict[str, Any]


@dataclass(frozen=True)
class Generated:
    """A run as it would be on disk."""

    rows: tuple[Row, ...]
    replicas: tuple[Row, ...]
    run: Run

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True)
        write_run(directory, self.run)
        for name, columns, table in (
            ("operations", OPERATIONS_READ, self.rows),
            ("replicas", REPLICAS, self.replicas),
        ):
            if table:
                write_table(directory / name, columns, _tuples(columns, table))
        if not self.rows:
            write_empty(directory / "operations", OPERATIONS_READ)
        return directory

    @property
    def transactions(self) -> bool:
        return any(row.get("mop") is not None for row in self.rows)

    def expected(self) -> Counter[oracle.Found]:
        """What the oracle finds."""
        history = oracle_history.of_rows(
            self.rows, self.run, self.replicas, by_jepsen=self.run.system == "jepsen"
        )
        return Counter((name, offset, value) for name, _, offset, value in oracle.reported(history))


def _tuples(columns: pa.Schema, table: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in columns.names) for row in table]


def entries(seed: int) -> tuple[Entry, ...]:
    """The history that a run is made of; one of four is left valid."""
    made = generate.history(seed)
    return made if seed % 4 == 0 else mutate.mutated(seed, made)[0]


def imported(seed: int) -> Generated:
    """A history as it is after its import."""
    made = entries(seed)
    return Generated(tuple(rows.rows(made)), (), rows.run(made))


def generated(seed: int) -> Generated:
    """A run of our own."""
    chance = Random(seed)
    made = rows.rows(entries(seed))
    finally_ = {row["process"] for row in made if chance.random() < 0.1}
    for row in made:
        row["phase"] = "final" if row["f"] == "poll" and row["process"] in finally_ else "main"
        row["acks"] = chance.choice(("all", "1", "0")) if row["f"] == "send" else None
        if row.get("value") is not None and chance.random() < 0.01:
            row["value"] = None
    ends = _ends(made)
    made += _positions(chance, made, ends) if chance.random() < 0.4 else ()
    replicas: list[Row] = []
    if ends and chance.random() < 0.5:
        made += _leaders(chance, made, ends)
        replicas = [row for key in sorted(ends) for row in _logs(chance, made, key, ends[key])]
    if Random(-seed).random() < 0.5:  # otherwise nothing deletes, wherever a log starts
        made += [_retention(made, key) for key in sorted(ends)]
    run = run_of(
        final_reads=tuple(_final_read(chance, key, ends[key]) for key in sorted(ends)),
        replicas_written=bool(replicas),
        converged=Converged(chance.random() < 0.7, "by chance"),
        clients={"subscribe": any(row["f"] == "subscribe" for row in made)},
    )
    return Generated(tuple(made), tuple(replicas), run)


def _retention(made: Sequence[Row], key: int) -> Row:
    number = 5_000 + key + max((row["operation"] for row in made), default=0)
    said = {"key": "retention.bytes", "value": "100", "type": "info"}
    return _extra(number, -1, "setting", 0, 0, partition=key) | said


def _ends(made: Sequence[Row]) -> dict[int, int]:
    """Of each partition the end of its log."""
    found: dict[int, int] = {}
    for row in made:
        if row.get("partition") is not None:
            offset = -1 if row.get("offset") is None else row["offset"]
            found[row["partition"]] = max(found.get(row["partition"], 0), offset + 1)
    return found


def _final_read(chance: Random, key: int, end: int) -> FinalRead:
    reported = chance.choice((None, end, end, max(0, end - 2)))
    start = min(chance.choice((0, 0, 0, 0, 1, 2)), end if reported is None else reported)
    return FinalRead(rows.TOPIC, key, reported, chance.random() < 0.85, start)


def _extra(number: int, process: int, f: str, invoked: int, completed: int, **more: Any) -> Row:
    return {
        "operation": number, "row": 0, "process": process, "f": f, "type": "ok",
        "invoked_ns": invoked, "completed_ns": completed, "phase": "main", "topic": rows.TOPIC,
        **more,
    }  # fmt: skip


def _positions(chance: Random, made: Sequence[Row], ends: dict[int, int]) -> Iterator[Row]:
    number = 1 + max((row["operation"] for row in made), default=0)
    at = 0
    for n in range(chance.randint(1, 12) if ends else 0):
        at += chance.choice((0, 1, 5, 20))
        key = chance.choice(sorted(ends))
        f = chance.choice(("commit", "commit", "committed", "seek", "reset"))
        offset = chance.choice((None, *range(ends[key] + 2)))
        group = chance.choice(("g", "g", "h", None if f == "seek" else "g"))
        yield _extra(
            number + n, 500 + chance.randint(0, 2), f, at, at + chance.choice((0, 1, 5, 30)),
            partition=key, offset=offset, key=group,
            **{"type": chance.choice(("ok", "ok", "ok", "info", "fail"))} if f != "seek" else {},
        )  # fmt: skip


def _leaders(chance: Random, made: Sequence[Row], ends: dict[int, int]) -> Iterator[Row]:
    number = 1000 + max((row["operation"] for row in made), default=0)
    for n, key in enumerate(sorted(ends)):
        if chance.random() < 0.7:
            said = json.dumps({"leader": chance.randint(0, 2), "isr": [0, 1]})
            yield _extra(number + n, -1, "leader", 0, 0, partition=key, value=said) | {
                "type": "info"
            }


def _logs(chance: Random, made: Sequence[Row], key: int, end: int) -> Iterator[Row]:
    """The log of each replica: what was said to be there, perhaps with a fault in one of them."""
    log: dict[int, str | None] = {}
    for row in made:
        said = row["f"] in ("send", "poll") and row["type"] in ("ok", "info")
        if said and row.get("partition") == key and row.get("offset") is not None:
            log.setdefault(row["offset"], row.get("value"))
    faulty = chance.randint(0, 2)
    for broker in range(3):
        mine = _faulty(chance, log) if broker == faulty and log else log
        shared = {
            "broker": broker, "topic": rows.TOPIC, "partition": key, "control": False,
            "log_start_offset": 0, "log_end_offset": end,
            "high_watermark": chance.choice((end, end, max(0, end - 1), None)),
        }  # fmt: skip
        yield from (
            shared | {"offset": offset, "value": value, "leader_epoch": 0}
            for offset, value in sorted(mine.items())
        )
        if not mine:
            yield shared | {"offset": None}


def _faulty(chance: Random, log: dict[int, str | None]) -> dict[int, str | None]:
    """A hole, a shorter log, an empty one, another record; or nothing at all."""
    at = chance.choice(sorted(log))
    match chance.choice(("", "", "hole", "short", "empty", "record")):
        case "hole":
            return {offset: value for offset, value in log.items() if offset != at}
        case "short":
            return {offset: value for offset, value in log.items() if offset < at}
        case "empty":
            return {}
        case "record":
            return log | {at: "x"}
    return log
