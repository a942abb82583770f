"""What a replica does about WriteTxnMarkers and DescribeProducers: end transactions, describe them.

As Kafka's KafkaApis.handleWriteTxnMarkersRequest. A marker is appended as any batch, and answered
when all of the ISR have it. In a partition of `__consumer_offsets` the offsets of the transaction
hold, or are forgotten, from then on.
Source: KIP-98 ("WriteTxnMarkersRequest"), KIP-664 (DescribeProducers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group import group_metadata_manager
from neaptide.clusters.broker.replication.interface.effects import (
    ActiveProducer,
    RespondDescribeProducers,
    RespondWriteTxnMarkers,
)
from neaptide.clusters.broker.replication.interface.events import (
    ACKS_ALL,
    DescribeProducersRequested,
    MarkedPartition,
    ProducedBatch,
    WriteTxnMarkersRequested,
)
from neaptide.clusters.broker.replication.leader import produce, purgatory
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.replication.rule import rule

MARKER_BYTES: Final = 78  # a batch of one control record
_NO_SEQUENCE: Final = -1
_NO_TRANSACTION: Final = -1

Place = tuple[EndTransactionMarker, TopicPartition]


@rule
def on_write_txn_markers(broker: Broker, event: WriteTxnMarkersRequested, now_ms: int) -> None:
    appended: dict[Place, Appended] = {}
    for marker, partitions in event.markers:
        batch = ProducedBatch(1, MARKER_BYTES, (marker,), marker=marker)
        for place in partitions:
            appended[marker, place] = produce.append(
                broker, place, (batch,), ACKS_ALL, now_ms, of_coordinator=True
            )
    waiting = DelayedMarkers(event.request, appended)
    purgatory.complete_or_park(broker, waiting, broker.settings.request_timeout_ms)


@dataclass(frozen=True, slots=True)
class DelayedMarkers:
    """Markers that are not yet below the high watermark."""

    request: int
    appended: Mapping[Place, Appended]

    @property
    def watched(self) -> tuple[TopicPartition, ...]:
        return tuple(dict.fromkeys(place for _, place in self.appended))

    def updated(self, broker: Broker) -> DelayedMarkers:
        outcomes = {
            (marker, place): produce.with_outcome(broker, place, one)
            for (marker, place), one in self.appended.items()
        }
        return replace(self, appended=outcomes)

    def is_complete(self, broker: Broker) -> bool:
        return all(one.error is not None for one in self.appended.values())

    @rule
    def complete(self, broker: Broker) -> None:
        """One that still waits has run out of time: its coordinator writes it again."""
        results = []
        for (marker, place), one in self.appended.items():
            error = Error.REQUEST_TIMED_OUT if one.error is None else one.error
            if error is Error.NONE:
                group_metadata_manager.on_transaction_ended(
                    broker, place, marker.producer_id, is_commit=marker.is_commit
                )
            results.append(MarkedPartition(marker.producer_id, place, error))
        broker.do(RespondWriteTxnMarkers(self.request, tuple(results)))


def on_describe_producers(broker: Broker, event: DescribeProducersRequested, now_ms: int) -> None:
    results = tuple((place, *_producers_of(broker, place)) for place in event.partitions)
    broker.do(RespondDescribeProducers(event.request, results))


def _producers_of(
    broker: Broker, topic_partition: TopicPartition
) -> tuple[Error, tuple[ActiveProducer, ...]]:
    """Of any replica: what followers know may be what an operator looks for."""
    partition = broker.partitions.get(topic_partition)
    if partition is None:
        return leader_error(broker, topic_partition), ()
    ongoing = partition.log.transactions.ongoing
    active = tuple(
        ActiveProducer(
            producer_id,
            known.producer_epoch,
            known.batches[-1].last_sequence if known.batches else _NO_SEQUENCE,
            known.coordinator_epoch,
            ongoing.get(producer_id, _NO_TRANSACTION),
        )
        for producer_id, known in partition.log.producers.items()
    )
    return Error.NONE, active
