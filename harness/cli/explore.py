"""`neaptide explore` and its modes. Options in, tables or JSON out, the same exit status.

A mode is a command of its own, with the options that it uses. Without a mode, it is `random`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from neaptide.clusters.errors import UsageError
from neaptide.harness.cli import completion
from neaptide.harness.cli import sweep as show
from neaptide.harness.cli.options import Json, Quiet, Verbose, duration
from neaptide.harness.scenarios.systems import DEFAULT_SYSTEM
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit

if TYPE_CHECKING:
    from neaptide.harness.search.explore import Asked

LAST_MESSAGES: Final = 8  # that are printed; --json has all

SEED_MAX = 2**31
DEFAULT_TIME_S = 30.0
MODES: Final = ("random", "swarm", "exhaustive", "priorities", "mutants")

_WHAT, _HOW, _BOUNDS, _RESULT = "What is searched", "How", "Bounds", "Result"
_ORDERS = "What may happen"


class _Modes(TyperGroup):
    """`explore --system …` is `explore random --system …`, and `--swarm` is the mode swarm."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell completes
            completed: list[str] = super().parse_args(ctx, args)
            return completed
        flags = [f"--{mode}" for mode in MODES]
        named = [arg.removeprefix("--") for arg in args if arg in flags]
        if len(set(named)) > 1:
            raise UsageError(f"Choose one of {' and '.join(sorted(set(named)))}.")
        rest = [arg for arg in args if arg not in flags]
        if named and rest[:1] and rest[0] in MODES:
            raise UsageError(f"--{named[0]}: the mode is {rest[0]}; choose one.")
        if named or not rest or (rest[0].startswith("-") and rest[0] != "--help"):
            rest = [named[0] if named else MODES[0], *rest]
        parsed: list[str] = super().parse_args(ctx, rest)
        return parsed


app = typer.Typer(cls=_Modes, help="Search the simulation for schedules that lose records.")

System = Annotated[
    str,
    typer.Option(
        "--system",
        "-s",
        help="Our own broker, such as neaptide:0.10. The simulation has no other.",
        autocompletion=completion.systems,
        rich_help_panel=_WHAT,
    ),
]
Acks = Annotated[
    str,
    typer.Option(
        help="acks of the producers: 0, 1 or all. Of several, as 0,1,all, each record has one; only"
        " all is a promise then.",
        rich_help_panel=_WHAT,
    ),
]
Brokers = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=9,
        help="The number of brokers. 3 if you give none. Of 5 and more, three replicate each"
        " partition.",
        rich_help_panel=_WHAT,
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        min=1, max=9, help="The number of partitions. 1 if you give none.", rich_help_panel=_WHAT
    ),
]
Retention = Annotated[
    bool,
    typer.Option(
        "--retention",
        help="Give each record a segment of its own, and keep one segment.",
        rich_help_panel=_WHAT,
    ),
]
Nemesis = Annotated[
    str | None,
    typer.Option(
        help="Faults, separated by commas: kill, hold, cut, pause, wait, stop, zombie, stale,"
        " consume, commit, control, client, alone, power_off, unplug, reassign, elect, depose."
        " If you give none: kill,hold,cut,pause,wait; in a swarm, all that it draws from.",
        rich_help_panel=_WHAT,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting, such as min.insync.replicas=1. Repeatable.",
        rich_help_panel=_WHAT,
    ),
]
Outcome = Annotated[
    str | None,
    typer.Option(help="Look only for this outcome, such as diverged.", rich_help_panel=_WHAT),
]
Idempotence = Annotated[
    bool,
    typer.Option(
        "--idempotence",
        help="Use idempotent producers, which send a record again if it failed.",
        rich_help_panel=_WHAT,
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Stop after this number of seeds.", rich_help_panel=_BOUNDS),
]
Time = Annotated[
    float | None,
    duration("--time", "Stop after this time. 30 s without --seeds.", least_s=1, panel=_BOUNDS),
]
First = Annotated[
    bool,
    typer.Option("--first", help="Stop after the first loss found.", rich_help_panel=_BOUNDS),
]
States = Annotated[
    int, typer.Option(min=1, help="Stop after this number of states.", rich_help_panel=_BOUNDS)
]
Save = Annotated[
    Path,
    typer.Option("--save", "-o", help="Where found schedules go.", rich_help_panel=_RESULT),
]
Histories = Annotated[
    Path | None,
    typer.Option(
        help="With --master: the directory for runs of what is found.", rich_help_panel=_RESULT
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The number of processes. One for each core if you give none.",
        rich_help_panel=_HOW,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="A Spark master: its executors search. spark://HOST:7077", rich_help_panel=_HOW
    ),
]
Invariants = Annotated[
    bool,
    typer.Option(
        "--invariants", help="Check the invariants after every event.", rich_help_panel=_HOW
    ),
]
Always = Annotated[bool, typer.Option("--invariants", hidden=True)]  # this mode always does
Seed = Annotated[
    int | None, typer.Option(help="The first seed. If you give none, one is drawn and printed.")
]
FetchesOnly = Annotated[
    bool,
    typer.Option(
        "--fetches-only",
        help="All messages except fetches arrive at once.",
        rich_help_panel=_ORDERS,
    ),
]


def _count(of: str, unsaid: int = 0) -> Any:
    text = f"Number of {of}. {unsaid} if you give none."
    return typer.Option(min=0, help=text, rich_help_panel=_ORDERS)


Produces = Annotated[int | None, _count("records", 1)]
Kills = Annotated[int | None, _count("kills", 1)]
Restarts = Annotated[int | None, _count("restarts")]
Timers = Annotated[int | None, _count("timers that fire")]
Expiries = Annotated[int | None, _count("sessions that expire")]
Reads = Annotated[int | None, _count("reads by consumers")]
Operations = Annotated[int | None, _count("what operators ask for (reassign, elect, depose)")]
Transactions = Annotated[int | None, _count("what producers of transactions do (transact)")]


@app.command("random")
def random_(
    system: System = DEFAULT_SYSTEM,
    acks: Acks = "all",
    brokers: Brokers = None,
    partitions: Partitions = None,
    retention: Retention = False,
    nemesis: Nemesis = None,
    setting: Set = None,
    outcome: Outcome = None,
    idempotence: Idempotence = False,
    seeds: Seeds = None,
    time_s: Time = None,
    first: First = False,
    save: Save = Path("schedules"),
    histories: Histories = None,
    workers: Workers = None,
    master: Master = None,
    invariants: Invariants = False,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Draw schedules step by step; shrink and save those that lose. The mode if you name none."""
    from neaptide.harness.search.explore import Asked, faults_of

    _check_histories(histories, master)
    _campaign(
        Asked(
            system=system,
            seed=_first_seed(seed),
            seeds=seeds,
            time_s=_limit_s(seeds, time_s),
            acks=acks,
            faults=faults_of(nemesis),
            settings=_settings(setting or []),
            save=save,
            first=first,
            workers=workers,
            invariants=invariants,
            outcome=outcome,
            master=master,
            histories=histories,
            idempotence=idempotence,
            brokers=brokers,
            partitions=partitions,
            retention=retention,
        ),
        json=json,
    )


@app.command()
def swarm(
    system: System = DEFAULT_SYSTEM,
    acks: Acks = "all",
    nemesis: Nemesis = None,
    setting: Set = None,
    outcome: Outcome = None,
    seeds: Seeds = None,
    time_s: Time = None,
    first: First = False,
    save: Save = Path("schedules"),
    histories: Histories = None,
    workers: Workers = None,
    master: Master = None,
    invariants: Invariants = False,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Every seed draws what it searches, as faults, acks, brokers; steps, then single messages."""
    from neaptide.harness.search.explore import Asked, faults_of

    _check_histories(histories, master)
    _campaign(
        Asked(
            system=system,
            seed=_first_seed(seed),
            seeds=seeds,
            time_s=_limit_s(seeds, time_s),
            acks=acks,
            faults=faults_of(nemesis, swarm=True),
            settings=_settings(setting or []),
            save=save,
            first=first,
            workers=workers,
            invariants=invariants,
            outcome=outcome,
            master=master,
            histories=histories,
            swarm=True,
        ),
        json=json,
    )


@app.command()
def exhaustive(
    system: System = DEFAULT_SYSTEM,
    acks: Acks = "all",
    brokers: Brokers = None,
    partitions: Partitions = None,
    retention: Retention = False,
    nemesis: Nemesis = None,
    setting: Set = None,
    outcome: Outcome = None,
    idempotence: Idempotence = False,
    produces: Produces = None,
    kills: Kills = None,
    restarts: Restarts = None,
    timers: Timers = None,
    expiries: Expiries = None,
    reads: Reads = None,
    operations: Operations = None,
    transactions: Transactions = None,
    fetches_only: FetchesOnly = False,
    time_s: Annotated[
        float | None, duration("--time", "Stop after this time.", least_s=1, panel=_BOUNDS)
    ] = None,
    states: States = 1_000_000,
    workers: Workers = None,
    invariants: Always = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Try every order of messages, within bounds, and check the invariants after each."""
    from neaptide.harness.search.explore import Asked, faults_of

    asked = Asked(
        system=system,
        seed=0,
        seeds=None,
        time_s=time_s,
        acks=acks,
        faults=faults_of(nemesis),
        settings=_settings(setting or []),
        workers=workers,
        outcome=outcome,
        idempotence=idempotence,
        brokers=brokers,
        partitions=partitions,
        retention=retention,
    )
    bounds = _given(produces, kills, restarts, timers, expiries, reads, operations, transactions)
    show.exhaustive(asked, bounds, states, fetches_only=fetches_only, json=json)


@app.command()
def priorities(
    system: System = DEFAULT_SYSTEM,
    acks: Acks = "all",
    brokers: Brokers = None,
    partitions: Partitions = None,
    retention: Retention = False,
    nemesis: Nemesis = None,
    setting: Set = None,
    outcome: Outcome = None,
    idempotence: Idempotence = False,
    produces: Produces = None,
    kills: Kills = None,
    restarts: Restarts = None,
    timers: Timers = None,
    expiries: Expiries = None,
    reads: Reads = None,
    operations: Operations = None,
    transactions: Transactions = None,
    fetches_only: FetchesOnly = False,
    seeds: Seeds = None,
    time_s: Time = None,
    save: Save = Path("schedules"),
    workers: Workers = None,
    invariants: Always = False,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Deliver messages by random priorities (PCT). Without numbers, every seed draws them."""
    from neaptide.harness.search.explore import Asked, faults_of

    asked = Asked(
        system=system,
        seed=_first_seed(seed),
        seeds=seeds,
        time_s=_limit_s(seeds, time_s),
        acks=acks,
        faults=faults_of(nemesis),
        settings=_settings(setting or []),
        save=save,
        workers=workers,
        outcome=outcome,
        idempotence=idempotence,
        brokers=brokers,
        partitions=partitions,
        retention=retention,
    )
    bounds = _given(produces, kills, restarts, timers, expiries, reads, operations, transactions)
    show.priorities(asked, bounds, fetches_only=fetches_only, json=json)


@app.command()
def mutants(
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            "-s",
            help="Only those that break a rule of this one, such as neaptide:2.1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    setting: Set = None,
    seeds: Seeds = None,
    time_s: Annotated[
        float | None,
        duration(
            "--time", "Stop after this time, for each. 20 s without --seeds.", 1, panel=_BOUNDS
        ),
    ] = None,
    workers: Workers = None,
    seed: Seed = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Break one rule of the broker at a time, and search each such mutant."""
    from neaptide.harness.search.explore import Asked

    asked = Asked(
        system=system or "",
        seed=_first_seed(seed),
        seeds=seeds,
        time_s=time_s,
        settings=_settings(setting or []),
        workers=workers,
    )
    show.mutants(asked, json=json)


def _first_seed(given: int | None) -> int:
    seed = int.from_bytes(os.urandom(4), "big") % SEED_MAX if given is None else given
    output.note(f"seed {seed}")
    return seed


def _limit_s(seeds: int | None, time_s: float | None) -> float | None:
    return DEFAULT_TIME_S if seeds is None and time_s is None else time_s


def _check_histories(histories: Path | None, master: str | None) -> None:
    if histories is not None and master is None:
        raise UsageError("--histories goes with --master; here, replay a schedule for its run.")


def _given(*counts: int | None) -> dict[str, int]:
    """The bounds that were given, by the names of Counts."""
    from neaptide.nemesis.search.deliveries import Counts

    named = zip(Counts._fields, counts, strict=True)
    return {name: count for name, count in named if count is not None}


def _campaign(asked: Asked, *, json: bool) -> None:
    from neaptide.harness.search.explore import explore as search
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
