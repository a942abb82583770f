"""Plays a scenario in the simulation: the steps of its file, one after the other, then the ending.

The run directory is that of a live run, so that the same checks and the same report do. Nothing
here waits, and the same scenario with the same seed does the same.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from clusters.broker.replication.generation import Generation
from clusters.simulation.world import World
from harness.simulation.recording import RunRecorder
from harness.version import VERSION
from nemesis import steps
from nemesis.scenario import Scenario, ScheduledStep, expected_outcome
from nemesis.search.ending import Ended, end
from nemesis.search.judge import Judged, judge
from nemesis.search.perform import MissedError, Performer
from nemesis.search.worlds import ready_world, spec_of
from results.run import Aim, Converged, FinalRead, Run
from results.store import create_run, write_run

HOST = "simulation"


@dataclass(frozen=True, slots=True)
class Simulated:
    """A scenario that was played: how it ended, what it proves, what was predicted otherwise."""

    world: World
    aim: Aim
    ended: Ended
    judged: Judged
    disagreements: tuple[str, ...]


def simulate(scenario: Scenario, rules: Generation, recorded: bool = True) -> Simulated:
    """Plays a scenario; where `recorded`, the world's recorder knows all that happened."""
    world = ready_world(spec_of(scenario, rules))
    if recorded:
        world.recorder = RunRecorder(world)
    player = _Player(scenario, world)
    aim = player.play()
    ended = end(world)
    judged = judge(world, ended)
    if not aim.hit:
        judged = replace(judged, outcome="unknown")
    return Simulated(world, aim, ended, judged, tuple(player.disagreements))


def play_simulated(
    scenario: Scenario, system: str, rules: Generation, seed: int, where: str
) -> tuple[Path, tuple[str, ...]]:
    """Plays a scenario and writes its run directory."""
    started = datetime.now(UTC)
    simulated = simulate(scenario, rules)
    directory = create_run(scenario.name, system, seed, started)
    recorder = simulated.world.recorder
    assert isinstance(recorder, RunRecorder)
    recorder.write(directory)
    ended = simulated.ended
    run = Run(
        neaptide=VERSION,
        name=scenario.name,
        title=scenario.title,
        source=scenario.source,
        system=system,
        host=HOST,
        seed=seed,
        started_utc=started.isoformat(timespec="milliseconds"),
        status="finished",
        kind="scenario",
        schedule=dict(scenario.document),
        brokers=dict(scenario.brokers),
        expected=expected_outcome(scenario, system),
        aim=simulated.aim,
        converged=Converged(ended.level, "" if ended.level else "not level in 60 simulated s"),
        final_reads=(FinalRead(scenario.topic.name, 0, ended.end_offset, ended.final is not None),),
        replicas_written=True,
        repeat=(
            f"neaptide replay {shlex.quote(where)} --system {system} --host {HOST} --seed {seed}"
        ),
    )
    write_run(directory, run)
    return directory, simulated.disagreements


class _Player:
    def __init__(self, scenario: Scenario, world: World) -> None:
        self._scenario = scenario
        self._world = world
        self._performer = Performer(world, scenario.brokers)
        self.disagreements: list[str] = []

    def play(self) -> Aim:
        for number, scheduled in enumerate(self._scenario.steps, start=1):
            where = f"step {number} (line {scheduled.line})"
            try:
                self._do(scheduled, where)
            except MissedError as missed:
                return Aim(False, f"{where}: {missed}")
        missed_holds = [
            scheduled.step.name
            for scheduled in self._scenario.steps
            if isinstance(scheduled.step, steps.Hold)
            and scheduled.step.name not in self._world.ever_held
        ]
        why = "; ".join(f"the rule {name!r} never held anything" for name in missed_holds)
        return Aim(not missed_holds, why)

    def _do(self, scheduled: ScheduledStep, where: str) -> None:
        self._note(scheduled.step)
        self._performer.do(scheduled.step)
        if scheduled.until is not None:
            self._performer.wait(scheduled.until, scheduled.within_s)
        if isinstance(scheduled.step, steps.Measure):
            self._measure(scheduled.step, where)

    def _note(self, step: steps.Step) -> None:
        recorder = self._world.recorder
        if isinstance(recorder, RunRecorder) and not isinstance(step, _UNNOTED):
            fields = {
                _NAMES.get(name, name): getattr(step, name) for name in step.__dataclass_fields__
            }
            recorder.note_nemesis({_VERBS.get(type(step), type(step).__name__.lower()): fields})

    def _measure(self, step: steps.Measure, where: str) -> None:
        """From the last fetch of the broker, as the wire shows it, to now."""
        position = self._world.positions.get(self._scenario.brokers[step.since_last_fetch_of])
        unit = self._scenario.settings.get(step.unit, "")
        if position is None or not unit.isdigit():
            raise MissedError("nothing to measure from")
        times = (self._world.now_us - position.at_us) / 1_000 / int(unit)
        most = step.at_most + step.slack_ms / int(unit)
        if not step.above < times <= most:
            self.disagreements.append(
                f"{where}: {times:.2f} × {step.unit}, predicted more than {step.above:g} and at"
                f" most {step.at_most:g}"
            )


_UNNOTED = (steps.Produce, steps.Consume, steps.Await, steps.Measure)
_NAMES = {"source": "from", "destination": "to", "name": "rule"}
_VERBS: dict[type, str] = {steps.PowerOff: "power_off"}
