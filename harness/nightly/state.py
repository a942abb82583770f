"""The journal of a night: what was begun, what it came to. JSON lines, each on disk before the next
thing happens; `--resume` reads it and goes on.

    {"what": "night", "seed": 7, "plan": {…}, "budget_s": 7200, …}   first line: what was asked for
    {"what": "started", "play": {…}}          before anything of it runs
    {"what": "ended", "play": "cell 3 #1", "run": "…", "seconds": 71.2, "why": ""}
    {"what": "checked", "row": {…}}           its verdict (`rows`)
    {"what": "finding", "key": "…", …}        what became of an anomaly: played again, made smaller
    {"what": "over"}                          the night came to its end

Each line has `at_s`, the seconds of the budget that were used by then. A play that started and has
not ended is played again; one that has ended and is not checked is checked. A last line that was
cut off is as if it had not been written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from neaptide.clusters.errors import UsageError
from neaptide.results.errors import StoreError

JOURNAL: Final = "journal.jsonl"
CELL: Final = "cell "  # how the items of cells begin
Kind = Literal["known", "pairs", "swarm", "again", "shrink", "confirm", "simulated"]


@dataclass(frozen=True, slots=True)
class Play:
    """One run, or one search, of a night. `item`: what is played, `attempt`: from 1.

    `of`: of which known file or finding it is, where it is of one. `values`: of the cell.
    """

    item: str
    kind: Kind
    attempt: int
    words: tuple[str, ...]  # the arguments of `neaptide`
    values: Mapping[str, str]
    seed: int
    lasts_s: float
    cell: int | None = None
    of: str = ""
    finding: str = ""  # of a known file: the key that it was saved for
    expected: str | None = None

    @property
    def name(self) -> str:
        return f"{self.item} #{self.attempt}"

    @property
    def is_search(self) -> bool:
        return self.words[0] == "explore"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Play:
        return cls(**{**raw, "words": tuple(raw["words"])})

    def again(self) -> Play:
        return replace(self, attempt=self.attempt + 1)


@dataclass(frozen=True, slots=True)
class Ended:
    """`run`: the directory of the run; `found`: what a search printed; neither: `why`."""

    play: Play
    run: str | None
    seconds: float
    why: str = ""
    found: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What a journal says. `open`: plays that were started and have not ended, in order.

    `unchecked`: those that have ended. `rows`: verdicts, as `rows` has them. `findings`: the last
    word on each, by key.
    """

    night: Mapping[str, Any] = field(default_factory=dict)
    open: Mapping[str, Play] = field(default_factory=dict)
    unchecked: Mapping[str, Ended] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()
    findings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plays: Mapping[str, Play] = field(default_factory=dict)  # the last of each item
    thinned: frozenset[str] = frozenset()  # names of runs that are gone
    used_s: float = 0.0
    is_over: bool = False


def after(state: State, event: Mapping[str, Any]) -> State:
    """The state once one more line is written. What is not understood changes nothing."""
    state = replace(state, used_s=max(state.used_s, float(event.get("at_s", 0.0))))
    match event.get("what"):
        case "night":
            return replace(state, night=event)
        case "started":
            play = Play.from_json(event["play"])
            others = {key: one for key, one in state.open.items() if one.item != play.item}
            begun = {**others, play.name: play}
            plays = {**state.plays, play.item: play}
            return replace(state, open=begun, plays=plays, is_over=False)
        case "ended":
            name = event["play"]
            left = {key: play for key, play in state.open.items() if key != name}
            if name not in state.open:
                return state
            found = event.get("found")
            ended = Ended(state.open[name], event["run"], event["seconds"], event["why"], found)
            return replace(state, open=left, unchecked={**state.unchecked, name: ended})
        case "checked":
            row = event["row"]
            left_over = {k: e for k, e in state.unchecked.items() if k != row["play"]}
            return replace(state, unchecked=left_over, rows=(*state.rows, row))
        case "finding":
            return replace(state, findings={**state.findings, event["key"]: event})
        case "thinned":
            return replace(state, thinned=state.thinned | {event["run"]})
        case "over":
            return replace(state, is_over=True)
    return state


def state_of(events: Iterable[Mapping[str, Any]]) -> State:
    state = State()
    for event in events:
        state = after(state, event)
    return state


def parse_journal(text: str, where: str) -> list[dict[str, Any]]:
    """All lines that were written whole. Raises UsageError for what is no journal."""
    whole = text[: text.rfind("\n") + 1]
    events = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            raise UsageError(f"{where}: line {number} is damaged: the night cannot be read.")
        events.append(event)
    return events


def read_night(directory: Path) -> State:
    """Raises UsageError."""
    path = directory / JOURNAL
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    return state_of(parse_journal(text, str(path)))


class Journal:
    """Appends to the journal of a night, which is one process's alone."""

    def __init__(self, directory: Path) -> None:
        """Raises UsageError where another process has it, StoreError where it cannot be written."""
        self.path = directory / JOURNAL
        try:
            self._file = self.path.open("a+b")
        except OSError as error:
            raise StoreError(f"Cannot write {self.path}: {error.strerror}.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UsageError(f"{directory} is a night that goes on in another process.") from None
        self._forget_half_a_line()
        self._file.seek(0)
        text = self._file.read().decode("utf-8", errors="replace")
        self.state = state_of(parse_journal(text, str(self.path)))

    def _forget_half_a_line(self) -> None:
        self._file.seek(0)
        whole = self._file.read().rfind(b"\n") + 1
        self._file.truncate(whole)

    def write(self, what: str, at_s: float, **fields: Any) -> None:
        """Raises StoreError."""
        event = {"what": what, "at_s": round(at_s, 3), **fields}
        line = json.dumps(event, ensure_ascii=False, default=dict) + "\n"
        try:
            self._file.write(line.encode("utf-8"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"Cannot write {self.path}: {error.strerror}.") from error
        self.state = after(self.state, json.loads(line))

    def close(self) -> None:
        self._file.close()


# --- nights side by side -------------------------------------------------------------------------


def nights_in(directory: Path) -> list[Path]:
    """Oldest first: their names begin with the time."""
    return sorted(path.parent for path in directory.glob(f"*/{JOURNAL}"))


def last_unfinished(directory: Path) -> Path:
    """Raises UsageError where there is none."""
    for night in reversed(nights_in(directory)):
        if not read_night(night).is_over:
            return night
    raise UsageError(
        f"There is no night in {directory} that was cut off: leave out --resume to begin one."
    )


def rows_of_earlier(nights: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    for night in nights:
        yield from read_night(night).rows
