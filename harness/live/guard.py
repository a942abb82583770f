"""Watches over a run: a disk that fills up, or an incident, ends the run in time.

An incident is that something of our own failed, not by a fault: a process has ended or stands
still, or rows were lost. Without the guard the first to notice would be whoever needs it next, and
the run directory would be the victim. What was recorded stays; the verdict of such a run is
unknown.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from neaptide.results.errors import StoreError
from neaptide.results.run import Incident, IncidentError

T = TypeVar("T")
MIB: Final = 2**20
FREE_TO_START: Final = 256 * MIB
FREE_TO_GO_ON: Final = 64 * MIB
_CAUSE_WITHIN_S: Final = 1.0
_LOOK_S: Final = 0.25  # nothing reports that a disk fills up, or that a process stands still


def check_space(directory: Path, least: int) -> None:
    """Raises StoreError where less is free."""
    free = shutil.disk_usage(directory).free
    if free < least:
        raise StoreError(
            f"Only {free // MIB} MiB are free for {directory}, and {least // MIB} MiB are needed:"
            " free some, or set NEAPTIDE_RUNS to a directory on another disk."
        )


async def guarded(
    work: Coroutine[Any, Any, T], directory: Path, find_incident: Callable[[], Incident | None]
) -> T:
    """The result of `work`; StoreError or IncidentError as soon as it cannot end well."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_watch(directory, find_incident))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await watch
        error = task.exception()
        if isinstance(error, Exception):
            # A process that dies closes its connections first: what is seen of it comes before it.
            await asyncio.wait((watch,), timeout=_CAUSE_WITHIN_S)
            cause = watch.exception() if watch.done() else None
            if isinstance(cause, IncidentError):
                raise cause from error
        return await task
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _watch(directory: Path, find_incident: Callable[[], Incident | None]) -> None:
    while True:
        check_space(directory, FREE_TO_GO_ON)
        incident = find_incident()
        if incident is not None:
            raise IncidentError(incident)
        await asyncio.sleep(_LOOK_S)
