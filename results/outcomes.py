"""The words for how a run ended, worst first, and whose rules say so. Not which proves which."""

from __future__ import annotations

from typing import Final, Literal

Outcome = Literal[
    "diverged", "lost", "duplicated", "reordered", "skipped", "unavailable", "held", "unknown"
]

# What judges a run: raised when a rule or a proof changes, so that older verdicts are made anew.
RULES_VERSION: Final = 2

WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "diverged",
    "lost",
    "duplicated",
    "reordered",
    "skipped",
    "unavailable",
    "held",
)
