"""Markers on their way from a transaction coordinator to the leaders of a transaction's partitions.

One request a leader is under way at a time, with all that waits for that leader. What was not
written is sent again: at once to a new leader, after a while to the same. As Kafka's
TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker, Transaction
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import SendWriteTxnMarkers
from neaptide.clusters.broker.replication.interface.events import (
    MarkedPartition,
    MarkerRetry,
    WriteTxnMarkersFailed,
    WriteTxnMarkersResponded,
)
from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    EndTransactionMarker,
    TopicPartition,
)
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    PREPARED,
    TransactionState,
)

RETRY_MS: Final = 100
# A coordinator that is answered so has a successor, or its producer's epoch is no longer known to
# be the newest: it stops, and whoever coordinates next goes on.
_ENDS: Final = (Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED)


def send_markers(broker: Broker) -> None:
    """To each leader that has no request of this coordinator, all that is to be written there."""
    wanted: dict[int, dict[EndTransactionMarker, list[TopicPartition]]] = {}
    is_left = False
    for transactional_id, partitions in broker.unmarked.items():
        marker = marker_of(broker, broker.transactions[transactional_id])
        for place in partitions:
            leader = _leader_of(broker, place)
            if leader is None or leader in broker.marking:
                is_left = is_left or leader is None
            else:
                wanted.setdefault(leader, {}).setdefault(marker, []).append(place)
    for leader, of_leader in wanted.items():
        markers = tuple((marker, tuple(places)) for marker, places in of_leader.items())
        request = SendWriteTxnMarkers(leader, broker.next_sequence, markers)
        broker.next_sequence += 1
        broker.marking[leader] = request
        broker.do(request)
    if is_left:
        broker.set_timer(MarkerRetry(), RETRY_MS)


@rule
def marker_of(broker: Broker, known: Transaction) -> EndTransactionMarker:
    return EndTransactionMarker(
        known.metadata.producer_id,
        known.metadata.producer_epoch,
        broker.coordinator_epochs[known.partition],
        known.metadata.state is TransactionState.PREPARE_COMMIT,
    )


def _leader_of(broker: Broker, place: TopicPartition) -> int | None:
    """None: nobody that lives, as far as this broker knows, or it is not known yet."""
    known = broker.metadata.topics.get(place.topic, {}).get(place.partition)
    if known is None or known.state.leader == NO_LEADER:
        return None
    return known.state.leader if known.state.leader in broker.metadata.brokers else None


@rule
def on_responded(broker: Broker, event: WriteTxnMarkersResponded) -> None:
    """What is written is left out from now on."""
    request = broker.marking.get(event.leader)
    if request is None or request.sequence != event.sequence:
        return
    del broker.marking[event.leader]
    sent = {(marker.producer_id, place): marker for marker, of in request.markers for place in of}
    by_producer = {
        broker.transactions[one].metadata.producer_id: one for one in tuple(broker.unmarked)
    }
    for result in event.results:
        transactional_id = by_producer.get(result.producer_id)
        marker = sent.get((result.producer_id, result.partition))
        if transactional_id is None or transactional_id not in broker.unmarked:
            continue
        if marker != marker_of(broker, broker.transactions[transactional_id]):
            continue  # it was of another transaction, or of this one under an earlier coordinator
        _take(broker, transactional_id, result)


def _take(broker: Broker, transactional_id: str, result: MarkedPartition) -> None:
    if result.error in _ENDS:
        broker.note(f"{transactional_id}: no marker in {result.partition}: {result.error.name}")
        del broker.unmarked[transactional_id]
    elif result.error is not Error.NONE:
        broker.set_timer(MarkerRetry(), RETRY_MS)
    else:
        left = tuple(one for one in broker.unmarked[transactional_id] if one != result.partition)
        broker.unmarked[transactional_id] = left


def on_failed(broker: Broker, event: WriteTxnMarkersFailed) -> None:
    request = broker.marking.get(event.leader)
    if request is not None and request.sequence == event.sequence:
        del broker.marking[event.leader]
        broker.set_timer(MarkerRetry(), RETRY_MS)


def unfinished(broker: Broker) -> Iterator[str]:
    """Those whose markers are all written, and whose last record is not yet under way."""
    for transactional_id, left in tuple(broker.unmarked.items()):
        known = broker.transactions[transactional_id]
        if not left and known.pending is None and known.metadata.state in PREPARED:
            yield transactional_id
