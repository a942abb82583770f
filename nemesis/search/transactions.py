"""What a search sees of transactions without ending a world: what logs say that each came to.

All of it is read from disks, as `danger` and `is_suspect` do it for records (explore).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from neaptide.clusters.broker.replication.model import NO_LEADER, Batch
from neaptide.clusters.simulation.clients import TransactionalProducer
from neaptide.clusters.simulation.disk import values_of
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.looking import each
from neaptide.nemesis.search.observed import assigned

MANY = 2


def decisions_of(batches: Iterable[Batch]) -> dict[object, bool | None]:
    """Of each record of a transaction in a log: whether the marker behind it commits it; None:
    there is none."""
    found: dict[object, bool | None] = {}
    undecided: dict[int, list[object]] = {}
    for batch in batches:
        if batch.marker is not None:
            for value in undecided.pop(batch.marker.producer_id, ()):
                found[value] = batch.marker.is_commit
        elif batch.producer is not None and batch.producer.is_transactional:
            values = values_of(batch)
            undecided.setdefault(batch.producer.producer_id, []).extend(values)
            found.update(dict.fromkeys(values))
    return found


def is_lost(world: World) -> bool:
    """Whether a leader's log has the opposite of what a producer was answered."""
    if world.spec.transactions is None:
        return False
    ended = {
        value: outcome.kind == "ok"
        for value, (send, outcome) in world.clients.sends.items()
        if send.transaction is not None and outcome.kind in ("ok", "fail")
    }
    return any(
        decided is not None and ended.get(str(value), decided) is not decided
        for one in each(world)
        for value, decided in _decided_by_leader(one)
    )


def _decided_by_leader(world: World) -> Iterator[tuple[object, bool | None]]:
    state = world.service.states.get(world.partition)
    if state is not None and state.leader != NO_LEADER:
        yield from _decided_by(world, state.leader)


def _decided_by(world: World, broker_id: int) -> Iterable[tuple[object, bool | None]]:
    log = world.disks[broker_id].logs.get(world.partition)
    return decisions_of(log.batches if log else ()).items()


def nearer(world: World) -> int:
    """How much nearer to a loss than its copies say: one where a producer that has a successor is
    in a transaction, one where a replica does not know of an end that was answered."""
    if world.spec.transactions is None:
        return 0
    clients = world.clients
    newest: dict[int, int] = {}
    for one in clients.transactional.values():
        newest[one.producer_id] = max(newest.get(one.producer_id, -1), one.producer_epoch)
    has_zombie = any(
        one.transaction is not None and one.producer_epoch < newest[one.producer_id]
        for one in clients.transactional.values()
    )
    has_late = any(
        decided is None and str(value) in clients.sends
        for one in each(world)
        for broker_id in assigned(one, one.partition)
        for value, decided in _decided_by(one, broker_id)
    )
    return has_zombie + has_late


def abstract(world: World) -> Hashable:
    """What two worlds have in common whose transactions are not worth a distinction."""
    if world.spec.transactions is None:
        return None
    producers = sorted(map(_abstract, world.clients.transactional.values()), key=repr)
    logs = tuple(_undecided(one, b) for one in each(world) for b in assigned(one, one.partition))
    return tuple(producers), logs


def _abstract(one: TransactionalProducer) -> Hashable:
    asked = None if one.asked is None else one.asked.what
    of = (one.is_raw, one.is_over, bool(one.error), one.ending, asked)
    return (*of, one.transaction is not None, min(len(one.sent), MANY), len(one.added))


def _undecided(world: World, broker_id: int) -> Hashable:
    """How many records of a broker's log have no marker, and what the last marker says."""
    decided = [one for _, one in _decided_by(world, broker_id)]
    known = [one for one in decided if one is not None]
    return min(len(decided) - len(known), MANY), known[-1] if known else None
