"""Plays a scenario in the simulation: the steps of its file, one after the other, then the ending.

Nothing here waits, and the same scenario does the same. What is made of it is the caller's: a
search keeps the outcome, a run keeps all that happened (`record` sets a recorder on the world).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.simulation import producing
from neaptide.clusters.simulation.world import World
from neaptide.nemesis import steps
from neaptide.nemesis.scenario import Scenario, ScheduledStep
from neaptide.nemesis.search.ending import Ended, end
from neaptide.nemesis.search.judge import Judged, judge
from neaptide.nemesis.search.observed import WorldObserved
from neaptide.nemesis.search.perform import MissedError, Performer, can_do
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
    player = _Player(scenario, world, notes[0])
    missed = player.play(look)
    ended = end(world)
    judged = judge(world, ended)
    if missed:
        judged = replace(judged, outcome="unknown")
    return Simulated(world, missed, ended, judged, tuple(player.disagreements))


def is_simulated(scenario: Scenario) -> bool:
    """Whether a world can do all of its steps."""
    steps = all(can_do(scheduled.step) for scheduled in scenario.steps)
    return steps and scenario.transactions is None


class _Player:
    def __init__(self, scenario: Scenario, world: World, note: Note) -> None:
        self._scenario = scenario
        self._world = world
        self._record = note
        self._performer = Performer(world, scenario.brokers)
        self.disagreements: list[str] = []

    def play(self, look: Look) -> str:
        """What was missed."""
        for number, scheduled in enumerate(self._scenario.steps, start=1):
            where = f"step {number} (line {scheduled.line})"
            try:
                self._do(scheduled, where)
            except MissedError as missed:
                producing.stop_load(self._world.clients)
                return f"{where}: {missed}"
        producing.stop_load(self._world.clients)
        observed = WorldObserved(self._world, self._performer.named)
        self.disagreements += look(observed)
        return "; ".join(
            f"the rule {scheduled.step.name!r} never held anything"
            for scheduled in self._scenario.steps
            if isinstance(scheduled.step, steps.Hold)
            and scheduled.step.name not in self._world.network.ever_held
        )

    def _do(self, scheduled: ScheduledStep, where: str) -> None:
        self._note(scheduled.step, self._performer.do(scheduled.step))
        if scheduled.until is not None:
            self._performer.wait(scheduled.until, scheduled.within_s)
        if isinstance(scheduled.step, steps.Measure):
            self._measure(scheduled.step, where)

    def _note(self, step: steps.Step, done: Mapping[str, Any]) -> None:
        """`done`: what the step came to, beside what it says."""
        match step:
            case steps.KillTogether(brokers, in_flight):
                for broker in brokers:
                    self._note(steps.Kill(broker, in_flight), done)
                return
            case steps.PowerOffTogether(brokers, survives):
                for broker in brokers:
                    self._note(steps.PowerOff(broker, survives), done[broker])
                return
        if not isinstance(step, _UNNOTED):
            fields = {
                _NAMES.get(name, name): _plain(getattr(step, name))
                for name in step.__dataclass_fields__
            } | dict(done)
            self._record({steps.verb_of(step): fields})

    def _measure(self, step: steps.Measure, where: str) -> None:
        """From the last fetch of the broker, as the wire shows it, to now."""
        position = self._world.network.shown.positions.get(
            self._scenario.brokers[step.since_last_fetch_of]
        )
        unit = self._scenario.settings.get(step.unit, "")
        if position is None or not unit.isdigit():
            raise MissedError("nothing to measure from")
        elapsed_ms = (self._world.now_us - position.at_us) / 1_000
        times = elapsed_ms / int(unit)
        value = {"elapsed_ms": round(elapsed_ms, 1), "unit": step.unit, "times": round(times, 3)}
        self._record({"measured": {**value, "above": step.above, "at_most": step.at_most}})
        most = step.at_most + step.slack_ms / int(unit)
        if not step.above < times <= most:
            self.disagreements.append(
                f"{where}: {times:.2f} × {step.unit}, predicted more than {step.above:g} and at"
                f" most {step.at_most:g}"
            )


def _plain(value: object) -> object:
    """As a history has it: a node that is no broker by the name that a step gave it."""
    match value:
        case steps.ActiveController(name) | steps.NamedController(name):
            return name or "the active controller"
    return value


_UNNOTED: Final = (steps.Produce, steps.Consume, steps.Await, steps.Measure)
_NAMES: Final = {"source": "from", "destination": "to", "name": "rule"}
