"""The options that several commands have, each with its one line of help."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from neaptide.clusters.duration import parse_duration_s
from neaptide.harness.cli import completion
from neaptide.harness.terminal import output

# The groups in which `--help` shows options.
CLUSTER: Final = "Cluster"
LOAD: Final = "Load"
FAULT: Final = "Faults"
VERDICT: Final = "Verdict"


def duration(name: str, text: str, least_s: float = 0, panel: str | None = None) -> Any:
    """An option that says how long; its value is in seconds."""

    def parse(given: str) -> float:
        try:
            seconds = parse_duration_s(given)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None
        if seconds < least_s:
            raise typer.BadParameter(f"{given!r} is less than {least_s:g} s.")
        return seconds

    return typer.Option(name, parser=parse, metavar="DURATION", help=text, rich_help_panel=panel)


def drawn(seed: int | None) -> int:
    """The seed that was given, or a new one."""
    return secrets.randbelow(2**31) if seed is None else seed


Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print results and errors only.", callback=output.be_quiet),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print each step and fault as a line, and where an error comes from.",
        callback=output.be_verbose,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Systems = Annotated[
    list[str] | None,
    typer.Option(
        "--system",
        "-s",
        help="A system to test, such as kafka:3.9.1. Repeatable.",
        autocompletion=completion.systems,
    ),
]
Host = Annotated[
    str,
    typer.Option(
        help="Where brokers run: local, netns, docker, ssh:me@h1,h2, or simulation.",
        autocompletion=completion.hosts,
        rich_help_panel=CLUSTER,
    ),
]
Image = Annotated[
    str | None,
    typer.Option(help="The image of the brokers, with --host docker.", rich_help_panel=CLUSTER),
]
Nodes = Annotated[
    Path | None,
    typer.Option(help="A file that names the machines, with --host ssh.", rich_help_panel=CLUSTER),
]
Repeat = Annotated[
    int, typer.Option(min=1, help="How often each scenario is played on each system.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Play only what the runs directory does not have yet.")
]
Page = Annotated[Path | None, typer.Option("--page", "-o", help="Where the page goes: FILE.html.")]
Matrix = Annotated[
    Path | None,
    typer.Option("--matrix", "-o", help="Where the matrix goes: FILE.html, .md or .json."),
]
KafkaHome = Annotated[
    Path | None,
    typer.Option(
        help="The directory of an unpacked Apache Kafka, for kafka:home.", rich_help_panel=CLUSTER
    ),
]
RetriesUnknown = Annotated[
    int,
    typer.Option(
        "--retries-unknown",
        min=0,
        help="Repeat a run that proved nothing, at most N times. An anomaly is never repeated.",
        rich_help_panel=VERDICT,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="The Spark master that checks: local[4], spark://HOST:7077, yarn, k8s://ADDRESS. If"
        " you give none, that of your Spark's settings, or two cores of this machine.",
        rich_help_panel=VERDICT,
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        help="What makes the exit status 1, separated by commas: anomaly, unknown, an outcome as"
        " lost, or a kind of anomaly as lost-write.",
        rich_help_panel=VERDICT,
    ),
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        help="Record only; `neaptide check` judges it. Status 0: it was recorded to its end.",
        rich_help_panel=VERDICT,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="The seed of all random choices. If you give none, one is drawn and printed."
    ),
]
Nemesis = Annotated[
    str,
    typer.Option(
        help="Faults, separated by commas, such as rounds,kill; or all, or none. `neaptide list`"
        " names and explains them. Or a run: its schedule is played again.",
        autocompletion=completion.faults,
        rich_help_panel=FAULT,
    ),
]
