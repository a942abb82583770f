"""Errors that a user can put right; the text of each is one sentence that says how."""

from __future__ import annotations


class NeaptideError(Exception):
    """The root: print its text, not its traceback."""


class RunUnreadableError(NeaptideError):
    """A run directory, or a file in it, cannot be understood."""


class RunNotFoundError(NeaptideError):
    """No run answers to the name that was given."""


class StoreError(NeaptideError):
    """A run cannot be written: no space, no permission."""


class MissingToolError(NeaptideError):
    """Something outside Python that is needed is not on this machine."""


class SparkUnreachableError(NeaptideError):
    """The Spark cluster that was named does not answer, or does no work."""
