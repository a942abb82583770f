"""The command `serve`: web pages of the runs in a directory."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from neaptide.clusters.errors import UsageError
from neaptide.harness.terminal import output
from neaptide.harness.terminal.exits import Exit
from neaptide.results.store import runs_directory

DEFAULT_PORT = 8080


def serve(
    runs: Annotated[
        Path | None,
        typer.Option(help="The directory of runs; by default $NEAPTIDE_RUNS, or ./runs."),
    ] = None,
    nights: Annotated[
        Path, typer.Option(help="The directory of nights, as nightly writes it.")
    ] = Path("nights"),
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in, who see all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: any that is free; the address is printed.")
    ] = DEFAULT_PORT,
) -> None:
    """Show runs as web pages, also those that are going on; Ctrl-C ends it, with status 0."""
    from neaptide.results.serve.server import address_of, listen
    from neaptide.results.serve.server import serve as serve_pages

    directory = (runs or runs_directory()).absolute()
    if not directory.is_dir():
        raise UsageError(
            f"{directory} is no directory of runs: name one with --runs, or play a scenario first"
            " (neaptide repro hw-truncation-loss)."
        )
    try:
        listener = listen(host, port)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"Nothing can be served at {host}, port {port} ({why}): choose another --port"
            " (0: any that is free), or an address of this machine with --host."
        ) from error

    def on_ready() -> None:
        output.out.print(f"{address_of(listener)} shows {output.shown(directory)}", markup=False)
        output.err.print("Ctrl-C ends it.")

    try:
        serve_pages(
            directory, listener, host, not_served=_not_served, nights=nights, on_ready=on_ready
        )
    except KeyboardInterrupt:
        raise typer.Exit(Exit.AGREES) from None
    finally:
        listener.close()
        _end_whoever_still_reads()


def _end_whoever_still_reads() -> None:
    """A page that is being made, of a large run or on a disk that does not answer, has a thread,
    for which Python would wait."""
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(Exit.AGREES)


def _not_served(runs: Sequence[Path]) -> Mapping[tuple[str, str], str]:
    from neaptide.harness.comparing.matrix import not_served

    return not_served(runs)
