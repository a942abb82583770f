"""Plays a scenario in the simulation: the steps of its file, one after the other, then the ending.

Nothing here waits, and the same scenario does the same. What is made of it is the caller's: a
search keeps the outcome, a run keeps all that happened (`record` sets a recorder on the world).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.simulation import producing
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.conditions import Condition
from neaptide.nemesis.player import at_once, play_steps
from neaptide.nemesis.scenario import Scenario
from neaptide.nemesis.search.ending import Ended, end
from neaptide.nemesis.search.judge import Judged, judge
from neaptide.nemesis.search.observed import WorldObserved
from neaptide.nemesis.search.perform import Performer, can_do
from neaptide.nemesis.search.worlds import ready_world, spec_of

Look = Callable[[WorldObserved], tuple[str, ...]]
Note = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Simulated:
    """A scenario that was played: how it ended, what it proves, what was predicted otherwise.

    `missed`: why the faults did not hit what they were aimed at; empty where they did.
    """

    world: World
    missed: str
    ended: Ended
    judged: Judged
    disagreements: tuple[str, ...]


def _keep_nothing(_: World) -> Note:
    return lambda value: None


def simulate(
    scenario: Scenario,
    rules: Generation,
    record: Callable[[World], Note] = _keep_nothing,
    look: Look = lambda observed: (),
) -> Simulated:
    """`record` is given the world at its start, and returns what is recorded of every fault.

    `look` sees the world once all steps are done; it returns what was predicted otherwise.
    """
    notes: list[Note] = []
    world = ready_world(spec_of(scenario, rules), lambda world: notes.append(record(world)))
    target = _SimulatedTarget(scenario, world, notes[0])
    result = at_once(play_steps(scenario, target, lambda: look(target.observed)))
    ended = end(world)
    judged = judge(world, ended)
    if result.missed:
        judged = replace(judged, outcome="unknown")
    return Simulated(world, result.missed, ended, judged, result.disagreements)


def is_simulated(scenario: Scenario) -> bool:
    """Whether a world can do all of its steps."""
    return scenario.run is None and all(can_do(scheduled.step) for scheduled in scenario.steps)


class _SimulatedTarget:
    def __init__(self, scenario: Scenario, world: World, note: Note) -> None:
        self._holds = [s.step.name for s in scenario.steps if isinstance(s.step, steps.Hold)]
        self._brokers = scenario.brokers
        self._world = world
        self.note = note
        self._performer = Performer(world, scenario.brokers)
        self.observed = WorldObserved(world, self._performer.named)

    async def do(self, step: steps.Step, within_s: float) -> None:
        for said in _noted(step, self._performer.do(step)):
            self.note(said)

    async def wait(self, condition: Condition, within_s: float) -> None:
        self._performer.wait(condition, within_s)

    async def stop_load(self) -> None:
        producing.stop_load(self._world.clients)

    def last_fetch_ms(self, broker: str) -> float | None:
        """As the wire shows it."""
        position = self._world.network.shown.positions.get(self._brokers[broker])
        return None if position is None else (self._world.now_us - position.at_us) / 1_000

    def missed_aims(self) -> list[str]:
        held = self._world.network.ever_held
        idle = [name for name in self._holds if name not in held]
        return [f"the rule {name!r} never held anything" for name in idle]


def _noted(step: steps.Step, done: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a history has of a step: of one for several brokers, a row for each. `done`: what it
    came to, beside what it says."""
    match step:
        case steps.Produce() | steps.Consume() | steps.OpenClient():
            return
        case steps.ToClient() if not isinstance(step, steps.Die):
            return
        case steps.Kill(tuple(brokers)) | steps.PowerOff(tuple(brokers)):
            for broker in brokers:
                yield from _noted(replace(step, broker=broker), done)
        case steps.PowerOff(broker):
            yield {step.verb: {**_fields(step), **done[str(broker)]}}
        case steps.Hold() | steps.Drop():
            said = {"rule": step.name, "message": step.message, "api": step.api}
            given = {key: value for key, value in _fields(step).items() if key not in _APIS}
            yield {step.verb: {**given, **said}}
        case _:
            yield {step.verb: {**_fields(step), **done}}


def _fields(step: steps.Step) -> dict[str, Any]:
    return {
        _NAMES.get(one.name, one.name): _plain(getattr(step, one.name))
        for one in fields(step)  # type: ignore[arg-type]
    }


def _plain(value: object) -> object:
    """As a history has it: a node that is no broker by the name that a step gave it."""
    match value:
        case steps.ActiveController(name) | steps.NamedController(name):
            return name or "the active controller"
    return value


_APIS: Final = ("request", "response")
_NAMES: Final = {"source": "from", "destination": "to"}
