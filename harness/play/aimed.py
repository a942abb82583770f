"""Plays one chain of steps that is aimed at fetch rounds, and undoes it.

What does not come about in its time, a hold that held nothing, and a hold that did not last, are a
miss: it is said why, everything is undone, and the run goes on. A hold lasts no longer than
`replica.lag.time.max.ms`, unless the cast says so: for then the ISR shrinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.harness.live.observed import StageObserved
from neaptide.harness.play.timed_target import TimedTarget, Undo
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.player import MissedError
from neaptide.nemesis.roles import AimedStep, Cast, NotKnownError, cast, needed, read_steps

READY_WITHIN_S: Final = 15.0
_LAG_SETTING: Final = "replica.lag.time.max.ms"
_LAG_DEFAULT_MS: Final = 10_000
_PART_OF_LAG: Final = 0.9


async def play_chain(
    target: TimedTarget,
    first: steps.Cast,
    chain: Sequence[Mapping[str, Any]],
    shape: str,
    name: str,
    stopping: asyncio.Event,
) -> None:
    """Raises MissedError. `name`: of its rules, which no other chain has."""
    aimed, problems = _Aimed(target, first, chain, stopping), target.stage.problems
    problems.clear()
    try:
        await aimed.play(shape, name)
        why = next(iter(problems), None)
    except MissedError as missed:
        why = str(missed)
    finally:
        nothing = await aimed.undo()
    problems.clear()  # of holds that this chain ended, and of those that it has reported
    if why or nothing:
        raise MissedError(why or nothing)


class _Aimed:
    def __init__(
        self,
        target: TimedTarget,
        first: steps.Cast,
        chain: Sequence[Mapping[str, Any]],
        stopping: asyncio.Event,
    ) -> None:
        self._stage = target.stage
        self._first = first
        self._chain = chain
        self._stopping = stopping
        self._observed = StageObserved(target.stage, first.partition)
        self._target = target
        self._undo: list[Undo] = []

    async def play(self, shape: str, name: str) -> None:
        who = await self._find_roles()
        partition, names = self._first.partition, self._stage.names
        self._target = self._target.of_roles(who.roles, partition, f"{name}, ")
        roles = {role: names.get(node, str(node)) for role, node in who.roles.items()}
        self._target.note({"aim": {"shape": shape, "partition": partition, "roles": roles}})
        try:
            for number, step in read_steps(self._chain, who, self._observed):
                await self._play_step(number, step)
        except (NotKnownError, UsageError) as error:  # nobody has a role; the gate cannot do it
            raise MissedError(str(error)) from None

    async def _find_roles(self) -> Cast:
        """When every replica is in the ISR and follows: else nobody has the roles."""
        stage, partition = self._stage, self._first.partition
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
        isr = tuple(self._observed.isr())
        who = cast(self._observed.leader(), isr, assigned, self._observed.controller())
        if who is None or len(who.followers) + 1 < needed(self._chain):
            raise MissedError(f"partition {partition} has no {needed(self._chain)} in its ISR")
        return who

    async def _play_step(self, number: int, aimed: AimedStep) -> None:
        if self._stopping.is_set():
            raise MissedError("the run was asked to stop")
        try:
            if not isinstance(aimed.step, steps.Await):
                self._undo += await self._target.begin(aimed.step, aimed.within_s)
            if aimed.until is not None:
                await self._wait(aimed.until.begun(self._observed), aimed.within_s)
        except MissedError as missed:
            raise MissedError(f"step {number}: {missed}") from None

    async def _wait(self, condition: Condition, within_s: float) -> None:
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
            raise MissedError(f"{error}; {condition.unmet(self._observed)}") from None
        if condition.holds(self._observed):
            return
        if self._stage.problems:
            raise MissedError(self._stage.problems[0])
        if self._stopping.is_set():
            raise MissedError("the run was asked to stop")
        raise MissedError(
            f"a hold may not outlast {_LAG_SETTING}, and this is not true yet:"
            f" {condition.text}; {condition.unmet(self._observed)}"
        )

    def _has_outlasted_lag(self) -> bool:
        if self._first.outlasts_lag:
            return False
        lag_ms = int(self._stage.spec.settings.get(_LAG_SETTING, _LAG_DEFAULT_MS))
        limit_ns = int(lag_ms * _PART_OF_LAG * 1_000_000)
        now_ns = self._stage.recorder.now_ns()
        return any(now_ns - event["at_ns"] > limit_ns for event in self._stage.gate.held.values())

    async def undo(self) -> str | None:
        """Lets go of everything, heals, resumes, restarts. Which rule took nothing, if one did."""
        gate = self._stage.gate
        taken = {str(rule["rule"]): int(rule["taken"]) for rule in (await gate.state())["rules"]}
        idle = None
        for name, rule in self._target.rules.items():
            if taken.get(rule.id) == 0:
                idle = idle or f"the rule {rule.id!r} took no message"
            if rule.id in taken or gate.held_by(rule.id):
                await self._target.release(steps.Release(name))
        for one in reversed(self._undo):
            try:
                await one()
            except MissedError as missed:
                idle = idle or str(missed)
        return idle
