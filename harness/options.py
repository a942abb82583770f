"""The options that several commands have, each with its one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from neaptide.nemesis.drawn.faults import FAULTS

# The groups in which `--help` shows options.
CLUSTER: Final = "Cluster"
LOAD: Final = "Load"
FAULT: Final = "Faults"
VERDICT: Final = "Verdict"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]
Host = Annotated[
    str,
    typer.Option(
        help="Where brokers run: local, netns, docker, ssh:me@h1,h2, simulation.",
        rich_help_panel=CLUSTER,
    ),
]
Image = Annotated[
    str | None,
    typer.Option(help="With --host docker: the image of the brokers.", rich_help_panel=CLUSTER),
]
Nodes = Annotated[
    Path | None,
    typer.Option(help="With --host ssh: a file that names machines.", rich_help_panel=CLUSTER),
]
Matrix = Annotated[
    Path | None,
    typer.Option("--matrix", help="Where to write the matrix: FILE.html, .md or .json."),
]
KafkaHome = Annotated[
    Path | None,
    typer.Option(
        help="An unpacked Apache Kafka (libs/*.jar), run as kafka:home.", rich_help_panel=CLUSTER
    ),
]
RetriesUnknown = Annotated[
    int,
    typer.Option(
        "--retries-unknown",
        min=0,
        help="Play what proved nothing again, so often at most. Never an anomaly.",
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
    typer.Option(help="Of every random choice; drawn and printed if you give none."),
]
Nemesis = Annotated[
    str,
    typer.Option(
        help="Faults, separated by commas, all or none; or a run whose schedule is played again."
        f" There are {', '.join(FAULTS)}: `neaptide list` says what they do.",
        rich_help_panel=FAULT,
    ),
]
