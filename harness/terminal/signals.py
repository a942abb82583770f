"""Which signals end a command in order, as Ctrl-C does: everything that it started is stopped.

A closed terminal or a lost connection is SIGHUP; a shutdown is SIGTERM, and both may come, one
after the other. Only the first of them counts, so that the next does not end the ending.
"""

from __future__ import annotations

import signal
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def end_as_by_ctrl_c() -> None:
    """From now on. What `nohup` had ignored stays ignored, and what others handle is theirs."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        if len(came) == 1:
            signal.raise_signal(signal.SIGINT)

    for number in _ENDING:
        before = signal.getsignal(number)
        if before == signal.SIG_DFL or (before == signal.SIG_IGN and number == signal.SIGTERM):
            signal.signal(number, end)
