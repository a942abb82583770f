"""Deletes the oldest segments of each log, every log.retention.check.interval.ms (R9).

By time and by size, as Kafka's log manager does it; the core learns where each log starts now.
Replicas that no controller has named yet are left alone: their high watermark is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from neaptide.clusters.broker.replication.interface.events import LogStartAdvanced
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.log_manager import LogManager


def apply_retention(
    logs: LogManager,
    high_watermarks: Mapping[TopicPartition, int],
    submit: Callable[[object], None],
    now_ms: int,
) -> None:
    """One look at all logs. Raises StorageError."""
    for topic_partition, high_watermark in high_watermarks.items():
        log = logs.logs[topic_partition]
        before = log.log_start_offset
        after = log.apply_retention(now_ms, high_watermark)
        if after != before:
            submit(LogStartAdvanced(topic_partition, after))


async def keep_retention(
    logs: LogManager,
    high_watermarks: Callable[[], Mapping[TopicPartition, int]],
    submit: Callable[[object], None],
    when_free: Callable[[Callable[[], None]], None],
    interval_ms: int,
    clock: Callable[[], int],
) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        when_free(lambda: apply_retention(logs, high_watermarks(), submit, clock()))
