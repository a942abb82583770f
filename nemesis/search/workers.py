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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait


def begin(over: Connection | None = None) -> None:
    """A Ctrl-C is the harness's to handle. The garbage collector finds nothing in a search.

    `over`: nobody sends on it; it is closed where it began when nobody wants the results any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    threading.Thread(target=_end_when_over, args=(over,), daemon=True).start()


def _end_when_over(over: Connection | None) -> None:
    """However the harness ends: a worker may wait for what nobody else will send."""
    harness = multiprocessing.parent_process()
    assert harness is not None
    wait([harness.sentinel] if over is None else [harness.sentinel, over])
    os._exit(0)


@contextmanager
def workers_of(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. After an error or an interrupt they end at once."""
    context = multiprocessing.get_context("spawn")
    over, keep = context.Pipe(duplex=False)
    with over, ProcessPoolExecutor(count, context, begin, (over,)) as pool:
        try:
            yield pool
        except BaseException:
            keep.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            keep.close()
