"""Plays one fault that is aimed at fetch rounds, and undoes it.

What does not come about in its time, a hold that held nothing, and a hold that did not last, are a
miss: it is said why, everything is undone, and the run goes on. A hold lasts no longer than
`replica.lag.time.max.ms`, unless it was drawn so: for then the ISR shrinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from neaptide.clusters.errors import UsageError
from neaptide.harness.faults import Faults
from neaptide.harness.members import MembersNemesis
from neaptide.harness.observed import StageObserved
from neaptide.harness.stage import Stage
from neaptide.harness.target import LiveTarget
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.drawn.episodes import (
    AimedStep,
    Cast,
    Episode,
    NotKnownError,
    cast,
    read_steps,
)
from neaptide.nemesis.gate.model import Endpoint
from neaptide.nemesis.player import MissedError

READY_WITHIN_S: Final = 15.0
_LAG_SETTING: Final = "replica.lag.time.max.ms"
_LAG_DEFAULT_MS: Final = 10_000
_PART_OF_LAG: Final = 0.9
Undo = Callable[[], Awaitable[None]]
_TO_BROKER: Final = (
    steps.Kill,
    steps.PowerOff,
    steps.Stop,
    steps.Restart,
    steps.Pause,
    steps.Resume,
)
_DOES: Final = (
    *_TO_BROKER,
    steps.Hold,
    steps.Drop,
    steps.Delay,
    steps.Release,
    steps.Discard,
    steps.Cut,
    steps.Heal,
    steps.Elect,
)


async def play_episode(
    stage: Stage,
    faults: Faults,
    members: MembersNemesis,
    episode: Episode,
    name: str,
    stopping: asyncio.Event,
) -> str | None:
    """Why it missed; None: it has hit. `name`: of its rules, which no other fault has."""
    aimed = _Aimed(stage, faults, members, episode, name, stopping)
    stage.problems.clear()
    try:
        await aimed.play()
        why = None if not stage.problems else stage.problems[0]
    except MissedError as missed:
        why = str(missed)
    finally:
        nothing = await aimed.undo()
    stage.problems.clear()  # of holds that this fault ended, and of those that it has reported
    return why or nothing


class _Aimed:
    def __init__(
        self,
        stage: Stage,
        faults: Faults,
        members: MembersNemesis,
        episode: Episode,
        name: str,
        stopping: asyncio.Event,
    ) -> None:
        self._stage = stage
        self._faults = faults
        self._episode = episode
        self._name = name
        self._stopping = stopping
        self._members = members
        self._observed = StageObserved(stage, episode.partition)
        self._who = Cast({}, ())
        self._target = self._live({})
        self._undo: list[Undo] = []

    async def play(self) -> None:
        self._who = await self._find_roles()
        self._target = self._live(self._who.roles)
        names = self._stage.names
        roles = {role: names.get(node, str(node)) for role, node in self._who.roles.items()}
        shape, partition = self._episode.shape, self._episode.partition
        now_ns = self._stage.recorder.now_ns()
        self._stage.note_nemesis(
            {"aim": {"shape": shape, "partition": partition, "roles": roles}}, now_ns
        )
        try:
            for number, step in read_steps(self._episode, self._who, self._observed):
                await self._play_step(number, step)
        except (NotKnownError, UsageError) as error:  # nobody has a role; the gate cannot do it
            raise MissedError(str(error)) from None

    def _live(self, roles: Mapping[str, int]) -> LiveTarget:
        partition, prefix = self._episode.partition, f"{self._name}, "
        return LiveTarget(
            self._stage, self._faults, self._members, roles, partition=partition, prefix=prefix
        )

    async def _find_roles(self) -> Cast:
        """When every replica is in the ISR and follows: else nobody has the roles."""
        stage, partition = self._stage, self._episode.partition
        assigned = stage.spec.topic.assignment[partition]

        def is_ready() -> bool:
            followers = [b for b in assigned if b != self._observed.leader()]
            return self._stopping.is_set() or (
                set(self._observed.isr()) == set(assigned)
                and all(self._observed.high_watermark(b) is not None for b in followers)
            )

        try:
            await stage.until(is_ready, READY_WITHIN_S, "every replica is in the ISR and follows")
        except TimeoutError as error:
            raise MissedError(f"before the first step: {error}") from None
        who = cast(
            self._observed.leader(),
            tuple(self._observed.isr()),
            assigned,
            self._observed.controller(),
        )
        if who is None or len(who.followers) + 1 < self._episode.needs:
            raise MissedError(f"partition {partition} has no {self._episode.needs} in its ISR")
        return who

    async def _play_step(self, number: int, aimed: AimedStep) -> None:
        if self._stopping.is_set():
            raise MissedError("the run was asked to stop")
        await self._do(aimed, number)
        if aimed.until is not None:
            await self._wait(number, aimed.until.begun(self._observed), aimed.within_s)

    async def _wait(self, number: int, condition: Condition, within_s: float) -> None:
        def is_over() -> bool:
            return (
                condition.holds(self._observed)
                or bool(self._stage.problems)
                or self._stopping.is_set()
                or self._has_outlasted_lag()
            )

        try:
            await self._stage.until(is_over, within_s, condition.text)
        except TimeoutError as error:
            unmet = condition.unmet(self._observed)
            raise MissedError(f"step {number}: {error}; {unmet}") from None
        if condition.holds(self._observed):
            return
        if self._stage.problems:
            raise MissedError(f"step {number}: {self._stage.problems[0]}")
        if self._stopping.is_set():
            raise MissedError("the run was asked to stop")
        raise MissedError(
            f"step {number}: a hold may not outlast {_LAG_SETTING}, and this is not true yet:"
            f" {condition.text}; {condition.unmet(self._observed)}"
        )

    def _has_outlasted_lag(self) -> bool:
        if self._episode.outlasts_lag:
            return False
        lag_ms = int(self._stage.spec.settings.get(_LAG_SETTING, _LAG_DEFAULT_MS))
        limit_ns = int(lag_ms * _PART_OF_LAG * 1_000_000)
        now_ns = self._stage.recorder.now_ns()
        return any(now_ns - event["at_ns"] > limit_ns for event in self._stage.gate.held.values())

    async def _do(self, aimed: AimedStep, number: int) -> None:
        step = aimed.step
        if isinstance(step, steps.Await):
            return
        if not isinstance(step, _DOES):
            raise MissedError(f"step {number}: an aimed fault does no such thing")
        if isinstance(step, _TO_BROKER):
            self._check_broker(step, number)
        try:
            await self._target.do(step, aimed.within_s)
        except MissedError as missed:
            raise MissedError(f"step {number}: {missed}") from None
        if isinstance(step, steps.Cut):
            self._undo.append(
                partial(self._faults.heal, self._end(step.source), self._end(step.destination))
            )

    def _check_broker(self, step: steps.Step, number: int) -> None:
        """A role, whose broker is there for what is done; afterwards it is brought back."""
        role = getattr(step, "broker", None)
        if not isinstance(role, str):
            raise MissedError(f"step {number}: it needs a role")
        broker = self._who.roles[role]
        is_up = self._stage.is_reachable(broker)
        if is_up == isinstance(step, steps.Restart | steps.Resume):
            state = "there already" if is_up else "down already"
            raise MissedError(f"step {number}: {role}, {self._stage.names[broker]}, is {state}")
        self._undo.append(partial(bring_back, self._stage, self._faults, broker))

    def _end(self, name: str) -> Endpoint:
        return self._who.roles.get(name, name)

    # --- afterwards ------------------------------------------------------------------------------

    async def undo(self) -> str | None:
        """Lets go of everything, heals, resumes, restarts. Which rule took nothing, if one did."""
        taken = {
            str(entry["rule"]): int(entry["taken"])
            for entry in (await self._stage.gate.state())["rules"]
        }
        idle = None
        for rule in self._target.rules.values():
            if taken.get(rule.id) == 0:
                idle = idle or f"the rule {rule.id!r} took no message"
            if rule.id in taken or self._stage.gate.held_by(rule.id):
                await self._faults.release(rule.id)
        for one in reversed(self._undo):
            await one()
        return idle


async def bring_back(stage: Stage, faults: Faults, node: int) -> None:
    """Resumes or restarts a node that is paused or down."""
    if node in stage.paused:
        await faults.resume(node)
    if not stage.cluster.is_up(node):
        await faults.restart(node)
