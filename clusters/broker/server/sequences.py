"""Producers and transactions: what a batch's header names, and what a log's batches say of all.

What is made of them is the core's to say (replication/partition/).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from neaptide.clusters.broker.replication.model import (
    Batch,
    EndTransactionMarker,
    ProducerSequence,
)
from neaptide.clusters.broker.replication.partition import (
    producer_state_manager,
    transactions,
)
from neaptide.clusters.broker.replication.partition.producer_state_manager import Producers
from neaptide.clusters.broker.replication.partition.transactions import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    Transactions,
)
from neaptide.clusters.broker.storage.errors import RecordBatchError
from neaptide.clusters.broker.storage.internal_topics import marker_of
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import BatchHeader, Bytes

_log = logging.getLogger("broker")


class LogState(NamedTuple):
    """What the batches of a log say: `aborted` in the order of their markers."""

    producers: Producers
    transactions: Transactions
    aborted: tuple[AbortedTransaction, ...]


def sequence_of(header: BatchHeader) -> ProducerSequence | None:
    """None where the producer is not idempotent, and for control records, which have none."""
    if header.producer_id < 0 or header.base_sequence < 0 or header.is_control:
        return None
    return ProducerSequence(
        header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional
    )


def marker_in(data: Bytes, at: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Raises RecordBatchError."""
    return marker_of(data, at, header) if header.is_control else None


def state_of(log: LogSnapshot, high_watermark: int) -> LogState:
    """Reads every header of the log, and its control records."""
    open_ones = NO_TRANSACTIONS
    aborted: list[AbortedTransaction] = []

    def watched() -> Iterator[Batch]:
        nonlocal open_ones
        for batch in _readable_batches(log):
            if batch.marker is not None:
                aborted.extend(transactions.aborted_by(open_ones, (batch,)))
            after = transactions.after(open_ones, batch)
            open_ones = transactions.replicated(after, high_watermark)
            yield batch

    producers = producer_state_manager.of_batches(watched())
    return LogState(producers, open_ones, tuple(aborted))


def _readable_batches(log: LogSnapshot) -> Iterator[Batch]:
    """Behind what is damaged nothing can be found: reading there is an error, starting is not."""
    try:
        for header, control in log.headers_and_control():
            yield Batch(
                header.base_offset,
                header.offset_count,
                header.leader_epoch,
                header.size,
                producer=sequence_of(header),
                marker=marker_in(control, 0, header),
            )
    except RecordBatchError as error:
        _log.warning("%s cannot be read to its end: %s", log.topic_partition, error)
