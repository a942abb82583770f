"""Plays the faults of a random run by the clock, and says what it is doing.

Not which faults these are: they were drawn before. Not the load: that goes on all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import assert_never

from neaptide.harness.faults import Faults
from neaptide.nemesis.random_schedule import (
    CutFault,
    Fault,
    KillFault,
    PauseFault,
    RestartFault,
    ScheduledFault,
)

LOAD = "load"


class RandomNemesis:
    """`doing`: the fault that is there now, for whoever shows the progress of the run."""

    def __init__(
        self, faults: Faults, schedule: tuple[ScheduledFault, ...], stopping: asyncio.Event
    ) -> None:
        self.doing = LOAD
        self._faults = faults
        self._schedule = schedule
        self._stopping = stopping

    async def play(self, time_s: float) -> None:
        """Returns when the time is over, or somebody asked the run to stop."""
        begun = time.monotonic()
        for scheduled in self._schedule:
            await self._until_s(begun + scheduled.at_s)
            if self._stopping.is_set():
                return
            self.doing = scheduled.fault.kind
            await _inject(self._faults, scheduled.fault)
            await self._until_s(begun + scheduled.at_s + scheduled.lasts_s)
            await _undo(self._faults, scheduled.fault)
            self.doing = LOAD
        await self._until_s(begun + time_s)

    async def _until_s(self, moment: float) -> None:
        """The schedule of a random run is in seconds: this is the one place that waits for time.

        Somebody may ask the run to stop before (`neaptide.results.stop`).
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), max(0.0, moment - time.monotonic()))


async def _inject(faults: Faults, fault: Fault) -> None:
    match fault:
        case KillFault():
            await faults.kill(fault.broker, fault.in_flight)
        case PauseFault():
            await faults.pause(fault.broker)
        case RestartFault():
            await faults.stop(fault.broker)
        case CutFault():
            await faults.cut(fault.source, fault.destination, fault.purpose, both=fault.both)
        case _:
            assert_never(fault)


async def _undo(faults: Faults, fault: Fault) -> None:
    match fault:
        case KillFault() | RestartFault():
            await faults.restart(fault.broker)
        case PauseFault():
            await faults.resume(fault.broker)
        case CutFault():
            await faults.heal(fault.source, fault.destination)
        case _:
            assert_never(fault)
