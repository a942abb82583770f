"""Every order in which messages can arrive, with so many records, deaths, returns and timers.

Depth first, and no state twice: states that will behave the same have one name (canonical). In each
the invariants are asked, and the ending is judged where nothing is on its way, or where something
acknowledged looks lost. "Exhausted" means: there is no other state within the bounds. How several
processes share one search is in exhaustive_in_processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from neaptide.nemesis.search.deliveries import (
    Counts,
    Move,
    Path,
    State,
    evidence_of,
    first_state,
    judged_at,
    moves,
    shortened,
    try_move,
)
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.targets import Target

REPORT_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """`bounds` are part of what is searched; the others only end it early."""

    bounds: Counts
    states_max: int
    time_s: float | None = None


@dataclass(slots=True)
class Searched:
    """`exhausted`: no state within the bounds is left. `ended_by`: what ended it otherwise."""

    states: int = 0
    transitions: int = 0
    judged: int = 0
    depth: int = 0
    seconds: float = 0.0
    exhausted: bool = False
    ended_by: str = ""
    outcome: str = ""
    path: Path = ()
    shortest: Path = ()
    evidence: str = ""  # of a broken invariant, on the shortest path


class Shared(Protocol):
    """What the processes of a search have in common."""

    def is_new(self, name: bytes) -> bool:
        """Whether no process has had a state of this name before."""
        ...

    def ended_by(self) -> str:
        """Why all processes end now; empty: they do not."""
        ...

    def wants_work(self) -> bool:
        """Whether a process has nothing to do."""
        ...

    def give(self, path: Path, moves: tuple[Move, ...]) -> None:
        """Leaves to another process what can be done in the state at the end of a path."""
        ...


class Alone:
    """One process has all to itself. Implements Shared."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._names: set[bytes] = set()
        self._end_s = end_s(limits)

    def is_new(self, name: bytes) -> bool:
        if name in self._names:
            return False
        self._names.add(name)
        return True

    def ended_by(self) -> str:
        return limit_of(self._limits, len(self._names), self._end_s)

    def wants_work(self) -> bool:
        return False

    def give(self, path: Path, moves: tuple[Move, ...]) -> None:
        raise AssertionError("nobody else is there")


def end_s(limits: Limits) -> float | None:
    """On the monotonic clock, which all processes of a machine share."""
    return None if limits.time_s is None else time.monotonic() + limits.time_s


def limit_of(limits: Limits, states: int, end: float | None) -> str:
    """Which limit is reached; empty: none."""
    if states >= limits.states_max:
        return f"the limit of {limits.states_max} states"
    return f"the limit of {limits.time_s:g} s" if end and time.monotonic() >= end else ""


def run(
    target: Target, limits: Limits, report: Callable[[Searched], None] = lambda searched: None
) -> Searched:
    """In one process, until something is found, all is seen, or a limit is reached."""
    started = time.monotonic()
    first = first_state(target)
    if isinstance(first, Judged):
        return Searched(outcome=first.outcome, ended_by="a find", evidence=first.evidence)
    search = Exhaustive(target, limits.bounds, Alone(limits), report)
    found = search.run(first)
    searched = search.searched
    if found is None:
        searched.exhausted = not searched.ended_by
    else:
        note_find(searched, found, search.path, first, target)
    searched.seconds = time.monotonic() - started
    return searched


def note_find(searched: Searched, found: Judged, path: Path, first: State, target: Target) -> None:
    searched.outcome, searched.ended_by, searched.path = found.outcome, "a find", path
    searched.shortest = shortened(first, path, target, found.outcome)
    searched.evidence = evidence_of(first, searched.shortest, target)


@dataclass(slots=True)
class _Level:
    state: State
    moves: Iterator[Move]


@dataclass(slots=True)
class Exhaustive:
    """The part of a search that one process does."""

    target: Target
    bounds: Counts
    shared: Shared
    report: Callable[[Searched], None] = lambda searched: None
    searched: Searched = field(default_factory=Searched)
    _stack: list[_Level] = field(default_factory=list)
    _path: list[Move] = field(default_factory=list)
    _begun_at: int = 0  # how long the path to the first level is

    @property
    def path(self) -> Path:
        """To where the search is, or to what it found."""
        return tuple(self._path)

    def run(self, first: State) -> Judged | None:
        """A state that nobody has seen, and all behind it."""
        self._begin(())
        if not self.shared.is_new(first.name()):
            return None
        return self._enter(first) or self._search()

    def run_moves(self, state: State, path: Path, left: tuple[Move, ...]) -> Judged | None:
        """What is left to do in a state that another process has seen, at the end of a path."""
        self._begin(path)
        self._stack.append(_Level(state, iter(left)))
        return self._search()

    def _begin(self, path: Path) -> None:
        self._stack.clear()
        self._path[:] = path
        self._begun_at = len(path)

    def _search(self) -> Judged | None:
        found = None
        while self._stack and found is None:
            self.searched.ended_by = self.shared.ended_by()
            if self.searched.ended_by:
                return None
            if self.shared.wants_work():
                self._give()
            level = self._stack[-1]
            move = next(level.moves, None)
            if move is None:
                self._leave()
                continue
            self.searched.transitions += 1
            self._path.append(move)
            after, found = try_move(level.state, move, self.target)
            if found is None and after is not None and self.shared.is_new(after.name()):
                found = self._enter(after)
            elif found is None:
                self._path.pop()
        return found

    def _give(self) -> None:
        """All that is left to do in the state nearest to the first: there is most behind it."""
        for depth, level in enumerate(self._stack):
            left = tuple(level.moves)
            if left:
                level.moves = iter(())
                self.shared.give(tuple(self._path[: self._begun_at + depth]), left)
                return

    def _enter(self, state: State) -> Judged | None:
        """A new state. Returns what is wrong with it."""
        searched = self.searched
        searched.states += 1
        if searched.states % REPORT_EVERY == 0:
            self.report(searched)
        self._stack.append(_Level(state, moves(state, self.target, self.bounds)))
        searched.depth = max(searched.depth, self._begun_at + len(self._stack))
        searched.judged += 1
        return judged_at(state, self.target)

    def _leave(self) -> None:
        self._stack.pop()
        if self._path:
            self._path.pop()
