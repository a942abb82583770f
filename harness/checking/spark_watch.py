"""Watches over the processes of a Spark on this machine while they are asked for something.

Who asks Java waits for its answer, whatever it takes: Spark itself would notice after days that it
stands still. One that stands still by nobody's wish is ended, so that what waits for it fails at
once, and whoever reports that says why: `trouble`.

Not here: a Spark elsewhere, of which only its own machines know how it is.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psutil

_LOOK_S: Final = 0.5  # nothing reports that a process stands still
_SEEN_WITHIN_S: Final = 0.3
_LOOKS_AGAIN: Final = 2  # stopped together with this process, as by Ctrl-Z, it goes on with it
_JAVA: Final = "java"

_now: list[SparkWatch] = []


def trouble() -> str | None:
    """Of the Spark that this process used last: a sentence, if it was not well. To be asked once
    something has failed: an end may be seen a moment after what it makes fail."""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while _now:
        found = next((watch.trouble for watch in _now if watch.trouble is not None), None)
        if found is not None or time.monotonic() > deadline:
            return found
        for watch in _now:
            watch.look()
        time.sleep(_LOOK_S / 10)
    return None


class SparkWatch:
    """From `__init__` to `close`. `say` is called at once with what is wrong."""

    def __init__(
        self,
        say: Callable[[str], None],
        root: int | None = None,
        is_java: Callable[[psutil.Process], bool] | None = None,
    ) -> None:
        """`root`: whose children Spark's processes are; None: of this process. `is_java`: which of
        them is watched; None: the first that is Spark's."""
        self._is_java = _is_spark if is_java is None else is_java
        self.trouble: str | None = None
        self._say = say
        self._root = os.getpid() if root is None else root
        self._java: psutil.Process | None = None
        self._stopped: dict[int, int] = {}  # how often in a row it was seen so
        self._closing = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)
        _now[:] = [watch for watch in _now if not watch._closing.is_set()]
        _now.append(self)
        self._thread.start()

    @property
    def watches(self) -> int | None:
        """The pid of Java, once it is there."""
        return None if self._java is None else self._java.pid

    def close(self) -> None:
        """Idempotent. What was found is known until the next one begins."""
        self._closing.set()
        self._thread.join()
        if self.trouble is None and self in _now:
            _now.remove(self)

    def _keep_looking(self) -> None:
        while self.trouble is None and not self._closing.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        with self._looking, suppress(psutil.Error):  # of a process that ends at this moment
            if self.trouble is None:
                self._look()

    def _look(self) -> None:
        if self._java is None:
            # Its own child: what puts its command together is a Java, too, and ends before.
            children = psutil.Process(self._root).children()
            self._java = next(filter(self._is_java, children), None)
        if self._java is None:
            return
        if not self._java.is_running() or self._java.status() == psutil.STATUS_ZOMBIE:
            self._found(f"Spark's Java (pid {self._java.pid}) {_end_of(self._java.pid)}.")
            return
        for process in (self._java, *self._below(self._java.pid)):
            is_stopped = process.status() == psutil.STATUS_STOPPED
            times = self._stopped[process.pid] = self._stopped.get(process.pid, 0) + 1
            if not is_stopped:
                del self._stopped[process.pid]
            elif times > _LOOKS_AGAIN:
                self._end(process)
                return

    def _end(self, process: psutil.Process) -> None:
        is_java = process == self._java
        who = "Spark's Java" if is_java else "A process of Spark's"
        self._found(
            f"{who} (pid {process.pid}) stood still: somebody sent it a SIGSTOP. It was ended."
        )
        assert self._java is not None
        self._java.kill()
        process.kill()

    def _found(self, trouble: str) -> None:
        self.trouble = trouble
        self._say(trouble)

    @staticmethod
    def _below(pid: int) -> list[psutil.Process]:
        return list(psutil.Process(pid).children(recursive=True))


def _is_spark(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == _JAVA and any("SparkSubmit" in one for one in process.cmdline())
    return False


def _end_of(pid: int) -> str:
    """How a child ended; whoever has started it can still ask."""
    with suppress(ChildProcessError):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            return f"was ended by {signal.Signals(ended.si_status).name}"
        if ended is not None:
            return f"ended by itself, status {ended.si_status}"
    return "ended"
