"""A log as replication sees it: where it starts and ends, its epochs, producers, transactions.

The batches themselves, on disk or in a simulation, are the shell's; every change here comes with
an effect that makes the same change there. The end offset moves by append and truncation only. As
Kafka's UnifiedLog, without segments: those are in broker/storage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError
from neaptide.clusters.broker.replication.model import Batch
from neaptide.clusters.broker.replication.partition import (
    leader_epoch_file_cache,
    producer_state_manager,
    transactions,
)
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import Epochs
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    Producers,
    no_producers,
)
from neaptide.clusters.broker.replication.partition.transactions import (
    Transactions,
    no_transactions,
)
from neaptide.clusters.broker.replication.rule import rule


@dataclass(frozen=True, slots=True)
class UnifiedLog:
    """`appended_bytes` only grows: differences show a delayed fetch how much has arrived."""

    start_offset: int = 0
    end_offset: int = 0
    epochs: Epochs = ()
    appended_bytes: int = 0
    producers: Producers = field(default_factory=no_producers)
    transactions: Transactions = field(default_factory=no_transactions)


@rule
def follows(log: UnifiedLog, batches: tuple[Batch, ...]) -> bool:
    """Whether each of these batches begins behind the log, or the batch before, ends.

    There may be gaps: a leader's log that was compacted has them.
    """
    end_offset = log.end_offset
    for batch in batches:
        if batch.base_offset < end_offset:
            return False
        end_offset = batch.next_offset
    return True


def starts_inside(log: UnifiedLog, batches: tuple[Batch, ...]) -> bool:
    """Whether the log is empty and starts inside these batches: their first has to be whole."""
    if not batches or log.start_offset != log.end_offset:
        return False
    return batches[0].base_offset < log.end_offset < batches[-1].next_offset


def append(log: UnifiedLog, batches: tuple[Batch, ...], *, record_epochs: bool) -> UnifiedLog:
    """Appends batches that begin at or above the log end offset; one below is an error (F8)."""
    end_offset, epochs, size = log.end_offset, log.epochs, 0
    producers, transactions_of_log = log.producers, log.transactions
    for batch in batches:
        if batch.base_offset < end_offset:
            raise IllegalReplicaStateError(
                f"a batch at offset {batch.base_offset} is below log end offset {end_offset}"
            )
        if record_epochs:
            epochs = leader_epoch_file_cache.assign(epochs, batch.leader_epoch, batch.base_offset)
        if batch.producer is not None or batch.marker is not None:
            producers = producer_state_manager.learn(producers, batch)
            transactions_of_log = transactions.after(transactions_of_log, batch)
        end_offset = batch.next_offset
        size += batch.size
    return replace(
        log,
        end_offset=end_offset,
        epochs=epochs,
        appended_bytes=log.appended_bytes + size,
        producers=producers,
        transactions=transactions_of_log,
    )


@rule
def truncate_to(log: UnifiedLog, offset: int) -> UnifiedLog:
    """Cuts the log's end; an offset at or past the end changes nothing.

    An offset before the log's start leaves nothing of it: the log begins afresh there. What is
    remembered of producers has to be read from what is left (effects.ReadProducers).
    """
    if offset >= log.end_offset:
        return log
    if offset < log.start_offset:
        return start_afresh_at(log, offset)
    return replace(
        log,
        end_offset=offset,
        epochs=leader_epoch_file_cache.truncate_from_end(log.epochs, offset),
        transactions=transactions.truncated(log.transactions, offset),
    )


def start_afresh_at(log: UnifiedLog, offset: int) -> UnifiedLog:
    """Drops everything; the next record has this offset."""
    return replace(
        log,
        start_offset=offset,
        end_offset=offset,
        epochs=(),
        producers=no_producers(),
        transactions=no_transactions(),
    )


def advance_start_offset(
    log: UnifiedLog, offset: int, *, forgets_producers: bool = False
) -> UnifiedLog:
    """Moves the log start offset forward, never past the end."""
    start_offset = min(max(offset, log.start_offset), log.end_offset)
    if start_offset == log.start_offset:
        return log
    producers = log.producers
    if forgets_producers:
        producers = producer_state_manager.forget_before(producers, start_offset)
    return replace(
        log,
        start_offset=start_offset,
        epochs=leader_epoch_file_cache.truncate_from_start(log.epochs, start_offset),
        producers=producers,
    )
