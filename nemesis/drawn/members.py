"""Changes of what a cluster consists of, drawn as steps. Pure: nothing is done here."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from neaptide.nemesis.drawn.machines import Table

_REPLICAS: Final = 3
# None of them may lose anything, nor change who must acknowledge.
SETTINGS: Final = (
    ("segment.bytes", "1048576"),
    ("segment.ms", "2000"),
    ("flush.messages", "1"),
    ("max.message.bytes", "500000"),
    ("index.interval.bytes", "128"),
)


def _reassign(rng: random.Random, brokers: Sequence[str], partition: int) -> Table:
    """One replica less than it began with."""
    count = max(1, min(_REPLICAS, len(brokers)) - 1)
    return {"replicas": rng.sample(list(brokers), count), "partition": partition}


def _setting(rng: random.Random, brokers: Sequence[str], partition: int) -> Table:
    name, value = rng.choice(SETTINGS)
    return {"name": name, "value": value}


_Draw = Callable[[random.Random, Sequence[str], int], Table]
# By verb; `remove_voter` is of the one who is active, or of another one.
_ACTIONS: Final[Mapping[tuple[str, bool], tuple[float, _Draw]]] = {
    ("reassign", False): (3, _reassign),
    ("remove_broker", False): (2, lambda rng, brokers, _: {"broker": rng.choice(brokers)}),
    ("elect", False): (2, lambda rng, brokers, partition: {"partition": partition}),
    ("move_controller", False): (2, lambda rng, brokers, _: {}),
    ("remove_voter", True): (2, lambda rng, brokers, _: {"controller": "active"}),
    ("remove_voter", False): (1, lambda rng, brokers, _: {"broker": "standby"}),
    ("add_partition", False): (0.5, lambda rng, brokers, _: {}),
    ("set_topic", False): (1, _setting),
    ("create_topic", False): (1, lambda rng, brokers, _: {}),
}


def draw_members(
    rng: random.Random, brokers: Sequence[str], partitions: int, *, voters: bool = False
) -> tuple[str, Table]:
    """The verb, and its table. `voters`: those of a quorum can leave it; then the controller moves
    because it leaves, and not because its znode is deleted."""
    left = ("move_controller",) if voters else ("remove_voter",)
    weights = {key: weight for key, (weight, _) in _ACTIONS.items() if key[0] not in left}
    [key] = rng.choices(list(weights), list(weights.values()))
    return key[0], _ACTIONS[key][1](rng, brokers, rng.randrange(partitions))
