"""The faults of random runs: the table of their names, and each fault as a frozen value. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from neaptide.nemesis.drawn.aims import draw_episode
from neaptide.nemesis.drawn.episodes import Episode
from neaptide.nemesis.drawn.machines import (
    ClockFault,
    DiskFault,
    draw_clock,
    draw_disk,
    read_disk,
)
from neaptide.nemesis.drawn.members import MembersFault, draw_members
from neaptide.nemesis.drawn.shapes import SHAPES, Deaf
from neaptide.nemesis.drawn.targets import ROLES, Scope, Target, draw_target
from neaptide.nemesis.drawn.toxics import SlowFault, draw_slow
from neaptide.nemesis.gate.model import COORDINATION, Endpoint
from neaptide.nemesis.steps import InFlight, Purpose


@dataclass(frozen=True, slots=True)
class KillFault:
    """SIGKILL, then a start after a while."""

    target: Target
    in_flight: InFlight
    kind: Literal["kill"] = "kill"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.target.to_json(), "in_flight": self.in_flight}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> KillFault:
        return cls(Target.from_json(raw), _one_of(raw["in_flight"], get_args(InFlight)))


@dataclass(frozen=True, slots=True)
class DownFault:
    """A pause, a clean shutdown, or a power failure; undone after a while."""

    kind: Literal["pause", "restart", "power-off"]
    target: Target

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.target.to_json()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> DownFault:
        return cls(raw["kind"], Target.from_json(raw))


@dataclass(frozen=True, slots=True)
class CutFault:
    """One link, one way or both."""

    source: Endpoint
    destination: Endpoint
    purpose: Purpose
    both: bool
    kind: Literal["cut"] = "cut"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "source": self.source,
            "destination": self.destination,
            "purpose": self.purpose,
            "both": self.both,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CutFault:
        purpose = _one_of(raw["purpose"], get_args(Purpose))
        return cls(raw["source"], raw["destination"], purpose, bool(raw["both"]))


@dataclass(frozen=True, slots=True)
class PartitionFault:
    """A shape of `shapes.SHAPES`. `brokers`: in the order that says who has which part in it.

    `first`: who has the first part, if that is a role.
    """

    shape: str
    brokers: tuple[int, ...]
    first: Target | None = None
    kind: Literal["partition"] = "partition"

    def cuts(self, first: int | None = None) -> tuple[Deaf, ...]:
        """`first`: the broker that has the role now."""
        order = self.brokers
        if first in order:
            order = (first, *(broker for broker in order if broker != first))
        return SHAPES[self.shape](order)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "shape": self.shape,
            "order": list(self.brokers),
            "first": None if self.first is None else self.first.to_json(),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> PartitionFault:
        first = raw.get("first")
        return cls(
            _one_of(raw["shape"], tuple(SHAPES)),
            tuple(int(broker) for broker in raw["order"]),
            None if first is None else Target.from_json(first),
        )


@dataclass(frozen=True, slots=True)
class ClientFault:
    """A process of clients is killed, and replaced after a while.

    `client`: a number of any size, of which the remainder says who.
    """

    client: int
    kind: Literal["client"] = "client"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "client": self.client}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ClientFault:
        return cls(int(raw["client"]))


Fault = (
    KillFault
    | DownFault
    | CutFault
    | PartitionFault
    | ClientFault
    | SlowFault
    | ClockFault
    | DiskFault
    | MembersFault
    | Episode
)


@dataclass(frozen=True, slots=True)
class Given:
    """What a fault is drawn for.

    `faults`: all that were asked for. `aims`: how likely each shape of an aimed fault is.
    `coordinated`: the workload has a group, or transactions, and so a coordinator. `voters`: the
    cluster has a quorum that voters can leave.
    """

    brokers: Sequence[int]
    partitions: int
    faults: Sequence[str] = ()
    aims: Mapping[str, float] = field(default_factory=dict)
    coordinated: bool = False
    voters: bool = False

    def target(self, rng: random.Random, scopes: Sequence[Scope] = ()) -> Target:
        return draw_target(rng, self.brokers, self.partitions, scopes, coordinated=self.coordinated)


_CLIENTS_MAX: Final = 1 << 16

# --- drawing -------------------------------------------------------------------------------------


def _kill(rng: random.Random, given: Given) -> Fault:
    target = given.target(rng)
    return KillFault(target, rng.choice(("discarded", "delivered")))


def _down(kind: Literal["pause", "restart", "power-off"]) -> Callable[..., Fault]:
    def draw(rng: random.Random, given: Given) -> Fault:
        return DownFault(kind, given.target(rng))

    return draw


def _cut(rng: random.Random, given: Given) -> Fault:
    """Between two brokers, or between one and the coordination service; one way or both."""
    source = rng.choice(given.brokers)
    if rng.random() < 0.3:
        return CutFault(source, COORDINATION, "coordination", both=True)
    other = rng.choice([broker for broker in given.brokers if broker != source])
    return CutFault(source, other, "replication", both=rng.random() < 0.5)


def _partition(rng: random.Random, given: Given) -> Fault:
    shape = rng.choice(list(SHAPES))
    order = tuple(rng.sample(list(given.brokers), len(given.brokers)))
    first = None
    if rng.random() < 0.5:
        first = given.target(rng, ROLES)
    return PartitionFault(shape, order, first)


def _client(rng: random.Random, given: Given) -> Fault:
    return ClientFault(rng.randrange(_CLIENTS_MAX))


def _slow(rng: random.Random, given: Given) -> Fault:
    return draw_slow(rng, given.brokers)


def _clock(rng: random.Random, given: Given) -> Fault:
    return draw_clock(rng, given.brokers, given.partitions)


def _disk(rng: random.Random, given: Given) -> Fault:
    return draw_disk(rng, given.brokers, given.partitions)


def _members(rng: random.Random, given: Given) -> Fault:
    return draw_members(rng, given.brokers, given.partitions, voters=given.voters)


def _rounds(rng: random.Random, given: Given) -> Fault:
    return draw_episode(rng, given.partitions, given.aims, power_off="power-off" in given.faults)


# --- the table -----------------------------------------------------------------------------------

Draw = Callable[[random.Random, Given], Fault]
Means = Literal["toxics", "clocks", "calls"]
Read = Callable[[Mapping[str, Any]], Fault]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One name that `--nemesis` takes. `needs`: brokers, at least. `means`: what the machine
    must have. `lasts_s`: at least, at most."""

    what: str
    draw: Draw
    read: Read
    needs: int = 1
    of_clients: bool = False  # nothing is done to the cluster
    alone: bool = False  # never at the same time as another fault
    means: Means | None = None
    lasts_s: tuple[float, float] = (1.0, 5.0)


FAULTS: Final[Mapping[str, FaultKind]] = {
    "kill": FaultKind(
        "SIGKILL of one broker, a minority, a majority, all; or of the leader, a follower, the"
        " controller. They are started again later",
        _kill,
        KillFault.from_json,
    ),
    "pause": FaultKind("SIGSTOP, of the same brokers as kill", _down("pause"), DownFault.from_json),
    "restart": FaultKind(
        "a clean shutdown, of the same brokers as kill", _down("restart"), DownFault.from_json
    ),
    "power-off": FaultKind(
        "SIGKILL, of the same brokers as kill, and what was not flushed is gone: also a correct"
        " Kafka may lose acknowledged records",
        _down("power-off"),
        DownFault.from_json,
    ),
    "cut": FaultKind(
        "no byte passes over a link between two brokers, or to the coordination service, in one"
        " direction or both",
        _cut,
        CutFault.from_json,
        needs=2,
    ),
    "partition": FaultKind(
        f"many links are cut, in a shape: {', '.join(SHAPES)}",
        _partition,
        PartitionFault.from_json,
        needs=2,
    ),
    "client": FaultKind(
        "SIGKILL of a client process. Another one takes its place later",
        _client,
        ClientFault.from_json,
        of_clients=True,
    ),
    "slow": FaultKind(
        "a link of a broker, to its clients, its followers or the coordination service, is slow,"
        " narrow, sliced, cut short, closed late, silent or reset",
        _slow,
        SlowFault.from_json,
        means="toxics",
        lasts_s=(2.0, 6.0),
    ),
    "clock": FaultKind(
        "the clocks of the same brokers as kill jump, go forward and back, or drift",
        _clock,
        ClockFault.from_json,
        means="clocks",
        lasts_s=(4.0, 8.0),
    ),
    "disk": FaultKind(
        "writes or fsyncs of one broker fail or are slow; or the broker is killed and loses a bit,"
        " the end of a file, or a file that the others have",
        _disk,
        read_disk,
        needs=3,
        means="calls",
        lasts_s=(3.0, 6.0),
    ),
    "members": FaultKind(
        "a partition is reassigned, a broker removed and added, preferred leaders elected, the"
        " controller moved, a voter of a KRaft quorum removed and added, a topic created and"
        " deleted, a partition added, a setting changed",
        _members,
        MembersFault.from_json,
        needs=3,
    ),
    "rounds": FaultKind(
        "aimed at fetch rounds: holds, drops or delays Fetch or OffsetForLeaderEpoch messages, and"
        " kills, pauses or cuts off a broker when that has succeeded",
        _rounds,
        Episode.from_json,
        needs=3,
        alone=True,
    ),
}
ALL: Final = "all"
NONE: Final = "none"


def read_fault(raw: Mapping[str, Any]) -> Fault:
    """A saved fault. Raises UsageError, KeyError, TypeError or ValueError for what is none."""
    return FAULTS[_one_of(raw["kind"], tuple(FAULTS))].read(raw)


def _one_of(value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} must be one of {', '.join(map(str, allowed))}")
    return value


__all__ = ["ALL", "FAULTS", "NONE", "Fault", "FaultKind", "Given", "Means", "Scope", "read_fault"]
