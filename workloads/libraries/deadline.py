"""A deadline for calls of a library that have none of their own, or do not keep it.

What is not back by then goes on in a thread that nobody waits for: whoever made the call gives up
the client that it was made of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from neaptide.workloads.libraries.model import LibraryError

STUCK: Final = "_STUCK"  # of an error: the library has not come back


def within(timeout_s: float, call: Callable[[], object]) -> None:
    """Raises what `call` raises, and LibraryError where it takes longer."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(timeout_s)
    if running.is_alive():
        raise LibraryError(STUCK)
    if failures:
        raise failures[0]
