"""The command `shrink`: the schedule of a random run that lost something, made smaller live.

Each try is the run's own command with a smaller schedule, in a process of its own, so that a try
that fails badly ends nothing else.
"""

from __future__ import annotations

import json as json_
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neaptide.clusters.errors import UsageError
from neaptide.harness.cli.options import Json, Quiet, Verbose
from neaptide.harness.play.recording import COMMAND, output_of
from neaptide.harness.scenarios.systems import like_of
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit
from neaptide.results.run import read_run
from neaptide.results.store import find_run
from neaptide.results.verdicts import read_verdict, why_not_believed

if TYPE_CHECKING:
    from neaptide.nemesis.acts import Schedule

SCHEDULE_FILE = "shrunk.toml"


@dataclass(frozen=True, slots=True)
class Tried:
    """One play. `outcome`: what was seen; "failed" where the command did not come to a verdict."""

    acts: int
    steps: int
    outcome: str
    run: str


def shrink_(
    run: Annotated[str, typer.Argument(help="A random run that found an anomaly, or latest.")],
    plays: Annotated[int, typer.Option(min=1, help="The number of runs, at most.")] = 40,
    attempts: Annotated[
        int, typer.Option(min=1, help="How often a smaller schedule is tried until it loses.")
    ] = 2,
    confirm: Annotated[
        int, typer.Option(min=0, help="How often the smallest schedule is played at the end.")
    ] = 3,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Make the schedule of a random run smaller, as long as it still loses."""
    from neaptide.harness.scenarios import saved_schedule
    from neaptide.nemesis.acts import acts_of, smaller
    from neaptide.nemesis.minimise import minimise

    directory = find_run(run)
    asked, wanted = read_run(directory), _outcome(directory)
    document = saved_schedule.load(directory).document
    schedule = acts_of(document["step"])
    expect = {wanted: [like_of(asked.system)]}
    tried: list[Tried] = []
    saved = directory / SCHEDULE_FILE

    def keep(shorter: Schedule) -> None:
        """Whoever is interrupted has what was found so far."""
        saved_schedule.save(saved_schedule.changed(document, shorter, expect=expect), saved)

    with tempfile.TemporaryDirectory() as scratch, output.reporting(plays + confirm) as reporter:
        file = Path(scratch) / "schedule.toml"

        def loses(candidate: Schedule) -> bool:
            what = f"{_count(candidate)} steps in {len(candidate)} acts"
            reporter.report(f"run {len(tried) + 1}: {what}", len(tried))
            tried.append(_play(document, candidate, file))
            return tried[-1].outcome == wanted

        shrunk = minimise(schedule, smaller, loses, plays_max=plays, attempts=attempts, keep=keep)
        lost = sum(loses(shrunk.smallest) for _ in range(confirm))
    keep(shrunk.smallest)
    repeat = shlex.join(["neaptide", *saved_schedule.command(saved)])
    if json:
        output.print_json(
            {
                "run": str(directory),
                "outcome": wanted,
                "steps": {"before": _count(schedule), "after": _count(shrunk.smallest)},
                "acts": {"before": len(schedule), "after": len(shrunk.smallest)},
                "complete": shrunk.complete,
                "confirmed": {"lost": lost, "of": confirm},
                "schedule": str(saved),
                "repeat": repeat,
                "tried": [
                    {"acts": t.acts, "steps": t.steps, "outcome": t.outcome, "run": t.run}
                    for t in tried
                ],
            }
        )
    else:
        rows = [(str(n), str(t.acts), str(t.steps), t.outcome) for n, t in enumerate(tried, 1)]
        output.print_table(("run", "acts", "steps", "outcome"), rows)
        more = "" if shrunk.complete else f"; --plays {plays} ended it, there may be smaller ones"
        output.out.print(
            f"{_count(schedule)} steps in {len(schedule)} acts became"
            f" {_count(shrunk.smallest)} in {len(shrunk.smallest)}{more}",
            markup=False,
        )
        output.out.print(f"{wanted} in {lost} of {confirm} further runs", markup=False)
        output.out.print(f"repeat: {repeat}", markup=False)
    raise typer.Exit(Exit.AGREES if lost or not confirm else Exit.UNKNOWN)


def _outcome(directory: Path) -> str:
    """Of a run that can be made smaller. Raises UsageError."""
    from neaptide.harness.scenarios import saved_schedule

    run, verdict = read_run(directory), read_verdict(directory)
    if isinstance(run.schedule, list):
        saved_schedule.load(directory)  # which says why it cannot be opened
    if run.kind != "random" or not run.schedule["step"]:
        raise UsageError(f"{directory.name} is no random run with faults: there is no schedule.")
    doubt = why_not_believed(directory, verdict)
    if doubt is not None:
        raise UsageError(f"{directory.name} cannot be made smaller: {doubt}.")
    if verdict is None or verdict["verdict"] != "anomalous":
        raise UsageError(
            f"{directory.name} has no anomaly; name a run that has, as `neaptide check` says."
        )
    return str(verdict["outcome"])


def _play(document: Mapping[str, Any], schedule: Schedule, file: Path) -> Tried:
    from neaptide.harness.scenarios import saved_schedule

    saved_schedule.save(saved_schedule.changed(document, schedule), file)
    try:
        verdict: dict[str, Any] = json_.loads(
            output_of([*COMMAND, *saved_schedule.command(file), "--json"])[0]
        )
    except ValueError:
        verdict = {}
    outcome = str(verdict.get("outcome", "failed"))
    return Tried(len(schedule), _count(schedule), outcome, str(verdict.get("run", "")))


def _count(schedule: Schedule) -> int:
    return sum(len(act.steps) for act in schedule)
