"""Which brokers hold a new topic's replicas, where the request does not say (C9).

Leaders go round the brokers; each further replica is shifted, by one more every full round, so
that one broker's death spreads its load. The first broker follows from the topic's name. Where
every broker has a rack, neighbours in the round are of different racks, and no rack has a second
replica of a partition before every rack has one (KIP-36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from neaptide.clusters.broker.replication.java import java_hash

Racks = Mapping[int, str]


def assign_replicas(
    topic: str,
    brokers: Sequence[int],
    num_partitions: int,
    replication_factor: int,
    racks: Mapping[int, str | None] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Assigned replicas by partition. Needs 1 ≤ replication_factor ≤ len(brokers).

    `racks`, by broker, count only where every broker has one.
    """
    known = {broker: rack for broker in brokers if (rack := (racks or {}).get(broker)) is not None}
    is_rack_aware = len(known) == len(brokers)
    ordered = alternate(known) if is_rack_aware else sorted(brokers)
    count = len(ordered)
    start = java_hash(topic) % count
    assignment = {}
    for partition in range(num_partitions):
        first = (start + partition) % count
        shift = (start + partition // count) % max(1, count - 1)
        others = [
            ordered[(first + 1 + (shift + n) % (count - 1)) % count] for n in range(count - 1)
        ]
        replicas = [ordered[first], *others]
        if is_rack_aware:
            replicas = _racks_first(replicas, known)
        assignment[partition] = tuple(replicas[:replication_factor])
    return assignment


def alternate(racks: Racks) -> list[int]:
    """The brokers of all racks: the first of each rack, then the second of each, and so on."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = range(max(map(len, by_rack.values()), default=0))
    return [by_rack[rack][n] for n in rounds for rack in sorted(by_rack) if n < len(by_rack[rack])]


def _racks_first(replicas: Iterable[int], racks: Racks) -> list[int]:
    """In the same order, but whose rack has none yet comes before whose rack has one."""
    first: list[int] = []
    later: list[int] = []
    seen: set[str] = set()
    for broker in replicas:
        (later if racks[broker] in seen else first).append(broker)
        seen.add(racks[broker])
    return first + later
