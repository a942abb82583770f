"""Retention: a running broker looks, every so often, at what each of its logs may delete."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.parts import RetentionDue


def look_again(node: BrokerNode) -> None:
    """After an interval, if there is one and the broker has not started anew by then."""
    interval_ms = node.network.spec.retention_check_ms
    if interval_ms is not None and node.started_us is not None:
        node.network.later(interval_ms * 1_000, RetentionDue(node.broker_id, node.started_us))


def retain(node: BrokerNode) -> Iterator[events.LogStartAdvanced]:
    """Deletes log by log, and says each time what the core must learn before the next one."""
    for tp, partition in tuple(node.core.partitions.items()):
        if node.own_disk().logs[tp].retain(partition.high_watermark):
            start_offset = node.disk.logs[tp].start_offset
            allowed = min(start_offset, partition.high_watermark)
            node.deleted[tp] = max(node.deleted.get(tp, 0), allowed)
            yield events.LogStartAdvanced(tp, start_offset)
