"""What a workload with consumer groups may be asked for: when members commit, where they begin, how
they come and go. Words alone: who does it is in roles/groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SHARE_LOCK_MS: Final = 4_000  # for how long a member of a share group has a record
_INTERVAL_S: Final = 1.0
AT_LEAST_ONCE, AT_MOST_ONCE, NEITHER = "at-least-once", "at-most-once", "neither"


@dataclass(frozen=True, slots=True)
class Commits:
    """When a member commits: in the background by the library (`auto`), or by itself."""

    auto: bool = False
    waits: bool = True  # for the acknowledgement
    before: bool = False  # before it processes what it commits
    each_partition: bool = False
    interval_s: float = 0.0

    @property
    def delivery(self) -> str:
        """What that promises of each record."""
        if self.auto:
            return NEITHER
        return AT_MOST_ONCE if self.before else AT_LEAST_ONCE


COMMITS: Final[Mapping[str, Commits]] = {
    "auto": Commits(auto=True),
    "sync": Commits(),
    "async": Commits(waits=False),
    "partition": Commits(each_partition=True),
    "interval": Commits(interval_s=_INTERVAL_S),
    "before": Commits(before=True),
}
# Where a member begins where its group has no position (`auto.offset.reset`).
BEGINNINGS: Final = ("earliest", "latest", "error")
# What members do: leave and join again, stop to poll, leave and reset what they are assigned then.
CHURNS: Final = (
    "none", "leave", "stall", "leave+stall", "reset", "leave+reset", "stall+reset",
    "leave+stall+reset",
)  # fmt: skip
NO_RESETS: Final = "none"
