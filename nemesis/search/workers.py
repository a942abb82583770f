"""What every worker process of a search does: it begins quietly, and ends with its harness."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading


def begin() -> None:
    """A Ctrl-C is the harness's to handle. The garbage collector finds nothing in a search."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    threading.Thread(target=_end_with_harness, daemon=True).start()


def _end_with_harness() -> None:
    """However it ends: a worker may wait for what nobody else will send."""
    harness = multiprocessing.parent_process()
    assert harness is not None
    harness.join()
    os._exit(0)
