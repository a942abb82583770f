"""The words for how a run ended, worst first. Not which anomaly proves which."""

from __future__ import annotations

from typing import Final, Literal

Outcome = Literal[
    "diverged", "lost", "duplicated", "reordered", "skipped", "unavailable", "held", "unknown"
]

WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "diverged",
    "lost",
    "duplicated",
    "reordered",
    "skipped",
    "unavailable",
    "held",
)
