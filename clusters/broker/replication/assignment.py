"""Which brokers hold a new topic's replicas, where the request does not say (C9).

Leaders go round the brokers; each further replica is shifted, by one more every full round, so
that one broker's death spreads its load. The first broker follows from the topic's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.clusters.broker.replication.java import java_hash


def assign_replicas(
    topic: str, brokers: Sequence[int], num_partitions: int, replication_factor: int
) -> dict[int, tuple[int, ...]]:
    """Assigned replicas by partition. Needs 1 ≤ replication_factor ≤ len(brokers)."""
    ordered = sorted(brokers)
    count = len(ordered)
    start = java_hash(topic) % count
    assignment = {}
    for partition in range(num_partitions):
        first = (start + partition) % count
        shift = (start + partition // count) % max(1, count - 1)
        replicas = [ordered[first]]
        for number in range(replication_factor - 1):
            distance = 1 + (shift + number) % (count - 1)
            replicas.append(ordered[(first + distance) % count])
        assignment[partition] = tuple(replicas)
    return assignment
