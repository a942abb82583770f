"""Follows a run that another process plays: reports what is proved, and may ask the run to end.

Not the verdict: that is the check's, once the run is over. That a run is over is in its `run.json`;
one that was killed never says so, and is given up when it writes nothing any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from neaptide.results.cases import sentence
from neaptide.results.report.rows import Row
from neaptide.results.run import read_run
from neaptide.results.stop import ask_to_stop
from neaptide.results.tables import table_files

# Longer than a run may wait for its replicas to be level, and for its final reads.
QUIET_S: Final = 300.0
_LOOK_S: Final = 0.2  # a directory notifies nobody that it was made

Say = Callable[[str], None]


class Followed:
    """A run under way: whether it is over, and since when it has written nothing."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._files = -1
        self._wrote = time.monotonic()

    def is_over(self) -> bool:
        """Raises RunUnreadableError."""
        return read_run(self.run).status != "running" or self.is_quiet()

    def is_quiet(self) -> bool:
        files = len(table_files(self.run / "operations"))
        if files != self._files:
            self._files, self._wrote = files, time.monotonic()
        return time.monotonic() - self._wrote > QUIET_S

    def has_begun(self) -> bool:
        """Waits until there are operations to look at; False: there will be none."""
        while not (self.run / "operations").is_dir():
            if self.is_over():
                return False
            time.sleep(_LOOK_S)
        return True


def follow_run(run: Path, *, stop: bool, say: Say) -> list[Row]:
    """Returns when the run is over, with what was reported; `stop` asks it to end at the first."""
    from neaptide.checkers.follow import LookFailedError, follow

    followed = Followed(run)
    reported: list[Row] = []

    def report(found: Row) -> None:
        if stop and not reported:
            ask_to_stop(run, f"neaptide check --follow has found {sentence(found)}")
        reported.append(found)
        say(sentence(found))

    if not followed.has_begun() or followed.is_over():
        return reported
    say(f"following {run.name}")
    try:
        left_out = follow(run, is_over=followed.is_over, report=report)
        if left_out:
            say(f"{left_out} rows came too fast to be followed, and are judged when all are.")
    except LookFailedError as error:
        say(f"It can be followed no further ({error}), and is judged when it is over.")
        while not followed.is_over():
            time.sleep(_LOOK_S)
    if followed.is_quiet():
        say(f"{run.name} has written nothing for {QUIET_S:g} s: it seems to have died.")
    return reported
