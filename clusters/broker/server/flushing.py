"""Flushes each log when its flush.ms has passed, no later (Kafka's log flusher), and when a segment
was rolled.

log.flush.scheduler.interval.ms says how often all logs are looked at. Where it is not set, a log is
looked at as often as its own flush.ms needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.flush import Flush
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_manager import LogManager

_LONGEST_S: Final = 1.0  # a log with a shorter flush.ms may come at any time
_SHORTEST_S: Final = 0.01


async def keep_flushed(
    logs: LogManager, scheduler_interval_ms: int | None, lose: Callable[[StorageError], None]
) -> None:
    """Until it is cancelled. A thread does it, and nobody waits."""
    while True:
        await asyncio.sleep(_pause_s(logs, scheduler_interval_ms))
        for tp, log in tuple(logs.logs.items()):
            if log.is_flush_due and logs.logs.get(tp) is log:
                try:
                    await flush_beside(log, lose)
                except StorageError as error:
                    lose(error)


def flush_beside(log: Log, lose: Callable[[StorageError], None]) -> Coroutine[object, object, None]:
    """Of all that there is now: its files are opened at once, for the log may be deleted before a
    thread comes to it. Raises StorageError."""
    return _sync(log, log.begin_flush(), lose)


async def _sync(log: Log, flush: Flush, lose: Callable[[StorageError], None]) -> None:
    try:
        await asyncio.to_thread(flush.sync)
        log.end_flush(flush)
    except StorageError as error:
        lose(error)


def _pause_s(logs: LogManager, scheduler_interval_ms: int | None) -> float:
    if scheduler_interval_ms is not None:
        return max(_SHORTEST_S, scheduler_interval_ms / 1000)
    soonest_ms = min((log.flush_due_in_ms for log in logs.logs.values()), default=None)
    if soonest_ms is None:
        return _LONGEST_S
    return min(_LONGEST_S, max(_SHORTEST_S, soonest_ms / 1000))
