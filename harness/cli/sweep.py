"""What `explore mutants`, `exhaustive` and `priorities` show, and their exit status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit

if TYPE_CHECKING:
    from neaptide.harness.search.explore import Asked

Bounds = Mapping[str, int]  # by the names of Counts; empty: none was given


def mutants(asked: Asked, *, json: bool) -> None:
    """Status 1 where a mutant was not found, no test shows it, and nothing hides it."""
    from neaptide.harness.search.sweep import mutants as hunt
    from neaptide.harness.search.sweep import mutants_of
    from neaptide.nemesis.search.hunt import Hunted

    count = len(mutants_of(asked.system))
    with output.reporting(count) as reporter:

        def report(done: int, one: Hunted) -> None:
            reporter.report(f"{done} of {count}: {one.name} {one.outcome or 'not found'}", done)

        found = hunt(asked, report)
    if json:
        output.print_json(found)
    else:
        _print_mutants(found)
    raise typer.Exit(Exit.ANOMALY if found["unexplained"] else Exit.AGREES)


def _print_mutants(found: dict[str, Any]) -> None:
    rows = [
        (
            one["name"],
            one["breaks"],
            one["sentence"],
            one["outcome"] or ("cannot be found" if one["hidden"] else "not found"),
            str(one["schedules"]),
            f"{one['steps']} → {one['shrunk_steps']}" if one["outcome"] else "",
        )
        for one in found["mutants"]
    ]
    output.print_table(("mutant", "of", "what is broken", "found", "schedules", "steps"), rows)
    output.out.print(f"{found['found']} of {found['of']} found in {found['seconds']:.0f} s")
    for one in found["mutants"]:
        if one["outcome"] is None:
            shown = one["shown"] and f"not found; the tests show it by {one['shown']}"
            why = one["hidden"] or shown or "not found, and nothing says why: search longer"
            output.out.print(f"{one['name']}: {why}", markup=False)


def exhaustive(
    asked: Asked, bounds: Bounds, states: int, *, fetches_only: bool, json: bool
) -> None:
    from neaptide.harness.search.sweep import BOUNDS, Deliveries
    from neaptide.harness.search.sweep import exhaustive as search
    from neaptide.nemesis.search.exhaustive import Searched

    with output.reporting(float(states)) as reporter:

        def report(searched: Searched) -> None:
            reporter.report(f"{searched.states} states", float(searched.states))

        given = BOUNDS._replace(**bounds)
        found = search(asked, Deliveries(given, states, fetches_only), report)
    if not json:
        end = "exhausted" if found["exhausted"] else f"ended by {found['ended_by']}"
        output.out.print(
            f"{found['system']}: {found['states']} distinct states, {found['transitions']}"
            f" transitions in {found['seconds']:.1f} s ({found['states_per_second']} states a"
            f" second), {end}"
        )
    _show(found, json=json)


def priorities(asked: Asked, bounds: Bounds, *, fetches_only: bool, json: bool) -> None:
    from neaptide.harness.search.sweep import BOUNDS, Deliveries
    from neaptide.harness.search.sweep import priorities as search
    from neaptide.nemesis.search.campaign import Campaign

    total = float(asked.seeds or asked.time_s or 0)
    with output.reporting(total) as reporter:

        def report(campaign: Campaign, elapsed_s: float) -> None:
            done = float(campaign.seeds) if asked.seeds is not None else min(elapsed_s, total)
            reporter.report(f"{campaign.schedules} runs", done)

        given = BOUNDS._replace(**bounds) if bounds else None
        found = search(asked, Deliveries(given, fetches_only=fetches_only), report)
    if not json:
        output.out.print(f"{found['system']}: {found['runs']} runs in {found['seconds']:.1f} s")
    _show(found, json=json)


def _show(found: dict[str, Any], *, json: bool) -> None:
    if json:
        output.print_json(found)
    elif found["outcome"] is None:
        output.out.print("nothing found")
    else:
        output.out.print(
            f"{found['outcome']}, {found['moves']} → {found['shrunk_moves']} moves", markup=False
        )
        if found["sentence"]:
            output.out.print(f"it should be so: {found['sentence']}", markup=False)
            output.out.print(f"seen: {found['evidence']}", markup=False)
        for line in found["path"]:
            output.out.print(f"  {line}", markup=False)
        if found.get("schedule"):
            output.out.print(f"in steps: {found['schedule']}", markup=False)
        if found.get("command"):
            output.out.print(f"again: {found['command']}", markup=False)
    raise typer.Exit(Exit.ANOMALY if found["outcome"] else Exit.AGREES)
