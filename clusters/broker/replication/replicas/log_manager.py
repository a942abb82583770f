"""Retention, as replication sees it: a log may start later than it did (seed 000, R9).

Which segments go, and when, is the shell's: it has the files, their times and their sizes. Nothing
above the high watermark goes. Followers hear of a leader's log start offset in Fetch responses, and
a follower whose log ends below it starts afresh there (F9, in following.py).
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError
from neaptide.clusters.broker.replication.interface.events import (
    LogStartAdvanced,
    ProducerExpiration,
)
from neaptide.clusters.broker.replication.leader.leading import complete_delayed, note_epochs
from neaptide.clusters.broker.replication.partition import producer_state_manager, unified_log


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
    note_epochs(broker, partition, before)
    broker.note(f"{event.partition}: the log starts at {log.start_offset} now")
    complete_delayed(broker, event.partition, now_ms)


def on_producer_expiration(broker: Broker, event: ProducerExpiration, now_ms: int) -> None:
    """What is known of idempotent producers is kept for as long as they may come back."""
    for partition in tuple(broker.partitions.values()):
        if partition.log.producers:
            known = producer_state_manager.expire(partition.log.producers, now_ms, event.after_ms)
            broker.put(replace(partition, log=replace(partition.log, producers=known)))
