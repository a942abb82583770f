"""The night itself: what is played next, side by side, while a check judges what has ended.

Not how a play is done (`doing`), judged (`judging`) or made smaller (`found`): those are handed in.

The order: what was cut off, known schedules, what proved nothing and is to be tried again; then new
cells and the plays of findings by turns, so that neither starves the other. Searches of the
simulation have places of their own where cores are left, else each fifth place of a live run.

The rule: everything is in the journal before it begins and when it has ended, so that a night that
was cut off anywhere goes on with the same cells.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from neaptide.harness.nightly.state import CELL, Ended, Journal, Play
from neaptide.harness.terminal.output import shown

OVERHEAD_S: Final = 40.0  # of a live run beyond its load, until some have shown it
LIVE_PER_SEARCH: Final = 4  # where no core is left for searches
_KEPT_OVERHEADS: Final = 20
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """`budget_s`: from the beginning of the night, over all its sessions. `cells`: new ones, at
    most; None: as many as the time allows. `jobs`: live runs at once; `searches`: those beside."""

    budget_s: float
    jobs: int
    searches: int
    cells: int | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to play. `cells`: without end, in order, live and simulated apart."""

    known: Sequence[Play]
    live: Iterator[Play]
    searches: Iterator[Play]


class Effects(Protocol):
    """What a night does to the world."""

    async def play(self, play: Play) -> Ended: ...

    async def check(self, ended: Sequence[Ended]) -> list[Row]: ...

    async def tidy(self, rows: Sequence[Row]) -> list[str]:
        """Names of runs that were removed, because there is too much on the disk."""
        ...

    def room(self) -> str | None:
        """Why no further play can begin; None: one can."""
        ...


# Of a row that is worth it: what the journal is to say of the finding in the end.
Investigate = Callable[[Row, Callable[[Play], Awaitable[Row | None]]], Awaitable[dict[str, Any]]]


@dataclass
class Night:
    """One session of a night; `run` returns when the budget is used up, or nothing is left."""

    journal: Journal
    limits: Limits
    work: Work
    effects: Effects
    investigate: Investigate
    is_worth: Callable[[Row], bool]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    stopped: str = ""  # why it ended before its time; empty: it did not
    _overheads: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_OVERHEADS))

    def __post_init__(self) -> None:
        self._began = self.clock() - self.journal.state.used_s
        self._running: set[asyncio.Task[None]] = set()
        self._live = self._searching = 0
        self._checking = False
        self._since_search = 0
        self._turn_of_findings = True
        self._again: deque[Play] = deque()
        self._known: deque[Play] = deque()
        self._of_findings: deque[Play] = deque()
        self._waiting: dict[str, asyncio.Future[Row | None]] = {}
        self._being_investigated: set[str] = set()
        self._wake = asyncio.Event()
        self._next: dict[str, Play | None] = {}  # cells that were drawn and did not fit yet

    @property
    def used_s(self) -> float:
        return self.clock() - self._began

    @property
    def left_s(self) -> float:
        return self.limits.budget_s - self.used_s

    async def run(self) -> None:
        self._go_on_from_journal()
        try:
            while True:
                self._begin_what_fits()
                if not self._running:
                    break
                await self._wait()
        finally:
            await self._end_all()

    def _go_on_from_journal(self) -> None:
        state = self.journal.state
        for play in state.open.values():
            self.say(f"{play.item} was cut off: it is played again")
            # A finding's plays are asked for again by whoever investigates it.
            if play.kind in ("known", "pairs", "swarm"):
                self._again.append(play.again())
        self._known.extend(one for one in self.work.known if one.item not in state.plays)
        for row in state.rows:
            self._after_row(row)
        for play in state.plays.values():
            last = [row for row in state.rows if row["play"] == play.name]
            if last:
                self._try_again(last[-1], play)

    async def _wait(self) -> None:
        self._wake.clear()
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            done, _ = await asyncio.wait(
                {*self._running, woken}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()
        for task in done - {woken}:
            self._running.discard(task)
            task.result()

    async def _end_all(self) -> None:
        """Whoever is interrupted lets all that runs end in order."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    # --- what begins -----------------------------------------------------------------------------

    def _begin_what_fits(self) -> None:
        if self.journal.state.unchecked and not self._checking:
            self._checking = True
            self._spawn(self._check([*self.journal.state.unchecked.values()]))
        if not self.stopped:
            self.stopped = self.effects.room() or ""
            if self.stopped:
                self.say(f"nothing new begins: {self.stopped}")
        while self._live < self.limits.jobs and (play := self._next_live()) is not None:
            self._live += 1
            self._since_search = 0 if play.is_search else self._since_search + 1
            self._spawn(self._play(play))
        while self._searching < self.limits.searches and (play := self._next_search()) is not None:
            self._searching += 1
            self._spawn(self._search(play))
        if self._nothing_can_begin():
            self._give_up_findings()

    def _spawn(self, work: Any) -> None:
        self._running.add(asyncio.ensure_future(work))

    def _fits(self, play: Play) -> bool:
        overhead = OVERHEAD_S
        if self._overheads:
            overhead = sum(self._overheads) / len(self._overheads)
        lasts_s = play.lasts_s + (0.0 if play.is_search else overhead)
        return not self.stopped and lasts_s <= self.left_s

    def _next_live(self) -> Play | None:
        for queue in (self._again, self._known):
            if queue and self._fits(queue[0]):
                return queue.popleft()
        is_due = self._since_search >= LIVE_PER_SEARCH and not self.limits.searches
        if is_due and (play := self._fresh("searches")) is not None:
            return play
        self._turn_of_findings = not self._turn_of_findings
        for findings_first in (self._turn_of_findings, not self._turn_of_findings):
            play = self._of_finding() if findings_first else self._fresh("live")
            if play is not None:
                return play
        return None if self.limits.searches else self._fresh("searches")

    def _of_finding(self) -> Play | None:
        if self._of_findings and self._fits(self._of_findings[0]):
            return self._of_findings.popleft()
        return None

    def _next_search(self) -> Play | None:
        return self._fresh("searches")

    def _fresh(self, which: str) -> Play | None:
        """The next new cell; None: there is none, or it does not fit."""
        cells: Iterator[Play] = getattr(self.work, which)
        play = self._next.pop(which, None)
        while play is None:
            play = next(cells, None)
            if play is None or self._is_beyond(play):
                return None
            if play.item in self.journal.state.plays:
                play = None
        if not self._fits(play):
            self._next[which] = play
            return None
        return play

    def _is_beyond(self, play: Play) -> bool:
        at_most = self.limits.cells
        return at_most is not None and play.cell is not None and play.cell > at_most

    def _nothing_can_begin(self) -> bool:
        return not self._live and not self._searching and not self._checking

    def _give_up_findings(self) -> None:
        """Plays for which there is no time: whoever waits for them learns it."""
        if self.journal.state.unchecked:
            return
        while self._of_findings:
            self._waiting.pop(self._of_findings.popleft().item).set_result(None)

    # --- what is done ----------------------------------------------------------------------------

    async def _play(self, play: Play) -> None:
        try:
            ended = await self._do(play)
            if not play.is_search and ended.run is not None:
                self._overheads.append(max(0.0, ended.seconds - play.lasts_s))
        finally:
            self._live -= 1

    async def _search(self, play: Play) -> None:
        try:
            await self._do(play)
        finally:
            self._searching -= 1

    async def _do(self, play: Play) -> Ended:
        self.journal.write("started", self.used_s, play=play.to_json())
        self.say(f"{play.name}: {about(play)}")
        ended = await self.effects.play(play)
        self.journal.write(
            "ended",
            self.used_s,
            play=play.name,
            run=ended.run,
            seconds=ended.seconds,
            why=ended.why,
            found=ended.found,
        )
        return ended

    async def _check(self, ended: Sequence[Ended]) -> None:
        rows = await self.effects.check(ended)
        for row in rows:
            self.journal.write("checked", self.used_s, row=dict(row))
            self.say(f"{row['play']}: {row['outcome']}{_news(row)}")
        for name in await self.effects.tidy(self.journal.state.rows):
            self.journal.write("thinned", self.used_s, run=name)
        self._checking = False
        for row, one in zip(rows, ended, strict=True):
            self._try_again(row, one.play)
            self._after_row(row)
            waiting = self._waiting.pop(one.play.item, None)
            if waiting is not None:
                waiting.set_result(row)

    def _try_again(self, row: Row, play: Play) -> None:
        """What proved nothing; an anomaly never is."""
        is_own = play.kind in ("known", "pairs", "swarm") and not play.is_search
        if row["verdict"] == "unknown" and is_own and play.attempt <= self.limits.retries:
            self._again.append(play.again())

    # --- findings --------------------------------------------------------------------------------

    def _after_row(self, row: Row) -> None:
        key = row["key"]
        is_done = key in self.journal.state.findings or key in self._being_investigated
        if key and not is_done and self.is_worth(row):
            self._being_investigated.add(key)
            self._spawn(self._investigate(row))

    async def _investigate(self, row: Row) -> None:
        said = await self.investigate(row, self._played)
        self.journal.write("finding", self.used_s, **said)
        self.say(f"{row['key']}: saved as {shown(Path(said['file']))}")

    async def _played(self, play: Play) -> Row | None:
        """The row of a play of a finding, which an earlier session may have played."""
        for row in self.journal.state.rows:
            if row["play"].rpartition(" #")[0] == play.item:
                return row
        if play.item in self._waiting:
            raise RuntimeError(f"{play.item} is asked for twice")
        for one in self.journal.state.unchecked.values():
            if one.play.item == play.item:
                break
        else:
            opened = [one for one in self.journal.state.open.values() if one.item == play.item]
            self._of_findings.append(opened[-1].again() if opened else play)
        self._waiting[play.item] = asyncio.get_running_loop().create_future()
        self._wake.set()
        return await self._waiting[play.item]


def about(play: Play) -> str:
    """For people: what is played."""
    values = play.values
    words = [values["system"], values["workload"], values["faults"], values["host"]]
    return " ".join(word for word in words if word)


def _news(row: Row) -> str:
    return f" ({row['news']})" if row["news"] else ""


def cell_name(number: int) -> str:
    return f"{CELL}{number}"
