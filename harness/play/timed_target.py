"""Steps of a random run, done to a live cluster under load, and what undoes each.

Whom a role means is looked up when the step begins; whoever is down or paused already is left as it
is. What came about is known at the end only: calls that were never met are a miss. A disk is
damaged only where a replicated log survives it (`steps.machines.SURVIVED`), which is looked at
before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from neaptide.clusters.cluster import PartitionView
from neaptide.clusters.errors import HostError, UsageError
from neaptide.clusters.kafka.members import RefusedChangeError
from neaptide.harness.live.faults import Faults
from neaptide.harness.live.members import MembersNemesis
from neaptide.harness.live.stage import Stage
from neaptide.harness.live.target import LiveTarget
from neaptide.harness.play.random_load import RandomLoad
from neaptide.nemesis import steps
from neaptide.nemesis.player import MissedError
from neaptide.workloads.raw_connection import CoordinatorKind, find_coordinator

Undo = Callable[[], Awaitable[None]]  # raises MissedError where only the end shows that it missed
NOBODY: Final = "nobody is left to do it to"
_OUT_WITHIN_S: Final = 10.0
_MOVED_WITHIN_S: Final = 30.0
_MIN_ISR: Final = "min.insync.replicas"


class TimedTarget(LiveTarget):
    """`coordinated`: the group, or the transactional id, whose coordinator is a role."""

    def __init__(
        self,
        stage: Stage,
        faults: Faults,
        members: MembersNemesis,
        ids: Mapping[str, int],
        clients: RandomLoad,
        coordinated: tuple[str, CoordinatorKind] | None = None,
        **more: Any,
    ) -> None:
        self._names = dict(ids)
        super().__init__(stage, faults, members, self._names, **more)
        self._clients = clients
        self._coordinated = coordinated
        self._wrong: Counter[int] = Counter()  # steps that have set a clock, and are not over
        self._ahead_ms: dict[int, int] = {}  # by broker, now
        self._most_ahead_ms: dict[int, int] = {}  # since it was started

    def of_roles(self, roles: Mapping[str, int], partition: int, prefix: str) -> TimedTarget:
        """For steps that name these, and are about one partition; `prefix`: of its rules."""
        parts = self.stage, self._faults, self._members, roles, self._clients, self._coordinated
        return TimedTarget(*parts, seed=self._seed, partition=partition, prefix=prefix)

    async def begin(self, step: steps.Step, within_s: float) -> list[Undo]:
        """What undoes it; nothing where there is nothing to undo. Raises MissedError."""
        try:
            return await self._begin(step, within_s)
        except RefusedChangeError as refused:
            raise MissedError(str(refused)) from None

    async def _begin(self, step: steps.Step, within_s: float) -> list[Undo]:
        match step:
            case steps.Kill() | steps.PowerOff() | steps.Stop() | steps.Pause():
                return await self._take_down(step, within_s)
            case steps.Restart() | steps.Resume() if self.stage.is_reachable(
                self._node(step.broker)
            ):
                raise MissedError(f"{step.broker} is there already")
            case steps.PartitionNetwork():
                return await self._cut_all(step)
            case steps.KillClient():
                client = step.number % self._clients.killable
                await self._clients.kill_one(client)
                return [partial(self._clients.replace_one, client)]
            case steps.SetClock():
                return await self._set_clock(step)
            case steps.Inject():
                return await self._fail_calls(step)
            case steps.Damage():
                return await self._kill_and_damage(step)
            case steps.RemoveVoter():
                return await self._leave_quorum(step)
            case steps.CreateTopic():
                name = await self._members.create_topic()
                self.note({step.verb: {"name": name}})
                return [partial(self._members.delete_topic, name)]
        if steps.role_of(getattr(step, "broker", None)):
            broker = await self._broker(step.broker)  # type: ignore[attr-defined]
            step = replace(step, broker=self._name(broker))  # type: ignore[type-var]
        await self.do(step, within_s)
        return [*self._undo_of(step)]

    def _undo_of(self, step: steps.Step) -> Iterator[Undo]:
        """Of what is done as in any scenario."""
        match step:
            case steps.Cut():
                yield partial(self.heal, steps.Heal(step.source, step.destination))
            case steps.AddToxic():
                yield partial(self.end_toxic, steps.EndToxic(step.name))
            case steps.Reassign():
                yield partial(self._members.reassign_back, (step.partition,))
            case steps.RemoveBroker():
                yield partial(self._members.return_broker, self._ids[step.broker])
            case steps.SetTopic():
                yield partial(self._members.unset_topic, step.name)

    # --- who -------------------------------------------------------------------------------------

    async def _whom(self, named: steps.Node | tuple[str, ...]) -> tuple[int, ...]:
        """The nodes that are meant now; none where nobody has the role."""
        if isinstance(named, tuple):
            return tuple(self._ids[name] for name in named)
        role = steps.role_of(named)
        if role is None:
            return (self._node(named),)
        found: int | None
        match role.name:
            case "coordinator":
                found = await self._coordinator()
            case "standby":
                found = self._members.standby()
            case _:
                found = self._of_partition(role)
        return () if found is None else (found,)

    def _of_partition(self, role: steps.Role) -> int | None:
        """The leader, or a follower in the ISR."""
        view = self.stage.view(role.partition)
        if view is None or role.name == "leader":
            return None if view is None else view.leader
        assigned = self.stage.spec.topic.assignment[role.partition]
        return next((b for b in reversed(assigned) if b in view.isr and b != view.leader), None)

    async def _coordinator(self) -> int | None:
        """The brokers are asked, at their own ports: a cut does not hide it from the harness."""
        if self._coordinated is None:
            return None
        stage = self.stage
        there = filter(stage.is_reachable, stage.spec.brokers)
        addresses = [(stage.machines.address(one), stage.cluster.ports(one)[0]) for one in there]
        return await asyncio.to_thread(find_coordinator, addresses, *self._coordinated)

    def _name(self, node: int) -> str:
        """As steps name it; a controller that is no broker has a name from now on."""
        known = next((name for name, number in self._names.items() if number == node), None)
        name = known or f"controller-{node}"
        self._names[name] = node
        return name

    async def _broker(self, named: str, partition: int | None = None) -> int:
        """One that is there, and has a replica. Raises MissedError."""
        for broker in await self._whom(named):
            if broker in self.stage.spec.brokers and self.stage.is_reachable(broker):
                assigned = self.stage.spec.topic.assignment
                if partition is not None and broker not in assigned[partition]:
                    raise MissedError(f"broker {broker} has no replica of partition {partition}")
                return broker
        raise MissedError(NOBODY)

    # --- each ------------------------------------------------------------------------------------

    async def _take_down(
        self, step: steps.Kill | steps.PowerOff | steps.Stop | steps.Pause, within_s: float
    ) -> list[Undo]:
        stage = self.stage
        there = [node for node in await self._whom(step.broker) if stage.is_reachable(node)]
        if not there:
            raise MissedError(NOBODY)
        if isinstance(step, steps.PowerOff) and not set(there) <= set(stage.spec.brokers):
            raise MissedError("the controller is no broker, and loses nothing with its power")
        names = tuple(self._name(node) for node in there)
        who = names if len(names) > 1 else names[0]
        await self.do(replace(step, broker=who), within_s)  # type: ignore[arg-type]
        return [partial(bring_back, stage, self._faults, node) for node in there]

    async def _cut_all(self, step: steps.PartitionNetwork) -> list[Undo]:
        if step.first is not None:
            who = next((self._name(node) for node in await self._whom(step.first)), None)
            step = replace(step, first=who)
        await self.partition(step)
        pairs = {tuple(sorted((deaf.source, deaf.destination))) for deaf in step.cuts(step.first)}
        return [partial(self.heal, steps.Heal(*pair)) for pair in sorted(pairs)]

    async def _set_clock(self, step: steps.SetClock) -> list[Undo]:
        """Of a broker, up or down: a clock does not stand still with a process."""
        for broker in await self._whom(step.broker):
            if broker in self.stage.spec.brokers:
                self._wrong[broker] += 1
                await self._move_clock(broker, step.ahead_ms)
                return [partial(self._put_right, broker)]
        raise MissedError(NOBODY)

    async def _put_right(self, broker: int) -> None:
        """A drift is many steps, and over with the last."""
        self._wrong[broker] -= 1
        if not self._wrong[broker]:
            await self._move_clock(broker, 0)

    async def _move_clock(self, broker: int, ahead_ms: int) -> None:
        self._ahead_ms[broker] = ahead_ms
        self._most_ahead_ms[broker] = max(ahead_ms, self._most_ahead_ms.get(broker, 0))
        await self._faults.set_clock(broker, ahead_ms)

    def is_set_back(self, broker: int) -> bool:
        """Whether its clock has shown a later time than the one that it shows now."""
        return self._ahead_ms.get(broker, 0) < self._most_ahead_ms.get(broker, 0)

    def was_restarted(self, broker: int) -> None:
        """It has seen no other time."""
        self._most_ahead_ms[broker] = self._ahead_ms.get(broker, 0)

    async def _fail_calls(self, step: steps.Inject) -> list[Undo]:
        broker = await self._broker(step.broker, step.partition)
        try:
            await self.inject(replace(step, broker=self._name(broker)))
        except HostError as error:  # it may not be traced, or has ended meanwhile
            await self._faults.end_injections(broker)
            raise MissedError(str(error)) from None
        return [partial(self._end_calls, broker, step)]

    async def _end_calls(self, broker: int, step: steps.Inject) -> None:
        """Who has met an error may be about to end: it is killed, and started again."""
        fails, stage = step.error is not None, self.stage
        met = await self._faults.end_injections(broker, watched=not fails)
        if fails and (met or not stage.cluster.is_up(broker)):
            await self._faults.kill("discarded", broker)  # also of one that has ended: its session
            await self._faults.restart(broker)
        elif fails:
            stage.severed.discard(broker)
        if not met:
            raise MissedError(f"no {step.call} of the {step.file} was met")

    async def _kill_and_damage(self, step: steps.Damage) -> list[Undo]:
        broker = await self._broker(step.broker, step.partition)
        await self._faults.kill("discarded", broker)
        try:
            await self.stage.until(
                lambda: self._can_do_without(broker, step.partition),
                _OUT_WITHIN_S,
                f"partition {step.partition} can do without broker {broker}",
            )
            await self.damage(replace(step, broker=self._name(broker)))
        except (TimeoutError, UsageError) as error:
            await bring_back(self.stage, self._faults, broker)
            raise MissedError(f"nothing was damaged: {error}") from None
        return [partial(bring_back, self.stage, self._faults, broker)]

    def _can_do_without(self, broker: int, partition: int) -> bool:
        topic = self.stage.spec.topic
        settings = {**self.stage.spec.settings, **topic.settings}
        view = self.stage.view(partition)
        return survives_without(broker, view, int(settings.get(_MIN_ISR, "1")))

    async def _leave_quorum(self, step: steps.RemoveVoter) -> list[Undo]:
        """An active controller that leaves the quorum resigns: another one is active then."""
        self._members.check_quorum()
        [voter] = await self._whom(step.broker) or (None,)
        if voter is None:
            raise MissedError("the quorum has no voter besides the active controller")
        observer = self.stage.observer
        was_active = voter == observer.controller
        await self._members.leave_quorum(voter)
        if was_active:
            with contextlib.suppress(TimeoutError):  # the load shows what becomes of it
                await self.stage.until(
                    lambda: observer.controller not in (None, voter),
                    _MOVED_WITHIN_S,
                    "another controller is active",
                )
        return [partial(self._members.join_quorum, voter)]


async def bring_back(stage: Stage, faults: Faults, node: int) -> None:
    """Resumes or restarts a node that is paused or down."""
    if node in stage.paused:
        await faults.resume(node)
    if not stage.cluster.is_up(node):
        await faults.restart(node)


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
