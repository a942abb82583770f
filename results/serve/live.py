"""A run that is going on: how far it is, out of what it has written so far.

A recorder gives a file its final name about once a second; each is read once. The verdict is the
check's, once the run is over: nothing is judged here.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neaptide.results.report.rows import Row
from neaptide.results.report.story import Badge, Line, Moment, Story
from neaptide.results.run import Run
from neaptide.results.serve.listing import State, listed
from neaptide.results.tables import table_files

FAULTS_MAX: Final = 10
PARTITIONS_MAX: Final = 12
_COLUMNS: Final = ("f", "type", "invoked_ns", "topic", "partition", "leader_epoch", "value")
_KINDS: Final = ("nemesis", "leader")


@dataclass(frozen=True, slots=True)
class Led:
    """One partition, by the names of brokers. `leader`: empty where nobody leads."""

    partition: str
    leader: str
    epoch: str
    isr: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What a page about a run that goes on shows. Times are of the run, in seconds."""

    state: State
    status: str  # of run.json
    elapsed_s: float | None  # since it began; None: it is over
    quiet_s: float  # since it last wrote rows
    acknowledged: int
    failed: int
    indeterminate: int
    polled: int
    rounds: int  # fetch rounds on the wire
    faults: tuple[tuple[str, str], ...]  # the last ones, the newest first: when, and in words
    leaders: tuple[Led, ...]  # of the first partitions, as they are now
    incidents: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "unjudged")


class Follower:
    """Looks at one run again and again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[Path, tuple[Counter[tuple[str, str]], list[Row]]] = {}
        self._rounds: dict[Path, int] = {}

    def look(self, now: datetime | None = None) -> Progress:
        """Fails at nothing: what cannot be read is not there yet."""
        found = listed(self._directory)
        run = found.run
        files = self._read(self._directory / "operations", self._files, _operations)
        rounds = self._read(self._directory / "fetch_rounds", self._rounds, _row_count)
        counts: Counter[tuple[str, str]] = Counter()
        rows: list[Row] = []
        for count, few in files.values():
            counts += count
            rows += few
        is_going = found.state == "running" and run is not None
        begun = None if run is None else began_utc(run)
        elapsed = ((now or datetime.now(UTC)) - begun).total_seconds() if begun else None
        return Progress(
            state=found.state,
            status="" if run is None else run.status,
            elapsed_s=elapsed if is_going else None,
            quiet_s=_quiet_s(self._directory, time.time()) if is_going else 0.0,
            acknowledged=counts["send", "ok"],
            failed=counts["send", "fail"],
            indeterminate=counts["send", "info"],
            polled=sum(n for (f, _), n in counts.items() if f == "poll"),
            rounds=sum(rounds.values()),
            faults=() if run is None else _faults(run, rows),
            leaders=() if run is None else _leaders(run, rows),
            incidents=() if run is None else tuple(one.why for one in run.incidents),
        )

    def _read(self, folder: Path, known: dict[Path, Any], read: Any) -> dict[Path, Any]:
        files = table_files(folder) if folder.is_dir() else []
        for gone in set(known) - set(files):
            del known[gone]
        for path in files:
            if path not in known and not path.is_symlink():
                try:
                    known[path] = read(path)
                except (OSError, pa.ArrowException):
                    continue
        return known


def began_utc(run: Run) -> datetime | None:
    """None: its run.json does not say it in a way that is understood."""
    try:
        begun = datetime.fromisoformat(run.started_utc)
    except ValueError:
        return None
    return begun if begun.tzinfo else begun.replace(tzinfo=UTC)


def _quiet_s(directory: Path, now_s: float) -> float:
    """Since a table of it last got a file."""
    wrote = [now_s]
    for name in (".", "operations", "fetch_rounds"):
        try:
            wrote.append((directory / name).stat().st_mtime)
        except OSError:
            continue
    return max(0.0, now_s - max(wrote[1:], default=now_s))


def _row_count(path: Path) -> int:
    rows: int = pq.read_metadata(path).num_rows
    return rows


def _operations(path: Path) -> tuple[Counter[tuple[str, str]], list[Row]]:
    """How many there are of each kind, and those of the nemesis and of leaders."""
    table = pq.read_table(path, columns=list(_COLUMNS))
    plain = pa.table({n: _plain(table[n]) for n in table.column_names})
    counts: Counter[tuple[str, str]] = Counter()
    kinds = plain.group_by(["f", "type"]).aggregate([([], "count_all")])
    for row in kinds.to_pylist():
        counts[row["f"], row["type"]] += row["count_all"]
    few = plain.filter(pc.is_in(plain["f"], pa.array(_KINDS)))
    return counts, few.slice(0, 10_000).to_pylist()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _faults(run: Run, rows: Iterable[Row]) -> tuple[tuple[str, str], ...]:
    """In the words of the diagram."""
    faults = sorted((r for r in rows if r["f"] == "nemesis"), key=lambda row: row["invoked_ns"])
    names = {number: name for name, number in run.brokers.items()}
    shown = []
    for row in faults[-FAULTS_MAX:]:
        words = "; ".join(map(_words, Story(names, 0).in_order([row], [])))
        if words:
            shown.append((f"{row['invoked_ns'] / 1e9:.1f} s", words))
    return tuple(reversed(shown))


def _words(moment: Moment) -> str:
    match moment:
        case Badge():
            return f"{moment.lifeline}: {moment.text}"
        case Line():
            return moment.text
    return ""


def _leaders(run: Run, rows: Iterable[Row]) -> tuple[Led, ...]:
    names = {number: name for name, number in run.brokers.items()}
    last = {
        (row["topic"], row["partition"]): row
        for row in sorted(rows, key=lambda row: row["invoked_ns"])
        if row["f"] == "leader"
    }
    return tuple(
        _led(f"{topic}-{partition}", last[topic, partition], names)
        for topic, partition in sorted(last, key=lambda key: (str(key[0]), key[1] or 0))
    )[:PARTITIONS_MAX]


def _led(partition: str, row: Row, names: Mapping[int, str]) -> Led:
    said = json.loads(row["value"])
    leader = said["leader"]
    name = "" if leader is None else names.get(leader, str(leader))
    isr = ", ".join(names.get(broker, str(broker)) for broker in sorted(said["isr"]))
    return Led(partition, name, str(row["leader_epoch"]), isr)
