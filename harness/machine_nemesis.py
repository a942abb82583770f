"""Does what a fault of clocks or disks says to a running cluster, and what undoes it.

What came about is known at the end: calls that were never met are a miss. A disk is damaged only
where `nemesis.drawn.machines` says that a replicated log survives it, which is looked at before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from neaptide.clusters.cluster import PartitionView
from neaptide.clusters.errors import HostError, UsageError
from neaptide.harness.aimed import bring_back
from neaptide.harness.faults import Faults
from neaptide.harness.stage import Stage
from neaptide.nemesis.drawn.machines import (
    CallsFault,
    ClockFault,
    DamageFault,
    DiskFault,
    Move,
)
from neaptide.nemesis.drawn.targets import Target
from neaptide.nemesis.player import MissedError

Undo = Callable[[], Awaitable[str | None]]  # why it missed, where only the end shows it
Resolve = Callable[[Target], tuple[int, ...]]
_OUT_WITHIN_S: Final = 10.0
_MIN_ISR: Final = "min.insync.replicas"


class MachineNemesis:
    """`resolve`: who is meant by a target now."""

    def __init__(self, stage: Stage, faults: Faults, resolve: Resolve) -> None:
        self._stage = stage
        self._faults = faults
        self._resolve = resolve
        self._ahead_ms: dict[int, int] = {}  # by broker, now
        self._most_ahead_ms: dict[int, int] = {}  # since it was started

    async def begin(self, fault: ClockFault | DiskFault) -> list[Undo]:
        """What undoes it; nothing where nobody is there to do it to. Raises MissedError."""
        match fault:
            case ClockFault():
                return await self._set_clocks(fault)
            case CallsFault():
                return await self._fail_calls(fault)
            case DamageFault():
                return await self._damage(fault)

    # --- clocks ----------------------------------------------------------------------------------

    async def _set_clocks(self, fault: ClockFault) -> list[Undo]:
        """Of brokers, up or down: a clock does not stand still with a process."""
        brokers = [node for node in self._resolve(fault.target) if node in self._stage.spec.brokers]
        if not brokers:
            return []
        moving = asyncio.create_task(self._move(brokers, fault.moves))
        return [partial(self._put_right, brokers, moving)]

    async def _move(self, brokers: list[int], moves: tuple[Move, ...]) -> None:
        begun_s = 0.0
        for after_s, ahead_ms in moves:
            await asyncio.sleep(after_s - begun_s)
            begun_s = after_s
            for broker in brokers:
                await self._set_clock(broker, ahead_ms)

    async def _set_clock(self, broker: int, ahead_ms: int) -> None:
        self._ahead_ms[broker] = ahead_ms
        self._most_ahead_ms[broker] = max(ahead_ms, self._most_ahead_ms.get(broker, 0))
        await self._faults.set_clock(broker, ahead_ms)

    def is_set_back(self, broker: int) -> bool:
        """Whether its clock has shown a later time than the one that it shows now."""
        return self._ahead_ms.get(broker, 0) < self._most_ahead_ms.get(broker, 0)

    def was_restarted(self, broker: int) -> None:
        """It has seen no other time."""
        self._most_ahead_ms[broker] = self._ahead_ms.get(broker, 0)

    async def _put_right(self, brokers: list[int], moving: asyncio.Task[None]) -> None:
        moving.cancel()
        await asyncio.wait((moving,))
        for broker in brokers:
            await self._set_clock(broker, 0)
        if not moving.cancelled():
            moving.result()

    # --- disks: calls ----------------------------------------------------------------------------

    async def _fail_calls(self, fault: CallsFault) -> list[Undo]:
        for broker in self._resolve(fault.target):
            if self._is_there(broker):
                self._check_replica(broker, fault.partition)
                await self._inject(broker, fault)
                return [partial(self._end_calls, broker, fault)]
        return []

    async def _inject(self, broker: int, fault: CallsFault) -> None:
        try:
            await self._faults.inject(broker, fault.fault, fault.file, fault.partition)
        except HostError as error:  # it may not be traced, or has ended meanwhile
            await self._faults.end_injections(broker)
            raise MissedError(str(error)) from None

    async def _end_calls(self, broker: int, fault: CallsFault) -> str | None:
        """Who has met an error may be about to end: it is killed, and started again."""
        fails, stage = fault.fault.error is not None, self._stage
        met = await self._faults.end_injections(broker, watched=not fails)
        if fails and (met or not stage.cluster.is_up(broker)):
            await self._faults.kill("discarded", broker)  # also of one that has ended: its session
            await self._faults.restart(broker)
        elif fails:
            stage.severed.discard(broker)
        return None if met else f"no {fault.fault.call} of the {fault.file} was met"

    # --- disks: damage ---------------------------------------------------------------------------

    async def _damage(self, fault: DamageFault) -> list[Undo]:
        for broker in self._resolve(fault.target):
            if self._is_there(broker):
                self._check_replica(broker, fault.partition)
                await self._kill_and_damage(broker, fault)
                return [partial(bring_back, self._stage, self._faults, broker)]
        return []

    async def _kill_and_damage(self, broker: int, fault: DamageFault) -> None:
        await self._faults.kill("discarded", broker)
        try:
            await self._stage.until(
                lambda: self._can_do_without(broker, fault.partition),
                _OUT_WITHIN_S,
                f"partition {fault.partition} can do without broker {broker}",
            )
            where = fault.file, fault.partition, fault.seed
            await self._faults.damage(broker, fault.damage, *where)
        except (TimeoutError, UsageError) as error:
            await bring_back(self._stage, self._faults, broker)
            raise MissedError(f"nothing was damaged: {error}") from None

    def _can_do_without(self, broker: int, partition: int) -> bool:
        topic = self._stage.spec.topic
        settings = {**self._stage.spec.settings, **topic.settings}
        view = self._stage.view(partition)
        return survives_without(broker, view, int(settings.get(_MIN_ISR, "1")))

    # --- who -------------------------------------------------------------------------------------

    def _is_there(self, node: int) -> bool:
        return node in self._stage.spec.brokers and self._stage.is_reachable(node)

    def _check_replica(self, broker: int, partition: int) -> None:
        if broker not in self._stage.spec.topic.assignment[partition]:
            raise MissedError(f"broker {broker} has no replica of partition {partition}")


def survives_without(broker: int, view: PartitionView | None, min_isr: int) -> bool:
    """Whether what a partition has acknowledged does not depend on this broker's disk.

    It is out of the ISR, so that it cannot be elected; somebody leads; and as many as must
    acknowledge are in the ISR, so that it is in no ELR either.
    """
    return (
        view is not None
        and view.leader is not None
        and broker not in view.isr
        and len(view.isr) >= max(1, min_isr)
    )
