"""Which runs there are, newest first, and what each came to.

Read again where `run.json` or `verdict.json` has changed, so that a directory of thousands of runs
is looked at in milliseconds. A run is found by its name among those that are there, and in no other
way: a symbolic link is no run.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from neaptide.results.errors import NeaptideError, RunNotFoundError
from neaptide.results.report.page import UNJUDGED
from neaptide.results.run import RUN_FILE, Run, read_run
from neaptide.results.serve.inside import is_plain
from neaptide.results.verdicts import VERDICT_FILE, read_verdict, why_not_believed

PAGE_ROWS: Final = 100
NIGHTS_FOLDER: Final = "nights"
State = Literal["running", "unjudged", "judged", "unreadable"]
# Steps of scenarios that are faults; the others are what clients do, or undo a fault.
_FAULTS: Final = frozenset(
    {
        *("hold", "drop", "delay", "answer", "cap", "deliver", "kill", "power_off", "stop"),
        *("pause", "cut", "slow", "toxic", "set_clock", "damage", "put_back", "inject"),
        *("stall", "die", "remove_voter"),
        *("reassign", "elect", "move_controller", "remove_broker", "add_partition", "set_topic"),
        *("create_topic", "partition", "cast", "kill_client"),
    }
)

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Listed:
    """One run directory. `verdict`: anomalous, unknown, valid, or why there is none yet."""

    directory: Path
    run: Run | None = None  # None: its run.json cannot be read
    problem: str = ""  # why it cannot be read
    verdict: str = "unknown"
    outcome: str = "unknown"
    anomalies: Mapping[str, int] = field(default_factory=dict)
    state: State = "unreadable"

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def mark(self) -> str:
        """Its name as the id of an element, of signs that a selector takes as they are."""
        return re.sub(r"[^A-Za-z0-9-]", lambda sign: f"_{ord(sign[0]):x}_", self.name)

    @property
    def word(self) -> str:
        """What a badge says: how it goes while there is no verdict."""
        if self.state == "running":
            return "running"
        return self.verdict

    @property
    def scenario(self) -> str:
        return "" if self.run is None else self.run.name

    @property
    def system(self) -> str:
        return "" if self.run is None else self.run.system

    @property
    def begun(self) -> str:
        """As `2026-11-23 10:04:35`, UTC."""
        return "" if self.run is None else self.run.started_utc[:19].replace("T", " ")

    @property
    def seed(self) -> str:
        return "" if self.run is None else str(self.run.seed)

    @property
    def faults(self) -> tuple[str, ...]:
        return () if self.run is None else faults_of(self.run)

    @property
    def found(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in self.anomalies.items())

    @property
    def text(self) -> str:
        """What a search looks in, in lower case."""
        title = "" if self.run is None else self.run.title
        host = "" if self.run is None else self.run.host
        words = (self.name, self.scenario, self.system, title, host, self.seed, self.found)
        return " ".join((*words, *self.faults, self.word, self.outcome)).lower()

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.name,
            "begun": self.begun,
            "state": self.state,
            "verdict": self.verdict,
            "outcome": self.outcome,
            "system": self.system,
            "workload": self.scenario,
            "faults": list(self.faults),
            "seed": None if self.run is None else self.run.seed,
            "anomalies": dict(self.anomalies),
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """What a table is to show; what is empty asks nothing. `after`: the last row of the page
    before."""

    verdict: str = ""
    outcome: str = ""
    system: str = ""
    workload: str = ""
    fault: str = ""
    search: str = ""
    after: str = ""

    def wants(self, one: Listed) -> bool:
        return (
            self.verdict in ("", one.word)
            and self.outcome in ("", one.outcome)
            and self.system in ("", one.system)
            and self.workload in ("", one.scenario)
            and (not self.fault or self.fault in one.faults)
            and all(word in one.text for word in self.search.lower().split())
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of a table. `more`: the `after` of the next; empty: this is the last."""

    shown: tuple[Listed, ...]
    matching: int
    more: str


def chosen(runs: Sequence[Listed], asked: Asked, rows_max: int = PAGE_ROWS) -> Rows:
    """Runs in their order. An `after` that has gone meanwhile begins at the top."""
    matching = [one for one in runs if asked.wants(one)]
    names = [one.name for one in matching]
    begin = names.index(asked.after) + 1 if asked.after in names else 0
    shown = tuple(matching[begin : begin + rows_max])
    more = shown[-1].name if shown and begin + rows_max < len(matching) else ""
    return Rows(shown, len(matching), more)


def faults_of(run: Run) -> tuple[str, ...]:
    """The kinds of faults that its schedule has, in their order."""
    return tuple(dict.fromkeys(_faults(run.schedule)))


def _faults(schedule: Any) -> Iterator[str]:
    if isinstance(schedule, dict):
        for step in schedule.get("step", ()):
            if isinstance(step, dict):
                yield from (verb for verb in step if verb in _FAULTS)
    elif isinstance(schedule, list):
        for phase in schedule:
            for fault in phase.get("faults", ()) if isinstance(phase, dict) else ():
                if isinstance(fault, dict) and isinstance(fault.get("kind"), str):
                    yield fault["kind"]


class Listing:
    """The runs in one directory. May be asked by several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[Stamp, Stamp], Listed]] = {}

    def runs(self) -> list[Listed]:
        """The newest first; by name where two began at one moment."""
        with self._lock:
            known = self._known
            self._known = {}
            for path in _directories(self.root):
                stamps = _stamp(path / RUN_FILE), _stamp(path / VERDICT_FILE)
                if stamps[0] == _NOTHING:
                    continue
                before = known.get(path.name)
                fresh = before if before is not None and before[0] == stamps else None
                self._known[path.name] = fresh or (stamps, listed(path))
            found = [one for _, one in self._known.values()]
        return sorted(found, key=lambda one: (one.begun or one.name, one.name), reverse=True)

    def find(self, name: str) -> Listed:
        """Raises RunNotFoundError."""
        for one in self.runs():
            if one.name == name:
                return one
        raise RunNotFoundError(f"There is no run {name!r} in {self.root}.")

    def mark(self) -> int:
        """Changes whenever a run comes, goes, or comes to something else."""
        self.runs()
        with self._lock:
            return hash(tuple(sorted((name, each[0]) for name, each in self._known.items())))


_NOTHING: Final[Stamp] = (0, 0, 0)


def _directories(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return [
                root / entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _stamp(path: Path) -> Stamp:
    try:
        found = path.lstat()
    except OSError:
        return _NOTHING
    return found.st_mtime_ns, found.st_size, found.st_ino


def listed(directory: Path) -> Listed:
    """One run, as it is now; one that cannot be read says why."""
    try:
        return _listed(directory)
    except Exception as error:  # one run's files are no reason to show no other
        return Listed(directory, problem=f"It cannot be read ({type(error).__name__}).")


def _listed(directory: Path) -> Listed:
    for name in (RUN_FILE, VERDICT_FILE):
        path = directory / name
        if path.is_symlink() or (path.exists() and not is_plain(path)):
            return Listed(directory, problem=f"{name} is no regular file: it is not read.")
    try:
        run = read_run(directory)
    except NeaptideError as error:
        return Listed(directory, problem=str(error))
    if run.status == "running":
        return Listed(directory, run, state="running")
    try:
        verdict = read_verdict(directory)
        doubt = why_not_believed(directory, verdict)
    except NeaptideError as error:
        return Listed(directory, run, problem=str(error), state="unjudged")
    if verdict is None:
        return Listed(directory, run, problem=doubt or "", verdict=UNJUDGED, state="unjudged")
    if doubt is not None:
        return Listed(directory, run, problem=doubt, state="unjudged")
    return Listed(
        directory,
        run,
        verdict=str(verdict.get("verdict", "unknown")),
        outcome=str(verdict.get("outcome", "unknown")),
        anomalies=_counts(verdict.get("anomalies")),
        state="judged",
    )


def _counts(found: Any) -> dict[str, int]:
    if not isinstance(found, dict):
        return {}
    return {str(name): n for name, n in found.items() if isinstance(n, int)}
