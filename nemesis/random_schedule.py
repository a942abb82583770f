"""A random schedule, drawn whole from one seed before the run begins.

One fault at a time: it is done, lasts, is undone, and the cluster has a while to itself. Times are
seconds since the load began. The same seed, faults, brokers and length give the same schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.model import COORDINATION, Endpoint
from neaptide.nemesis.steps import InFlight, Purpose

_LASTS_S: Final = (1.0, 5.0)
_QUIET_S: Final = (2.0, 5.0)
_FIRST_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class KillFault:
    """SIGKILL, then a start after a while."""

    broker: int
    in_flight: InFlight
    kind: Literal["kill"] = "kill"


@dataclass(frozen=True, slots=True)
class PauseFault:
    broker: int
    kind: Literal["pause"] = "pause"


@dataclass(frozen=True, slots=True)
class RestartFault:
    """A clean shutdown, then a start after a while."""

    broker: int
    kind: Literal["restart"] = "restart"


@dataclass(frozen=True, slots=True)
class CutFault:
    source: Endpoint
    destination: Endpoint
    purpose: Purpose
    both: bool
    kind: Literal["cut"] = "cut"


@dataclass(frozen=True, slots=True)
class ClientFault:
    """A process of clients is killed, and replaced after a while; by its place in the pool."""

    client: int
    kind: Literal["client"] = "client"


Fault = KillFault | PauseFault | RestartFault | CutFault | ClientFault


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    at_s: float
    lasts_s: float
    fault: Fault

    def to_json(self) -> dict[str, Any]:
        return {"at_s": self.at_s, "lasts_s": self.lasts_s, **asdict(self.fault)}


def _kill(rng: random.Random, brokers: Sequence[int]) -> Fault:
    return KillFault(rng.choice(brokers), rng.choice(("discarded", "delivered")))


def _pause(rng: random.Random, brokers: Sequence[int]) -> Fault:
    return PauseFault(rng.choice(brokers))


def _restart(rng: random.Random, brokers: Sequence[int]) -> Fault:
    return RestartFault(rng.choice(brokers))


def _cut(rng: random.Random, brokers: Sequence[int]) -> Fault:
    """Between two brokers, or between one and the coordination service; one way or both."""
    one = rng.choice(brokers)
    if rng.random() < 0.3:
        return CutFault(one, COORDINATION, "coordination", both=True)
    other = rng.choice([broker for broker in brokers if broker != one])
    return CutFault(one, other, "replication", both=rng.random() < 0.5)


CLIENT: Final = "client"
FAULTS: Final[dict[str, Callable[[random.Random, Sequence[int]], Fault]]] = {
    "kill": _kill,
    "pause": _pause,
    "restart": _restart,
    "cut": _cut,
}


def parse_faults(text: str) -> tuple[str, ...]:
    """`kill,pause,cut`, or `none`. Raises UsageError."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ("none",):
        return ()
    for name in names:
        if name not in (*FAULTS, CLIENT):
            there = ", ".join((*FAULTS, CLIENT))
            raise UsageError(f"There is no fault {name!r}; it must be one of {there}, or none.")
    if not names:
        there = ", ".join((*FAULTS, CLIENT))
        raise UsageError(f"Name faults, as in kill,pause; there are {there}, or none.")
    return names


def draw_schedule(
    seed: int, faults: Sequence[str], brokers: Sequence[int], time_s: float, clients: int = 1
) -> tuple[ScheduledFault, ...]:
    """Faults until the time is over; the last one ends before it."""
    rng = random.Random(seed)
    schedule: list[ScheduledFault] = []
    at_s = _FIRST_S
    while faults:
        lasts_s = round(rng.uniform(*_LASTS_S), 3)
        if at_s + lasts_s > time_s:
            break
        kind = rng.choice(list(faults))
        fault: Fault
        if kind == CLIENT:
            fault = ClientFault(rng.randrange(clients))
        else:
            fault = FAULTS[kind](rng, list(brokers))
        schedule.append(ScheduledFault(round(at_s, 3), lasts_s, fault))
        at_s += lasts_s + rng.uniform(*_QUIET_S)
    return tuple(schedule)
