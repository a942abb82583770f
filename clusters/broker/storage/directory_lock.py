"""The `.lock` of a log directory: one broker at a time, and no tool beside it.

Taken twice, as flock and as a POSIX record lock: the second is what Java's brokers use, so that
ours and a real Kafka keep each other out too. The kernel frees both when the process ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.storage.errors import LogDirectoryInUseError

_LOCK_FILE: Final = ".lock"


class DirectoryLock:
    def __init__(self, directory: Path) -> None:
        """Take the lock or raise LogDirectoryInUseError at once."""
        self._descriptor = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise LogDirectoryInUseError(
                directory, "a running broker holds its .lock; stop that one first"
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
