"""Retention: a running broker looks, every so often, at what each of its logs may delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.simulation.parts import RetentionDue

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


def look_again(world: World, broker_id: int) -> None:
    """After an interval, if there is one and the broker has not started anew by then."""
    interval_ms = world.spec.retention_check_ms
    if interval_ms is not None:
        world.later(interval_ms * 1_000, RetentionDue(broker_id, world.started_us[broker_id]))


def retain(world: World, broker_id: int) -> None:
    for tp, partition in tuple(world.brokers[broker_id].partitions.items()):
        if world.own_disk(broker_id).logs[tp].retain(partition.high_watermark):
            start_offset = world.disks[broker_id].logs[tp].start_offset
            allowed = min(start_offset, partition.high_watermark)
            world.deleted[tp] = max(world.deleted.get(tp, 0), allowed)
            world.handle(broker_id, events.LogStartAdvanced(tp, start_offset))
    look_again(world, broker_id)
