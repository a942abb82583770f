"""The producer and the sequence that a batch's header names, and what a log's headers say of all.

What is made of them is the core's to say (replication/producers.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from neaptide.clusters.broker.replication.model import Batch, ProducerSequence
from neaptide.clusters.broker.replication.partition import producer_state_manager
from neaptide.clusters.broker.replication.partition.producer_state_manager import Producers
from neaptide.clusters.broker.storage.errors import RecordBatchError
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import BatchHeader

_log = logging.getLogger("broker")


def sequence_of(header: BatchHeader) -> ProducerSequence | None:
    """None where the producer is not idempotent, and for control records, which have none."""
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return ProducerSequence(header.producer_id, header.producer_epoch, header.base_sequence)


def producers_of(log: LogSnapshot) -> Producers:
    """Reads every header of the log."""
    return producer_state_manager.of_batches(
        Batch(
            header.base_offset,
            header.offset_count,
            header.leader_epoch,
            header.size,
            producer=sequence_of(header),
        )
        for header in _readable_headers(log)
    )


def _readable_headers(log: LogSnapshot) -> Iterator[BatchHeader]:
    """Behind what is damaged nothing can be found: reading there is an error, starting is not."""
    try:
        yield from log.headers()
    except RecordBatchError as error:
        _log.warning("%s cannot be read to its end: %s", log.topic_partition, error)
