"""The words for how a run ended, worst first, and whose rules say so. Not which proves which."""

from __future__ import annotations

from typing import Final, Literal

Outcome = Literal[
    "diverged", "lost", "duplicated", "reordered", "skipped", "unavailable", "held", "unknown"
]

# What judges a run: raised when a rule or a proof changes, so that older verdicts are made anew.
RULES_VERSION: Final = 4

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
ANOMALOUS: Final = "anomalous"
PREDICTED: Final[tuple[str, ...]] = (*WORST_FIRST, ANOMALOUS)


def observed(verdict: str, outcome: str) -> str:
    """What a run is said to show: its outcome, or that it shows an anomaly no outcome names."""
    return ANOMALOUS if (verdict, outcome) == (ANOMALOUS, "unknown") else outcome
