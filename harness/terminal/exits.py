"""Exit statuses, and which error means which. The one table for both."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from neaptide.clusters.errors import HostError, MissingPartError, RefusedError, UsageError
from neaptide.nemesis.gate.errors import GateError
from neaptide.results.errors import (
    MissingToolError,
    NeaptideError,
    RunNotFoundError,
    RunUnreadableError,
    SparkUnreachableError,
    StoreError,
)
from neaptide.results.run import IncidentError
from neaptide.workloads.errors import ClientsError


class Exit(IntEnum):
    AGREES = 0
    ANOMALY = 1
    UNKNOWN = 2
    USAGE = 64
    MISSING = 69
    BUG = 70  # EX_SOFTWARE


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.AGREES: "All results are as expected (`repro`, `replay`, `matrix`), or there is no anomaly"
    " (`run`, `check`).",
    Exit.ANOMALY: "There is an anomaly, or a result is not as expected. Of `explore`: something was"
    " found.",
    Exit.UNKNOWN: "The run proved nothing, and no other run shows an anomaly.",
    Exit.USAGE: "A wrong option, argument or file. The message says what to write instead.",
    Exit.MISSING: "Something that is needed is missing. The message says how to get it.",
    Exit.BUG: "A bug of neaptide. Please report it with the traceback that is printed.",
}

# What fails one run and no other: it is kept, and its verdict is unknown.
RUN_FAILURES: Final = (
    TimeoutError,
    IncidentError,
    GateError,
    ClientsError,
    HostError,
    RefusedError,
)

STATUS_OF_ERROR: Final[tuple[tuple[type[Exception], Exit], ...]] = (
    (UsageError, Exit.USAGE),
    (RunNotFoundError, Exit.USAGE),
    (MissingPartError, Exit.MISSING),
    (MissingToolError, Exit.MISSING),
    (SparkUnreachableError, Exit.MISSING),
    (StoreError, Exit.MISSING),
    (RunUnreadableError, Exit.UNKNOWN),
    (NeaptideError, Exit.UNKNOWN),
    *((failure, Exit.UNKNOWN) for failure in RUN_FAILURES),
)


def status_of(error: Exception) -> Exit | None:
    """None: it is a bug, and deserves its traceback."""
    for kind, status in STATUS_OF_ERROR:
        if isinstance(error, kind):
            return status
    return None
