"""The two kinds of failure that a user can mend: something is missing, or something was misused.

Not for bugs and not for verdicts. The message is one sentence that says what to do; the command
line prints it alone and exits with the status named here (as in sysexits.h).
"""

from __future__ import annotations


class MissingPartError(Exception):
    """Something that is needed is not on this machine: exit status 69."""


class UsageError(Exception):
    """What was asked for cannot be: exit status 64."""
