"""The command `upgrade`: what an upgrade of Apache Kafka mends, leaves and breaks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from neaptide.clusters.hosts.java import find_java
from neaptide.harness.cli import completion
from neaptide.harness.cli.options import (
    Json,
    Master,
    Page,
    Quiet,
    Resume,
    RetriesUnknown,
    Seed,
    Verbose,
    drawn,
)
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit

if TYPE_CHECKING:
    from neaptide.harness.comparing.upgrade import Plan, Settings
    from neaptide.results.upgrade import Upgrade

_SECONDS_A_RUN: Final = 30  # of Apache Kafka on two cores: start, steps, final reads, end


def upgrade(
    before: Annotated[
        str, typer.Argument(metavar="FROM", help="The version that you run, such as 3.9.0.")
    ],
    after: Annotated[
        str, typer.Argument(metavar="TO", help="The version that you would run, such as 4.4.0.")
    ],
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of scenarios. All that Apache Kafka can play if you give none.",
            autocompletion=completion.scenarios,
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="The server.properties of your brokers, with which both are played."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="How often each scenario is played on each version.")
    ] = 1,
    page: Page = None,
    resume: Resume = False,
    retries_unknown: RetriesUnknown = 0,
    seed: Seed = None,
    master: Master = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Play the catalogue on two versions of Apache Kafka: what is fixed, still open and new."""
    from neaptide.harness.checking.check import SparkStart, check_spark
    from neaptide.harness.comparing import upgrade as comparing
    from neaptide.harness.comparing.repro import run_cells
    from neaptide.results.matrix import assemble
    from neaptide.results.report.upgrade_page import write_upgrade
    from neaptide.results.store import runs_directory
    from neaptide.results.upgrade import compare

    check_spark(master, None)
    given = comparing.Settings() if settings is None else comparing.read_settings(settings)
    name = f"upgrade-{before}-{after}".replace(":", "-")
    planned = comparing.plan(before, after, given, repeat, scenarios or [], runs_directory() / name)
    find_java()
    number = drawn(seed)
    _print_plan(planned, given, number)
    spark = SparkStart(master)
    with output.reporting(len(planned.cells)) as reporter:
        results = run_cells(
            list(planned.cells),
            number,
            spark,
            reporter.report,
            resume=resume,
            retries_unknown=retries_unknown,
        )
    spark.stop()
    matrix = assemble([result.run for result in results])
    found = compare(matrix, str(planned.before), str(planned.after), planned.not_played)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    path = write_upgrade(found, given, page or runs_directory() / f"{name}-{stamp}.html")
    if json:
        output.print_json(found.to_json())
    else:
        _print_found(found, path)
    raise typer.Exit(_status(found))


def _print_plan(planned: Plan, settings: Settings, seed: int) -> None:
    count = len(planned.cells)
    minutes = max(1, round(count * _SECONDS_A_RUN / 60))
    output.note(f"seed {seed}")
    output.note(
        f"{count} runs on {planned.before} and {planned.after}: about {minutes} min; after an"
        " interruption --resume goes on"
    )
    for name, why in settings.left_out.items():
        output.note(f"{name} is left out: {why}")
    for name, why in planned.not_played.items():
        output.note(f"{name} is not played: {why}")


def _print_found(found: Upgrade, page: Path) -> None:
    from neaptide.results.upgrade import CHANGES, counts

    def seen(outcomes: dict[str, int]) -> str:
        return ", ".join(f"{outcome} {count}" for outcome, count in outcomes.items())

    rows = [
        (
            change,
            one.scenario,
            one.kind,
            ", ".join(one.source),
            seen(counts(one.before)),
            seen(counts(one.after)),
        )
        for change in CHANGES
        for one in found.of(change)
    ]
    output.print_table(("change", "scenario", "kind", "source", found.before, found.after), rows)
    for one in found.of("unknown"):
        for reason in one.reasons:
            output.out.print(f"  {one.scenario}: {reason}", markup=False)
    output.out.print(
        ", ".join(f"{len(found.of(change))} {change}" for change in CHANGES)
        + f", {len(found.not_played)} not played"
    )
    output.out.print(f"page: {output.shown(page)}", markup=False)


def _status(found: Upgrade) -> Exit:
    """1: something is new. 2: of something nothing was proved, or nothing was played."""
    if found.of("new"):
        return Exit.ANOMALY
    return Exit.UNKNOWN if found.of("unknown") or not found.compared else Exit.AGREES
