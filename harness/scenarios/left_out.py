"""Which step of a schedule matters: the simulation plays it with each step left out.

For scenarios on our own broker, whose rules the simulation knows. A run of one gets the answer into
its directory and its report.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.errors import UsageError
from neaptide.nemesis.scenario import Scenario, ScenarioError, scenario_of
from neaptide.nemesis.search.play import is_simulated
from neaptide.nemesis.search.without import Weighed, weigh
from neaptide.results.left_out import STEPS_FILE, StepLeftOut, StepsLeftOut, write_left_out
from neaptide.results.run import Run, read_run

PLAYS: Final = 20
PLAYS_WITH_A_RUN: Final = 5  # where nobody asked: it must not take longer than the run
_KIND: Final = "neaptide"


def leave_out(
    scenario: Scenario,
    system: str,
    plays: int,
    seed: int,
    report: Callable[[int], None] = lambda done: None,
) -> StepsLeftOut:
    """`system`: as neaptide:0.10. Without steps where the schedule does not lose there.

    Raises UsageError for what the simulation cannot play.
    """
    why = why_not(scenario, system)
    if why is not None:
        raise UsageError(why)
    weighed = weigh(scenario, GENERATIONS[system.partition(":")[2]], plays, seed, report)
    return StepsLeftOut(
        system,
        weighed.outcome,
        plays,
        seed,
        weighed.whole.outcomes,
        tuple(_steps(scenario, weighed)),
    )


def why_not(scenario: Scenario, system: str) -> str | None:
    """Why the simulation cannot play it; None: it can."""
    kind, _, name = system.partition(":")
    if kind != _KIND or name not in GENERATIONS:
        known = ", ".join(f"{_KIND}:{one}" for one in GENERATIONS)
        return f"The simulation knows {known}, not {system}: choose one with --system."
    if not is_simulated(scenario):
        return (
            f"The simulation cannot play {scenario.name}: it has no clients that are driven, no"
            " messages of clients and of KRaft's controllers, no clocks and no toxics."
        )
    return None


def _steps(scenario: Scenario, weighed: Weighed) -> list[StepLeftOut]:
    return [
        StepLeftOut(
            number,
            scheduled.step.words(),
            scheduled.until.text if scheduled.until is not None else "",
            plays.outcomes,
            plays.in_vain,
            plays.why,
        )
        for number, (scheduled, plays) in enumerate(
            zip(scenario.steps, weighed.without, strict=False), start=1
        )
    ]


def scenario_of_run(run: Run) -> Scenario:
    """The scenario that a run has played. Raises UsageError where it played none."""
    if run.kind != "scenario" or not isinstance(run.schedule, dict):
        raise UsageError(
            f"{run.name} is no run of a scenario; of a random run, `neaptide shrink` makes the"
            " schedule smaller."
        )
    try:
        return scenario_of(run.name, run.schedule)
    except ScenarioError as error:
        raise UsageError(f"The scenario of the run cannot be read: {error}.") from error


def leave_out_of_run(
    directory: Path,
    plays: int,
    seed: int | None = None,
    system: str | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> StepsLeftOut:
    """The same for a run, with its own system and seed; kept in its directory.

    Raises UsageError, RunUnreadableError, StoreError.
    """
    run = read_run(directory)
    scenario = scenario_of_run(run)
    number = run.seed if seed is None else seed
    found = leave_out(scenario, system or run.system, plays, number, report)
    write_left_out(directory, found)
    return found


def leave_out_of_losing(directory: Path) -> None:
    """For the report of a run that has lost something: nothing where the simulation cannot play
    its scenario, or where somebody has asked already."""
    if (directory / STEPS_FILE).exists():
        return
    run = read_run(directory)
    try:
        document = json.dumps(scenario_of_run(run).document, sort_keys=True)
        write_left_out(directory, _of_losing(run.name, document, run.system, run.seed))
    except UsageError:
        return


@functools.lru_cache(maxsize=64)
def _of_losing(name: str, document: str, system: str, seed: int) -> StepsLeftOut:
    """Once for all runs of one scenario on one system that a command judges."""
    scenario = scenario_of(name, json.loads(document))
    return leave_out(scenario, system, PLAYS_WITH_A_RUN, seed)
