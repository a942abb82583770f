"""The words for how a run ended, worst first, and whose rules say so. Not which proves which."""

from __future__ import annotations

from typing import Final, Literal

Outcome = Literal[
    "diverged", "lost", "duplicated", "reordered", "skipped", "unavailable", "held", "anomalous",
    "unknown",
]  # fmt: skip

# What judges a run: raised when a rule or a proof changes, so that older verdicts are made anew.
RULES_VERSION: Final = 6

WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "diverged",
    "lost",
    "duplicated",
    "reordered",
    "skipped",
    "unavailable",
    "held",
)

# Of a run in which an anomaly is proved that is none of the above: an aborted read, a cycle.
ANOMALOUS: Final[Outcome] = "anomalous"
PREDICTED: Final[tuple[str, ...]] = (*WORST_FIRST, ANOMALOUS)
