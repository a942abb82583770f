"""The options that several commands have, each with its one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neaptide.nemesis.drawn.faults import FAULTS

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]
Host = Annotated[str, typer.Option(help="Where: local, netns, docker, ssh:me@h1,h2, simulation.")]
Image = Annotated[str | None, typer.Option(help="With --host docker: what brokers run in.")]
Nodes = Annotated[Path | None, typer.Option(help="With --host ssh: a file of machines.")]
Matrix = Annotated[
    Path | None, typer.Option("--matrix", help="Where to write it: FILE.html, .md or .json.")
]
KafkaHome = Annotated[
    Path | None,
    typer.Option(help="An unpacked Apache Kafka (libs/*.jar), run as kafka:home."),
]
Seed = Annotated[int | None, typer.Option(help="Repeats a run; drawn and printed if not given.")]
Nemesis = Annotated[
    str,
    typer.Option(
        help="Faults, by commas, all or none; or a run whose schedule is played again."
        f" There are {', '.join(FAULTS)}: `neaptide list` says what they do."
    ),
]
