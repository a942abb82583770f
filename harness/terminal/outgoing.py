"""Standard output and standard error of a command, which somebody else may have closed.

Whoever reads no further (`| head -1`, `| true`) has what he wanted: the command goes on, and its
status is that of its verdict. Where what is said cannot be written (a full disk), that is said on
standard error, if there it can be, and the status is not 0. Kafka's tools and others end by SIGPIPE
there, status 141.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, TextIO

WRITE_FAILED: Final = 141  # 128 + SIGPIPE


class Outgoing:
    """A text stream that can always be written to. `trouble`: why something was not written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False
        self.trouble: str | None = None

    def write(self, text: str) -> int:
        try:
            if not self._is_lost:
                self._stream.write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        try:
            if not self._is_lost:
                self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """Nothing more is written; nor does Python, when it ends, try what is in its buffers."""
        self._is_lost = True
        if not isinstance(error, BrokenPipeError):
            self.trouble = error.strerror or str(error)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def status_after(status: int) -> int:
    """The status of a command whose own would be this one, once all that it says is written."""
    out = sys.stdout
    if not isinstance(out, Outgoing):
        return status
    out.flush()
    if out.trouble is None:
        return status
    sys.stderr.write(f"neaptide: not all could be written to standard output: {out.trouble}.\n")
    return status or WRITE_FAILED


def guard_streams() -> None:
    """From now on, for this process."""
    sys.stdout = Outgoing(sys.stdout)
    sys.stderr = Outgoing(sys.stderr)
