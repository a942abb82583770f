"""The kinds of failure that are not bugs: something is missing, was misused, or broke down.

Not for verdicts. The message is one sentence that says what to do; the command
line prints it alone and exits with the status named here (as in sysexits.h).
"""

from __future__ import annotations


class MissingPartError(Exception):
    """Something that is needed is not on this machine: exit status 69."""


class UsageError(Exception):
    """What was asked for cannot be: exit status 64."""


class RefusedError(Exception):
    """A system refuses what a scenario wants of it: the run is unknown, exit status 2."""


class HostError(Exception):
    """A host did not do what was asked of it, or is gone: the run is unknown, exit status 2."""
