"""Opens and closes the record of a run: its directory, and the `run.json` that says how it went.

Whatever happens to the run, its record says so: finished, or interrupted or not started, and why.
Not what a run does; that is handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.ledger import Ledger
from neaptide.harness.live.account import Account
from neaptide.harness.live.ending import Ending
from neaptide.harness.live.guard import FREE_TO_START, check_space
from neaptide.harness.live.left_behind import RUN
from neaptide.harness.scenarios.systems import System, fetch
from neaptide.harness.terminal import interrupted, output
from neaptide.harness.terminal.exits import RUN_FAILURES
from neaptide.harness.terminal.version import VERSION, parts
from neaptide.results.compaction import compact
from neaptide.results.errors import RunUnreadableError, StoreError
from neaptide.results.run import Aim, Incident, Kind, MissedFault, Run, Status, read_run
from neaptide.results.store import create_run, private_files, write_run


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run that came to its end has to say of itself."""

    aim: Aim
    ending: Ending
    disagreements: tuple[str, ...] = ()
    stopped_early: str = ""
    aimed: int = 0
    missed: tuple[MissedFault, ...] = ()
    left: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()


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
        logs_readable=system.used is None,
        own=None if system.own is None else system.own.record(),
        versions=parts(),
    )


async def record(
    run: Run, system: System, work: Callable[[Path, Account], Awaitable[Finished]]
) -> tuple[Path, Run]:
    """Does the work of a run in a directory of its own; that directory, and the record in it.

    What fails one run and no other does not raise: its verdict is unknown, and says why. Raises
    MissingPartError and StoreError where no run could go on.
    """
    await asyncio.to_thread(fetch, system)
    with private_files(), _entered_in_ledger() as enter:
        directory = create_run(run.name, run.system, run.seed, datetime.now(UTC))
        enter(directory)
        write_run(directory, run)
        interrupted.begun(directory)
        account = Account(lambda known: write_run(directory, known.of(run)), _report)
        try:
            check_space(directory, FREE_TO_START)
            done = await work(directory, account)
            account.written = await asyncio.to_thread(compact, directory, account.written)
        except RUN_FAILURES as error:
            failed = _cut_short(run, account, str(error))
            write_run(directory, failed)
            if failed.status == "not started" and _lacks_coordination(account):
                raise MissingPartError(f"The run cannot start: {error}") from error
            return directory, failed
        except OSError as error:
            why = f"The run cannot go on: {error}."
            write_run(directory, _cut_short(run, account, why))
            raise StoreError(why) from error
        except StoreError as error:
            if account.has_started:
                account.note(Incident("recorder", str(error)))
            write_run(directory, _cut_short(run, account, str(error)))
            raise
        except BaseException as error:
            write_run(directory, _cut_short(run, account, _why(error)))
            raise
        finished = replace(
            account.of(run),
            status="finished",
            aim=done.aim,
            converged=done.ending.converged,
            final_reads=done.ending.final_reads,
            replicas_written=done.ending.replicas_written,
            disagreements=done.disagreements,
            confirmed=done.confirmed,
            stopped_early=done.stopped_early,
            aimed=done.aimed,
            missed=done.missed,
            left=done.left,
        )
        write_run(directory, finished)
        return directory, finished


def _lacks_coordination(account: Account) -> bool:
    return any(incident.kind == "coordination" for incident in account.incidents)


def _report(incident: Incident) -> None:
    """At once: it takes a while to end all that a run has, and to judge it."""
    output.err.print(f"the run can only be unknown: {incident.why}", markup=False)


def _cut_short(run: Run, account: Account, why: str) -> Run:
    status: Status = "interrupted" if account.has_started else "not started"
    return replace(account.of(run), status=status, aim=Aim(False, why))


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return "it was interrupted"
    return str(error) or type(error).__name__


@contextmanager
def _entered_in_ledger() -> Iterator[Callable[[Path], None]]:
    """Should this process be killed, the next command says in the record that the run is over."""
    ledger = Ledger()
    runs: list[Path] = []

    def enter(directory: Path) -> None:
        runs.append(directory)
        ledger.intend_resource(RUN, str(directory))

    try:
        yield enter
    finally:
        if all(_says_its_end(directory) for directory in runs):
            ledger.close()
        else:
            ledger.leave()


def _says_its_end(directory: Path) -> bool:
    try:
        return read_run(directory).status != "running"
    except RunUnreadableError:
        return True
