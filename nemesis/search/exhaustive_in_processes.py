"""Every order of messages (exhaustive), searched by several processes of this machine.

They share one table of the states that are known, so that no state is searched twice. Who has
nothing to do gets what another one has still to do in a state near the first. Which find comes
first depends on how the processes run; how many states a space has does not.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any, Final

from neaptide.nemesis.search.canonical import DIGEST_BYTES
from neaptide.nemesis.search.deliveries import Move, Path, State, first_state, try_move
from neaptide.nemesis.search.exhaustive import (
    Exhaustive,
    Limits,
    Searched,
    end_s,
    limit_of,
    note_find,
)
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.targets import Target
from neaptide.nemesis.search.workers import begin, whole_start

_SLOTS_PER_STATE: Final = 2  # a table that is half empty is searched in a few steps
_NOBODY: Final = bytes(DIGEST_BYTES)
_BY_ANOTHER: Final = "another process"


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done in the state at the end of a path; `moves` None: all, as nobody has
    seen it."""

    path: Path = ()
    moves: tuple[Move, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """By one process: how far it is. `is_last`: it ends. `found` goes with `searched.path`."""

    worker: int
    searched: Searched
    found: Judged | None = None
    is_last: bool = False


class _Common:
    """In memory that the processes share. Implements Shared."""

    def __init__(self, context: Any, limits: Limits, workers: int) -> None:
        self._limits, self._workers, self._end_s = limits, workers, end_s(limits)
        self._slots = _SLOTS_PER_STATE * (limits.states_max + workers)
        self._table = context.RawArray("c", self._slots * DIGEST_BYTES)
        self._lock = context.Lock()
        self._states = context.RawValue("q", 0)
        self._unfinished = context.RawValue("q", 1)  # pieces of work; the first is given at once
        self._waiting = context.RawValue("q", 0)  # processes
        self._is_over = context.RawValue("b", 0)
        self._works = context.SimpleQueue()
        self._works.put(_Work())

    # --- Shared ----------------------------------------------------------------------------------

    def is_new(self, name: bytes) -> bool:
        slot = int.from_bytes(name[:8], "little") % self._slots
        with self._lock:
            there = self._at(slot)
            while there not in (name, _NOBODY):
                slot = (slot + 1) % self._slots
                there = self._at(slot)
            if there == _NOBODY:
                self._table[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] = name
                self._states.value += 1
        return there == _NOBODY

    def _at(self, slot: int) -> bytes:
        return bytes(self._table[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES])

    def ended_by(self) -> str:
        if self._is_over.value:
            return _BY_ANOTHER
        return limit_of(self._limits, self._states.value, self._end_s)

    def wants_work(self) -> bool:
        return bool(self._waiting.value) and bool(self._works.empty())

    def give(self, path: Path, moves: tuple[Move, ...]) -> None:
        with self._lock:
            self._unfinished.value += 1
        self._works.put(_Work(path, moves))

    # --- of a process ----------------------------------------------------------------------------

    def take(self) -> _Work | None:
        """Waits for a piece of work. None: there is none any more."""
        with self._lock:
            self._waiting.value += 1
        work: _Work | None = self._works.get()
        with self._lock:
            self._waiting.value -= 1
        return work

    def finish(self, *, and_all: bool) -> None:
        """A piece of work. `and_all`: the others end what they are at."""
        with self._lock:
            self._is_over.value |= and_all
            self._unfinished.value -= 1
            is_last = self._unfinished.value == 0
        if is_last:
            for _ in range(self._workers):
                self._works.put(None)


def run_in_processes(
    target: Target, limits: Limits, workers: int, report: Callable[[Searched], None]
) -> Searched:
    """Until something is found, all is seen, or a limit is reached. Raises RuntimeError where a
    process ends that should not."""
    started = time.monotonic()
    first = first_state(target)
    if isinstance(first, Judged):
        return Searched(outcome=first.outcome, ended_by="a find", evidence=first.evidence)
    said = _listen(target, limits, workers, report)
    searched = _sum_of(said)
    finds = [one for one in said.values() if one.found is not None]
    if finds:
        find = min(finds, key=lambda one: (len(one.searched.path), one.worker))
        assert find.found is not None
        note_find(searched, find.found, find.searched.path, first, target)
    else:
        searched.exhausted = all(not one.searched.ended_by for one in said.values())
    searched.seconds = time.monotonic() - started
    return searched


def _listen(
    target: Target, limits: Limits, workers: int, report: Callable[[Searched], None]
) -> dict[int, _Said]:
    """What each process said last."""
    context = multiprocessing.get_context("spawn")
    common = _Common(context, limits, workers)
    said: dict[int, _Said] = {}
    with ExitStack() as stack:
        open_: list[Any] = []  # ends at which the processes are listened to
        for worker in range(workers):
            listener, say = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(worker, target, limits, common, say), daemon=True
            )
            with whole_start():
                process.start()
                stack.callback(process.join)
                stack.callback(process.terminate)
            say.close()
            open_.append(listener)
        while open_:
            ready: list[Any] = list(wait(open_))
            for end in ready:
                try:
                    one: _Said = end.recv()
                except EOFError:
                    raise RuntimeError("A process of the search has ended.") from None
                said[one.worker] = one
                if one.is_last:
                    open_.remove(end)
            report(_sum_of(said))
    return said


def _sum_of(said: dict[int, _Said]) -> Searched:
    all_ = [one.searched for one in said.values()]
    reasons = [one.ended_by for one in all_ if one.ended_by not in ("", _BY_ANOTHER)]
    return Searched(
        states=sum(one.states for one in all_),
        transitions=sum(one.transitions for one in all_),
        judged=sum(one.judged for one in all_),
        depth=max(one.depth for one in all_),
        ended_by=min(reasons, default=""),
    )


def _work(worker: int, target: Target, limits: Limits, common: _Common, say: Any) -> None:
    begin()
    search = Exhaustive(
        target, limits.bounds, common, lambda searched: say.send(_Said(worker, searched))
    )
    first = first_state(target)
    assert isinstance(first, State)
    found: Judged | None = None
    while (work := common.take()) is not None:
        if found is None and not search.searched.ended_by:
            found = _do(search, first, work)
        common.finish(and_all=found is not None or bool(search.searched.ended_by))
    searched = replace(search.searched, path=search.path if found is not None else ())
    say.send(_Said(worker, searched, found, is_last=True))


def _do(search: Exhaustive, first: State, work: _Work) -> Judged | None:
    if work.moves is None:
        return search.run(first)
    state: State | None = first
    for move in work.path:
        assert state is not None
        state, _ = try_move(state, move, search.target)
    assert state is not None
    return search.run_moves(state, work.path, work.moves)
