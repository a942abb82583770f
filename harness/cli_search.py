"""The commands of the search: `explore`. Options in, tables or JSON out, the same exit status."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from neaptide.clusters.errors import UsageError
from neaptide.harness import cli_sweep as show
from neaptide.harness import output
from neaptide.harness.exits import Exit

if TYPE_CHECKING:
    from neaptide.harness.explore import Asked

LAST_MESSAGES: Final = 8  # that are printed; --json has all

SEED_MAX = 2**31
DEFAULT_TIME_S = 30.0


_WHAT, _MODE, _HOW = "What is searched", "Mode: random schedules, or one of these", "How"
_BOUNDS, _ALL_ORDERS, _RESULT = "Bounds", "Bounds of --exhaustive and --priorities", "Result"


def _bound(of: str, unsaid: int = 0) -> Any:
    text = f"{of}. {unsaid} if you give none."
    return typer.Option(min=0, help=text, rich_help_panel=_ALL_ORDERS)


def explore(
    system: Annotated[
        str, typer.Option(help="Our own broker, such as neaptide:0.10.", rich_help_panel=_WHAT)
    ] = "neaptide:0.10",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this number of seeds.", rich_help_panel=_BOUNDS),
    ] = None,
    time_s: Annotated[
        float | None,
        typer.Option(
            "--time",
            min=1,
            help="Stop after this time in seconds. 30 without --seeds. With --mutants: for each.",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    first: Annotated[
        bool,
        typer.Option(
            "--first", help="Stop after the first loss that is found.", rich_help_panel=_BOUNDS
        ),
    ] = False,
    acks: Annotated[
        str,
        typer.Option(
            help="acks of the producers: 0, 1 or all. Of several, as 0,1,all, each record has one;"
            " only all is a promise then.",
            rich_help_panel=_WHAT,
        ),
    ] = "all",
    brokers: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=9,
            help="The number of brokers. 3 if you give none. Of 5 and more, three replicate each"
            " partition.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=9,
            help="The number of partitions. 1 if you give none.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    retention: Annotated[
        bool,
        typer.Option(
            "--retention",
            help="Give each record a segment of its own, and keep one segment.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    nemesis: Annotated[
        str | None,
        typer.Option(
            help="Faults, separated by commas: kill, hold, cut, pause, wait, stop, zombie, stale,"
            " consume, commit, control, client, alone, power_off, unplug, reassign, elect, depose."
            " If you give none: kill,hold,cut,pause,wait; with --swarm, all that it draws from.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting, such as min.insync.replicas=1. Repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="Look only for this outcome, such as diverged.", rich_help_panel=_WHAT),
    ] = None,
    save: Annotated[
        Path, typer.Option(help="The directory for found schedules.", rich_help_panel=_RESULT)
    ] = Path("schedules"),
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of processes. One for each core if you give none.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The first seed. If you give none, one is drawn and printed."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="A Spark master: its executors search. spark://HOST:7077", rich_help_panel=_HOW
        ),
    ] = None,
    histories: Annotated[
        Path | None,
        typer.Option(
            help="With --master: the directory for runs of what is found.", rich_help_panel=_RESULT
        ),
    ] = None,
    idempotence: Annotated[
        bool,
        typer.Option(
            "--idempotence",
            help="Use idempotent producers, which send a record again if it failed.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    invariants: Annotated[
        bool,
        typer.Option(
            "--invariants", help="Check the invariants after every event.", rich_help_panel=_HOW
        ),
    ] = False,
    mutants: Annotated[
        bool,
        typer.Option(
            "--mutants",
            help="Break one rule of the broker at a time, and search each such mutant.",
            rich_help_panel=_MODE,
        ),
    ] = False,
    swarm: Annotated[
        bool,
        typer.Option(
            "--swarm",
            help="Every seed draws its faults, acks, idempotence, brokers, partitions, retention,"
            " session timeout and min.insync.replicas. It tries steps, then single messages.",
            rich_help_panel=_MODE,
        ),
    ] = False,
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            help="Try every order of messages, within bounds.",
            rich_help_panel=_MODE,
        ),
    ] = False,
    priorities: Annotated[
        bool,
        typer.Option(
            "--priorities",
            help="Deliver messages in the order of random priorities (PCT). If you give none of the"
            " bounds, every seed draws them.",
            rich_help_panel=_MODE,
        ),
    ] = False,
    produces: Annotated[int | None, _bound("Number of records", 1)] = None,
    kills: Annotated[int | None, _bound("Number of kills", 1)] = None,
    restarts: Annotated[int | None, _bound("Number of restarts")] = None,
    timers: Annotated[int | None, _bound("Number of timers that fire")] = None,
    expiries: Annotated[int | None, _bound("Number of sessions that expire")] = None,
    reads: Annotated[int | None, _bound("Number of reads by consumers")] = None,
    operations: Annotated[
        int | None, _bound("Number of what operators ask for (reassign, elect, depose)")
    ] = None,
    fetches_only: Annotated[
        bool,
        typer.Option(
            "--fetches-only",
            help="All messages except fetches arrive at once.",
            rich_help_panel=_ALL_ORDERS,
        ),
    ] = False,
    states: Annotated[
        int,
        typer.Option(min=1, help="Stop after this number of states.", rich_help_panel=_ALL_ORDERS),
    ] = 1_000_000,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Search the simulation for schedules that lose records; shrink and save them."""
    from neaptide.harness.explore import Asked, faults_of

    if mutants + exhaustive + priorities + swarm > 1:
        raise UsageError("Choose one of --mutants, --swarm, --exhaustive and --priorities.")
    if master is not None and (mutants or exhaustive or priorities):
        raise UsageError("--master goes only with the default search, of random schedules.")
    if histories is not None and master is None:
        raise UsageError("--histories goes with --master; here, replay a schedule for its run.")
    if mutants and (brokers or partitions or retention):
        raise UsageError("--brokers, --partitions and --retention do not go with --mutants.")
    if idempotence and (mutants or swarm):
        raise UsageError("--idempotence does not go with --mutants or --swarm, which choose it.")
    first_seed = int.from_bytes(os.urandom(4), "big") % SEED_MAX if seed is None else seed
    if seeds is None and time_s is None and not mutants and not exhaustive:
        time_s = DEFAULT_TIME_S
    asked = Asked(
        system,
        first_seed,
        seeds,
        time_s,
        acks,
        faults_of(nemesis, swarm=swarm),
        _settings(setting or []),
        save,
        first,
        workers,
        invariants,
        outcome,
        master,
        histories,
        idempotence,
        swarm,
        brokers,
        partitions,
        retention,
    )
    if not exhaustive:
        output.err.print(f"seed {first_seed}")
    if mutants:
        show.mutants(asked, json=json)
    elif exhaustive or priorities:
        named = ("produces", "kills", "restarts", "timers", "expiries", "reads", "operations")
        counts = (produces, kills, restarts, timers, expiries, reads, operations)
        given = zip(named, counts, strict=True)
        bounds = {name: count for name, count in given if count is not None}
        search = show.exhaustive if exhaustive else show.priorities
        search(asked, bounds, states, fetches_only=fetches_only, json=json)
    else:
        _campaign(asked, json=json)


def _campaign(asked: Asked, *, json: bool) -> None:
    from neaptide.harness.explore import explore as search
    from neaptide.nemesis.search.campaign import Campaign

    total = float(asked.seeds) if asked.seeds is not None else float(asked.time_s or 0)
    with output.reporting(total) as reporter:

        def report(campaign: Campaign, elapsed_s: float) -> None:
            done = float(campaign.seeds) if asked.seeds is not None else min(elapsed_s, total)
            text = f"{campaign.schedules} schedules, {len(campaign.losses)} found"
            reporter.report(text, done)

        found = search(asked, report)
    if json:
        output.print_json(found)
    else:
        print_found(found)
    raise typer.Exit(exit_of(found))


def exit_of(found: dict[str, Any]) -> Exit:
    """A loss counts whether or not a scenario file can repeat it."""
    is_found = found["found"] or found["broken"] or found["not_portable"]
    return Exit.ANOMALY if is_found else Exit.AGREES


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _found(found: dict[str, Any]) -> str:
    if found["found_in_all"]:
        return str(found["found_in_all"])
    if found["not_portable"]:
        return "no scenario"
    return "no loss" if found["broken"] else "none"


def print_found(found: dict[str, Any]) -> None:
    rate = found["schedules"] / max(found["seconds"], 0.001)
    output.out.print(
        f"{found['system']}: {found['schedules']} schedules of {found['seeds']} seeds in"
        f" {found['seconds']:.1f} s ({rate:,.0f} a second),"
        f" {_found(found)} found"
        + (f", {_counted(len(found['broken']), 'invariant')} broken" if found["broken"] else "")
    )
    for one in found["not_portable"]:
        output.out.print(
            f"{one['outcome']} by its timing alone (seed {one['seed']}), which no scenario file can"
            f" hold: {one['schedule']}\n"
            f"  again: {one['command']}",
            markup=False,
        )
    for one in found["broken"]:
        last = "; ".join(one["messages"][-LAST_MESSAGES:])
        output.out.print(
            f"{one['invariant']} is broken (seed {one['seed']}): {one['sentence']}\n"
            f"  {one['schedule']}\n"
            f"  {one['evidence']}\n"
            + (f"  the last messages between brokers: {last}\n" if last else "")
            + f"  again: {one['command']}",
            markup=False,
        )
    rows = [
        (
            one["outcome"],
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
