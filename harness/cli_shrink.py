"""The command `shrink`: the schedule of a random run that lost something, made smaller live.

Each try is the run's own command with a smaller schedule, in a process of its own, so that a try
that fails badly ends nothing else.
"""

from __future__ import annotations

import json as json_
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neaptide.clusters.errors import UsageError
from neaptide.harness import output
from neaptide.harness.exits import Exit
from neaptide.harness.options import Json, Quiet, Verbose
from neaptide.results.run import Run, read_run
from neaptide.results.store import find_run, write_json
from neaptide.results.verdicts import read_verdict, why_not_believed

if TYPE_CHECKING:
    from neaptide.nemesis.drawn.schedule import Schedule

SCHEDULE_FILE = "shrunk.json"


@dataclass(frozen=True, slots=True)
class Tried:
    """One play. `outcome`: what was seen; "failed" where the command did not come to a verdict."""

    phases: int
    faults: int
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
    from neaptide.nemesis.drawn.schedule import load_schedule
    from neaptide.nemesis.drawn.shrinking import shrink

    directory = find_run(run)
    asked, wanted = read_run(directory), _outcome(directory)
    schedule = load_schedule(directory, tuple(asked.brokers.values()), 1000)
    tried: list[Tried] = []
    saved = directory / SCHEDULE_FILE

    def keep(smaller: Schedule) -> None:
        """Whoever is interrupted has what was found so far."""
        write_json(saved, {"schedule": [phase.to_json() for phase in smaller]})

    with tempfile.TemporaryDirectory() as scratch, output.reporting(plays + confirm) as reporter:
        file = Path(scratch) / "schedule.json"

        def loses(candidate: Schedule) -> bool:
            what = f"{_count(candidate)} faults in {len(candidate)} phases"
            reporter.report(f"run {len(tried) + 1}: {what}", len(tried))
            tried.append(_play(asked, candidate, file))
            return tried[-1].outcome == wanted

        shrunk = shrink(schedule, loses, plays, attempts, keep)
        lost = sum(loses(shrunk.schedule) for _ in range(confirm))
    keep(shrunk.schedule)
    repeat = shlex.join(["neaptide", *command(asked, shrunk.schedule, saved)])
    if json:
        output.print_json(
            {
                "run": str(directory),
                "outcome": wanted,
                "faults": {"before": _count(schedule), "after": _count(shrunk.schedule)},
                "phases": {"before": len(schedule), "after": len(shrunk.schedule)},
                "complete": shrunk.complete,
                "confirmed": {"lost": lost, "of": confirm},
                "schedule": str(saved),
                "repeat": repeat,
                "tried": [
                    {"phases": t.phases, "faults": t.faults, "outcome": t.outcome, "run": t.run}
                    for t in tried
                ],
            }
        )
    else:
        rows = [(str(n), str(t.phases), str(t.faults), t.outcome) for n, t in enumerate(tried, 1)]
        output.print_table(("run", "phases", "faults", "outcome"), rows)
        more = "" if shrunk.complete else f"; --plays {plays} ended it, there may be smaller ones"
        output.out.print(
            f"{_count(schedule)} faults in {len(schedule)} phases became"
            f" {_count(shrunk.schedule)} in {len(shrunk.schedule)}{more}",
            markup=False,
        )
        output.out.print(f"{wanted} in {lost} of {confirm} further runs", markup=False)
        output.out.print(f"repeat: {repeat}", markup=False)
    raise typer.Exit(Exit.AGREES if lost or not confirm else Exit.UNKNOWN)


def _outcome(directory: Path) -> str:
    """Of a run that can be made smaller. Raises UsageError."""
    run, verdict = read_run(directory), read_verdict(directory)
    if run.kind != "random" or not isinstance(run.schedule, list) or not run.schedule:
        raise UsageError(f"{directory.name} is no random run with faults: there is no schedule.")
    doubt = why_not_believed(directory, verdict)
    if doubt is not None:
        raise UsageError(f"{directory.name} cannot be made smaller: {doubt}.")
    if verdict is None or verdict["verdict"] != "anomalous":
        raise UsageError(
            f"{directory.name} has no anomaly; name a run that has, as `neaptide check` says."
        )
    return str(verdict["outcome"])


def command(run: Run, schedule: Schedule, file: Path) -> list[str]:
    """The arguments that repeat a run with another schedule, for as long as that takes."""
    from neaptide.nemesis.drawn.shrinking import length_s

    words = shlex.split(run.repeat)[1:]
    changed = {"--nemesis": str(file), "--time": f"{length_s(schedule):.0f}"}
    for option, value in changed.items():
        words[words.index(option) + 1] = value
    return words


def _play(run: Run, schedule: Schedule, file: Path) -> Tried:
    write_json(file, {"schedule": [phase.to_json() for phase in schedule]})
    program = (sys.executable, "-m", "neaptide.harness.cli", "--isolated")
    words = [*program, *command(run, schedule, file), "--json"]
    try:
        verdict: dict[str, Any] = json_.loads(output_of(words))
    except ValueError:
        verdict = {}
    outcome = str(verdict.get("outcome", "failed"))
    return Tried(len(schedule), _count(schedule), outcome, str(verdict.get("run", "")))


def output_of(words: list[str]) -> str:
    """What a command prints. Who is interrupted lets it end in order: it has brokers to stop."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            return process.communicate()[0]
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _count(schedule: Schedule) -> int:
    return sum(len(phase.faults) for phase in schedule)
