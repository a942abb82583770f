"""What is said when a command is interrupted: of each run that it recorded, what is so by then.

Kept here: which runs this process has begun. What they say of themselves is read from their files,
for the command may be anywhere between its first record and the end of its report.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from neaptide.harness.terminal import output
from neaptide.results.errors import RunUnreadableError
from neaptide.results.run import read_run
from neaptide.results.verdicts import read_verdict

_runs: Final[list[Path]] = []


def begun(run: Path) -> None:
    _runs.append(run)


def said() -> str:
    """Of the last run: those before it have been reported, or are judged later."""
    return f"Interrupted. {_of_run(_runs[-1])}" if _runs else "Interrupted."


def _of_run(run: Path) -> str:
    shown = output.shown(run)
    look = f"neaptide check {shlex.quote(shown)}"
    try:
        verdict, status = read_verdict(run), read_run(run).status
    except RunUnreadableError as error:
        return f"What was recorded is kept, but cannot be read: {error}"
    if verdict is not None:
        word = f"{verdict['verdict']} ({verdict['outcome']})"
        return f"The verdict was written before, and stands: {word}, {shown}"
    if status == "finished":
        return f"The run came to its end, and has no verdict yet: `{look}` judges it."
    if status == "not started":
        return f"The run had not begun: {shown} has nothing that could be judged."
    return f"What was recorded is kept, and its verdict is unknown: `{look}` looks at it."
