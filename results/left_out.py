"""`steps.json` in a run directory: how often its schedule still loses with each step left out.

Written by `neaptide steps`, which plays the schedule in the simulation; read by the report. Not the
playing: results know no clusters.

The rule: what cannot be read is not shown, as if nobody had asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.results.errors import RunUnreadableError
from neaptide.results.reading import read_json
from neaptide.results.store import write_json

STEPS_FILE: Final = "steps.json"


@dataclass(frozen=True, slots=True)
class StepLeftOut:
    """One step, and what the plays without it came to.

    `in_vain`: plays in which a later step could not be done, or waited for what never came true;
    `why`: the first of these.
    """

    number: int  # from 1
    words: str
    until: str  # what it waits for; empty: nothing
    outcomes: Mapping[str, int]
    in_vain: int
    why: str

    def still(self, outcome: str) -> int:
        """In how many plays the outcome is the same without it."""
        return self.outcomes.get(outcome, 0)


@dataclass(frozen=True, slots=True)
class StepsLeftOut:
    """`plays` of each; `outcome`: of the whole schedule, in `outcomes[outcome]` of its plays."""

    system: str
    outcome: str
    plays: int
    seed: int
    outcomes: Mapping[str, int]
    steps: tuple[StepLeftOut, ...]

    @property
    def whole(self) -> int:
        return self.outcomes.get(self.outcome, 0)

    def matters(self, step: StepLeftOut) -> str:
        """`decides`: never without it. `helps`: less often. `no`: as often."""
        still = step.still(self.outcome)
        return "decides" if still == 0 else "helps" if still < self.whole else "no"

    def to_json(self) -> dict[str, Any]:
        steps = [
            {**asdict(step), "still": step.still(self.outcome), "matters": self.matters(step)}
            for step in self.steps
        ]
        return {**asdict(self), "steps": steps}


def write_left_out(directory: Path, left_out: StepsLeftOut) -> None:
    """Raises StoreError."""
    write_json(directory / STEPS_FILE, left_out.to_json())


def read_left_out(directory: Path) -> StepsLeftOut | None:
    """None: nobody asked, or what is there is not understood."""
    try:
        data = read_json(directory / STEPS_FILE)
        steps = tuple(
            StepLeftOut(
                int(each["number"]),
                str(each["words"]),
                str(each["until"]),
                _counts(each["outcomes"]),
                int(each["in_vain"]),
                str(each["why"]),
            )
            for each in data["steps"]
        )
        return StepsLeftOut(
            str(data["system"]),
            str(data["outcome"]),
            int(data["plays"]),
            int(data["seed"]),
            _counts(data["outcomes"]),
            steps,
        )
    except (OSError, RunUnreadableError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _counts(data: Mapping[str, Any]) -> dict[str, int]:
    return {str(outcome): int(count) for outcome, count in data.items()}
