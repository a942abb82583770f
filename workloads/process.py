"""A process of the history, as Jepsen has it: a client, until nobody knows what it came to.

What completes after an indeterminate end is of another process: that operation may take place at
any later time, so it says nothing of the order of those that completed after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class LogicalProcess:
    """Its number changes. `new`: gives one that no other process has. Safe for several threads."""

    def __init__(self, new: Callable[[], int]) -> None:
        self._new = new
        self._lock = threading.Lock()
        self.number = new()

    def completed(self, kind: str) -> int:
        """Of which process an operation is that ends so: `ok`, `fail` or `info`."""
        with self._lock:
            number = self.number
            if kind == "info":
                self.number = self._new()
            return number

    def renew(self) -> None:
        """The client begins anew: it joins a group again, or is another one's heir."""
        with self._lock:
            self.number = self._new()
