"""The commands of the search: `explore`. Options in, tables or JSON out, the same exit status."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from clusters.errors import UsageError
from harness import output
from harness.exits import Exit

SEED_MAX = 2**31
DEFAULT_TIME_S = 30.0


def explore(
    system: Annotated[str, typer.Option(help="As neaptide:0.10.")] = "neaptide:0.10",
    seeds: Annotated[int | None, typer.Option(min=1, help="So many seeds, then the end.")] = None,
    time_s: Annotated[
        float | None, typer.Option("--time", min=1, help="Seconds; 30 where nothing is said.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="End with the first find.")] = False,
    acks: Annotated[str, typer.Option(help="1 or all.")] = "all",
    nemesis: Annotated[
        str, typer.Option(help="Faults: kill,hold,cut,pause,wait,power_off.")
    ] = "kill,hold,cut,pause,wait",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as min.insync.replicas=1.")
    ] = None,
    save: Annotated[Path, typer.Option(help="Where found schedules go.")] = Path("schedules"),
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="The first seed; drawn and printed if not given.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document only.")] = False,
) -> None:
    """Search the simulation for schedules that lose, shrink them, save them as scenario files."""
    from harness.explore import Asked, parse_search_faults
    from harness.explore import explore as search
    from nemesis.search.campaign import Campaign

    first_seed = int.from_bytes(os.urandom(4), "big") % SEED_MAX if seed is None else seed
    if seeds is None and time_s is None:
        time_s = DEFAULT_TIME_S
    asked = Asked(
        system,
        first_seed,
        seeds,
        time_s,
        acks,
        parse_search_faults(nemesis),
        _settings(setting or []),
        save,
        first,
        workers,
    )
    output.err.print(f"seed {first_seed}")
    total = float(seeds) if seeds is not None else float(time_s or 0)

    with output.telling(total) as teller:

        def tell(campaign: Campaign, elapsed_s: float) -> None:
            done = float(campaign.seeds) if seeds is not None else min(elapsed_s, total)
            text = f"{campaign.schedules} schedules, {len(campaign.losses)} found"
            teller.tell(text, done)

        found = search(asked, tell)
    if json:
        output.print_json(found)
    else:
        _print_found(found)
    raise typer.Exit(Exit.ANOMALY if found["found"] else Exit.AGREES)


def _print_found(found: dict[str, Any]) -> None:
    rate = found["schedules"] / max(found["seconds"], 0.001)
    output.out.print(
        f"{found['system']}: {found['schedules']} schedules of {found['seeds']} seeds in"
        f" {found['seconds']:.1f} s ({rate:,.0f} a second),"
        f" {found['found_in_all'] or 'none'} found"
    )
    if found["not_portable"]:
        output.out.print(
            f"{found['not_portable']} more do it only by their timing, and are not saved"
        )
    rows = [
        (
            output.coloured(one["outcome"]),
            str(one["seed"]),
            f"{one['steps']} → {one['shrunk_steps']}",
            one["schedule"],
        )
        for one in found["found"]
    ]
    if rows:
        output.print_table(("outcome", "seed", "steps", "schedule"), rows)
        output.out.print(
            f"to play one: neaptide replay {found['found'][0]['schedule']}"
            f" --system {found['system']}",
            markup=False,
        )


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--set {pair!r} must be NAME=VALUE, as min.insync.replicas=1.")
        settings[name] = value
    return settings
