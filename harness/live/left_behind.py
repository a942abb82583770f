"""What a harness that was killed has left, beside processes and what hosts made: how it is ended.

A run whose harness is dead says so in its `run.json`; a scratch directory is removed. Loads little:
every command begins with it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.clusters.hosts import place
from neaptide.clusters.hosts.ledger import Remover
from neaptide.clusters.own.process import OUTSIDE, end_left
from neaptide.results.errors import NeaptideError
from neaptide.results.run import Aim, Status, read_run
from neaptide.results.store import write_run

if TYPE_CHECKING:
    from neaptide.clusters.hosts.local import LocalHost

RUN: Final = "unfinished run"
SCRATCH: Final = "scratch directory"
SCRATCH_PREFIX: Final = "neaptide-"


def end_run(directory: str) -> bool:
    """A run that has an assignment had begun."""
    path = Path(directory)
    try:
        run = read_run(path)
        if run.status == "running":
            status: Status = "interrupted" if run.assigned else "not started"
            why = Aim(False, "neaptide was killed while it went on")
            write_run(path, replace(run, status=status, aim=why))
    except NeaptideError:  # it had not come to its `run.json`, or somebody has removed it
        return True
    return True


def remove_scratch(directory: str) -> bool:
    path = Path(directory)
    if path.name.startswith(SCRATCH_PREFIX):
        shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def open_scratch(host: LocalHost, directory: Path) -> None:
    """A directory for its owner alone, removed when the host ends, or by the next command."""
    host.ledger.intend_resource(SCRATCH, str(directory))
    host.at_end(lambda: shutil.rmtree(directory, ignore_errors=True))
    directory.mkdir(mode=0o700)


REMOVERS: Final[dict[str, Remover]] = {
    **place.REMOVERS,
    OUTSIDE: end_left,
    RUN: end_run,
    SCRATCH: remove_scratch,
}
