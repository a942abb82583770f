"""Plays the steps of a scenario on a target, one after the other, each until its condition holds.

There is one player, and two targets: live brokers (`harness.target`), and a world of the simulation
(`nemesis.search.play`). A target does steps and waits; what it means that a step was missed, what
is measured, and which rules have hit nothing is the same for both, and is here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.scenario import Scenario, ScheduledStep
from neaptide.nemesis.steps import Await, Measure, Step

T = TypeVar("T")


class MissedError(Exception):
    """A step did not come to what it was for: the run proves nothing."""


class Target(Protocol):
    """What steps are done to. All but `note` and `last_fetch_ms` raise MissedError."""

    async def do(self, step: Step, within_s: float) -> None: ...

    async def wait(self, condition: Condition, within_s: float) -> None: ...

    async def stop_load(self) -> None: ...

    def last_fetch_ms(self, broker: str) -> float | None:
        """How long ago a follower last fetched. None: it never has."""
        ...

    def note(self, value: Mapping[str, Any]) -> None:
        """Records what was done, or seen."""
        ...

    def missed_aims(self) -> list[str]:
        """Of what was done so far: why it hit nothing, and what went wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """`missed`: why the faults did not hit what they were aimed at; empty where they did."""

    missed: str
    disagreements: tuple[str, ...] = ()


def _nothing(number: int, scheduled: ScheduledStep) -> None:
    pass


async def play_steps(
    scenario: Scenario,
    target: Target,
    look: Callable[[], Iterable[str]],
    begins: Callable[[int, ScheduledStep], None] = _nothing,
) -> Result:
    """`look`, once all steps are done, returns what was predicted otherwise. `begins` is called
    with each step before it is done, and its number, from 1."""
    disagreements: list[str] = []
    where = ""
    try:
        for number, scheduled in enumerate(scenario.steps, start=1):
            begins(number, scheduled)
            where = f"step {number} (line {scheduled.line}): "
            step = scheduled.step
            if not isinstance(step, Await | Measure):
                await target.do(step, scheduled.within_s)
            if scheduled.until is not None:
                await target.wait(scheduled.until, scheduled.within_s)
            if isinstance(step, Measure):
                disagreements += [where + wrong for wrong in _measured(step, scenario, target)]
    except MissedError as missed:
        await target.stop_load()
        return Result(f"{where}{missed}", tuple(disagreements))
    await target.stop_load()
    disagreements += look()
    return Result("; ".join(target.missed_aims()), tuple(disagreements))


def _measured(step: Measure, scenario: Scenario, target: Target) -> list[str]:
    """From the last fetch of the broker to now: what was predicted otherwise."""
    elapsed_ms = target.last_fetch_ms(step.since_last_fetch_of)
    unit = scenario.settings.get(step.unit, "")
    if elapsed_ms is None or not unit.isdigit():
        raise MissedError("nothing to measure from")
    times = elapsed_ms / int(unit)
    value = {"elapsed_ms": round(elapsed_ms, 1), "unit": step.unit, "times": round(times, 3)}
    target.note({"measured": {**value, "above": step.above, "at_most": step.at_most}})
    most = step.at_most + step.slack_ms / int(unit)
    if step.above < times <= most:
        return []
    return [
        f"{times:.2f} × {step.unit}, predicted more than {step.above:g} and at most"
        f" {step.at_most:g}"
    ]


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing outside: in a simulation time is a number.

    Raises RuntimeError for one that does wait.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine waits where nothing can be waited for")
