"""`neaptide check`: saved runs and histories in; a table, JSON, JUnit XML, pages out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusters.errors import UsageError
from clusters.hosts.java import find_java
from harness import output
from harness.exits import verdict_status
from harness.options import Json

if TYPE_CHECKING:
    from checkers.verdict import RunVerdict


def check(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run directories, their names, latest, or .edn histories of Jepsen."),
    ],
    master: Annotated[str | None, typer.Option(help="A Spark master, as local[4].")] = None,
    thorough: Annotated[
        bool,
        typer.Option(help="Take measures too, and look for what is normal (docs/checkers.md)."),
    ] = False,
    plots: Annotated[
        bool, typer.Option("--plots", help="Draw how the load went, in each run's report.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page of all these runs, the worst first.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write JUnit XML: a run is a test case.")
    ] = None,
    to_edn: Annotated[
        Path | None, typer.Option(help="Write the one run as a history for Jepsen, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Check saved runs, and histories of Jepsen's Kafka workload, with Spark."""
    from harness.checking import SparkStart, check_and_report, histories_as_runs, write_history

    if to_edn is not None and len(runs) != 1:
        raise UsageError("--to-edn writes one run: name one.")
    find_java()
    begun = time.monotonic()
    spark = SparkStart(master)
    with output.telling(1) as teller:
        directories = histories_as_runs(spark, runs)
        teller.tell(f"checking {len(directories)} runs with Spark")
        verdicts = check_and_report(spark.session(), directories, thorough=thorough, plots=plots)
        if to_edn is not None:
            write_history(spark, directories[0], to_edn)
    spark.stop()
    seconds = round(time.monotonic() - begun, 3)
    write_pages(directories, verdicts, html, junit)
    print_verdicts(directories, verdicts, seconds, json)
    raise typer.Exit(verdict_status(verdicts))


def write_pages(
    directories: Sequence[Path],
    verdicts: Sequence[RunVerdict],
    html: Path | None,
    junit: Path | None,
) -> None:
    """What was asked for beside the table. Raises StoreError."""
    if html is None and junit is None:
        return
    from results.cases import cases
    from results.junit import write_junit
    from results.report.runs_page import write_runs_page

    judged = cases(zip(directories, (v.to_json() for v in verdicts), strict=True))
    if junit is not None:
        write_junit(judged, junit)
    if html is not None:
        write_runs_page(judged, html)


def print_verdicts(
    directories: Sequence[Path], verdicts: Sequence[RunVerdict], seconds: float, json: bool
) -> None:
    if json:
        listed = [
            {**verdict.to_json(), "run": str(directory)}
            for directory, verdict in zip(directories, verdicts, strict=True)
        ]
        output.print_json({"runs": listed, "seconds": seconds})
        return
    rows = [
        (v.run, v.verdict, v.outcome, str(v.operations), output.anomalies_text(v.anomalies))
        for v in verdicts
    ]
    output.print_table(("run", "verdict", "outcome", "operations", "anomalies"), rows)
    for verdict in verdicts:
        for reason in verdict.reasons:
            output.out.print(f"  {verdict.run}: {reason}", markup=False)
