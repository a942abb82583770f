"""Plays the acts of a random run by the clock, and says what it is doing.

Not which acts these are: they were drawn before, or stand in a file. Not the load: that goes on all
the time. A step that finds nobody to do it to, or whose aim is missed, is listed in `missed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from neaptide.harness.live.faults import Faults
from neaptide.harness.live.members import MembersNemesis
from neaptide.harness.live.observed import StageObserved
from neaptide.harness.live.stage import Stage
from neaptide.harness.play.aimed import play_chain
from neaptide.harness.play.random_load import RandomLoad
from neaptide.harness.play.timed_target import TimedTarget, Undo
from neaptide.nemesis import steps
from neaptide.nemesis.acts import Act, Schedule
from neaptide.nemesis.conditions import parse_condition
from neaptide.nemesis.drawn.faults import kind_of
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.scenario import DEFAULT_WITHIN_S
from neaptide.nemesis.steps.document import Document, read_document
from neaptide.results.run import MissedFault
from neaptide.workloads.raw_connection import CoordinatorKind

LOAD = "load"
NO_ACT: Final = 0  # acts are counted from 1
NEVER_DRAWN: Final = "it was never drawn: the run is too short for all faults"
_SETTLES_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class _There:
    """An act that is to be undone, and when."""

    ends_s: float
    number: int
    act: Act
    undo: tuple[Undo, ...]
    words: str = ""


class RandomNemesis:
    """`aimed`: how many chains were begun. `ids`: of the brokers, by their names."""

    def __init__(
        self,
        stage: Stage,
        faults: Faults,
        schedule: Schedule,
        clients: RandomLoad,
        ids: Mapping[str, int],
        coordinated: tuple[str, CoordinatorKind] | None = None,
        never_drawn: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        """`coordinated`: the group, or the transactional id, whose coordinator is a role.
        `never_drawn`: faults that were asked for, and that the schedule has not."""
        self.stopping = asyncio.Event()  # somebody asked the run to stop
        self.aimed = 0
        self.missed = [MissedFault(NO_ACT, 0.0, name, NEVER_DRAWN) for name in never_drawn]
        self._stage = stage
        self._faults = faults
        self._schedule = schedule
        self._ids = ids
        self._members = MembersNemesis(stage, faults)
        parts = stage, faults, self._members, ids, clients, coordinated
        self._target = TimedTarget(*parts, seed=seed)
        self._there: list[_There] = []
        self._begun = ""  # what goes on until it is over

    @property
    def doing(self) -> str:
        """What is there now, for whoever shows the progress of the run."""
        there = [*(one.words for one in self._there), self._begun]
        return ", ".join(dict.fromkeys(filter(None, there))) or LOAD

    async def play(self, time_s: float) -> None:
        """Returns when the time is over, or somebody asked the run to stop."""
        begun = time.monotonic()
        self._stage.lets_give_up = True
        if any(act.verb == "cast" for act in self._schedule):
            await self._stage.watch_rounds()
        try:
            for number, act in enumerate(self._schedule, start=1):
                await self._until_s(begun + act.at_s)
                if self.stopping.is_set() or time.monotonic() > begun + time_s:
                    break
                if not self._there:
                    await self._restart_withdrawn()
                    await self._members.restore_voters()
                await self._begin(number, act)
            await self._until_s(begun + time_s)
        finally:
            for one in reversed([*self._there]):
                await self._undo(one)

    async def _until_s(self, moment: float) -> None:
        """What is over before that is undone in its time."""
        while self._there:
            first = min(self._there, key=lambda one: one.ends_s)
            if first.ends_s > moment:
                break
            await self._wait_until_s(first.ends_s)
            await self._undo(first)
        await self._wait_until_s(moment)

    async def _wait_until_s(self, moment: float) -> None:
        """The schedule of a random run is in seconds: this is the one place that waits for time.

        Somebody may ask the run to stop before (`neaptide.results.stop`).
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, moment - time.monotonic())):
                await self.stopping.wait()

    async def settle(self) -> None:
        """After the last fault: who has given up because of it is started again, this once more.

        Where no load goes on a leader may stay behind: who is ahead of it gives up again."""
        assigned = self._stage.spec.topic.assignment

        def is_whole() -> bool:
            views = [self._stage.view(partition) for partition in assigned]
            return all(
                view is not None and set(view.isr) == set(brokers)
                for view, brokers in zip(views, assigned.values(), strict=True)
            )

        await self._members.restore()
        if await self._comes_true(is_whole) or await self._restart_withdrawn():
            return
        await self._stage.watch_rounds()
        if not await self._comes_true(is_whole):
            await self._restart_stuck_leaders()

    async def _comes_true(self, is_whole: Callable[[], bool]) -> bool:
        try:
            await self._stage.until(is_whole, _SETTLES_WITHIN_S, "every replica is in the ISR")
        except TimeoutError:
            return False
        return True

    async def _restart_withdrawn(self) -> bool:
        """Whoever has given up, as Kafka before 0.11 does that is ahead of its leader: it has
        ended, or is registered and runs, and listens no longer. It would never come back. Nor
        would, in the time of a run, who waits for its clock. Returns whether there was one."""
        restarted = False
        for broker in self._stage.spec.brokers:
            if self._stage.has_given_up(broker):
                self._note_given_up(broker)
                await self._start_anew(broker)
                restarted = True
            if not self._stage.is_reachable(broker):
                continue
            registered = broker in self._stage.observer.registered
            withdrawn = registered and not await self._stage.is_listening(broker)
            if withdrawn or self._may_wait_for_its_clock(broker):
                await self._start_anew(broker)
                restarted = True
        return restarted

    async def _restart_stuck_leaders(self) -> None:
        """A leader may never again take into its ISR who has all that it has: Kafka 2.8 does not
        whose AlterIsr got an error. It can only do so in another epoch."""
        for leader, outsiders in sorted(self._stuck_leaders().items()):
            who = ", ".join(self._stage.names[outsider] for outsider in sorted(outsiders))
            why = f"it leaves {who} out of the ISR, with all that it has"
            now_ns = self._stage.recorder.now_ns()
            stuck = {"broker": self._stage.names[leader], "why": why}
            self._stage.note_nemesis({"stuck": stuck}, now_ns)
            await self._start_anew(leader)

    def _stuck_leaders(self) -> dict[int, set[int]]:
        """Leaders, and who is not in their ISR although it fetches from the high watermark on."""
        found: dict[int, set[int]] = {}
        for partition, brokers in self._stage.spec.topic.assignment.items():
            view = self._stage.view(partition)
            if view is None or view.leader is None:
                continue
            observed = StageObserved(self._stage, partition)
            for broker in set(brokers) - set(view.isr):
                end = observed.log_end_offset(broker)
                if end is not None and end == observed.high_watermark(broker):
                    found.setdefault(view.leader, set()).add(broker)
        return found

    def _note_given_up(self, broker: int) -> None:
        now_ns = self._stage.recorder.now_ns()
        value = {"broker": self._stage.names[broker], "why": self._stage.last_words(broker)}
        self._stage.note_nemesis({"gave_up": value}, now_ns)

    async def _start_anew(self, broker: int) -> None:
        self._target.was_restarted(broker)
        await self._faults.kill("discarded", broker)
        await self._faults.restart(broker)

    def _may_wait_for_its_clock(self, broker: int) -> bool:
        """A Kafka that has lost a connection connects anew some time after it last tried, by the
        time of day: where that has gone back, when it is as late again."""
        views = [
            self._stage.view(partition)
            for partition, brokers in self._stage.spec.topic.assignment.items()
            if broker in brokers
        ]
        lacking = any(view is None or broker not in view.isr for view in views)
        return lacking and self._target.is_set_back(broker)

    # --- an act ----------------------------------------------------------------------------------

    async def _begin(self, number: int, act: Act) -> None:
        read = self._read(act)
        self._begun = words = read.step.brief()
        try:
            undo = await self._done(number, act, read)
        except MissedError as missed:
            self._note_missed(number, act, str(missed))
            return
        finally:
            self._begun = ""
        if undo:
            ends_s = time.monotonic() + (act.lasts_s or math.inf)
            self._there.append(_There(ends_s, number, act, tuple(undo), words))

    async def _done(self, number: int, act: Act, read: Document) -> list[Undo]:
        """What undoes it. Raises MissedError."""
        if isinstance(read.step, steps.Cast):
            self.aimed += 1
            what = read.step, act.steps[1:], read.why or "cast", f"act {number}"
            await play_chain(self._target, *what, self.stopping)
            return []
        within_s = DEFAULT_WITHIN_S if read.within_s is None else read.within_s
        undo = await self._target.begin(read.step, within_s)
        if read.until is not None:
            try:
                await self._target.wait(read.until, within_s)
            except MissedError:
                await self._undo(_There(0.0, number, act, tuple(undo)))
                raise
        return undo

    def _read(self, act: Act) -> Document:
        """It was read before: as part of its file, or when it was drawn."""
        partitions = len(self._stage.spec.topic.assignment)
        names = steps.Names(brokers=self._ids, is_timed=True, partitions=partitions)
        condition = partial(parse_condition, brokers=self._ids, records=())
        return read_document(act.steps[0], names, condition, steps.ScenarioError)

    async def _undo(self, one: _There) -> None:
        """In the opposite order; the first that shows that it missed is noted."""
        if one in self._there:
            self._there.remove(one)
        missed: list[str] = []
        for undo in reversed(one.undo):
            try:
                await undo()
            except MissedError as error:
                missed.append(str(error))
        if missed:
            self._note_missed(one.number, one.act, missed[0])

    def _note_missed(self, number: int, act: Act, why: str) -> None:
        kind = kind_of(act.verb)
        self.missed.append(MissedFault(number, act.at_s, kind, why))
        self._stage.note_nemesis(
            {"missed": {"phase": number, "fault": kind, "why": why}},
            self._stage.recorder.now_ns(),
        )
