"""Changes of what a cluster consists of, as faults of a random run. Pure: nothing is done here.

reassign    one partition loses a replica, and gets it back
remove      one broker gives its replicas away and is shut down; it comes back and gets them back
elect       the preferred leaders of all partitions are elected
controller  another controller becomes the active one
voter       a controller that is not the active one leaves the quorum, and comes back (in KRaft)
partitions  the topic gets one partition more, to which nobody sends
settings    a setting of the topic is changed, and changed back
topic       another topic is created, and deleted
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Action = Literal[
    "reassign", "remove", "elect", "controller", "voter", "partitions", "settings", "topic"
]
_WEIGHTS: Final[Mapping[Action, float]] = {
    "reassign": 3,
    "remove": 2,
    "elect": 2,
    "controller": 2,
    "voter": 1,
    "partitions": 0.5,
    "settings": 1,
    "topic": 1,
}
# None of them may lose anything, nor change who must acknowledge.
SETTINGS: Final = (
    ("segment.bytes", "1048576"),
    ("segment.ms", "2000"),
    ("flush.messages", "1"),
    ("max.message.bytes", "500000"),
    ("index.interval.bytes", "128"),
)


@dataclass(frozen=True, slots=True)
class MembersFault:
    """`brokers`: in an order that was drawn; the first is the one that loses something."""

    action: Action
    brokers: tuple[int, ...]
    partition: int = 0
    setting: tuple[str, str] = SETTINGS[0]
    kind: Literal["members"] = "members"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "action": self.action,
            "order": list(self.brokers),
            "partition": self.partition,
            "setting": list(self.setting),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> MembersFault:
        if raw["action"] not in _WEIGHTS:
            raise ValueError(f"{raw['action']!r} must be one of {', '.join(_WEIGHTS)}")
        name, value = raw["setting"]
        order = tuple(int(broker) for broker in raw["order"])
        return cls(raw["action"], order, int(raw["partition"]), (str(name), str(value)))


def draw_members(
    rng: random.Random, brokers: Sequence[int], partitions: int, *, voters: bool = False
) -> MembersFault:
    """`voters`: those of a quorum can leave it."""
    weights = {action: weight for action, weight in _WEIGHTS.items() if voters or action != "voter"}
    [action] = rng.choices(list(weights), list(weights.values()))
    order = tuple(rng.sample(list(brokers), len(brokers)))
    return MembersFault(action, order, rng.randrange(partitions), rng.choice(SETTINGS))


def without(
    broker: int, assignment: Mapping[int, Sequence[int]], brokers: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Where the replicas of one broker go: to the next that has none, or nowhere if all have one.

    Only partitions that change; a partition is left with one replica at least.
    """
    changed: dict[int, tuple[int, ...]] = {}
    for partition, replicas in assignment.items():
        free = [other for other in brokers if other != broker and other not in replicas]
        rest = tuple(free[0] if one == broker and free else one for one in replicas)
        rest = tuple(one for one in rest if one != broker)
        if broker in replicas and rest:
            changed[partition] = rest
    return changed
