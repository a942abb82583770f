"""Whom a fault is for: so many brokers, or whoever has a role when the fault begins. Pure.

How many is drawn before the run; who leads, and so who is meant by a role, is known only then.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

Scope = Literal[
    "one", "minority", "majority", "all", "leader", "follower", "controller", "coordinator"
]
ROLES: Final[tuple[Scope, ...]] = ("leader", "follower", "controller", "coordinator")
OF_A_PARTITION: Final = ("leader", "follower")
# Of ten faults three are for one broker, whoever it is; all at once are rare.
_WEIGHTS: Final[Mapping[Scope, float]] = {
    "one": 3,
    "minority": 1,
    "majority": 1,
    "all": 0.5,
    "leader": 2.5,
    "follower": 1,
    "controller": 1,
    "coordinator": 2.5,
}


@dataclass(frozen=True, slots=True)
class Target:
    """`brokers`: all of them, in an order that was drawn; the first so many are meant.

    A role is that of `partition`: `leader`, or `follower`, the first in this order that is in the
    ISR and does not lead. `controller`: the active one, which need not be a broker.
    `coordinator`: of the workload's group, or of its first transactional id.
    """

    scope: Scope
    brokers: tuple[int, ...]
    partition: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.scope,
            "brokers": list(self.brokers),
            **({"partition": self.partition} if self.scope in OF_A_PARTITION else {}),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Target:
        scope = raw["target"]
        if scope not in get_args(Scope):
            raise ValueError(f"{scope!r} is no target: must be one of {', '.join(get_args(Scope))}")
        brokers = tuple(int(broker) for broker in raw["brokers"])
        if not brokers:
            raise ValueError("a target needs brokers")
        return cls(scope, brokers, int(raw.get("partition", 0)))


@dataclass(frozen=True, slots=True)
class Seen:
    """What is seen of a partition and of the cluster when a fault begins."""

    leader: int | None
    isr: tuple[int, ...]
    controller: int | None
    coordinator: int | None = None


def draw_target(
    rng: random.Random,
    brokers: Sequence[int],
    partitions: int,
    scopes: Sequence[Scope] = (),
    *,
    coordinated: bool = False,
) -> Target:
    """`scopes`: of which to choose; none: of all. `coordinated`: there is a coordinator."""
    allowed = [
        scope
        for scope in _WEIGHTS
        if (not scopes or scope in scopes) and (coordinated or scope != "coordinator")
    ]
    [scope] = rng.choices(allowed, [_WEIGHTS[scope] for scope in allowed])
    order = tuple(rng.sample(list(brokers), len(brokers)))
    partition = rng.randrange(partitions)
    return Target(scope, order, partition if scope in OF_A_PARTITION else 0)


def resolve(target: Target, seen: Seen) -> tuple[int, ...]:
    """The nodes that are meant; none where nobody has the role now."""
    count = len(target.brokers)
    match target.scope:
        case "one":
            return target.brokers[:1]
        case "minority":
            return target.brokers[: max(1, (count - 1) // 2)]
        case "majority":
            return target.brokers[: count // 2 + 1]
        case "all":
            return target.brokers
        case "leader":
            return () if seen.leader is None else (seen.leader,)
        case "follower":
            others = [b for b in target.brokers if b in seen.isr and b != seen.leader]
            return tuple(others[:1])
        case "controller":
            return () if seen.controller is None else (seen.controller,)
        case "coordinator":
            return () if seen.coordinator is None else (seen.coordinator,)
