"""Opens and closes the record of a run: its directory, and the `run.json` that says how it went.

Whatever happens to the run, its record says so: finished, or interrupted and why. Not what a run
does; that is handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from neaptide.harness.ending import Ending
from neaptide.harness.exits import RUN_FAILURES
from neaptide.harness.guard import FREE_TO_START, check_space
from neaptide.harness.systems import System, fetch
from neaptide.harness.version import VERSION
from neaptide.results.run import Aim, Kind, Run
from neaptide.results.store import create_run, write_run


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run that came to its end has to say of itself."""

    aim: Aim
    ending: Ending
    disagreements: tuple[str, ...] = ()
    stopped_early: str = ""


def new_run(name: str, system: System, seed: int, kind: Kind) -> Run:
    """The record of a run that begins; what it is about is still to be filled in."""
    return Run(
        neaptide=VERSION,
        name=name,
        system=str(system),
        host="local",
        seed=seed,
        started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        status="running",
        kind=kind,
        brokers={},
    )


async def record(
    run: Run, system: System, work: Callable[[Path], Awaitable[Finished]]
) -> tuple[Path, Run]:
    """Does the work of a run in a directory of its own; that directory, and the record in it.

    What fails one run and no other does not raise: its verdict is unknown, and says why.
    """
    await asyncio.to_thread(fetch, system)
    directory = create_run(run.name, run.system, run.seed, datetime.now(UTC))
    write_run(directory, run)
    check_space(directory, FREE_TO_START)
    try:
        done = await work(directory)
    except RUN_FAILURES as error:
        failed = replace(run, status="interrupted", aim=Aim(False, str(error)))
        write_run(directory, failed)
        return directory, failed
    except BaseException:
        write_run(directory, replace(run, status="interrupted"))
        raise
    finished = replace(
        run,
        status="finished",
        aim=done.aim,
        converged=done.ending.converged,
        final_reads=done.ending.final_reads,
        replicas_written=done.ending.replicas_written,
        disagreements=done.disagreements,
        stopped_early=done.stopped_early,
    )
    write_run(directory, finished)
    return directory, finished
