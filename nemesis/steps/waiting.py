"""Steps that do nothing but wait, or note how long it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neaptide.nemesis.steps.language import BrokerName, Number, Step, Whole, step

FAMILY: Final = "Measuring"


@dataclass(frozen=True, slots=True)
class Await(Step):
    """Does nothing: the step only waits for its condition. It has no key of its own."""

    def words(self) -> str:
        return "does nothing"


@step(
    FAMILY,
    "measure",
    '{ since_last_fetch_of = "B", unit = "replica.lag.time.max.ms", above = 1.0, at_most = 1.5 }',
)
@dataclass(frozen=True, slots=True)
class Measure(Step):
    """Notes how long after a follower's last fetch the step's `until` became true."""

    since_last_fetch_of: BrokerName
    """The follower."""
    unit: str
    """A broker setting: the time is measured in it."""
    above: Number
    """The prediction: more than this."""
    at_most: Number
    """The prediction: not more than this."""
    slack_ms: Whole = 0
    """Milliseconds that are allowed beyond."""

    def words(self) -> str:
        return (
            f"measures the time since {self.since_last_fetch_of}'s last fetch: more than"
            f" {self.above:g} and at most {self.at_most:g} × {self.unit}"
        )
