"""Hands out producer ids, in the order in which they are asked for (KIP-98).

Not the epochs of transactional ids: see transaction_coordinator. Rule: ids come in blocks from the
coordination service, each of which one broker gets; what is left of a block when its broker dies is
never used.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AllocateProducerIds,
    ProducerIdsAllocated,
)


def wait(broker: Broker, request: int) -> None:
    ids = broker.producer_ids
    broker.producer_ids = replace(ids, waiting=(*ids.waiting, request))


def hand_out(broker: Broker) -> tuple[tuple[int, int], ...]:
    """(request, id) of those who wait, as far as the block goes; then the next one is asked for."""
    ids = broker.producer_ids
    served = ids.waiting[: ids.end - ids.next]
    left = ids.waiting[len(served) :]
    asks = bool(left) and not ids.is_allocating
    if asks:
        broker.coordinate(AllocateProducerIds())
    broker.producer_ids = replace(
        ids, next=ids.next + len(served), waiting=left, is_allocating=ids.is_allocating or asks
    )
    return tuple((request, number) for number, request in enumerate(served, start=ids.next))


def on_allocated(broker: Broker, event: ProducerIdsAllocated) -> None:
    broker.producer_ids = replace(
        broker.producer_ids, next=event.first, end=event.end, is_allocating=False
    )


def on_session_expired(broker: Broker) -> None:
    """What was asked of the session that is over is not answered."""
    broker.producer_ids = replace(broker.producer_ids, is_allocating=False)


def forget_request(broker: Broker, request: int) -> None:
    """Nobody waits for the answer any more."""
    ids = broker.producer_ids
    if request in ids.waiting:
        waiting = tuple(one for one in ids.waiting if one != request)
        broker.producer_ids = replace(ids, waiting=waiting)
