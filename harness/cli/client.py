"""The command `client`: what a client library keeps, on which brokers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.harness.cli import completion
from neaptide.harness.cli.options import (
    Json,
    Master,
    Page,
    Quiet,
    Repeat,
    Resume,
    RetriesUnknown,
    Seed,
    Systems,
    Verbose,
    drawn,
)
from neaptide.harness.scenarios.systems import DEFAULT_SYSTEM
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit

if TYPE_CHECKING:
    from neaptide.results.matrix import Matrix


def client(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM [ARGUMENT]...",
            help="A client that ships (confluent-kafka, kafka-python, aiokafka, java or"
            " java:VERSION), or a program of yours, with its arguments.",
        ),
    ],
    system: Systems = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            help="A scenario that depends on a client. Repeatable. All if you give none.",
            autocompletion=completion.scenarios,
        ),
    ] = None,
    repeat: Repeat = 1,
    page: Page = None,
    resume: Resume = False,
    retries_unknown: RetriesUnknown = 0,
    seed: Seed = None,
    master: Master = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Play the scenarios that depend on a client with a client of yours: what it keeps."""
    from neaptide.harness.checking.check import SparkStart, check_spark
    from neaptide.harness.comparing.client import plan
    from neaptide.harness.comparing.repro import report_to_ci, run_cells
    from neaptide.results.matrix import assemble
    from neaptide.results.report.matrix_page import write_matrix
    from neaptide.results.store import runs_directory
    from neaptide.workloads.errors import ClientsError
    from neaptide.workloads.program import find_program

    check_spark(master, None)
    try:
        found = find_program(program)
    except ClientsError as error:
        raise UsageError(str(error)) from None
    planned = plan(found, system or [DEFAULT_SYSTEM], scenario or [], repeat)
    for name, why in planned.not_played.items():
        output.note(f"{name} is not played: {why}")
    if not planned.cells:
        raise UsageError(f"There is nothing to play with {found}: see `neaptide client --help`.")
    find_java()
    number = drawn(seed)
    output.note(f"seed {number}; the client is {found}")
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
    report_to_ci(results)
    matrix = assemble(
        [result.run for result in results], client=str(found), not_played=planned.not_played
    )
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    name = re.sub(r"[^\w.-]+", "-", found.client)
    path = write_matrix(matrix, page or runs_directory() / f"client-{name}-{stamp}.html")
    if json:
        output.print_json(matrix.to_json())
    else:
        _print(matrix, path)
    counts = matrix.counts
    if counts["disagrees"]:
        raise typer.Exit(Exit.ANOMALY)
    raise typer.Exit(Exit.UNKNOWN if counts["unknown"] else Exit.AGREES)


def _print(matrix: Matrix, page: Path) -> None:
    output.print_matrix(matrix)
    for cell in matrix.cells:
        for each in cell.repetitions:
            for reason in each.reasons:
                output.out.print(f"  {cell.scenario} on {cell.system}: {reason}", markup=False)
    output.out.print(f"page: {output.shown(page)}", markup=False)
