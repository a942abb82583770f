"""The command `replay`: a saved schedule on any system, on any host, as often as one likes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.java import find_java
from neaptide.clusters.hosts.place import check_place, parse_place
from neaptide.harness import output
from neaptide.harness.exits import Exit
from neaptide.harness.options import Host, Image, Json, KafkaHome, Nodes, RetriesUnknown, Seed


def replay(
    file: Annotated[Path, typer.Argument(help="A scenario file, such as explore saves them.")],
    system: Annotated[
        list[str] | None, typer.Option(help="A system to test, such as kafka:3.9.1. Repeatable.")
    ] = None,
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
    json: Json = False,
) -> None:
    """Play a saved schedule, and compare the outcome with the one in the file."""
    from neaptide.harness.checking import SparkStart
    from neaptide.harness.repro import Cell, report_to_ci, run_cells
    from neaptide.harness.systems import check_system_on, fetch, parse_systems
    from neaptide.nemesis.scenario import expected_outcome, load_scenario

    place = parse_place(host, image, nodes)
    scenario = load_scenario(file)
    systems = parse_systems(system or ["neaptide:0.11"], kafka_home, place.image)
    for one in systems:
        check_system_on(one, place)
        fetch(one)
    if twice:
        if place.name != "simulation":
            raise UsageError("--twice goes with --host simulation: no other run repeats exactly.")
        for one in systems:
            _play_twice(file, str(one))
    check_place(place, lambda line: output.err.print(line, markup=False))
    find_java()
    number = secrets.randbelow(2**31) if seed is None else seed
    output.err.print(f"seed {number}")
    todo = [Cell(scenario, str(file), one) for one in systems for _ in range(repeat)]
    spark = SparkStart()
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


def _play_twice(file: Path, system: str) -> None:
    """In two processes with different hash seeds. Raises where they differ: a bug of ours."""
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "neaptide.harness.simulation", str(file), system],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    if len(digests) != 1:
        raise RuntimeError(f"{file} on {system}: two plays of one schedule differ")
    output.err.print(f"{system}: played twice, the same bytes: {digests.pop()[:16]}")
