"""Watches over a run: a disk that fills up, or a process that ends unasked, ends the run in time.

Without it the first to notice would be whoever cannot write, and the run directory would be the
victim. What was recorded stays; the verdict of such a run is unknown.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from neaptide.results.errors import StoreError

T = TypeVar("T")
MIB: Final = 2**20
FREE_TO_START: Final = 256 * MIB
FREE_TO_GO_ON: Final = 64 * MIB
_LOOK_S: Final = 0.25  # nothing tells that a disk fills up


class ProcessEndedError(Exception):
    """A process of the run ended although nobody asked it to."""


def check_space(directory: Path, least: int) -> None:
    """Raises StoreError where less is free."""
    free = shutil.disk_usage(directory).free
    if free < least:
        raise StoreError(
            f"Only {free // MIB} MiB are free for {directory}, and {least // MIB} MiB are needed:"
            " free some, or set NEAPTIDE_RUNS to a directory on another disk."
        )


async def guarded(
    work: Coroutine[Any, Any, T], directory: Path, find_ended: Callable[[], str | None]
) -> T:
    """The result of `work`; StoreError or ProcessEndedError as soon as it cannot end well."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_watch(directory, find_ended))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await watch
        return await task
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _watch(directory: Path, find_ended: Callable[[], str | None]) -> None:
    while True:
        check_space(directory, FREE_TO_GO_ON)
        ended = find_ended()
        if ended is not None:
            raise ProcessEndedError(ended)
        await asyncio.sleep(_LOOK_S)
