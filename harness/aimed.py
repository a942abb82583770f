"""Plays one fault that is aimed at fetch rounds, and undoes it.

What does not come about in its time, a hold that held nothing, and a hold that did not last, are a
miss: it is said why, everything is undone, and the run goes on. A hold lasts no longer than
`replica.lag.time.max.ms`, unless it was drawn so: for then the ISR shrinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, assert_never

from neaptide.clusters.errors import UsageError
from neaptide.clusters.kafka.members import RefusedChangeError
from neaptide.harness.faults import Faults
from neaptide.harness.observed import StageObserved
from neaptide.harness.stage import Stage
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.drawn.episodes import (
    AimedStep,
    Cast,
    Delay,
    Elect,
    Episode,
    NotKnownError,
    cast,
    read_steps,
)
from neaptide.nemesis.gate.model import CLIENT, COORDINATION, Endpoint, Rule

READY_WITHIN_S: Final = 15.0
_LAG_SETTING: Final = "replica.lag.time.max.ms"
_LAG_DEFAULT_MS: Final = 10_000
_PART_OF_LAG: Final = 0.9
Undo = Callable[[], Awaitable[None]]
Elects = Callable[[Sequence[int]], Awaitable[None]]  # preferred leaders of partitions


class MissedError(Exception):
    """An aimed fault did not come to what it was for."""


async def play_episode(
    stage: Stage,
    faults: Faults,
    episode: Episode,
    name: str,
    stopping: asyncio.Event,
    elect: Elects,
) -> str | None:
    """Why it missed; None: it has hit. `name`: of its rules, which no other fault has."""
    aimed = _Aimed(stage, faults, episode, name, stopping, elect)
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
        episode: Episode,
        name: str,
        stopping: asyncio.Event,
        elect: Elects,
    ) -> None:
        self._stage = stage
        self._faults = faults
        self._episode = episode
        self._name = name
        self._stopping = stopping
        self._elect = elect
        self._observed = StageObserved(stage, episode.partition)
        self._who = Cast({}, ())
        self._rules: dict[str, Rule] = {}  # by the name that the steps know
        self._undo: list[Undo] = []

    async def play(self) -> None:
        self._who = await self._find_roles()
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
        await self._do(aimed.step, number)
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

    # --- verbs -----------------------------------------------------------------------------------

    async def _do(self, step: steps.Step | Delay | Elect, number: int) -> None:
        match step:
            case steps.Await():
                return
            case steps.Hold() | steps.Drop():
                await self._install(step, "hold" if isinstance(step, steps.Hold) else "drop", 0)
            case Delay():
                await self._install(step.rule, "delay", step.delay_ms)
            case steps.Release():
                await self._faults.release(self._rules[step.rule].id)
            case steps.Discard():
                await self._faults.discard(self._rules[step.rule].id)
            case steps.Cut():
                ends = self._end(step.source), self._end(step.destination)
                await self._faults.cut(*ends, step.purpose, both=step.both)
                self._undo.append(partial(self._faults.heal, *ends))
            case steps.Heal():
                await self._faults.heal(self._end(step.source), self._end(step.destination))
            case Elect():
                await self._elect_preferred(number)
            case (
                steps.Kill()
                | steps.PowerOff()
                | steps.Stop()
                | steps.Restart()
                | steps.Pause()
                | steps.Resume()
            ):
                await self._do_to_broker(step, number)
            case _:
                raise MissedError(f"step {number}: an aimed fault does no such thing")

    async def _do_to_broker(
        self,
        step: steps.Kill | steps.PowerOff | steps.Stop | steps.Restart | steps.Pause | steps.Resume,
        number: int,
    ) -> None:
        if not isinstance(step.broker, str):
            raise MissedError(f"step {number}: it needs a role")
        broker = self._who.roles[step.broker]
        is_up = self._stage.is_reachable(broker)
        if is_up == isinstance(step, steps.Restart | steps.Resume):
            state = "there already" if is_up else "down already"
            names = self._stage.names
            raise MissedError(f"step {number}: {step.broker}, {names[broker]}, is {state}")
        self._undo.append(partial(bring_back, self._stage, self._faults, broker))
        match step:
            case steps.Kill():
                await self._faults.kill(broker, step.in_flight)
            case steps.PowerOff():
                await self._faults.power_off(broker, {})
            case steps.Stop():
                await self._faults.stop(broker)
            case steps.Pause():
                await self._faults.pause(broker)
            case steps.Restart():
                await self._faults.restart(broker)
            case steps.Resume():
                await self._faults.resume(broker)
            case _:
                assert_never(step)

    async def _elect_preferred(self, number: int) -> None:
        try:
            await self._elect([self._episode.partition])
        except RefusedChangeError as refused:
            raise MissedError(f"step {number}: {refused}") from None

    async def _install(self, step: steps.Hold | steps.Drop, action: str, delay_ms: int) -> None:
        rule = Rule.from_dict(
            {
                "id": f"{self._name}, {step.name}",
                "action": action,
                "message": step.message,
                "api": step.api,
                "source": self._who.roles[step.source],
                "destination": self._who.roles[step.destination],
                "topic": self._stage.spec.topic.name,
                "partition": self._episode.partition,
                "where": step.where,
                "times": step.times,
                "delay_ms": delay_ms,
            }
        )
        await self._faults.install(rule)
        self._rules[step.name] = rule

    def _end(self, name: str | None) -> Endpoint | None:
        if name is None or name in (CLIENT, COORDINATION):
            return name
        return self._who.roles[name]

    # --- afterwards ------------------------------------------------------------------------------

    async def undo(self) -> str | None:
        """Lets go of everything, heals, resumes, restarts. Which rule took nothing, if one did."""
        taken = {
            str(entry["rule"]): int(entry["taken"])
            for entry in (await self._stage.gate.state())["rules"]
        }
        idle = None
        for rule in self._rules.values():
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
