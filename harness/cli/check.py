"""`neaptide check`: saved runs and histories in; a table, JSON, JUnit XML, pages out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.harness.cli.options import FailOn, Json, Master, Quiet, Verbose, duration
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit
from neaptide.harness.terminal.failing import parse_fail_on, verdict_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from neaptide.checkers.material import Material
    from neaptide.checkers.verdict import EngineName, RunVerdict
    from neaptide.results.report.rows import Row


Runs = Annotated[
    list[str],
    typer.Argument(
        help="Run directories, names of runs, latest, URIs, or .edn histories of Jepsen."
    ),
]
Remote = Annotated[str | None, typer.Option(help="A Spark Connect server: sc://HOST:15002.")]
Thorough = Annotated[
    bool, typer.Option(help="Also measure, and look for anomalies that are normal and never count.")
]
Plots = Annotated[
    bool, typer.Option("--plots", help="Draw the load over time, in the report of each run.")
]
Html = Annotated[
    Path | None,
    typer.Option("--html", "-o", help="The file for one page of all runs, worst first."),
]
Junit = Annotated[Path | None, typer.Option(help="The file for JUnit XML. A run is a test case.")]
Follow = Annotated[bool, typer.Option("--follow", help="Check a run while it still goes on.")]
StopOnAnomaly = Annotated[
    bool,
    typer.Option("--stop-on-anomaly", help="With --follow: end the run after its first anomaly."),
]
Memory = Annotated[
    str | None,
    typer.Option(help="How much memory the check uses, such as 4g. The rest goes to disk."),
]
TimeLimit = Annotated[
    float | None,
    duration("--time-limit", "After that the runs are unknown, with what was found until then."),
]


class Engine(StrEnum):
    """What runs the rules."""

    auto = "auto"
    duckdb = "duckdb"
    spark = "spark"

    @property
    def given(self) -> EngineName | None:
        """None: the faster one."""
        return _GIVEN[self]


_GIVEN: Final[Mapping[Engine, EngineName | None]] = {
    Engine.auto: None,
    Engine.duckdb: "duckdb",
    Engine.spark: "spark",
}


EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="What runs the rules: DuckDB in Spark's tasks, Spark SQL alone, or the faster one.",
    ),
]
MinAcked = Annotated[
    int | None,
    typer.Option(min=1, help="With fewer acknowledged records a run is unknown."),
]
RelationName = Annotated[
    str | None,
    typer.Option(
        "--relation",
        metavar="NAME",
        help="Show a relation of the rules (docs: checkers), such as gone or steps, of one run; no"
        " verdict.",
    ),
]
Rows = Annotated[int, typer.Option(min=1, help="With --relation: how many rows, at most.")]
ToEdn = Annotated[Path | None, typer.Option(help="The file for the run as a history of Jepsen.")]


def check(
    runs: Runs,
    master: Master = None,
    remote: Remote = None,
    thorough: Thorough = False,
    plots: Plots = False,
    html: Html = None,
    junit: Junit = None,
    follow: Follow = False,
    stop_on_anomaly: StopOnAnomaly = False,
    to_edn: ToEdn = None,
    memory: Memory = None,
    time_limit: TimeLimit = None,
    engine: EngineOption = Engine.auto,
    min_acked: MinAcked = None,
    relation: RelationName = None,
    rows: Rows = 20,
    fail_on: FailOn = "anomaly",
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Check saved runs, or histories of Jepsen's Kafka workload, with Spark."""
    from neaptide.checkers.verdict import Options
    from neaptide.harness.checking.check import (
        SparkStart,
        check_and_report,
        check_spark,
        find_runs,
        load,
        open_runs,
        remote_of_environment,
        rows_of,
        write_history,
    )

    words = parse_fail_on(fail_on)
    if to_edn is not None and len(runs) != 1:
        raise UsageError("--to-edn writes one run: name one.")
    _check_following(runs, follow, stop_on_anomaly)
    _check_relation(runs, relation)
    check_spark(master, remote, memory)
    find_runs(runs)  # what is not there is said before Spark starts
    if (remote or remote_of_environment()) is None:
        find_java()
    begun = time.monotonic()
    early = None
    if follow:
        from neaptide.harness.checking.following import follow_run
        from neaptide.results.store import find_run

        early = follow_run(
            find_run(runs[0]),
            stop=stop_on_anomaly,
            say=lambda text: output.err.print(text, markup=False),
        )
    start = SparkStart(master, remote, rows=rows_of(runs), memory=memory)
    with output.reporting(1) as reporter, start as spark:
        opened = open_runs(spark, runs)
        if relation is not None:
            _show_relation(spark.session(), opened[0], relation, rows, json)
        directories = [material.directory for material in opened]
        reporter.report(f"checking {len(directories)} runs with Spark")
        load()
        options = Options(engine.given, thorough, min_acked)
        verdicts = check_and_report(
            spark.session(), opened, options=options, plots=plots, time_limit_s=time_limit
        )
        if to_edn is not None and opened[0].files["operations"]:
            write_history(spark, directories[0], to_edn)
    seconds = round(time.monotonic() - begun, 3)
    print_verdicts(directories, verdicts, seconds, json, early)
    write_pages(directories, verdicts, html, junit)
    raise typer.Exit(verdict_status(verdicts, words))


def _check_following(runs: list[str], follow: bool, stop: bool) -> None:
    from neaptide.checkers.histories.edn import SUFFIX

    if stop and not follow:
        raise UsageError("--stop-on-anomaly needs --follow.")
    if follow and (len(runs) != 1 or runs[0].endswith(SUFFIX) or "://" in runs[0]):
        raise UsageError("--follow follows one run that is on this machine: name one.")


def _check_relation(runs: list[str], name: str | None) -> None:
    from neaptide.checkers.rules.conditions import RELATIONS, TABLES
    from neaptide.clusters.nearest import did_you_mean

    names = [*TABLES, *(relation.name for relation in RELATIONS)]
    if name is not None and name not in names:
        meant = did_you_mean(name, names) or f"; it must be one of {', '.join(names)}."
        raise UsageError(f"There is no relation {name!r}{meant}")
    if name is not None and len(runs) != 1:
        raise UsageError("--relation shows one run: name one.")


def _show_relation(
    spark: SparkSession, material: Material, name: str, rows_max: int, json: bool
) -> NoReturn:
    from neaptide.checkers.check import relation

    rows = relation(spark, material, name, rows_max).to_pylist()
    if json:
        output.print_json({"run": str(material.directory), "relation": name, "rows": rows})
    else:
        for number, row in enumerate(rows, start=1):
            there = [(column, str(value)) for column, value in row.items() if value is not None]
            output.print_table(("column", "value"), there, f"{name}, row {number}")
        if not rows:
            output.out.print(f"{name} has no rows in this run.", markup=False)
    raise typer.Exit(Exit.AGREES)


def write_pages(
    directories: Sequence[Path],
    verdicts: Sequence[RunVerdict],
    html: Path | None,
    junit: Path | None,
) -> None:
    """What was asked for beside the table, and what CI shows. Raises StoreError."""
    from neaptide.harness.terminal import ci

    runs = [(d, v.to_json()) for d, v in zip(directories, verdicts, strict=True)]
    if ci.is_github():  # else nobody reads the records of a thousand runs once more
        ci.report(ci.judged(runs, [verdict.verdict == "valid" for verdict in verdicts]))
    if html is None and junit is None:
        return
    from neaptide.results.cases import cases
    from neaptide.results.junit import write_junit
    from neaptide.results.report.runs_page import write_runs_page

    judged = cases(runs)
    if junit is not None:
        write_junit(judged, junit)
    if html is not None:
        write_runs_page(judged, html)


def print_verdicts(
    directories: Sequence[Path],
    verdicts: Sequence[RunVerdict],
    seconds: float,
    json: bool,
    early: Sequence[Row] | None,
) -> None:
    """`early`: what was reported before the run was over; None: it was not followed."""
    if json:
        listed = [
            {**verdict.to_json(), "run": str(directory)}
            for directory, verdict in zip(directories, verdicts, strict=True)
        ]
        reported = {} if early is None else {"early": list(early)}
        output.print_json({"runs": listed, "seconds": seconds, **reported})
        return
    rows = [
        (v.run, v.verdict, v.outcome, str(v.operations), output.anomalies_text(v.anomalies))
        for v in verdicts
    ]
    output.print_table(("run", "verdict", "outcome", "operations", "anomalies"), rows)
    for verdict in verdicts:
        if verdict.allowed:
            allowed = output.anomalies_text(verdict.allowed)
            output.out.print(f"  {verdict.run}: allowed in this run: {allowed}", markup=False)
        for reason in verdict.reasons:
            output.out.print(f"  {verdict.run}: {reason}", markup=False)
