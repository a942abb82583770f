"""Every order in which messages can arrive, with so many records, deaths, returns and timers.

Depth first, and no state twice: states that will behave the same have one name (canonical). In each
the invariants are asked, and the ending is judged where nothing is on its way, or where something
acknowledged looks lost. "Exhausted" means: there is no other state within the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class _Level:
    state: State
    moves: Iterator[Move]


@dataclass(slots=True)
class Exhaustive:
    target: Target
    limits: Limits
    report: Callable[[Searched], None] = lambda searched: None
    searched: Searched = field(default_factory=Searched)
    _known: set[bytes] = field(default_factory=set)
    _stack: list[_Level] = field(default_factory=list)
    _path: list[Move] = field(default_factory=list)

    def run(self) -> Searched:
        """Until something is found, all is seen, or a limit is reached."""
        started = time.monotonic()
        searched = self.searched
        first = first_state(self.target)
        found = first if isinstance(first, Judged) else self._search(first, started)
        if found is not None:
            searched.outcome, searched.ended_by = found.outcome, "a find"
            searched.path, searched.evidence = tuple(self._path), found.evidence
            if isinstance(first, State):
                searched.shortest = shortened(first, searched.path, self.target, found.outcome)
                searched.evidence = evidence_of(first, searched.shortest, self.target)
        searched.seconds = time.monotonic() - started
        return searched

    def _search(self, first: State, started: float) -> Judged | None:
        found = self._enter(first)
        while self._stack and found is None:
            if self._is_over(started):
                return None
            level = self._stack[-1]
            move = next(level.moves, None)
            if move is None:
                self._leave()
                continue
            self.searched.transitions += 1
            self._path.append(move)
            after, found = try_move(level.state, move, self.target)
            if found is None and after is not None and self._is_new(after):
                found = self._enter(after)
            elif found is None:
                self._path.pop()
        self.searched.exhausted = found is None
        return found

    def _is_new(self, state: State) -> bool:
        name = state.name()
        if name in self._known:
            return False
        self._known.add(name)
        return True

    def _enter(self, state: State) -> Judged | None:
        """A state that nobody has seen. Returns what is wrong with it."""
        searched = self.searched
        searched.states += 1
        if searched.states % REPORT_EVERY == 0:
            self.report(searched)
        self._stack.append(_Level(state, moves(state, self.target, self.limits.bounds)))
        searched.depth = max(searched.depth, len(self._stack))
        searched.judged += 1
        return judged_at(state, self.target)

    def _leave(self) -> None:
        self._stack.pop()
        if self._path:
            self._path.pop()

    def _is_over(self, started: float) -> bool:
        searched, limits = self.searched, self.limits
        if searched.states >= limits.states_max:
            searched.ended_by = f"the limit of {limits.states_max} states"
        elif limits.time_s is not None and time.monotonic() - started >= limits.time_s:
            searched.ended_by = f"the limit of {limits.time_s:g} s"
        return bool(searched.ended_by)
