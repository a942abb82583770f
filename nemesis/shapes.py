"""Network partitions in the field's shapes: from the brokers to who receives from whom. Pure.

Each shape is a function of the brokers, in an order that says which of them has which part: the
first is the one that is cut off, the bridge, the one who is mute. The ends `client` and
`coordination` are those of the links: whoever uses a client listener, and ZooKeeper or the
controllers of KRaft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final, Literal

from neaptide.nemesis.gate.model import CLIENT, COORDINATION, Purpose


@dataclass(frozen=True, slots=True)
class Deaf:
    """No byte comes from `source` to `destination`."""

    source: str
    destination: str
    purpose: Purpose


Brokers = Sequence[str]


def _deaf_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[Deaf, ...]:
    return tuple(Deaf(source, destination, "replication") for source, destination in pairs)


def _away_from(end: str, purpose: Purpose, brokers: Iterable[str]) -> tuple[Deaf, ...]:
    """These brokers and an end that is none receive nothing from each other."""
    return tuple(deaf for b in brokers for deaf in (Deaf(b, end, purpose), Deaf(end, b, purpose)))


def _alone(brokers: Iterable[str]) -> tuple[Deaf, ...]:
    """Without clients and coordination."""
    brokers = tuple(brokers)
    return (
        *_away_from(COORDINATION, "coordination", brokers),
        *_away_from(CLIENT, "client", brokers),
    )


def _between(one: Brokers, other: Brokers) -> tuple[Deaf, ...]:
    return _deaf_pairs(pair for a in one for b in other for pair in ((a, b), (b, a)))


def one(brokers: Brokers) -> tuple[Deaf, ...]:
    """The first is cut off from everybody and everything."""
    return (*_between(brokers[:1], brokers[1:]), *_alone(brokers[:1]))


def half(brokers: Brokers) -> tuple[Deaf, ...]:
    """Two halves; the smaller has neither clients nor the coordination service."""
    small = len(brokers) // 2
    return (*_between(brokers[:small], brokers[small:]), *_alone(brokers[:small]))


def majority_ring(brokers: Brokers) -> tuple[Deaf, ...]:
    """Each receives from a majority, itself included, and no two from the same one.

    They stand in a ring; each receives from itself and those next to it.
    """
    count = len(brokers)
    others = count // 2
    before = others // 2
    received = {
        (brokers[(index + step) % count], brokers[index])
        for index in range(count)
        for step in range(-before, others - before + 1)
    }
    return _deaf_pairs(pair for pair in permutations(brokers, 2) if pair not in received)


def bridge(brokers: Brokers) -> tuple[Deaf, ...]:
    """Two halves that receive nothing from each other; between the first and both all passes."""
    rest = brokers[1:]
    small = len(rest) // 2
    return _between(rest[:small], rest[small:])


def mute(brokers: Brokers) -> tuple[Deaf, ...]:
    """One way: the first receives from the others, and none of them from it."""
    return _deaf_pairs((brokers[0], other) for other in brokers[1:])


def deaf(brokers: Brokers) -> tuple[Deaf, ...]:
    """One way: the others receive from the first, and it from none of them."""
    return _deaf_pairs((other, brokers[0]) for other in brokers[1:])


def only_clients(brokers: Brokers) -> tuple[Deaf, ...]:
    """The first is cut off from its clients, and from nobody else."""
    return _away_from(CLIENT, "client", brokers[:1])


def only_coordination(brokers: Brokers) -> tuple[Deaf, ...]:
    """The first is cut off from the coordination service, and from nobody else."""
    return _away_from(COORDINATION, "coordination", brokers[:1])


def only_replication(brokers: Brokers) -> tuple[Deaf, ...]:
    """The first is cut off from the other brokers, and from nobody else."""
    return _between(brokers[:1], brokers[1:])


Shape = Literal[
    "one",
    "half",
    "majority-ring",
    "bridge",
    "mute",
    "deaf",
    "only-clients",
    "only-coordination",
    "only-replication",
]
SHAPES: Final[Mapping[Shape, Callable[[Brokers], tuple[Deaf, ...]]]] = {
    "one": one,
    "half": half,
    "majority-ring": majority_ring,
    "bridge": bridge,
    "mute": mute,
    "deaf": deaf,
    "only-clients": only_clients,
    "only-coordination": only_coordination,
    "only-replication": only_replication,
}
