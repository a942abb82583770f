"""A flush of a log, of which the slow part (fsync) can be done by any thread."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from neaptide.clusters.broker.storage.errors import StorageError


@dataclass(frozen=True, slots=True)
class Flush:
    """`descriptors` are this flush's own. What is appended later is not in it."""

    log_directory: Path
    descriptors: tuple[int, ...]
    end_offset: int  # up to which all will be on disk
    cuts: int  # of the log so far

    def sync(self) -> None:
        """Once only. Raises StorageError."""
        with contextlib.ExitStack() as closing:
            for descriptor in self.descriptors:
                closing.callback(os.close, descriptor)
            try:
                for descriptor in self.descriptors:
                    os.fdatasync(descriptor)
            except OSError as error:
                raise StorageError(self.log_directory, str(error)) from error
