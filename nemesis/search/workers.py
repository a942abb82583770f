"""Worker processes of a search: they begin quietly, and end with their harness or its search.

Nothing is waited for that nobody wants: a search that is interrupted ends its workers at once, in
the middle of their seeds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def whole_start() -> Iterator[None]:
    """An interrupt waits until the processes that start here have been given what they begin with.

    They begin with interrupts blocked: `begin` lets them through. Here blocking is not enough, for
    Python handles in this thread what any other has received.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no interrupt comes here
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _INTERRUPTS}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def begin(over: Connection | None = None) -> None:
    """A Ctrl-C is the harness's to handle. The garbage collector finds nothing in a search.

    `over`: nobody sends on it; it is closed where it began when nobody wants the results any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    gc.disable()
    threading.Thread(target=_end_when_over, args=(over,), daemon=True).start()


def _end_when_over(over: Connection | None) -> None:
    """However the harness ends: a worker may wait for what nobody else will send."""
    harness = multiprocessing.parent_process()
    assert harness is not None
    wait([harness.sentinel] if over is None else [harness.sentinel, over])
    os._exit(0)


class _Workers(ProcessPoolExecutor):
    """Starts a process where it takes work and none is idle."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with whole_start():
            return super().submit(call, *args, **kwargs)


@contextmanager
def workers_of(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. After an error or an interrupt they end at once."""
    context = multiprocessing.get_context("spawn")
    over, keep = context.Pipe(duplex=False)
    with over, _Workers(count, context, begin, (over,)) as pool:
        try:
            yield pool
        except BaseException:
            keep.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            keep.close()
