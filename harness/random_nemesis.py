"""Plays the faults of a random run by the clock, and says what it is doing.

Not which faults these are: they were drawn before. Not the load: that goes on all the time. A fault
that finds nobody to do it to, or whose aim is missed, is listed in `missed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, assert_never

from neaptide.harness.aimed import bring_back, play_episode
from neaptide.harness.faults import Faults
from neaptide.harness.machine_nemesis import MachineNemesis, Undo
from neaptide.harness.members import MembersNemesis
from neaptide.harness.observed import StageObserved
from neaptide.harness.stage import Stage
from neaptide.nemesis.drawn.episodes import Episode
from neaptide.nemesis.drawn.faults import (
    ClientFault,
    CutFault,
    DownFault,
    Fault,
    KillFault,
    PartitionFault,
)
from neaptide.nemesis.drawn.machines import CallsFault, ClockFault, DamageFault
from neaptide.nemesis.drawn.members import MembersFault
from neaptide.nemesis.drawn.schedule import Phase, Schedule, TimedFault
from neaptide.nemesis.drawn.targets import Seen, Target, resolve
from neaptide.nemesis.drawn.toxics import SlowFault
from neaptide.nemesis.player import MissedError
from neaptide.results.run import MissedFault
from neaptide.workloads.raw_connection import CoordinatorKind, find_coordinator

LOAD = "load"
NO_PHASE: Final = 0  # phases are counted from 1
NEVER_DRAWN: Final = "it was never drawn: the run is too short for all faults"
_SETTLES_WITHIN_S: Final = 20.0


class KillableClients(Protocol):
    """The clients of a run, by their numbers from 0."""

    @property
    def killable(self) -> int: ...

    async def kill_one(self, client: int) -> None: ...

    async def replace_one(self, client: int) -> None: ...


class RandomNemesis:
    """`doing`: the faults that are there now, for whoever shows the progress of the run.

    `aimed`: how many aimed faults were begun.
    """

    def __init__(
        self,
        stage: Stage,
        faults: Faults,
        schedule: Schedule,
        clients: KillableClients,
        coordinated: tuple[str, CoordinatorKind] | None = None,
        never_drawn: Sequence[str] = (),
    ) -> None:
        """`coordinated`: the group, or the transactional id, whose coordinator is a target.
        `never_drawn`: faults that were asked for, and that the schedule has not."""
        self.doing = LOAD
        self.stopping = asyncio.Event()  # somebody asked the run to stop
        self.aimed = 0
        self.missed = [MissedFault(NO_PHASE, 0.0, name, NEVER_DRAWN) for name in never_drawn]
        self._stage = stage
        self._faults = faults
        self._schedule = schedule
        self._clients = clients
        self._members = MembersNemesis(stage, faults)
        self._machines = MachineNemesis(stage, faults, self._resolve)
        self._toxics = 0  # so far
        self._coordinated = coordinated
        self._coordinator: int | None = None  # when the fault that is for it began

    async def play(self, time_s: float) -> None:
        """Returns when the time is over, or somebody asked the run to stop."""
        begun = time.monotonic()
        self._stage.lets_give_up = True
        if any(_is_aimed(phase) for phase in self._schedule):
            await self._stage.watch_rounds()
        for number, phase in enumerate(self._schedule, start=1):
            await self._until_s(begun + phase.at_s)
            if self.stopping.is_set() or time.monotonic() > begun + time_s:
                return
            await self._restart_withdrawn()
            await self._members.restore_voters()
            self.doing = phase.doing
            await self._play_phase(number, phase)
            self.doing = LOAD
        await self._until_s(begun + time_s)

    async def _until_s(self, moment: float) -> None:
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
        self._machines.was_restarted(broker)
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
        return lacking and self._machines.is_set_back(broker)

    # --- a phase ---------------------------------------------------------------------------------

    async def _play_phase(self, number: int, phase: Phase) -> None:
        """Begins and ends each fault in its time; what is there at the end is undone."""
        begun = time.monotonic()
        undo: dict[int, list[Undo]] = {}
        moments = sorted(
            moment
            for index, timed in enumerate(phase.faults)
            for moment in ((timed.after_s, 0, index), (timed.after_s + timed.lasts_s, 1, index))
        )
        try:
            for after_s, is_end, index in moments:
                timed = phase.faults[index]
                if is_end and index not in undo:
                    continue  # it is over already
                await self._until_s(begun + after_s)
                if is_end:
                    self._note_missed(number, phase, timed, await _undo_all(undo.pop(index)))
                elif not self.stopping.is_set():
                    begun_undo = await self._begin(number, phase, timed)
                    if begun_undo:
                        undo[index] = begun_undo
        finally:
            for index in sorted(undo, reverse=True):
                why = await _undo_all(undo[index])
                self._note_missed(number, phase, phase.faults[index], why)

    async def _begin(self, number: int, phase: Phase, timed: TimedFault) -> list[Undo]:
        """What undoes it; nothing where it is over, or missed."""
        fault = timed.fault
        if isinstance(fault, Episode):
            self.aimed += 1
            name = f"phase {number}"
            why = await play_episode(
                self._stage, self._faults, self._members, fault, name, self.stopping
            )
            undo: list[Undo] = []
        else:
            undo, why = [], None
            try:
                undo = await self._inject(fault)
            except MissedError as missed:
                why = str(missed)
            if not undo:
                why = why or "nobody is left to do it to"
        self._note_missed(number, phase, timed, why)
        return undo

    def _note_missed(self, number: int, phase: Phase, timed: TimedFault, why: str | None) -> None:
        """None: it did not miss."""
        if why is None:
            return
        kind = timed.fault.kind
        self.missed.append(MissedFault(number, phase.at_s + timed.after_s, kind, why))
        self._stage.note_nemesis(
            {"missed": {"phase": number, "fault": kind, "why": why}},
            self._stage.recorder.now_ns(),
        )

    # --- faults ----------------------------------------------------------------------------------

    async def _inject(self, fault: Fault) -> list[Undo]:
        await self._look_for_coordinator(fault)
        match fault:
            case KillFault():
                kill = partial(self._faults.kill, fault.in_flight)
                return await self._do_to_each(fault.target, kill)
            case DownFault():
                if fault.kind == "power-off":
                    self._check_flushed(fault)
                return await self._do_to_each(fault.target, self._downs[fault.kind])
            case CutFault():
                ends = fault.source, fault.destination
                await self._faults.cut(*ends, fault.purpose, both=fault.both)
                return [partial(self._faults.heal, *ends)]
            case PartitionFault():
                return await self._partition(fault)
            case ClientFault():
                client = fault.client % self._clients.killable
                await self._clients.kill_one(client)
                return [partial(self._clients.replace_one, client)]
            case SlowFault():
                return await self._add_toxic(fault)
            case ClockFault() | CallsFault() | DamageFault():
                return await self._machines.begin(fault)
            case MembersFault():
                return [*await self._members.begin(fault)]
            case Episode():
                return []
            case _:
                assert_never(fault)

    async def _add_toxic(self, fault: SlowFault) -> list[Undo]:
        self._toxics += 1
        name = f"toxic {self._toxics}"
        await self._faults.add_toxic(name, fault.broker, fault.purpose, fault.toxic)
        return [partial(self._end_toxic, name)]

    async def _end_toxic(self, name: str) -> str | None:
        met = await self._faults.end_toxic(name)
        return None if met else "no connection of the link had it"

    @property
    def _downs(self) -> dict[str, Callable[[int], Awaitable[None]]]:
        return {
            "pause": self._faults.pause,
            "restart": self._faults.stop,
            "power-off": lambda broker: self._faults.power_off({}, broker),
        }

    def _check_flushed(self, fault: DownFault) -> None:
        """A controller of KRaft flushes its log before it answers: no power failure cuts that."""
        if not set(self._resolve(fault.target)) <= set(self._stage.spec.brokers):
            raise MissedError("the controller is no broker, and loses nothing with its power")

    async def _look_for_coordinator(self, fault: Fault) -> None:
        """The brokers are asked, at their own ports: a cut does not hide it from the harness."""
        target = getattr(fault, "target", None) or getattr(fault, "first", None)
        if target is None or target.scope != "coordinator" or self._coordinated is None:
            return
        stage = self._stage
        addresses = [
            (stage.machines.address(broker), stage.cluster.ports(broker)[0])
            for broker in stage.spec.brokers
            if stage.is_reachable(broker)
        ]
        self._coordinator = await asyncio.to_thread(find_coordinator, addresses, *self._coordinated)

    def _resolve(self, target: Target) -> tuple[int, ...]:
        view = self._stage.view(target.partition)
        return resolve(
            target,
            Seen(
                None if view is None else view.leader,
                () if view is None else view.isr,
                self._stage.observer.controller,
                self._coordinator,
            ),
        )

    async def _do_to_each(
        self, target: Target, what: Callable[[int], Awaitable[None]]
    ) -> list[Undo]:
        """To those who are there; whoever is down or paused is left as it is."""
        undo: list[Undo] = []
        for node in self._resolve(target):
            if self._stage.is_reachable(node):
                await what(node)
                undo.append(partial(bring_back, self._stage, self._faults, node))
        return undo

    async def _partition(self, fault: PartitionFault) -> list[Undo]:
        first = None
        if fault.first is not None:
            first = next(iter(self._resolve(fault.first)), None)
        undo: dict[frozenset[int | str], Undo] = {}
        for deaf in fault.cuts(first):
            ends = deaf.source, deaf.destination
            await self._faults.cut(*ends, deaf.purpose, both=False)
            undo[frozenset(ends)] = partial(self._faults.heal, *ends)
        return list(undo.values())


def _is_aimed(phase: Phase) -> bool:
    return any(isinstance(timed.fault, Episode) for timed in phase.faults)


async def _undo_all(undo: list[Undo]) -> str | None:
    """Why it missed, where only the end shows it."""
    why = [await one() for one in reversed(undo)]
    return next(filter(None, why), None)
