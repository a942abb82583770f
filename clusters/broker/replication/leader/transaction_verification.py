"""Before a leader takes the first batch of a transaction, it asks whether there is one (KIP-890).

From 3.6 on: a write that is late, behind the marker of its transaction, would open another one that
nobody ends. Its coordinator says whether the partition is in a transaction of that producer now.
As Kafka's AddPartitionsToTxnManager and the verification guard of its ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker, Verification
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.group_coordinator import coordinator_of
from neaptide.clusters.broker.replication.interface.effects import SendAddPartitionsToTxn
from neaptide.clusters.broker.replication.interface.events import (
    AddPartitionsToTxnFailed,
    AddPartitionsToTxnResponded,
    ProducedBatch,
    ProduceRequested,
)
from neaptide.clusters.broker.replication.leader import produce
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
)

# What a producer is answered for what the coordinator said. What may be well the next time is an
# error after which all clients try again.
_ANSWERS: Final = {
    Error.CONCURRENT_TRANSACTIONS: Error.NOT_ENOUGH_REPLICAS,
    Error.COORDINATOR_NOT_AVAILABLE: Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_COORDINATOR: Error.NOT_ENOUGH_REPLICAS,
    Error.PRODUCER_FENCED: Error.INVALID_PRODUCER_EPOCH,
}


def on_produce(broker: Broker, event: ProduceRequested, now_ms: int) -> None:
    """Takes a request, or puts it off until the coordinator has answered."""
    unverified = unverified_in(broker, event)
    if not unverified:
        produce.on_produce(broker, event, now_ms)
        return
    transactional_id = event.transactional_id
    assert transactional_id is not None
    coordinator = coordinator_of(broker.metadata, transactional_id, TRANSACTIONS_TOPIC)
    if coordinator is None:
        failed = dict.fromkeys(unverified, Error.COORDINATOR_NOT_AVAILABLE)
        go_on(broker, Verification(event, unverified), failed, now_ms)
        return
    batches = next(of for place, of in event.partitions if place in unverified)
    producer = batches[0].producer
    assert producer is not None
    request = SendAddPartitionsToTxn(
        coordinator,
        broker.next_sequence,
        transactional_id,
        producer.producer_id,
        producer.producer_epoch,
        tuple(unverified),
    )
    broker.next_sequence += 1
    broker.verifying[request.sequence] = Verification(event, unverified)
    broker.do(request)


@rule
def unverified_in(broker: Broker, event: ProduceRequested) -> dict[TopicPartition, int]:
    """Where a batch would be the first of a transaction; with the offset behind the producer's last
    marker there, which guards what the coordinator will say: it must not be another one by then."""
    if not broker.rules.verifies_transactions or event.transactional_id is None:
        return {}
    return {
        place: _after_marker(broker, place, batches)
        for place, batches in event.partitions
        if _is_first_in_transaction(broker, place, batches)
    }


def _is_first_in_transaction(
    broker: Broker, place: TopicPartition, batches: tuple[ProducedBatch, ...]
) -> bool:
    partition = broker.led(place)
    producer = batches[0].producer if batches else None
    if partition is None or producer is None or not producer.is_transactional:
        return False
    return producer.producer_id not in partition.log.transactions.ongoing


def _after_marker(broker: Broker, place: TopicPartition, batches: tuple[ProducedBatch, ...]) -> int:
    partition, producer = broker.led(place), batches[0].producer
    if partition is None or producer is None:
        return -1
    known = partition.log.producers.state_of(producer.producer_id)
    return -1 if known is None else known.after_marker


def on_verified(broker: Broker, event: AddPartitionsToTxnResponded, now_ms: int) -> None:
    verification = broker.verifying.pop(event.sequence, None)
    if verification is not None:
        go_on(broker, verification, dict(event.results), now_ms)


def on_not_verified(broker: Broker, event: AddPartitionsToTxnFailed, now_ms: int) -> None:
    verification = broker.verifying.pop(event.sequence, None)
    if verification is not None:
        failed = dict.fromkeys(verification.guards, Error.COORDINATOR_NOT_AVAILABLE)
        go_on(broker, verification, failed, now_ms)


@rule
def go_on(
    broker: Broker,
    verification: Verification,
    said: Mapping[TopicPartition, Error],
    now_ms: int,
) -> None:
    """What has no transaction, or no longer the one that was asked about, is refused."""
    refused = {}
    for place, batches in verification.event.partitions:
        if place not in verification.guards:
            continue
        error = said.get(place, Error.COORDINATOR_NOT_AVAILABLE)
        if error is Error.NONE and (
            _after_marker(broker, place, batches) != verification.guards[place]
        ):
            error = Error.INVALID_TXN_STATE
        if error is not Error.NONE:
            refused[place] = _ANSWERS.get(error, error)
    produce.on_produce(broker, verification.event, now_ms, refused)


def forget_request(broker: Broker, request: int) -> None:
    """Nobody waits for the answer any more; as nothing was appended, nothing is."""
    for sequence, verification in tuple(broker.verifying.items()):
        if verification.event.request == request:
            del broker.verifying[sequence]
