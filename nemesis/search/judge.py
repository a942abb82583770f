"""What a world that has ended proves: the anomalies of the Spark checks, counted in the process.

It decides during a search, where there is no run directory. The rules are those of the checkers;
a test holds the two together on thousands of runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from clusters.simulation.world import World
from nemesis.search.ending import Ended, log_of
from nemesis.search.observed import assigned

WORST_FIRST = ("diverged", "lost", "duplicated", "reordered")
OUTCOMES = {
    "replica-divergence": "diverged",
    "lost-write": "lost",
    "unseen": "lost",
    "committed-then-lost": "lost",
    "inconsistent-offsets": "lost",
    "reordered": "reordered",
}


@dataclass(frozen=True, slots=True)
class Judged:
    outcome: str
    anomalies: tuple[tuple[str, int], ...]


def judge(world: World, ended: Ended) -> Judged:
    """Never `held` for want of evidence."""
    found: Counter[str] = Counter()
    _count_divergence(world, ended, found)
    if ended.final is not None:
        _count_losses(world, ended, dict(ended.final), found)
        _count_reorderings(world, found)
    words = {OUTCOMES[name] for name, count in found.items() if count and name in OUTCOMES}
    outcome = next((word for word in WORST_FIRST if word in words), None)
    if found["unproven-difference"] or ended.final is None:
        outcome = "unknown"
    if outcome is None:
        outcome = "held" if world.clients.acked or not world.clients.sends else "unavailable"
    return Judged(outcome, tuple(sorted((name, n) for name, n in found.items() if n)))


def _count_losses(world: World, ended: Ended, final: dict[int, str], found: Counter[str]) -> None:
    values = set(final.values())
    highest = max(final, default=-1)
    known: dict[int, set[str]] = {offset: {value} for offset, value in final.items()}
    for value, offset in world.clients.acked.items():
        is_deleted = offset is not None and offset < ended.start_offset
        if value not in values and not is_deleted:
            found["unseen" if offset is not None and offset > highest else "lost-write"] += 1
        if offset is not None:
            known.setdefault(offset, set()).add(value)
    for value, offset in world.clients.consumed.items():
        known.setdefault(offset, set()).add(value)
        if final.get(offset) != value and offset >= ended.start_offset:
            found["committed-then-lost"] += 1
    found["inconsistent-offsets"] += sum(len(values) > 1 for values in known.values())
    found["duplicate"] += sum(n > 1 for n in Counter(final.values()).values())


def _count_reorderings(world: World, found: Counter[str]) -> None:
    acked = sorted(
        (send.number, outcome.offset)
        for send, outcome in world.clients.sends.values()
        if outcome.kind == "ok" and outcome.offset is not None
    )
    highest = -1
    for _, offset in acked:
        if offset < highest:
            found["reordered"] += 1
        highest = max(highest, offset)


def _count_divergence(world: World, ended: Ended, found: Counter[str]) -> None:
    copies: dict[int, set[tuple[int, object]]] = {}
    replicas = assigned(world, world.partition)
    for broker_id in replicas:
        for offset, epoch, value in log_of(world, broker_id):
            copies.setdefault(offset, set()).add((epoch, value))
    below = min(
        (world.disks[b].high_watermarks.get(world.partition, 0) for b in replicas), default=0
    )
    for offset, held in copies.items():
        if len(held) > 1:
            proved = ended.level or offset < below
            found["replica-divergence" if proved else "unproven-difference"] += 1
