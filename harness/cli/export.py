"""The command `export`: a find as a directory that others can use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neaptide.harness.cli import completion
from neaptide.harness.cli.options import Json
from neaptide.harness.terminal import output


def export(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run, a scenario file, or the name of a scenario that ships.",
            autocompletion=completion.scenarios,
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--to", "-o", help="The directory to write. By default find-NAME."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a find for others: scenario, README with evidence, picture, report, and a script."""
    from neaptide.harness.comparing import export as exporting

    find = exporting.find_of(what)
    written = exporting.export(find, directory or Path(f"find-{find.record.name}"))
    names = sorted(file.name for file in written.iterdir())
    if json:
        output.print_json(
            {
                "directory": str(written),
                "files": names,
                "outcomes": {name: dict(of) for name, of in find.outcomes.items()},
            }
        )
        return
    for name in names:
        output.out.print(output.shown(written / name), markup=False)
