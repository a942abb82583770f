"""Hands out producer ids: InitProducerId of producers without a transactional id (KIP-98).

Not the epochs of transactional ids: there are no transactions, and every request gets an id that
nobody has had, in epoch 0. Rule: ids come in blocks from the coordination service, each of which
one broker gets; what is left of a block when its broker dies is never used.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AllocateProducerIds,
    ProducerIdsAllocated,
)
from neaptide.clusters.broker.replication.interface.effects import RespondInitProducerId
from neaptide.clusters.broker.replication.interface.events import InitProducerIdRequested

NO_PRODUCER_ID = -1
FIRST_EPOCH = 0


def on_init_producer_id(broker: Broker, event: InitProducerIdRequested, now_ms: int) -> None:
    if event.transactional_id is not None:
        refusal = Error.INVALID_REQUEST
        broker.note(f"InitProducerId of {event.transactional_id!r}: there are no transactions here")
        broker.do(RespondInitProducerId(event.request, refusal, NO_PRODUCER_ID, NO_PRODUCER_ID))
        return
    ids = broker.producer_ids
    broker.producer_ids = replace(ids, waiting=(*ids.waiting, event.request))
    _hand_out(broker)


def _hand_out(broker: Broker) -> None:
    """Ids to those who wait, as far as the block goes; then the next block is asked for."""
    ids = broker.producer_ids
    served = ids.waiting[: ids.end - ids.next]
    for number, request in enumerate(served, start=ids.next):
        broker.do(RespondInitProducerId(request, Error.NONE, number, FIRST_EPOCH))
    left = ids.waiting[len(served) :]
    asks = bool(left) and not ids.is_allocating
    if asks:
        broker.coordinate(AllocateProducerIds())
    broker.producer_ids = replace(
        ids, next=ids.next + len(served), waiting=left, is_allocating=ids.is_allocating or asks
    )


def on_producer_ids_allocated(broker: Broker, event: ProducerIdsAllocated, now_ms: int) -> None:
    broker.producer_ids = replace(
        broker.producer_ids, next=event.first, end=event.end, is_allocating=False
    )
    _hand_out(broker)


def on_session_expired(broker: Broker) -> None:
    """What was asked of the session that is over is not answered."""
    broker.producer_ids = replace(broker.producer_ids, is_allocating=False)


def on_session_started(broker: Broker) -> None:
    _hand_out(broker)


def forget_request(broker: Broker, request: int) -> None:
    """Nobody waits for the answer any more."""
    ids = broker.producer_ids
    if request in ids.waiting:
        waiting = tuple(one for one in ids.waiting if one != request)
        broker.producer_ids = replace(ids, waiting=waiting)
