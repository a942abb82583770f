"""The command `steps`: which step of a losing schedule matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from neaptide.harness.cli.options import Json, Quiet, Seed, Verbose, drawn
from neaptide.harness.scenarios.systems import DEFAULT_SYSTEM
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit
from neaptide.results.left_out import StepLeftOut, StepsLeftOut

_WORDS = {"decides": "decides", "helps": "helps", "no": "not needed"}


def steps(
    schedule: Annotated[
        str, typer.Argument(help="A run, latest, FILE.toml, or a scenario that ships.")
    ] = "latest",
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            "-s",
            help="As neaptide:0.10, by default that of the run; kafka is not known.",
        ),
    ] = None,
    plays: Annotated[int, typer.Option(min=1, help="Plays without each step.")] = 20,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Say which step matters: play the schedule in the simulation with each step left out."""
    from neaptide.harness.scenarios import left_out
    from neaptide.harness.scenarios.catalog import scenario_files
    from neaptide.nemesis.scenario import load_scenario
    from neaptide.results.report import write_report
    from neaptide.results.store import find_run

    shipped = scenario_files()
    file = Path(schedule) if schedule.endswith(".toml") else shipped.get(schedule)
    with output.reporting(1.0) as reporter:

        def report(done: int) -> None:
            reporter.report(f"without step {done + 1}")

        if file is not None:
            scenario = load_scenario(file)
            number = drawn(seed)
            on = system or DEFAULT_SYSTEM
            found = left_out.leave_out(scenario, on, plays, number, report)
        else:
            directory = find_run(schedule)
            found = left_out.leave_out_of_run(directory, plays, seed, system, report)
            write_report(directory)
    if json:
        output.print_json(found.to_json())
    else:
        _print(found)
    raise typer.Exit(Exit.AGREES if found.steps else Exit.UNKNOWN)


def _print(found: StepsLeftOut) -> None:
    output.note(f"seed {found.seed}")
    whole = f"With all steps on {found.system}: {_counts(found.outcomes)} of {found.plays} plays."
    output.out.print(whole, markup=False)
    if not found.steps:
        output.out.print("Nothing is lost, so no step can matter.", markup=False)
        return
    rows = [_row(found, step) for step in found.steps]
    output.print_table(("left out", "step", found.outcome, "it", "otherwise"), rows)
    for step in found.steps:
        if step.in_vain:
            plays = f"without step {step.number}, in {step.in_vain} of {found.plays} plays"
            output.out.print(f"{plays}: {step.why}", markup=False)


def _row(found: StepsLeftOut, step: StepLeftOut) -> tuple[str, str, str, str, str]:
    others = {name: count for name, count in step.outcomes.items() if name != found.outcome}
    return (
        str(step.number),
        step.words,
        f"{step.still(found.outcome)} of {found.plays}",
        _WORDS[found.matters(step)],
        _counts(others),
    )


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in outcomes.items())
