"""Prints the matrix scenario × system and writes it as a page; finds the saved runs for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.harness.checking.check import SparkStart, check_and_report
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.terminal import output
from neaptide.harness.terminal.version import VERSION
from neaptide.nemesis.scenario import Scenario, lacks
from neaptide.results.errors import RunUnreadableError
from neaptide.results.matrix import Matrix, assemble
from neaptide.results.report.matrix_page import write_matrix
from neaptide.results.run import RUN_FILE, read_run
from neaptide.results.store import find_run, runs_directory
from neaptide.results.verdicts import read_verdict, why_not_believed


def scenario_runs(names: Sequence[str]) -> list[Path]:
    """The run directories that are named, and those inside a directory that is none itself."""
    found: list[Path] = []
    for name in names:
        directory = Path(name) if Path(name).is_dir() else find_run(name)
        if (directory / RUN_FILE).exists():
            found.append(directory.resolve())
        else:
            inside = (path.parent for path in sorted(directory.glob(f"*/{RUN_FILE}")))
            found += [path.resolve() for path in inside if not path.is_symlink()]
    chosen = [path for path in dict.fromkeys(found) if read_run(path).kind == "scenario"]
    if not chosen:
        raise UsageError(f"There is no run of a scenario in {', '.join(names)}.")
    return chosen


def check_missing(runs: Sequence[Path], master: str | None = None) -> None:
    """Judges the runs that a command which was interrupted had not come to judge, and those that
    other rules have judged."""
    missing = [run for run in runs if not _is_judged(run)]
    if not missing:
        return
    find_java()
    output.note(f"checking {len(missing)} runs with Spark")
    with SparkStart(master) as spark:
        check_and_report(spark.session(), missing)


def _is_judged(run: Path) -> bool:
    try:
        return why_not_believed(run, read_verdict(run)) is None
    except RunUnreadableError:
        return False


def report_matrix(runs: Sequence[Path], file: Path | None, *, quiet: bool) -> Matrix:
    """Prints the matrix unless `quiet`, and writes it: to `file`, or beside the runs."""
    matrix = assemble(runs, not_served(runs))
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    path = write_matrix(matrix, file or runs_directory() / f"matrix-{stamp}.html")
    if not quiet:
        output.print_matrix(matrix)
        output.out.print(f"matrix: {output.shown(path)}", markup=False)
    return matrix


def not_served(runs: Sequence[Path]) -> dict[tuple[str, str], str]:
    """Of the scenarios that ship and the systems of these runs: what a system lacks."""
    systems = {read_run(run).system for run in runs}
    return {
        (scenario.name, system): what
        for _, scenario in documented([])
        for system in systems
        if (what := lacks(scenario, system)) is not None
    }


def finished_runs(
    scenario: Scenario, system: str, host: str, clients: Mapping[str, Any] | None
) -> list[Path]:
    """Saved runs of this very scenario, with these clients, that came to their end, oldest first.

    What is changed in a file since, or in neaptide, makes its runs those of another scenario.
    """
    found = []
    for path in sorted(runs_directory().glob(f"*/{RUN_FILE}")):
        directory = path.parent
        if directory.is_symlink():
            continue
        try:
            run = read_run(directory)
        except RunUnreadableError:
            continue
        same = (run.name, run.system, run.host, run.neaptide) == (
            scenario.name,
            system,
            host,
            VERSION,
        )
        is_over = run.status == "finished" and run.clients == clients
        if same and is_over and run.schedule == scenario.document:
            found.append(directory)
    return found
