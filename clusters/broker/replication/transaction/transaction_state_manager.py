"""Which transactional ids a broker coordinates, and what it knows of their transactions.

Who becomes leader of a partition of `__transaction_state` reads all of its log, and who ceases to
lead forgets, as group coordinators do. The partition's leader epoch is the coordinator's epoch:
logs take no marker of a coordinator that has a successor. As Kafka's TransactionStateManager.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker, Transaction
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import partition_for
from neaptide.clusters.broker.replication.interface.effects import ReadTransactions
from neaptide.clusters.broker.replication.interface.events import (
    ACKS_ALL,
    ProducedBatch,
    TransactionExpiration,
    TransactionsRead,
)
from neaptide.clusters.broker.replication.leader import produce
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    PREPARED,
    TRANSACTIONS_TOPIC,
    TransactionMetadata,
    TransactionState,
)


def on_election(broker: Broker, topic_partition: TopicPartition) -> None:
    """This broker leads a partition: where it is one of transactions, its log is read."""
    if topic_partition.topic == TRANSACTIONS_TOPIC:
        broker.do(ReadTransactions(topic_partition))


@rule
def on_resignation(broker: Broker, topic_partition: TopicPartition) -> None:
    """Another broker coordinates them now. What waits for a record here is refused when it sees
    that this broker leads no more."""
    if broker.coordinator_epochs.pop(topic_partition, None) is not None:
        _forget(broker, topic_partition)


def _forget(broker: Broker, topic_partition: TopicPartition) -> None:
    for transactional_id, known in tuple(broker.transactions.items()):
        if known.partition == topic_partition:
            del broker.transactions[transactional_id]
            broker.unmarked.pop(transactional_id, None)


@rule
def on_transactions_read(broker: Broker, event: TransactionsRead, now_ms: int) -> None:
    """Those whose end is decided have no marker yet, as far as this coordinator knows."""
    partition = broker.led(event.partition)
    if partition is None:
        return
    assert isinstance(partition.role, Leader)
    _forget(broker, event.partition)
    if not broker.coordinator_epochs:
        interval = broker.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        broker.set_timer(TransactionExpiration(), interval)
    broker.coordinator_epochs[event.partition] = partition.leader_epoch
    for metadata in event.transactions:
        broker.transactions[metadata.transactional_id] = Transaction(event.partition, metadata)
        if metadata.state in PREPARED:
            broker.unmarked[metadata.transactional_id] = metadata.partitions


@rule
def coordinated(broker: Broker, transactional_id: str) -> tuple[TopicPartition, Error]:
    """Its partition, and whether this broker may speak for it."""
    count = broker.metadata.partition_counts.get(TRANSACTIONS_TOPIC)
    place = partition_for(transactional_id, count or 1, TRANSACTIONS_TOPIC)
    if not count or place not in broker.coordinator_epochs:
        return place, Error.NOT_COORDINATOR
    return place, Error.NONE


@rule
def append(
    broker: Broker, place: TopicPartition, metadata: TransactionMetadata, now_ms: int
) -> Appended:
    """Its bytes are made where they are written."""
    batch = ProducedBatch(1, metadata.size_bytes, (metadata,))
    return produce.append(broker, place, (batch,), ACKS_ALL, now_ms, of_coordinator=True)


def begin_transition(
    broker: Broker, place: TopicPartition, before: TransactionMetadata, pending: TransactionState
) -> None:
    """From now on nothing else may change until its record is committed."""
    broker.transactions[before.transactional_id] = Transaction(place, before, pending)


def end_transition(broker: Broker, after: TransactionMetadata, *, is_written: bool) -> None:
    """The record is committed, or nobody knows what became of it, and the state is as before."""
    known = broker.transactions[after.transactional_id]
    metadata = after if is_written else known.metadata
    broker.transactions[after.transactional_id] = replace(known, metadata=metadata, pending=None)
