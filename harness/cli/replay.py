"""The command `replay`: a saved schedule on any system, on any host, as often as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.place import check_place, parse_place
from neaptide.harness.cli.options import (
    Host,
    Image,
    Json,
    KafkaHome,
    Master,
    Nodes,
    Quiet,
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
    from neaptide.nemesis.scenario import Scenario


def replay(
    file: Annotated[
        Path,
        typer.Argument(help="A scenario file of explore, nightly or shrink."),
    ],
    system: Systems = None,
    host: Host = "local",
    image: Image = None,
    nodes: Nodes = None,
    repeat: Annotated[int, typer.Option(min=1, help="How often it is played on each system.")] = 1,
    kafka_home: KafkaHome = None,
    twice: Annotated[
        bool, typer.Option("--twice", help="Play twice, and compare the runs (--host simulation).")
    ] = False,
    retries_unknown: RetriesUnknown = 0,
    seed: Seed = None,
    master: Master = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Play a saved schedule, and compare the outcome with the one in the file."""
    from neaptide.harness.checking.check import SparkStart, check_spark
    from neaptide.harness.scenarios import saved_schedule

    check_spark(master, None)
    from neaptide.harness.comparing.repro import Cell, report_to_ci, run_cells
    from neaptide.harness.scenarios.systems import check_system_on, fetch, parse_systems, place_of
    from neaptide.nemesis.scenario import expected_outcome, load_scenario

    if file.suffix == ".json":
        saved_schedule.load(file)  # which says what to do
    scenario = load_scenario(file)
    if scenario.run is not None:
        if twice or host != "local":
            raise UsageError(
                f"{file} says itself where it is played: leave out --host and --twice."
            )
        _replay_saved(scenario, file, system or [], repeat, retries_unknown, seed, json, master)
    place = parse_place(host, image, nodes)
    systems = parse_systems(system or [DEFAULT_SYSTEM], kafka_home, place.image)
    for one in systems:
        check_system_on(one, place)
        check_place(place_of(one, place), lambda line: output.err.print(line, markup=False))
        fetch(one)
    if twice:
        if place.name != "simulation":
            raise UsageError("--twice goes with --host simulation: no other run repeats exactly.")
        for one in systems:
            _play_twice(file, str(one))
    find_java()
    number = drawn(seed)
    output.note(f"seed {number}")
    todo = [Cell(scenario, str(file), one) for one in systems for _ in range(repeat)]
    spark = SparkStart(master)
    with output.reporting(len(todo)) as reporter:
        results = run_cells(
            todo, number, spark, reporter.report, place, retries_unknown=retries_unknown
        )
    spark.stop()
    report_to_ci(results)
    is_expected = {str(one): expected_outcome(scenario, one.like) for one in systems}
    agrees = all(result.agrees for result in results)
    if json:
        output.print_json({"results": [r.to_json() for r in results], "agrees": agrees})
    else:
        output.print_results(results)
    if any(result.observed == "unknown" for result in results):
        raise typer.Exit(Exit.UNKNOWN)
    good = all(
        result.agrees if is_expected[str(result.cell.system)] else result.observed == "held"
        for result in results
    )
    raise typer.Exit(Exit.AGREES if good else Exit.ANOMALY)


def _replay_saved(
    saved: Scenario,
    file: Path,
    systems: list[str],
    repeat: int,
    retries: int,
    seed: int | None,
    json: bool,
    master: str | None,
) -> NoReturn:
    """Each play is a command of its own that records; all are judged together."""
    from neaptide.harness.checking.check import SparkStart
    from neaptide.harness.comparing.replay_saved import Replayed, replay_saved
    from neaptide.harness.scenarios.saved_schedule import systems_of

    find_java()
    wanted = systems or systems_of(saved) or [DEFAULT_SYSTEM]
    with output.reporting(len(wanted) * repeat) as reporter, SparkStart(master) as spark:
        replayed = replay_saved(
            saved, file, wanted * repeat, spark.session, reporter.report, retries, seed
        )
    if json:
        agrees = all(one.agrees for one in replayed)
        output.print_json({"results": [one.to_json() for one in replayed], "agrees": agrees})
    else:
        columns = ("schedule", "system", "expected", "observed", "agrees", "anomalies")
        output.print_table(columns, [one.row(file.stem) for one in replayed])
        for one in replayed:
            for reason in one.reasons:
                output.out.print(f"  {one.system}: {reason}", markup=False)

    def good(one: Replayed) -> bool:
        return one.agrees if one.expected is not None else one.observed == "held"

    if any(one.observed == "unknown" for one in replayed):
        raise typer.Exit(Exit.UNKNOWN)
    raise typer.Exit(Exit.AGREES if all(map(good, replayed)) else Exit.ANOMALY)


def _play_twice(file: Path, system: str) -> None:
    """In two processes with different hash seeds. Raises where they differ: a bug of ours."""
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "neaptide.harness.play.simulation", str(file), system],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    if len(digests) != 1:
        raise RuntimeError(f"{file} on {system}: two plays of one schedule differ")
    output.err.print(f"{system}: played twice, the same bytes: {digests.pop()[:16]}")
