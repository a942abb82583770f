"""`neaptide nightly`: a campaign with a budget of time and disk; options in, a summary out."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.place import check_place
from neaptide.harness.cli.options import (
    VERDICT,
    Json,
    Quiet,
    Seed,
    Verbose,
    drawn,
    duration,
)
from neaptide.harness.terminal import output

if TYPE_CHECKING:
    from neaptide.harness.checking.check import SparkStart
    from neaptide.harness.nightly.campaign import Asked, Campaign
    from neaptide.harness.nightly.night import Night
    from neaptide.harness.nightly.plan import Plan
    from neaptide.harness.nightly.state import Journal, State

SUMMARY = "summary.json"
MARKDOWN = "summary.md"
_SHOWN_CELLS = 20
_HOW = "How"
_DEFAULT_BUDGET_S = 7200.0

PlanFile = Annotated[
    Path | None,
    typer.Argument(metavar="[PLAN.toml]", help="What to vary; our own brokers if you give none."),
]
Budget = Annotated[
    float | None, duration("--budget", "How long, as 2h, 90m or 1h30m; 2h by default.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Live runs at once; as many as cores and memory allow by default.",
        rich_help_panel=_HOW,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark for the checks, as local[2]; for searches too, as spark://HOST:7077.",
        rich_help_panel=_HOW,
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the last night that was cut off.")
]
Nights = Annotated[
    Path,
    typer.Option(help="Where nights, findings and the page are kept.", rich_help_panel=_HOW),
]
Cells = Annotated[
    int | None,
    typer.Option(min=0, help="End after so many new combinations.", rich_help_panel=_HOW),
]
FailOn = Annotated[
    str,
    typer.Option(
        help="What makes the exit status 1, separated by commas: anomaly, new, regression, known,"
        " unknown, an outcome as lost, or a kind of anomaly as lost-write.",
        rich_help_panel=VERDICT,
    ),
]
MinAcked = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With fewer acknowledged records a run is unknown.",
        rich_help_panel=VERDICT,
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries-unknown",
        min=0,
        help="Play what proved nothing again, so often at most. Never an anomaly.",
        rich_help_panel=VERDICT,
    ),
]
Junit = Annotated[
    Path | None, typer.Option(help="Write JUnit XML: what was played is a test case.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be played, and play nothing.")
]


def nightly(
    plan: PlanFile = None,
    budget: Budget = None,
    jobs: Jobs = None,
    master: Master = None,
    resume: Resume = False,
    nights: Nights = Path("nights"),
    cells: Cells = None,
    fail_on: FailOn = "anomaly",
    min_acked: MinAcked = None,
    retries_unknown: Retries = None,
    junit: Junit = None,
    dry_run: DryRun = False,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Try systems, clients and faults in combination for hours; keep and shrink what is found."""
    from neaptide.harness.checking.check import check_spark
    from neaptide.harness.nightly.state import Journal, last_unfinished
    from neaptide.harness.terminal.failing import parse_fail_on

    words = parse_fail_on(fail_on, of_a_night=True)
    check_spark(master, None)
    nights = nights.absolute()
    if resume:
        if plan is not None or seed is not None or dry_run:
            raise UsageError("--resume goes on with the plan and seed that the night has: give no"
                             " others.")  # fmt: skip
        directory = last_unfinished(nights)
    else:
        asked = _asked(budget, jobs, master, cells, min_acked, retries_unknown, {})
        directory = _begun(plan, nights, drawn(seed), asked, dry_run=dry_run, json=json)
    find_java()
    journal = Journal(directory)
    try:
        asked = _asked(
            budget, jobs, master, cells, min_acked, retries_unknown, journal.state.night,
            used_s=journal.state.used_s,
        )  # fmt: skip
        status = _go_on(directory, journal, asked, nights, words, junit, json)
    except KeyboardInterrupt:
        _say("`neaptide nightly --resume` goes on with this night")
        raise
    finally:
        journal.close()
    raise typer.Exit(status)


def _asked(
    budget: float | None,
    jobs: int | None,
    master: str | None,
    cells: int | None,
    min_acked: int | None,
    retries: int | None,
    night: Mapping[str, Any],
    used_s: float = 0.0,
) -> Asked:
    """What is given now counts more than what the night began with. Raises UsageError."""
    from neaptide.harness.nightly.campaign import Asked

    def or_as_before(given: int | None, name: str) -> Any:
        return night.get(name) if given is None else given

    budget_s = night.get("budget_s")
    if budget is not None or budget_s is None:
        budget_s = used_s + (_DEFAULT_BUDGET_S if budget is None else budget)
    return Asked(
        budget_s,
        jobs,
        master,
        or_as_before(cells, "cells"),
        or_as_before(min_acked, "min_acked"),
        or_as_before(retries, "retries") or 0,
    )


def _begun(
    plan_file: Path | None, nights: Path, seed: int, asked: Asked, *, dry_run: bool, json: bool
) -> Path:
    """The directory of a new night; with --dry-run nothing is left of it. Raises typer.Exit."""
    from neaptide.harness.nightly.campaign import begin
    from neaptide.harness.nightly.plan import load_plan
    from neaptide.harness.nightly.planned import built_in

    plan = built_in() if plan_file is None else load_plan(plan_file)
    _check_hosts(plan)
    if dry_run:
        _show(plan, nights, seed, json=json)
    directory = begin(nights, plan, seed, asked)
    output.note(f"seed {seed}; {output.shown(directory)}")
    return directory


def _check_hosts(plan: Plan) -> None:
    from neaptide.clusters.hosts.place import parse_place

    for host in plan.hosts:
        check_place(parse_place(host), _say)


def _show(plan: Plan, nights: Path, seed: int, *, json: bool) -> None:
    from neaptide.harness.nightly.planned import described

    shown = described(plan, nights, seed, _SHOWN_CELLS)
    if json:
        output.print_json(shown)
        raise typer.Exit()
    for why, count in shown["left_out"].items():
        output.out.print(f"{count} combinations are left out: {why}", markup=False)
    for of in shown["known"]:
        output.out.print(f"first: {of}", markup=False)
    columns = tuple(shown["cells"][0])
    rows = [tuple(str(cell[name]) for name in columns) for cell in shown["cells"]]
    output.print_table(columns, rows)
    output.out.print(
        f"{shown['pairs']} cells cover every pair; what is left of the budget is drawn",
        markup=False,
    )
    raise typer.Exit()


def _say(text: str) -> None:
    output.err.print(text, markup=False)


def _go_on(
    directory: Path,
    journal: Journal,
    asked: Asked,
    nights: Path,
    fail_on: tuple[str, ...],
    junit: Path | None,
    json: bool,
) -> int:
    from neaptide.harness.nightly.campaign import Campaign, go_on, options_of
    from neaptide.harness.nightly.judging import Judging

    campaign = Campaign.of(directory, journal.state.night)
    judging = Judging(directory.name, campaign.known, asked.master, options_of(asked.min_acked))
    try:
        if asked.master is not None:  # one that does not work is reported before anything runs
            judging.spark.session()
        night = asyncio.run(go_on(campaign, journal, asked, judging, nights, _say))
        journal.write("over", night.used_s)
        document = _ended(campaign, journal.state, night, judging.spark, nights, fail_on, junit)
    finally:
        judging.stop()
    if json:
        output.print_json(document)
    return int(document["status"])


def _ended(
    campaign: Campaign,
    state: State,
    night: Night,
    spark: SparkStart,
    nights: Path,
    fail_on: tuple[str, ...],
    junit: Path | None,
) -> dict[str, Any]:
    """Everything that is written when a night is over; the document of --json."""
    from neaptide.harness.nightly.junit import write_junit
    from neaptide.harness.nightly.page import write_page
    from neaptide.harness.nightly.rows import write_rows
    from neaptide.harness.nightly.summary import markdown, summary_of
    from neaptide.harness.nightly.trends import trends
    from neaptide.harness.terminal.failing import last_words, status_of
    from neaptide.results.store import write_json, write_text

    directory = campaign.directory
    write_rows(directory, state.rows)
    rows = last_words(state.rows)
    summary = summary_of(directory, state, fail_on, night.stopped)
    summary["status"] = int(status_of(rows, fail_on))
    page = write_page(nights, trends(spark.session(), nights), summary)
    summary["page"] = str(page)
    write_json(directory / SUMMARY, summary)
    text = markdown(summary, page)
    write_text(directory / MARKDOWN, text)
    _add_to_github(text, rows, fail_on)
    if junit is not None:
        write_junit(rows, junit)
    output.err.print(text, markup=False)
    return summary


def _add_to_github(text: str, rows: Sequence[Mapping[str, Any]], fail_on: Sequence[str]) -> None:
    """The summary of the job, where CI has one, and an annotation for each row that fails."""
    from neaptide.harness.terminal import ci
    from neaptide.harness.terminal.failing import fails

    for row in rows if ci.is_github() else ():
        if fails(row, fail_on):
            title = f"{row['play']} on {row['system']}: {row['outcome']} {row['news']}".strip()
            said = "\n".join([*row["reasons"], f"repeat: {row['repeat']}"])
            _say(ci.annotation("", 1, title, said))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:  # the verdicts stand
        print(f"There is no summary: {summary}: {error.strerror}.", file=sys.stderr)
