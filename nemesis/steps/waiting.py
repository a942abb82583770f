"""Steps that wait, that note how long it was, and that are about the load of a random run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from neaptide.nemesis.steps.language import (
    BrokerName,
    Delay_ms,
    Flag,
    Names,
    Number,
    Partition,
    Step,
    Whole,
    step,
)

FAMILY: Final = "Measuring"


@dataclass(frozen=True, slots=True)
class Await(Step):
    """Does nothing: the step only waits for its condition. It has no key of its own."""

    def words(self) -> str:
        return "does nothing"

    def brief(self) -> str:
        return "wait"


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


class OfRandomRun(Step):
    """A step that no other scenario may have."""

    __slots__ = ()

    def check(self, names: Names) -> None:
        if not names.is_timed:
            raise ValueError("is for files with run")


@step(
    FAMILY, "cast", "{ partition = 0 }", words="looks who has which role in partition {0.partition}"
)
@dataclass(frozen=True, slots=True)
class Cast(OfRandomRun):
    """Of a file with `run`: waits until every replica of the partition is in the ISR and fetches,
    and gives brokers *roles*. The steps after it, up to the next with an `at`, name roles in place
    of brokers: `old_leader` leads the partition, `next_leader` is elected when that one dies,
    `follower` is the last assigned in the ISR, `followers` are these two, with a step for each,
    `old_controller` is the active controller. A `where` may compare with what is observed then, as
    in `high_watermark > HW(follower) + 3`. When all is done, or one of them has missed, everything
    is undone."""

    partition: Partition = 0
    outlasts_lag: Flag = False
    """Whether a hold may last longer than `replica.lag.time.max.ms`. The ISR shrinks then."""


@step(
    FAMILY,
    "kill_client",
    "{ number = 0 }",
    words="kills client {0.number} (SIGKILL)",
)
@dataclass(frozen=True, slots=True)
class KillClient(OfRandomRun):
    """Of a file with `run`: SIGKILL of a client process of the load. Another one takes its place
    when the step is undone."""

    passes: ClassVar[bool] = True
    number: Delay_ms
    """Which one: the remainder by the number of clients."""
