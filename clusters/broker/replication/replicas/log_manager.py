"""What the disk reports of a broker's logs: where they start or end now, which producers they have.

As Kafka's LogManager, without the files: which segments retention deletes, and when, is the shell's
(seed 000, R9). Nothing above the high watermark goes. Followers learn a leader's log start offset
from Fetch responses, and one whose log ends below it starts afresh there (F9, follower/). A log
cleaner (compaction) would report here too.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError
from neaptide.clusters.broker.replication.interface.events import (
    LogStartAdvanced,
    LogTruncated,
    ProducerExpiration,
    ProducersRead,
)
from neaptide.clusters.broker.replication.leader.purgatory import complete_delayed
from neaptide.clusters.broker.replication.partition import (
    partition_rules,
    producer_state_manager,
    transactions,
    unified_log,
)
from neaptide.clusters.broker.replication.rule import rule


def on_log_start_advanced(broker: Broker, event: LogStartAdvanced, now_ms: int) -> None:
    """Takes over where the log starts; who waits for what is gone is answered."""
    partition = broker.partitions.get(event.partition)
    if partition is None:
        return
    if event.log_start_offset > partition.high_watermark:
        raise IllegalReplicaStateError(
            f"{event.partition}: log start offset {event.log_start_offset} is above the high"
            f" watermark {partition.high_watermark}"
        )
    before = partition.log.epochs
    log = unified_log.advance_start_offset(
        partition.log,
        event.log_start_offset,
        forgets_producers=broker.rules.forgets_deleted_producers,
    )
    partition = broker.put(replace(partition, log=log))
    broker.write_epochs(partition, before)
    broker.note(f"{event.partition}: the log starts at {log.start_offset} now")
    complete_delayed(broker, event.partition, now_ms)


def on_producer_expiration(broker: Broker, event: ProducerExpiration, now_ms: int) -> None:
    """What is known of idempotent producers is kept for as long as they may come back."""
    for partition in tuple(broker.partitions.values()):
        if partition.log.producers:
            known = producer_state_manager.expire(
                partition.log.producers,
                now_ms,
                event.after_ms,
                partition.log.transactions.ongoing,
            )
            broker.put(replace(partition, log=replace(partition.log, producers=known)))


def on_log_truncated(broker: Broker, event: LogTruncated, now_ms: int) -> None:
    """The log could only be cut before the batch that contains the offset asked for."""
    partition = broker.partitions.get(event.partition)
    if partition is None:  # deleted meanwhile
        return
    before = partition.log.epochs
    partition = broker.put(partition_rules.truncate_to(partition, event.log_end_offset))
    broker.write_epochs(partition, before)


@rule
def on_producers_read(broker: Broker, event: ProducersRead, now_ms: int) -> None:
    """What was known of batches that are cut off is forgotten, what they had pushed out is back."""
    partition = broker.partitions.get(event.partition)
    if partition is not None:
        log = replace(
            partition.log,
            producers=event.producers,
            transactions=transactions.replicated(event.transactions, partition.high_watermark),
        )
        broker.put(replace(partition, log=log))
