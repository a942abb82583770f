"""What every worker process of a search does: it begins quietly, and ends with its harness."""

from __future__ import annotations

import gc
import os
import signal

_parent = 0


def begin(parent: int) -> None:
    """A Ctrl-C is the harness's to handle. The garbage collector finds nothing in a search."""
    global _parent
    _parent = parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


def is_orphan() -> bool:
    """Whether the harness is gone: asked between two pieces of work."""
    return os.getppid() != _parent
